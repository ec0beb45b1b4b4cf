//! Whole programs: what is measured of them, and under what they run.

pub mod conditions;
mod run;
pub mod workload;
