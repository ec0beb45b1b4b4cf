//! Telemetry sources: where the knowledge comes from which pages a process uses.
//!
//! A source is looked at from time to time. Each look tells of every page that has a frame, in which frame, and whether
//! it was accessed since the look before; so one look's interval is the precision in time of what a source knows.
//!
//! - [`PageTables`]: the hardware's accessed bits, read from the page tables and cleared through `clear_refs`. Exact to
//!   the page, and the cheapest of those that are: a table of 512 pages is read at once, and clearing touches no list
//!   or lock of the kernel's. Needs root, BTF and BPF, which distributions' kernels have.
//! - [`IdlePages`]: the same bits through idle page tracking, by frame. The kernel walks back from each frame to the
//!   tables that map it, so it costs more, but counts what other processes access, and needs no BPF. Few
//!   kernels are built with it.
//!
//! Neither loses an access but those in the moment between a look's reading and clearing. Neither is notified: that a
//! marked page was accessed is known at the next look.

mod idle_pages;
mod page_tables;

use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use spillway_sys::page_tables::PageTablesError;
use thiserror::Error;

pub use idle_pages::IdlePages;
pub use page_tables::PageTables;

/// A page as a look found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// First address.
    pub address: u64,
    /// First frame, in pages of 4 KiB.
    pub frame: u64,
    /// Pages of 4 KiB that are mapped as one.
    pub pages: u32,
    /// Whether it was accessed since the look before.
    pub accessed: bool,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Its name.
    pub name: &'static str,
    /// To what its knowledge is exact.
    pub precision: &'static str,
    /// What a look costs.
    pub cost: &'static str,
}

/// Why a source cannot be looked at.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The process is gone.
    #[error("process {0}: gone")]
    Gone(u32),
    /// The kernel has not got it, or does not let us.
    #[error("telemetry source {name}: {reason}; 'spillway doctor' lists those that work here")]
    Unavailable {
        /// Which.
        name: &'static str,
        /// Why not.
        reason: String,
    },
    /// No source works.
    #[error(
        "telemetry: no source works here: {0}; run as root, or on a kernel with BTF and BPF or with CONFIG_IDLE_PAGE_TRACKING"
    )]
    None(String),
    /// It worked before, and does no longer.
    #[error("telemetry source {name}: {error}; it worked before, so the machine has changed")]
    Lost {
        /// Which.
        name: &'static str,
        /// What the kernel said.
        error: Errno,
    },
}

impl From<PageTablesError> for SourceError {
    fn from(error: PageTablesError) -> Self {
        match error {
            PageTablesError::Gone(process) => Self::Gone(process),
            other => Self::Unavailable { name: page_tables::FACTS.name, reason: other.to_string() },
        }
    }
}

/// Tells which pages are used.
pub trait Source: Send {
    /// What it is.
    fn facts(&self) -> Facts;

    /// Tells `visit` of every page with a frame in these ranges of a process's addresses, in order of address within a
    /// range, and begins anew.
    ///
    /// # Errors
    /// The process is gone, or the source is.
    fn look(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError>;
}

/// Which source to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The best that the kernel offers.
    #[default]
    Auto,
    /// [`PageTables`].
    PageTables,
    /// [`IdlePages`].
    IdlePages,
}

/// The names of the sources, in order of preference.
const NAMES: [(&str, Choice); 3] =
    [("auto", Choice::Auto), ("page-tables", Choice::PageTables), ("idle-pages", Choice::IdlePages)];

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("'{text}' is no telemetry source; take one of {names}")
        })
    }
}

/// Opens a source.
///
/// # Errors
/// It does not work here.
pub fn open(choice: Choice) -> Result<Box<dyn Source>, SourceError> {
    let page_tables = || PageTables::open().map(|source| Box::new(source) as Box<dyn Source>);
    let idle_pages = || IdlePages::open(Path::new("/")).map(|source| Box::new(source) as Box<dyn Source>);
    match choice {
        Choice::PageTables => page_tables(),
        Choice::IdlePages => idle_pages(),
        Choice::Auto => page_tables()
            .or_else(|first| idle_pages().map_err(|second| SourceError::None(format!("{first}; {second}")))),
    }
}

/// Each source, with why it does not work here if it does not.
#[must_use]
pub fn available() -> Vec<(Facts, Option<SourceError>)> {
    vec![
        (page_tables::FACTS, PageTables::open().err()),
        (idle_pages::FACTS, IdlePages::open(Path::new("/")).err()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_chosen_by_name() {
        assert_eq!("idle-pages".parse(), Ok(Choice::IdlePages));
        let error = "pebs".parse::<Choice>().unwrap_err();
        assert!(error.contains("'pebs'") && error.contains("page-tables"), "{error}");
    }

    #[test]
    fn a_kernel_that_offers_anything_is_used() {
        let works: Vec<_> =
            available().into_iter().filter(|(_, error)| error.is_none()).map(|(facts, _)| facts).collect();
        match open(Choice::Auto) {
            Ok(source) => assert_eq!(source.facts(), works[0]),
            Err(error) => assert!(works.is_empty(), "{error}"),
        }
    }
}
