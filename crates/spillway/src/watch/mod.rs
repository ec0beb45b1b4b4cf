//! What a run tells of itself while it goes on, and how it is asked.
//!
//! - [`run_snapshot`]: reads the run's counters;
//! - [`teller`]: the thread that answers whoever asks, beside the supervisor;
//! - [`metrics`]: the same numbers as OpenMetrics text;
//! - [`http`]: how Prometheus asks for them, and a browser for the dashboard;
//! - [`endpoint`]: where it asks.
//!
//! Invariant: nobody who asks can hold up the run: the supervisor's own loop has no part in this.

pub mod endpoint;
pub mod http;
pub mod metrics;
pub mod run_snapshot;
pub mod teller;
