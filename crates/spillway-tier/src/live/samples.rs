//! Samples of accesses for policies that ask for them: out of those that the source takes, which may come
//! oftener than a policy wants, or not as often.

use spillway_policy::machine::Sample;

use super::LiveMachine;

/// Samples that wait for the policy, at most: one that does not ask for them loses those that are beyond.
const MOST_WAITING: usize = 1 << 20;

/// What a group's policy wants of samples, and what it has had.
#[derive(Debug, Default)]
pub struct Sampling {
    /// One access in so many, as the policy asked; 0 for none.
    pub(super) wanted: u32,
    /// One access in so many is a sample of the source's.
    source: u32,
    /// Accesses that the source's samples stood for since the last one that went on to the policy.
    owed: u64,
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

impl LiveMachine {
    /// One access in so many is to be a sample; 0 where the policy wants none.
    #[must_use]
    pub fn wanted_sample_period(&self) -> u32 {
        self.sampling.wanted
    }

    /// One access in so many is a sample of the source's from now on.
    pub fn set_source_period(&mut self, accesses: u32) {
        self.sampling.source = accesses;
    }

    /// What taking samples has cost so far, the program's time and the daemon's together.
    pub fn set_sampling_ns(&mut self, cost_ns: u64) {
        self.sampling.cost_ns = cost_ns;
    }

    /// The source sampled an access.
    pub fn note_sample(&mut self, process: u32, address: u64, write: bool) {
        let sampling = &mut self.sampling;
        if sampling.wanted == 0 {
            return;
        }
        sampling.owed += u64::from(sampling.source);
        if sampling.owed < u64::from(sampling.wanted) || sampling.waiting.len() >= MOST_WAITING {
            return;
        }
        // One that comes late enough stands for all accesses before it.
        sampling.owed =
            sampling.owed.saturating_sub(u64::from(sampling.wanted)).min(u64::from(sampling.wanted));
        // One that no scan has seen yet is no page of the policy's.
        if self.pages.find_mapped(process, address).is_none() {
            return;
        }
        if let Some(page) = self.pages.find(process, address) {
            self.sampling.waiting.push(Sample { page, write });
        }
    }
}
