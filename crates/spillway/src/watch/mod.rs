//! What a run or a donor tells of itself while it goes on, and how it is asked.
//!
//! - [`run_snapshot`], [`donor_snapshot`]: read a run's counters, and how a donor stands;
//! - [`run_explained`], [`run_heat`]: why a page of a run's is where it is, and where all are;
//! - [`marks`]: what a run had counted before;
//! - [`run_sites`]: where its programs wait for pages, by the names that [`symbols`] finds, [`demangled`],
//!   and in which calls, by [`unwinding`]; [`sleepers`] sees threads from outside;
//! - [`teller`]: the thread that answers whoever asks, beside the supervisor or the donor's own;
//! - [`writer`], [`metrics`], [`donor_metrics`]: the same numbers as OpenMetrics text;
//! - [`http`]: how Prometheus asks for them, and a browser for the dashboard;
//! - [`endpoint`]: where it asks;
//! - `snapshot_page`: the test that the pages name the keys that are told.
//!
//! Invariant: nobody who asks can hold up a run or a donor: their own loops have no part in this.

mod demangled;
pub mod donor_metrics;
pub mod donor_snapshot;
pub mod endpoint;
pub mod http;
mod marks;
pub mod metrics;
pub mod run_explained;
pub mod run_heat;
mod run_sites;
pub mod run_snapshot;
mod sleepers;
#[cfg(test)]
mod snapshot_page;
mod symbols;
pub mod teller;
pub mod tier_metrics;
mod unwinding;
pub mod writer;
