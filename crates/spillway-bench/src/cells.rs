//! What is compared: the usual selections, and what the user asks for in their place.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::access::{Data, Pattern};

/// Where far pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum StoreKind {
    /// `ram:`, plain memory of this machine.
    Ram,
    /// `compressed:`, compressed memory of this machine.
    Compressed,
    /// A donor on this machine, by shared memory.
    Shm,
    /// A donor on this machine, by TCP.
    NbdTcp,
    /// A donor on this machine, by a Unix socket.
    NbdUnix,
}

impl StoreKind {
    /// Its name as in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::Compressed => "compressed",
            Self::Shm => "shm",
            Self::NbdTcp => "nbd_tcp",
            Self::NbdUnix => "nbd_unix",
        }
    }

    /// The data for which one takes this store.
    fn usual_data(self) -> Data {
        if self == Self::Compressed { Data::Compressible } else { Data::Random }
    }
}

/// Who serves faults: `--fault-mode` of `spillway run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum FaultMode {
    /// A thread of the pager's.
    Thread,
    /// The faulting thread serves its own faults.
    Inline,
}

impl FaultMode {
    /// Its name as on the command line and in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Inline => "inline",
        }
    }

    /// Whether faults can be served so from a store. A donor makes them wait.
    #[must_use]
    pub fn suits(self, store: StoreKind) -> bool {
        self == Self::Thread || matches!(store, StoreKind::Ram | StoreKind::Compressed)
    }
}

/// A program and a limit, to be run on several stores and on swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Order of the accesses.
    pub pattern: Pattern,
    /// How many threads access memory.
    pub threads: usize,
    /// Share of the memory that may be local, in percent.
    pub local_pct: u64,
    /// What the memory holds.
    pub data: Data,
}

/// A setting and the stores on which it is compared with swap, all in turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What runs on both sides.
    pub setting: Setting,
    /// Where its far pages go.
    pub stores: Vec<StoreKind>,
}

/// What the user asks for: an empty list leaves the usual.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The orders of accesses.
    pub patterns: Vec<Pattern>,
    /// The stores of Spillway's side.
    pub stores: Vec<StoreKind>,
    /// The numbers of threads.
    pub threads: Vec<usize>,
    /// Shares of memory that is local.
    pub local_pcts: Vec<u64>,
    /// What the memory holds, one after the other.
    pub data: Vec<Data>,
}

/// All combinations of these are measured.
struct Product {
    patterns: &'static [Pattern],
    stores: &'static [StoreKind],
    threads: &'static [usize],
    local_pcts: &'static [u64],
}

use Pattern::{RandomRead, RandomWrite, SequentialRead, SequentialRw, Strided, TwoPhase, Zipf};
use StoreKind::{Compressed, NbdTcp, NbdUnix, Ram, Shm};

const ALL_PATTERNS: &[Pattern] =
    &[RandomRead, RandomWrite, Zipf, SequentialRead, SequentialRw, Strided, TwoPhase];
const TELLING_PATTERNS: &[Pattern] = &[RandomRead, RandomWrite, SequentialRead, SequentialRw];

/// The most telling first: a quick run may end before the last.
const QUICK: &[Product] = &[
    Product { patterns: TELLING_PATTERNS, stores: &[Ram], threads: &[1], local_pcts: &[25] },
    Product { patterns: TELLING_PATTERNS, stores: &[Compressed], threads: &[1], local_pcts: &[25] },
    Product {
        patterns: &[RandomRead, SequentialRead],
        stores: &[Shm, NbdTcp, NbdUnix],
        threads: &[1],
        local_pcts: &[25],
    },
    Product { patterns: &[Zipf, Strided, TwoPhase], stores: &[Ram], threads: &[1], local_pcts: &[25] },
    Product { patterns: TELLING_PATTERNS, stores: &[Ram], threads: &[2], local_pcts: &[25] },
];

const WHOLE: &[Product] = &[
    Product { patterns: ALL_PATTERNS, stores: &[Ram], threads: &[1], local_pcts: &[25, 50, 75] },
    Product { patterns: ALL_PATTERNS, stores: &[Shm, NbdTcp, NbdUnix], threads: &[1], local_pcts: &[25] },
    Product { patterns: ALL_PATTERNS, stores: &[Compressed], threads: &[1], local_pcts: &[25, 50, 75] },
    Product { patterns: ALL_PATTERNS, stores: &[Ram], threads: &[2, 4], local_pcts: &[25] },
];

fn either<'a, T>(wanted: &'a [T], usual: &'a [T]) -> &'a [T] {
    if wanted.is_empty() { usual } else { wanted }
}

/// The usual selection, or a few of it, with what is wanted in place of the usual.
#[must_use]
pub fn groups(quick: bool, wanted: &Wanted) -> Vec<Group> {
    let mut groups = Vec::new();
    for product in if quick { QUICK } else { WHOLE } {
        for &pattern in either(&wanted.patterns, product.patterns) {
            for &threads in either(&wanted.threads, product.threads) {
                for &local_pct in either(&wanted.local_pcts, product.local_pcts) {
                    for &store in either(&wanted.stores, product.stores) {
                        for &data in either(&wanted.data, &[store.usual_data()]) {
                            add(&mut groups, Setting { pattern, threads, local_pct, data }, store);
                        }
                    }
                }
            }
        }
    }
    groups
}

fn add(groups: &mut Vec<Group>, setting: Setting, store: StoreKind) {
    match groups.iter_mut().find(|group| group.setting == setting) {
        Some(group) if group.stores.contains(&store) => {}
        Some(group) => group.stores.push(store),
        None => groups.push(Group { setting, stores: vec![store] }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a cell is among the groups.
    fn count(groups: &[Group], setting: Setting, store: StoreKind) -> usize {
        let groups = groups.iter().filter(|group| group.setting == setting);
        groups.map(|group| group.stores.iter().filter(|&&other| other == store).count()).sum()
    }

    #[test]
    fn the_usual_selection_has_every_pattern_share_thread_count_and_store() {
        let groups = groups(false, &Wanted::default());
        for &pattern in Pattern::value_variants() {
            let random = Setting { pattern, threads: 1, local_pct: 25, data: Data::Random };
            for local_pct in [25, 50, 75] {
                assert_eq!(count(&groups, Setting { local_pct, ..random }, Ram), 1);
                let compressible = Setting { local_pct, data: Data::Compressible, ..random };
                assert_eq!(count(&groups, compressible, Compressed), 1);
            }
            for threads in [2, 4] {
                assert_eq!(count(&groups, Setting { threads, ..random }, Ram), 1);
            }
            for store in [Shm, NbdTcp, NbdUnix] {
                assert_eq!(count(&groups, random, store), 1);
            }
        }
    }

    #[test]
    fn a_quick_selection_has_every_pattern_and_every_store() {
        let groups = groups(true, &Wanted::default());
        for &pattern in Pattern::value_variants() {
            assert!(groups.iter().any(|group| group.setting.pattern == pattern), "{pattern:?}");
        }
        for &store in StoreKind::value_variants() {
            assert!(groups.iter().any(|group| group.stores.contains(&store)), "{store:?}");
        }
    }

    #[test]
    fn what_is_wanted_takes_the_place_of_the_usual_once_each() {
        for quick in [true, false] {
            let wanted = Wanted {
                patterns: vec![Zipf],
                stores: vec![NbdTcp],
                threads: vec![3],
                local_pcts: vec![60],
                data: vec![Data::Random, Data::Compressible],
            };
            let groups = groups(quick, &wanted);
            assert_eq!(groups.len(), 2);
            for data in wanted.data {
                let setting = Setting { pattern: Zipf, threads: 3, local_pct: 60, data };
                assert_eq!(count(&groups, setting, NbdTcp), 1);
            }
        }
    }
}
