//! Whole programs: what is measured of them, and under what they run.

pub mod conditions;
pub(crate) mod digest;
mod run;
pub mod workload;
