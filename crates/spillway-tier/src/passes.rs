//! When the kernel passed over a process's memory and marked it, or a scan did: from then on an access to a
//! page that the policy marked is known. That is where the time from mark to access begins (INDIGO, Equation
//! 2), and not when the policy asked.

use std::collections::{HashMap, VecDeque};

use spillway_sys::mark_events::Marked;

/// Passes that are known of each process, at most: those of a minute and more.
const MOST_PASSES: usize = 1024;

/// The passes of each process, in the order of time.
#[derive(Debug, Default)]
pub struct Passes(HashMap<u32, VecDeque<Marked>>);

impl Passes {
    /// The kernel has passed over a range of a process's memory.
    pub fn push(&mut self, pass: Marked) {
        let passes = self.0.entry(pass.process).or_default();
        let at = passes.partition_point(|known| known.time_ns <= pass.time_ns);
        passes.insert(at, pass);
        if passes.len() > MOST_PASSES {
            passes.pop_front();
        }
    }

    /// The first pass over an address from `from_ns` on that was over by `until_ns`.
    #[must_use]
    pub fn first_over(&self, process: u32, address: u64, from_ns: u64, until_ns: u64) -> Option<u64> {
        let passes = self.0.get(&process)?;
        let first = passes.partition_point(|pass| pass.time_ns < from_ns);
        let later = passes.range(first..).take_while(|pass| pass.time_ns <= until_ns);
        later.filter(|pass| pass.range.contains(&address)).map(|pass| pass.time_ns).next()
    }

    /// A process is gone.
    pub fn forget(&mut self, process: u32) {
        self.0.remove(&process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(of: &[(u32, std::ops::Range<u64>, u64)]) -> Passes {
        let mut passes = Passes::default();
        for (process, range, time_ns) in of {
            passes.push(Marked { process: *process, range: range.clone(), time_ns: *time_ns });
        }
        passes
    }

    #[test]
    fn the_first_pass_over_the_address_counts_in_any_order_of_rings() {
        let passes =
            passes(&[(7, 0..10, 300), (7, 0..5, 100), (7, 5..10, 200), (8, 0..10, 50), (7, 0..10, 100)]);
        assert_eq!(passes.first_over(7, 3, 0, 1000), Some(100));
        assert_eq!(passes.first_over(7, 7, 101, 1000), Some(200));
        assert_eq!(passes.first_over(7, 3, 100, 1000), Some(100), "a mark of that moment counts");
        assert_eq!(passes.first_over(7, 3, 101, 1000), Some(300));
        assert_eq!(passes.first_over(7, 3, 101, 299), None, "not yet");
        assert_eq!(passes.first_over(7, 10, 0, 1000), None, "beyond its end");
        assert_eq!(passes.first_over(9, 3, 0, 1000), None);
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_with_the_process() {
        let mut passes = Passes::default();
        for time_ns in 0..=MOST_PASSES as u64 {
            passes.push(Marked { process: 7, range: 0..10, time_ns });
        }
        assert_eq!(passes.first_over(7, 3, 0, u64::MAX), Some(1), "the oldest is forgotten");
        passes.forget(7);
        assert_eq!(passes.first_over(7, 3, 0, u64::MAX), None);
    }
}
