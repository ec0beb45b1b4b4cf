//! What a group knows of its samples.

use spillway_policy::machine::Sample;

/// What a group's policy wants of samples, and what it has had.
#[derive(Debug, Default)]
pub struct Sampling {
    /// One access in so many, as the policy asked; 0 for none.
    pub(super) wanted: u32,
    /// One access in so many is a sample of the source's.
    pub(super) source: u32,
    /// Accesses that the source's samples stood for since the last one that went on to the policy.
    pub(super) owed: u64,
    pub(super) waiting: Vec<Sample>,
    pub(super) cost_ns: u64,
}

impl Sampling {
    /// The policy is made anew, and asks again.
    pub(super) fn begin_anew(&mut self) {
        (self.wanted, self.owed) = (0, 0);
        self.waiting.clear();
    }
}
