//! What a tree of processes holds, seen from outside.

use std::fs::read_to_string;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::child::{PATIENCE, until};

/// Between two looks, or ten times as long as a look takes: the programs need the processors more.
const INTERVAL: Duration = Duration::from_millis(5);

/// The processes below `root`, without itself.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", found[next])).into_iter().flatten().flatten();
        for task in tasks {
            let children = read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        next += 1;
    }
    found.split_off(1)
}

/// A line such as `RssAnon:  12 kB` of a file in /proc, in bytes.
fn line_bytes(file: &str, key: &str) -> Option<u64> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
}

/// Anonymous memory that is resident for these processes; what they share counts once.
pub fn anonymous_bytes(pids: &[i32]) -> u64 {
    match pids {
        [pid] => line_bytes(&format!("/proc/{pid}/status"), "RssAnon").unwrap_or(0),
        _ => pids.iter().filter_map(|pid| line_bytes(&format!("/proc/{pid}/smaps_rollup"), "Pss_Anon")).sum(),
    }
}

/// Resident anonymous memory of one process that lies in mappings under userfaultfd, which is what is
/// managed; what it shares with other processes counts by its share.
pub fn managed_bytes(pid: i32) -> u64 {
    let text = read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let (mut total, mut share) = (0, 0);
    for line in text.lines() {
        if let Some(kib) = line.strip_prefix("Pss:") {
            share = kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024;
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && flags.split_whitespace().any(|flag| matches!(flag, "um" | "uw"))
        {
            total += share;
        }
    }
    total
}

/// Memory of one process that Spillway takes for its own purposes: what it shares with its run, and what is
/// anonymous but not managed, a little of which is the program's (its stack, the data of its libraries).
pub fn pager_bytes(pid: Pid) -> u64 {
    let text = read_to_string(format!("/proc/{}/smaps", pid.as_raw_nonzero())).unwrap_or_default();
    let (mut total, mut anonymous, mut resident, mut is_run) = (0, 0, 0, false);
    let bytes = |kib: &str| kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024;
    for line in text.lines() {
        if let Some(kib) = line.strip_prefix("Rss:") {
            resident = bytes(kib);
        } else if let Some(kib) = line.strip_prefix("Anonymous:") {
            anonymous = bytes(kib);
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let is_managed = flags.split_whitespace().any(|flag| matches!(flag, "um" | "uw"));
            total += if is_run {
                resident
            } else if is_managed {
                0
            } else {
                anonymous
            };
        } else if line.split_whitespace().next().is_some_and(|range| range.contains('-')) {
            is_run = line.contains("/memfd:spillway-run");
        }
    }
    total
}

/// The state of a process: R, S, T and so on.
pub fn state(pid: Pid) -> Option<char> {
    let stat = read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits until a process is in one of `states`.
pub fn expect_state(pid: Pid, states: &str) {
    until(
        PATIENCE,
        &format!("state {states} of process {}, now {:?}", pid.as_raw_nonzero(), state(pid)),
        || state(pid).filter(|&state| states.contains(state)),
    );
}

/// The only child of a process, once it has one.
pub fn child_of(pid: Pid) -> Pid {
    until(PATIENCE, "a child", || Pid::from_raw(*descendants(pid.as_raw_nonzero().get()).first()?))
}

/// Samples a tree of processes until it is dropped.
pub struct Watch {
    shared: Arc<(AtomicBool, AtomicU64)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches what is below `root`, and `root` too if `including`.
    pub fn start(root: Pid, including: bool) -> Self {
        let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        let root = root.as_raw_nonzero().get();
        let theirs = Arc::clone(&shared);
        let thread = spawn(move || {
            let (stop, peak) = &*theirs;
            while !stop.load(Ordering::Acquire) {
                let begun = Instant::now();
                let mut pids = descendants(root);
                if including {
                    pids.push(root);
                }
                peak.fetch_max(anonymous_bytes(&pids), Ordering::AcqRel);
                sleep(INTERVAL.max(begun.elapsed() * 10));
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// The most anonymous memory that was resident at a time.
    pub fn peak_bytes(&self) -> u64 {
        self.shared.1.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.0.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
