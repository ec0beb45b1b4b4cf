//! The lab: simulated time, in which the policies that run live meet the workloads of the papers.
//!
//! - [`access`]: what a workload does to memory, as a stream that a simulator or a trace takes in
//! - [`advise`], [`sweep`]: many runs, for an answer or for a table
//! - [`figures`]: the papers' figures and their claims
//! - [`clairvoyant`]: what no choice of residency can beat
//! - [`judge`]: our own policy against its rivals and the bound, on cells that nothing was tuned on
//! - [`sensitivity`]: what becomes of the claims when a constant of the time model is another one
//! - [`chart`], [`report`]: results to look at
//! - [`run`]: a workload under a policy on a platform, and what came of it
//! - [`simulator`]: tiered memory in simulated time
//! - [`workload`]: what a workload is: an algorithm in tasks and steps
//! - [`memory`]: arrays that note their accesses
//! - [`workloads`]: the papers' workloads, by name
//! - [`train`]: an agent, from what comes of runs
//! - [`trace`]: accesses in files: recorded, imported, repeated
//! - [`predict`]: how often the pager would fetch, by a memory trace; [`bounds`]: how seldom any could;
//!   [`calibration`]: what a fetch takes on a machine
//! - [`replay_faults`]: what a live pager did, step by step once more
//! - [`replay`]: hits and misses of a page trace under LRU, FIFO, CLOCK, SIEVE and Belady's optimum;
//!   [`misses`]: the same of a memory trace

pub mod access;
pub mod advise;
pub mod bounds;
pub mod calibration;
pub mod clairvoyant;
pub mod figures;
pub mod judge;
pub mod memory;
pub mod misses;
pub mod predict;
pub mod replay;
pub mod replay_faults;
pub mod report;
pub mod run;
pub mod sensitivity;
pub mod simulator;
pub mod sweep;
pub mod trace;
pub mod train;
pub mod workload;
pub mod workloads;
