//! `pool:HOST:PORT,...`: several donors, each page on several of them. What must happen in which order is the
//! business of the crate `spillway-pool`; here is the I/O, over stores of [`crate::nbd`].
//!
//! | file | holds |
//! |---|---|
//! | `start` | a run's start: copies or coded pages, how much room, and what the run's processes share |
//! | `attempt` | one attempt to start, by one of these |
//! | `begin` | each donor is asked for memory |
//! | `claimed` | a donor that is an NBD server of another kind is claimed |
//! | `donor_store` | a donor as a store of its own |
//! | `shared` | the pool as one process sees it: the table, and its ways to each donor |
//! | `donor_lanes` | a thread's lanes to the donors |
//! | `lane` | reads, and what is waited for |
//! | `part` | one donor's part of a read, and what is asked of another where that one is silent |
//! | `silence` | how long an answer is waited for before another is asked, and who answers first |
//! | `writes` | writes and discards |
//! | `site` | what the supervisor's threads share |
//! | `care` | the supervisor's threads |
//! | `watcher` | one asks a donor how it is |
//! | `rebuilder` | one has lost copies made anew, and those of donors that leave moved |
//! | `copier` | what its workers do |
//! | `crew` | workers beside each other, and their pace |
//! | `newcomers` | one learns of donors that come |
//! | `spill` | the last resort: a file for what donors have no room for |
//! | `spill_watch` | one looks after it |
//! | `coded` | pages that are coded in place of copied |
//! | `store` | the pool as the rest of Spillway sees it |

mod attempt;
mod begin;
mod care;
mod claimed;
mod coded;
mod copier;
mod crew;
mod donor_lanes;
mod donor_store;
mod lane;
mod newcomers;
mod part;
mod rebuilder;
mod shared;
mod silence;
mod site;
mod spill;
mod spill_watch;
mod start;
mod store;
mod watcher;
mod writes;

pub(crate) use start::prepare;
pub(crate) use store::open;
