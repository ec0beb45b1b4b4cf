//! Which far pages a thread will fault on next, by the distances between the pages that it faulted on: for
//! programs that step through memory in strides, backwards, or in rounds, where no page is its neighbour's.
//!
//! - [`trend`]: Leap's majority trend.
//! - [`rounds`]: distances that come again in the same order.
//! - [`trust`]: whether a thread uses what is asked for it.
//! - [`follower`]: one thread's history, what is expected of it, and how much of that is worth a fetch.
//!
//! No I/O, no clock, no allocation: a fault may ask.

pub mod follower;
pub mod history;
pub mod rounds;
pub mod trend;
pub mod trust;

pub use follower::{Follower, Foresight, MOST_AHEAD_PAGES};
