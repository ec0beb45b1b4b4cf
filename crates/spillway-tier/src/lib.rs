//! The daemon that applies the policies to running processes on a machine with fast and slow memory nodes.
//!
//! From the kernel upwards:
//! - [`nodes`]: which memory nodes there are, and which are fast; [`settings`]: what the kernel does by
//!   itself, and settings that are put back
//! - [`process`]: processes, and which of their memory may move
//! - [`source`]: telemetry, which pages are used; [`counters`]: which node serves accesses, and
//!   [`sample_ring`]: some of them one by one; [`mover`]: moving pages
//! - [`markers`]: threads in managed processes that stop the next access to a marked page
//! - [`pages`]: numbers for pages; [`live`]: the machine that policies act on; [`room`]: what
//!   is free on nodes; [`history`]: what moved, and why
//! - [`driver`]: a policy at work; [`pace`]: when scans come
//! - [`speed`]: how fast the tiers are; [`link`]: how busy the way to the far tier is, measured all the time,
//!   [`far_traffic`]: what the processors count of it, and [`link_load`]: what measurements mean
//! - [`group`]: what is configured; [`daemon`]: groups at work
//! - [`service`]: the daemon's socket; [`status`]: what it tells there; [`checks`]: what `spillway doctor`
//!   tells

pub mod checks;
pub mod counters;
pub mod daemon;
pub mod driver;
#[cfg(any(test, feature = "testing"))]
pub mod fake_kernel;
pub mod far_traffic;
pub mod group;
pub mod history;
pub mod link;
pub mod link_load;
pub mod live;
pub mod markers;
pub mod mover;
pub mod nodes;
pub mod pace;
pub mod pages;
pub mod passes;
#[cfg(any(test, feature = "testing"))]
pub mod pretended_nodes;
pub mod process;
pub mod room;
pub mod sample_ring;
pub mod service;
pub mod settings;
pub mod source;
pub mod speed;
pub mod status;
#[cfg(test)]
mod testing;
