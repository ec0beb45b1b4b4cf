//! Whole programs: what is measured of them, and under what they run.

pub mod conditions;
pub(crate) mod digest;
pub(crate) mod postgres;
mod run;
pub mod workload;
