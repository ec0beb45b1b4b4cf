//! A memory control group, of version 1 or 2, for the time of a measurement.

use std::fs;
use std::path::{Path, PathBuf};

use crate::BenchError;

const REMEDY: &str = "run it as root on a machine with memory control groups";

/// A control group with a memory limit. Taken away when dropped; its processes must have ended.
pub struct MemoryGroup {
    path: PathBuf,
    limit_file: &'static str,
}

impl MemoryGroup {
    /// Makes one.
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

    /// Sets the limit.
    pub fn set_limit(&self, bytes: u64) -> Result<(), BenchError> {
        let file = self.path.join(self.limit_file);
        fs::write(&file, bytes.to_string())
            .map_err(|error| BenchError::setup(format!("write {}", file.display()), error, REMEDY))
    }

    /// Memory of its processes that could only go to swap: anonymous and shared memory, no files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let of = |wanted: &str| {
            let values = text.lines().filter_map(|line| line.split_once(' '));
            values
                .filter(|(name, _)| *name == wanted)
                .filter_map(|(_, value)| value.parse::<u64>().ok())
                .sum::<u64>()
        };
        // The names of version 1, and those of version 2.
        of("total_rss")
            + of("total_shmem")
            + of("anon")
            + of("shmem") * u64::from(!text.contains("total_shmem"))
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
