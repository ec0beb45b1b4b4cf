//! A memory control group, of version 1 or 2, for the time of a measurement.

use std::fs;
use std::path::{Path, PathBuf};

use crate::BenchError;

const REMEDY: &str = "run it as root on a machine with memory control groups";

/// Memory that can only go to swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Of processes by themselves: what Spillway manages is of this kind.
    pub anonymous_bytes: u64,
    /// Memory that processes share, in bytes.
    pub shared_bytes: u64,
    /// The kernel's for them: page tables, stacks.
    pub kernel_bytes: u64,
}

/// From the text of `memory.stat`, of version 1 or 2.
fn used(text: &str) -> Used {
    let value = |wanted: &str| {
        let values = text.lines().filter_map(|line| line.split_once(' '));
        values.filter(|(name, _)| *name == wanted).find_map(|(_, value)| value.parse::<u64>().ok())
    };
    Used {
        anonymous_bytes: value("total_rss").or_else(|| value("anon")).unwrap_or(0),
        shared_bytes: value("total_shmem").or_else(|| value("shmem")).unwrap_or(0),
        kernel_bytes: value("kernel").unwrap_or(0),
    }
}

/// A control group with a memory limit. Taken away when dropped; its processes must have ended.
pub struct MemoryGroup {
    path: PathBuf,
    limit_file: &'static str,
}

impl MemoryGroup {
    /// Makes a group named after this process.
    pub fn new() -> Result<Self, BenchError> {
        let name = format!("spillway-bench-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (root, limit_file) = if first.join("memory.limit_in_bytes").exists() {
            (first, "memory.limit_in_bytes")
        } else {
            let root = Path::new("/sys/fs/cgroup");
            // Already on in most systems; where it cannot be switched on, setting the limit will say so.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root, "memory.max")
        };
        let path = root.join(name);
        fs::create_dir(&path)
            .map_err(|error| BenchError::setup(format!("make {}", path.display()), error, REMEDY))?;
        Ok(Self { path, limit_file })
    }

    /// Sets how much memory the group may take.
    pub fn set_limit(&self, bytes: u64) -> Result<(), BenchError> {
        let file = self.path.join(self.limit_file);
        fs::write(&file, bytes.to_string())
            .map_err(|error| BenchError::setup(format!("write {}", file.display()), error, REMEDY))
    }

    /// What its processes use now, files not counted.
    #[must_use]
    pub fn used(&self) -> Used {
        let read = |file| fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let mut used = used(&read("memory.stat"));
        // Version 1 has it in a file of its own.
        used.kernel_bytes = read("memory.kmem.usage_in_bytes").trim().parse().unwrap_or(used.kernel_bytes);
        used
    }

    /// The file to which a process writes its pid to come under the limit.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just ended may count for a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_what_is_used() {
        let wanted = Used { anonymous_bytes: 4096, shared_bytes: 8192, kernel_bytes: 0 };
        assert_eq!(used("cache 1\nrss 2\nshmem 3\ntotal_rss 4096\ntotal_shmem 8192\n"), wanted);
        let wanted = Used { kernel_bytes: 12288, ..wanted };
        assert_eq!(used("anon 4096\nfile 5\nkernel 12288\nshmem 8192\nanon_thp 7\n"), wanted);
    }
}
