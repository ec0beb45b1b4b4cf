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
//! - [`CounterSamples`]: some of the accesses that miss the caches, as whoever offers `--counters` samples
//!   them.
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

mod counter_samples;
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

pub use counter_samples::CounterSamples;
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
    /// Accesses that a hypervisor or an emulator samples: [`CounterSamples`].
    CounterSamples,
    /// Regions of frames by the kernel's DAMON: [`Damon`].
    Damon,
    /// Faults at pages that NUMA balancing marks: [`HintFaults`].
    HintFaults,
}

/// A source by name, and how it is opened.
struct Entry {
    choice: Choice,
    facts: Facts,
    /// Whether it takes samples of accesses, which some policies cannot do without.
    samples: bool,
    open: Open,
}

/// Opens a source, which may take its knowledge from a file of counters.
type Open = fn(Option<&Path>) -> Result<Box<dyn Source>, SourceError>;

fn boxed<S: Source + 'static>(source: Result<S, SourceError>) -> Result<Box<dyn Source>, SourceError> {
    source.map(|source| Box::new(source) as Box<dyn Source>)
}

/// The sources, in order of preference.
const SOURCES: [Entry; 6] = [
    Entry {
        choice: Choice::PageTables,
        facts: page_tables::FACTS,
        samples: false,
        open: |_| boxed(PageTables::open()),
    },
    Entry {
        choice: Choice::IdlePages,
        facts: idle_pages::FACTS,
        samples: false,
        open: |_| boxed(IdlePages::open(Path::new("/"))),
    },
    Entry {
        choice: Choice::HardwareSamples,
        facts: hardware_samples::FACTS,
        samples: true,
        open: |_| boxed(HardwareSamples::open()),
    },
    Entry {
        choice: Choice::CounterSamples,
        facts: counter_samples::FACTS,
        samples: true,
        open: |counters| boxed(CounterSamples::open(counters)),
    },
    Entry {
        choice: Choice::Damon,
        facts: damon::FACTS,
        samples: false,
        open: |_| boxed(Damon::open(Path::new("/"))),
    },
    Entry {
        choice: Choice::HintFaults,
        facts: hint_faults::FACTS,
        samples: false,
        open: |_| boxed(HintFaults::open()),
    },
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

/// What is asked of a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Which source, by its name.
    pub choice: Choice,
    /// It must take samples, for the policies' sake.
    pub samples: bool,
    /// A file of counters, which may have samples.
    pub counters: Option<&'a Path>,
}

/// Opens a source. Changes nothing yet: [`Source::begin`] does.
///
/// # Errors
/// It does not work here.
pub fn open(wanted: Wanted<'_>) -> Result<Chosen, SourceError> {
    if let Some(entry) = SOURCES.iter().find(|entry| entry.choice == wanted.choice) {
        return Ok(Chosen { source: (entry.open)(wanted.counters)?, why: "it was named".to_owned() });
    }
    let fitting = SOURCES.iter().filter(|entry| entry.samples || !wanted.samples);
    let chosen = first_of(fitting.map(|entry| entry.open), wanted.counters)?;
    let why = if wanted.samples { format!("{}; others take no samples", chosen.why) } else { chosen.why };
    Ok(Chosen { why, ..chosen })
}

/// The names of the sources that take samples of accesses.
#[must_use]
pub fn that_sample() -> Vec<&'static str> {
    SOURCES.iter().filter(|entry| entry.samples).map(|entry| entry.facts.name).collect()
}

impl Choice {
    /// Whether it takes samples of accesses, or may be one that does.
    #[must_use]
    pub fn may_sample(self) -> bool {
        SOURCES.iter().find(|entry| entry.choice == self).is_none_or(|entry| entry.samples)
    }
}

/// The first that works.
fn first_of(sources: impl Iterator<Item = Open>, counters: Option<&Path>) -> Result<Chosen, SourceError> {
    let mut failed = Vec::new();
    for open in sources {
        match open(counters) {
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
    SOURCES.iter().map(|entry| (entry.facts, (entry.open)(None).err())).collect()
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
        match open(Wanted::default()) {
            Ok(chosen) => {
                assert_eq!(chosen.source.facts(), works[0]);
                assert!(chosen.why.contains("order of preference"), "{}", chosen.why);
            }
            Err(error) => assert!(works.is_empty(), "{error}"),
        }
    }

    #[test]
    fn those_passed_over_are_named_with_their_reason() {
        let refused: Open = |_| Err(SourceError::Unavailable { name: "one", reason: "not built in".into() });
        let works: Open = |_| Ok(Box::new(crate::fake_kernel::FakeKernel::default()));
        let chosen = first_of([refused, works].into_iter(), None).unwrap();
        assert!(chosen.why.contains("one: not built in"), "{}", chosen.why);
        let error = first_of([refused, refused].into_iter(), None).err().unwrap().to_string();
        assert!(error.contains("one: not built in") && error.contains("run as root"), "{error}");
    }

    #[test]
    fn where_policies_need_samples_only_sources_that_take_them_are_tried() {
        let writer = crate::sample_ring::tests::Writer::new(0);
        let wanted = Wanted { samples: true, counters: Some(writer.path()), ..Wanted::default() };
        let chosen = open(wanted).unwrap();
        assert!(that_sample().contains(&chosen.source.facts().name) && chosen.why.contains("no samples"));
        let named = open(Wanted { choice: Choice::CounterSamples, ..wanted }).unwrap();
        assert_eq!(named.source.facts().name, "counter-samples");
        if let Err(error) = open(Wanted { counters: None, ..wanted }) {
            let error = error.to_string();
            assert!(error.contains("--counters FILE") && !error.contains("page-tables"), "{error}");
        }
        assert!(Choice::Auto.may_sample() && !Choice::Damon.may_sample());
    }
}
