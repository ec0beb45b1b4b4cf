//! Policies: which pages stay local. One file a policy, each with its own configuration; none knows whether it
//! runs in a pager or in a simulation.

pub mod dcm;
