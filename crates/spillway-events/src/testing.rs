//! For tests: what is told meanwhile.

use std::fs::OpenOptions;
use std::io;

use tracing_subscriber::layer::SubscriberExt;

use crate::format::Format;
use crate::lines::Lines;
use crate::outlet::Outlet;

/// The lines of the events that this thread tells while `tell` runs.
///
/// # Errors
/// There is no place for them.
pub fn told(format: Format, tell: impl FnOnce()) -> io::Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    let lines = Lines::new(format, Outlet::file(OpenOptions::new().append(true).open(file.path())?));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), tell);
    std::fs::read_to_string(file.path())
}
