//! Telemetry sources: where the knowledge comes from which pages a process uses.
//!
//! A source is scanned from time to time. Each scan tells of every page that has a frame, in which frame, and
//! whether it was accessed since the scan before; so one scan's interval is the precision in time of what a
//! source knows.
//!
//! - [`PageTables`]: the hardware's accessed bits, read from the page tables and cleared through
//!   `clear_refs`. Exact to the page, and the cheapest of those that are: a table of 512 pages is read at
//!   once, and clearing touches no list or lock of the kernel's. Needs root, BTF and BPF, which
//!   distributions' kernels have.
//! - [`IdlePages`]: the same bits through idle page tracking, by frame. The kernel walks back from each frame
//!   to the tables that map it, so it costs more, but counts what other processes access, and needs no BPF.
//!   Few kernels are built with it.
//! - [`HardwareSamples`]: some of the loads, as the processor samples them. Needs PEBS or IBS, which few
//!   guests have.
//! - [`Damon`]: whole regions of frames, as the kernel samples a page of each.
//! - [`HintFaults`]: faults on the pages that NUMA balancing marks, with their time, beside the accessed
//!   bits.
//!
//! That is also the order in which they are tried where none is named: what is exact to the page comes first,
//! and last what makes the program fault and the kernel's own balancing go on.
//!
//! Those that read accessed bits lose no access but those in the moment between a scan's reading and
//! clearing; that a marked page was accessed is known at the next scan. Hint faults and samples are told of
//! by themselves, with their time.

mod damon;
mod frames_only;
mod hardware_samples;
mod hint_faults;
mod idle_pages;
mod notified;
mod page_map;
mod page_tables;
mod telemetry;

use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use damon::Damon;
pub use hardware_samples::HardwareSamples;
pub use hint_faults::HintFaults;
pub use idle_pages::IdlePages;
pub use page_tables::PageTables;
pub use telemetry::{Facts, Seen, Source, SourceCounts, SourceError};

/// Which source to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The best that the kernel offers.
    #[default]
    Auto,
    /// Accessed bits of page tables: [`PageTables`].
    PageTables,
    /// Idle page tracking by frame: [`IdlePages`].
    IdlePages,
    /// Loads that the processor samples: [`HardwareSamples`].
    HardwareSamples,
    /// Regions of frames by the kernel's DAMON: [`Damon`].
    Damon,
    /// Faults at pages that NUMA balancing marks: [`HintFaults`].
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
    /// The source itself, opened and not yet begun.
    pub source: Box<dyn Source>,
    /// Why it is this one, in words.
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
