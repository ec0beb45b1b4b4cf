//! What happens in a donor, a run's supervisor or the tier daemon, as events: each with a name that stays,
//! with fields that carry their units, and with a sentence for people.
//!
//! Who has something to tell calls a function of [`catalogue`], which is an event of `tracing`. [`begin`] has
//! events written down, a line each: as text, or as JSON objects; or has systemd's journal told of them.
//! Nothing of this enters programs: their pagers note what they have to tell in the run's state, and the
//! supervisor makes events of it.

mod allowance;
pub mod catalogue;
mod format;
mod journal;
mod lines;
mod outlet;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::fs::File;

use tracing_subscriber::layer::SubscriberExt;

pub use catalogue::{ALL, Described, Manner};
pub use format::Format;
pub use lines::Lines;
pub use outlet::Outlet;

/// Has the events of this process written to stderr from now on, or to the end of a file. Where stderr is the
/// journal, and text was asked for, it is told them with their names and fields. The first call counts.
pub fn begin(format: Format, file: Option<File>) {
    let outlet = file.map_or_else(Outlet::stderr, Outlet::file);
    let lines = Lines::new(format, outlet);
    let lines = if format == Format::Text { lines.with_fields_for_journal() } else { lines };
    let lines = tracing_subscriber::registry().with(lines);
    // Somebody else's subscriber, if there is one, hears of them in its own way.
    let _ = tracing::subscriber::set_global_default(lines);
}
