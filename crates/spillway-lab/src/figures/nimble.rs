//! Nimble in its two readings, which differ in how large a batch is ([`spillway_policy::nimble`]). Figures
//! show both and compare with the better: in each cell that of the shorter run.

use crate::run::Report;

/// With base pages: batches of the larger count, and of the smaller.
pub(super) const BASE: [&str; 2] = ["nimble-base", "nimble-base-smaller"];
/// The same with huge pages.
pub(super) const HUGE: [&str; 2] = ["nimble-huge", "nimble-huge-smaller"];

/// The shorter run of two.
pub(super) fn better<'a>(one: &'a Report, other: &'a Report) -> &'a Report {
    if other.run_s < one.run_s { other } else { one }
}
