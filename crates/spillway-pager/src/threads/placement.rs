//! Frames come from the faulting thread's node ("Physical memory management on NVMM", section 4.4): where a
//! machine has several nodes, a pager thread has the kernel take what it maps from the node of the thread
//! that it does so for.
//!
//! Who serves a fault on the CPU where it was raised - a leader, or the thread itself in inline mode - does
//! so anyway. A handler of a crowd may run elsewhere, and the evictor that reads ahead does. A handler finds
//! the thread's CPU in procfs, which takes as long as half a fault, hence once in [`USES`] faults of a
//! thread.
//!
//! A policy that the program was started under (numactl(8)) binds the pager's threads too, and is left alone;
//! so is one that the program gives a range, which the kernel puts above the thread's.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_sys::{memory_policy, nodes};

/// Threads that are remembered at a time.
const THREADS: usize = 64;
/// Faults for which a thread is taken to stay where it was.
const USES: u64 = 64;

/// A thread and where it ran: `thread | node | uses left`.
const THREAD_SHIFT: u32 = 32;
const NODE_SHIFT: u32 = 16;

/// The nodes of a machine on several of which threads run. Memory without CPUs, as CXL has it, is nobody's
/// own.
#[derive(Debug)]
pub struct Placement {
    node_of_cpu: Vec<Option<u16>>,
    threads: [AtomicU64; THREADS],
}

impl Placement {
    /// `None` where there is nothing to choose: one node, or a policy that somebody has set.
    #[must_use]
    pub fn of_machine() -> Option<Self> {
        let own_cpus = |node| Some((node, nodes::cpus(node)?)).filter(|(_, cpus)| !cpus.is_empty());
        let nodes: Vec<_> = nodes::with_memory().into_iter().filter_map(own_cpus).collect();
        (nodes.len() > 1 && memory_policy::is_default().unwrap_or(false)).then(|| Self::new(&nodes))
    }

    fn new(cpus: &[(u32, Vec<usize>)]) -> Self {
        let count = cpus.iter().flat_map(|(_, cpus)| cpus).max().map_or(0, |&last| last + 1);
        let mut node_of_cpu = vec![None; count];
        for (node, cpus) in cpus {
            cpus.iter().for_each(|&cpu| node_of_cpu[cpu] = Some(*node as u16));
        }
        Self { node_of_cpu, threads: [const { AtomicU64::new(0) }; THREADS] }
    }

    pub(crate) fn node_of(&self, cpu: usize) -> Option<u16> {
        self.node_of_cpu.get(cpu).copied().flatten()
    }

    /// The node that a thread ran on when it was looked for last. Several handlers may look at once, which
    /// costs time and nothing else.
    pub(crate) fn node_of_thread(
        &self,
        thread: u32,
        cpu_of: impl FnOnce(u32) -> Option<usize>,
    ) -> Option<u16> {
        let known = &self.threads[thread as usize % THREADS];
        let word = known.load(Ordering::Relaxed);
        if word >> THREAD_SHIFT == u64::from(thread) && word & 0xffff != 0 {
            known.store(word - 1, Ordering::Relaxed);
            return Some((word >> NODE_SHIFT) as u16);
        }
        let node = self.node_of(cpu_of(thread)?)?;
        let word = u64::from(thread) << THREAD_SHIFT | u64::from(node) << NODE_SHIFT | USES;
        known.store(word, Ordering::Relaxed);
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_looked_for_again_after_some_faults() {
        let placement = Placement::new(&[(0, vec![0, 2]), (3, vec![1, 5])]);
        let mut searches = 0;
        for fault in 0..3 * USES {
            let cpu = if fault < USES { 2 } else { 1 };
            let node = placement.node_of_thread(77, |thread| {
                searches += 1;
                (thread == 77).then_some(cpu)
            });
            assert!(node == Some(0) || fault > USES && node == Some(3), "{fault}: {node:?}");
        }
        assert_eq!(searches, 3);
        // Another thread in the same place, one that is gone, and a CPU that came later.
        assert_eq!(placement.node_of_thread(77 + THREADS as u32, |_| Some(1)), Some(3));
        assert_eq!(placement.node_of_thread(5, |_| None), None);
        assert_eq!(placement.node_of_thread(5, |_| Some(6)), None);
        // One of a node without memory.
        assert_eq!(placement.node_of_thread(5, |_| Some(4)), None);
    }
}
