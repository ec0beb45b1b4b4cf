//! Memory nodes and the CPUs that belong to them (`Documentation/admin-guide/mm/numaperf.rst`).

use std::fs;

const NODES: &str = "/sys/devices/system/node";

/// Numbers as the kernel lists them: `0-2,5`.
#[must_use]
pub fn list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Nodes that have memory; node 0 alone where the kernel knows of none.
#[must_use]
pub fn with_memory() -> Vec<u32> {
    fs::read_to_string(format!("{NODES}/has_memory"))
        .map_or_else(|_| vec![0], |text| list(&text).into_iter().map(|node| node as u32).collect())
}

/// CPUs of a node; `None` where the kernel does not say.
#[must_use]
pub fn cpus(node: u32) -> Option<Vec<usize>> {
    fs::read_to_string(format!("{NODES}/node{node}/cpulist")).ok().map(|text| list(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(list("\n"), Vec::<usize>::new());
    }

    #[test]
    fn the_cpu_of_this_thread_belongs_to_a_node() {
        let cpu = rustix::thread::sched_getcpu();
        let known: Vec<_> = (0..1024).filter_map(cpus).collect();
        // A kernel without NUMA knows of none.
        assert!(known.is_empty() || known.iter().any(|cpus| cpus.contains(&cpu)), "{cpu}: {known:?}");
        assert!(!with_memory().is_empty());
    }
}
