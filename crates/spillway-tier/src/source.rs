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
//! - [`HardwareSamples`]: some of the loads, as the processor samples them. Needs PEBS or IBS, which few guests have.
//! - [`Damon`]: whole regions of frames, as the kernel samples a page of each.
//! - [`HintFaults`]: faults on the pages that NUMA balancing marks, with their time, beside the accessed bits.
//!
//! That is also the order in which they are tried where none is named: what is exact to the page comes first, and last what makes
//! the program fault and the kernel's own balancing go on.
//!
//! Those that read accessed bits lose no access but those in the moment between a look's reading and clearing; that a marked page was
//! accessed is known at the next look. Hint faults and samples are told of by themselves, with their time.

mod damon;
mod frames_only;
mod hardware_samples;
mod hint_faults;
mod idle_pages;
mod notified;
mod page_map;
mod page_tables;

use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use spillway_sys::access_events::Access;
use spillway_sys::mark_events::Marked;
use spillway_sys::page_tables::PageTablesError;
use thiserror::Error;

pub use damon::Damon;
pub use hardware_samples::HardwareSamples;
pub use hint_faults::HintFaults;
pub use idle_pages::IdlePages;
pub use page_tables::PageTables;

use crate::settings::{Settings, SettingsError};

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
    #[error("telemetry: no source works here: {0}; run as root, or on a kernel with BTF and BPF")]
    None(String),
    /// It worked before, and does no longer.
    #[error("telemetry source {name}: {error}; it worked before, so the machine has changed")]
    Lost {
        /// Which.
        name: &'static str,
        /// What the kernel said.
        error: Errno,
    },
    /// A setting that it needs is no longer what it was set to.
    #[error(
        "telemetry source {name}: {setting} is '{value}' now, set by another; leave it while this runs, or take another source"
    )]
    Changed {
        /// Which.
        name: &'static str,
        /// The setting.
        setting: String,
        /// What it is.
        value: String,
    },
}

/// What a source was told, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceCounts {
    /// Accesses that it was told of by themselves: faults or samples.
    pub accesses: u64,
    /// The same, lost because there was no room for them.
    pub lost: u64,
    /// Times that the kernel was seen to mark a range of memory.
    pub marks: u64,
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

    /// To what its knowledge is exact, with what is known only here and now.
    fn precision(&self) -> String {
        self.facts().precision.to_owned()
    }

    /// Changes what settings of the kernel it needs changed.
    ///
    /// # Errors
    /// One cannot be.
    fn begin(&mut self, _settings: &mut Settings) -> Result<(), SettingsError> {
        Ok(())
    }

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

    /// Accesses that it was told of by themselves since this was last asked, in the order of time. The next look counts them too.
    fn take_accesses(&mut self) -> Vec<Access> {
        Vec::new()
    }

    /// When the kernel marked memory, since this was last asked. Asked after [`Self::take_accesses`], it knows of every mark that led
    /// to one of those.
    fn take_marks(&mut self) -> Vec<Marked> {
        Vec::new()
    }

    /// Whether the kernel marks far pages, and this tells when, and of the faults.
    fn tells_marks(&self) -> bool {
        false
    }

    /// How long accesses may wait to be taken; none where there are none.
    fn longest_wait(&self) -> Option<Duration> {
        None
    }

    /// How long it knows nothing new after a look.
    fn least_interval(&self) -> Duration {
        Duration::ZERO
    }

    /// A process is looked at no longer.
    fn forget(&mut self, _process: u32) {}

    /// What it was told.
    fn counts(&self) -> SourceCounts {
        SourceCounts::default()
    }
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
    /// [`HardwareSamples`].
    HardwareSamples,
    /// [`Damon`].
    Damon,
    /// [`HintFaults`].
    HintFaults,
}

/// A source by name, and how it is opened.
struct Entry {
    choice: Choice,
    facts: Facts,
    open: fn() -> Result<Box<dyn Source>, SourceError>,
}

fn boxed<S: Source + 'static>(source: Result<S, SourceError>) -> Result<Box<dyn Source>, SourceError> {
    source.map(|source| Box::new(source) as Box<dyn Source>)
}

/// The sources, in order of preference.
const SOURCES: [Entry; 5] = [
    Entry { choice: Choice::PageTables, facts: page_tables::FACTS, open: || boxed(PageTables::open()) },
    Entry {
        choice: Choice::IdlePages,
        facts: idle_pages::FACTS,
        open: || boxed(IdlePages::open(Path::new("/"))),
    },
    Entry {
        choice: Choice::HardwareSamples,
        facts: hardware_samples::FACTS,
        open: || boxed(HardwareSamples::open()),
    },
    Entry { choice: Choice::Damon, facts: damon::FACTS, open: || boxed(Damon::open(Path::new("/"))) },
    Entry { choice: Choice::HintFaults, facts: hint_faults::FACTS, open: || boxed(HintFaults::open()) },
];

/// What stands for the first that works.
const AUTO: &str = "auto";

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = SOURCES.iter().find(|entry| entry.facts.name == text).map(|entry| entry.choice);
        named.or((text == AUTO).then_some(Self::Auto)).ok_or_else(|| {
            let names = SOURCES.map(|entry| entry.facts.name).join(", ");
            format!("'{text}' is no telemetry source; take {AUTO} or one of {names}")
        })
    }
}

/// A source, and why it is this one.
pub struct Chosen {
    /// The source.
    pub source: Box<dyn Source>,
    /// Why.
    pub why: String,
}

/// Opens a source. Changes nothing yet: [`Source::begin`] does.
///
/// # Errors
/// It does not work here.
pub fn open(choice: Choice) -> Result<Chosen, SourceError> {
    if let Some(entry) = SOURCES.iter().find(|entry| entry.choice == choice) {
        return Ok(Chosen { source: (entry.open)()?, why: "it was named".to_owned() });
    }
    first_of(SOURCES.iter().map(|entry| entry.open))
}

/// The first that works.
fn first_of(
    sources: impl Iterator<Item = fn() -> Result<Box<dyn Source>, SourceError>>,
) -> Result<Chosen, SourceError> {
    let mut failed = Vec::new();
    for open in sources {
        match open() {
            Ok(source) => {
                let why = ["the first in order of preference that works here".to_owned()];
                return Ok(Chosen {
                    source,
                    why: why.into_iter().chain(failed).collect::<Vec<_>>().join("; "),
                });
            }
            Err(SourceError::Unavailable { name, reason }) => failed.push(format!("{name}: {reason}")),
            Err(error) => failed.push(error.to_string()),
        }
    }
    Err(SourceError::None(failed.join("; ")))
}

/// Each source, with why it does not work here if it does not.
#[must_use]
pub fn available() -> Vec<(Facts, Option<SourceError>)> {
    SOURCES.iter().map(|entry| (entry.facts, (entry.open)().err())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_chosen_by_name() {
        for entry in SOURCES {
            assert_eq!(entry.facts.name.parse(), Ok(entry.choice));
            let written = serde_json::to_value(entry.choice).unwrap();
            assert_eq!(written, entry.facts.name, "in a file as on the command line");
        }
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        let error = "pebs".parse::<Choice>().unwrap_err();
        assert!(
            error.contains("'pebs'") && SOURCES.iter().all(|entry| error.contains(entry.facts.name)),
            "{error}"
        );
    }

    #[test]
    fn a_kernel_that_offers_anything_is_used_and_the_reason_told() {
        let works: Vec<_> =
            available().into_iter().filter(|(_, error)| error.is_none()).map(|(facts, _)| facts).collect();
        match open(Choice::Auto) {
            Ok(chosen) => {
                assert_eq!(chosen.source.facts(), works[0]);
                assert!(chosen.why.contains("order of preference"), "{}", chosen.why);
            }
            Err(error) => assert!(works.is_empty(), "{error}"),
        }
    }

    #[test]
    fn those_passed_over_are_named_with_their_reason() {
        type Open = fn() -> Result<Box<dyn Source>, SourceError>;
        let refused: Open = || Err(SourceError::Unavailable { name: "one", reason: "not built in".into() });
        let works: Open = || Ok(Box::new(crate::fake_kernel::FakeKernel::default()));
        let chosen = first_of([refused, works].into_iter()).unwrap();
        assert!(chosen.why.contains("one: not built in"), "{}", chosen.why);
        let error = first_of([refused, refused].into_iter()).err().unwrap().to_string();
        assert!(error.contains("one: not built in") && error.contains("run as root"), "{error}");
    }
}
