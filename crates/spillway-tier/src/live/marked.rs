//! What a group knows of its markers.

use std::collections::BTreeSet;

/// What markers do for a group.
#[derive(Debug, Default)]
pub struct Holds {
    /// Processes with a marker.
    pub(super) processes: BTreeSet<u32>,
    /// Pages that markers are to be told of, by process and address.
    pub(super) wanted: Vec<(u32, u64)>,
}
