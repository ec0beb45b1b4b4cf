//! Samples of accesses for policies that ask for them: out of those that the source takes, which may come
//! oftener than a policy wants, or not as often.

use spillway_policy::machine::Sample;

use super::LiveMachine;

/// Samples that wait for the policy, at most: one that does not ask for them loses those that are beyond.
const MOST_WAITING: usize = 1 << 20;

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
