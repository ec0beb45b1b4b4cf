//! What the daemon knows of its samples.

/// What was asked of the source, and what samples cost.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    /// The shortest period that a group wants; 0 where none does.
    pub(super) asked: u32,
    /// CPU time of the daemon's that taking samples took.
    pub(super) cpu_ns: u64,
}
