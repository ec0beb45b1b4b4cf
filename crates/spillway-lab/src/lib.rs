//! The lab: simulated time, in which the policies that run live meet the workloads of the papers.
//!
//! - [`access`]: what a workload does to memory, as a stream that a simulator or a trace takes in
//! - [`simulator`]: tiered memory in simulated time
//! - [`workload`]: what a workload is: an algorithm in tasks and steps

pub mod access;
pub mod simulator;
pub mod workload;
