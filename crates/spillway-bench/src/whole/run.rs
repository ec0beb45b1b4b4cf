//! One run of a program under its conditions.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::BenchError;
use crate::cgroup::{MemoryGroup, Used};
use crate::whole::conditions::{Conditions, Start};
use crate::whole::workload::{Run, Site, Workload};

impl Conditions<'_> {
    /// Runs a program once.
    pub fn run(&self, site: &Site<'_>, workload: &dyn Workload) -> Result<Run, BenchError> {
        let stats = site.scratch().join("stats.json");
        let _ = fs::remove_file(&stats);
        let start = Start { conditions: self, spillway: site.spillway, stats };
        let mut run = Run::default();
        match self {
            Self::Unlimited { group: Some(group) } => {
                let (value, most) = watching(group, || workload.run(site, &start));
                run.value = value?;
                run.most = most;
            }
            _ => run.value = workload.run(site, &start)?,
        }
        let text = fs::read_to_string(&start.stats).unwrap_or_default();
        run.stats = serde_json::from_str(&text).unwrap_or_default();
        run.latency = workload.latency();
        run.stages = workload.stages();
        Ok(run)
    }
}

/// Does something, and sees how much memory the group used at most meanwhile.
fn watching<T>(group: &MemoryGroup, work: impl FnOnce() -> T) -> (T, Used) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = Used::default();
            while !done.load(Ordering::Relaxed) {
                let now = group.used();
                most.anonymous_bytes = most.anonymous_bytes.max(now.anonymous_bytes);
                most.shared_bytes = most.shared_bytes.max(now.shared_bytes);
                most.kernel_bytes = most.kernel_bytes.max(now.kernel_bytes);
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, watch.join().unwrap_or_default())
    })
}
