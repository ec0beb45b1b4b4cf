//! What a program's processes hold while they run, seen from outside, and what they have cost.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::cgroup::MemoryGroup;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(25);
/// What is left of a program has so long to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// Memory of a program's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Anonymous memory that is resident, of all processes together, where pages that processes share since a
    /// fork count once: the median of the looks since it has grown.
    pub anonymous_bytes: u64,
    /// The most of it.
    pub peak_anonymous_bytes: u64,
    /// What Spillway or the kernel needs besides at most: shared memory, the kernel's own, a compressed swap
    /// device's.
    pub besides_bytes: u64,
}

/// What was seen of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) memory: Memory,
    /// It took longer than it may, and its processes were killed.
    pub(super) is_cut_off: bool,
}

/// Runs something and watches the group meanwhile, if there is one; `device_bytes` says what a swap device
/// takes. What runs longer than `longest` is killed.
pub(super) fn watching<T>(
    group: Option<&MemoryGroup>,
    device_bytes: &(dyn Fn() -> u64 + Sync),
    longest: Option<Duration>,
    work: impl FnOnce() -> T,
) -> (T, Seen) {
    let Some(group) = group else { return (work(), Seen::default()) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (begun, mut is_cut_off) = (Instant::now(), false);
            let (mut looks, mut besides_bytes) = (Vec::new(), 0);
            while !done.load(Ordering::Relaxed) {
                let used = group.used();
                looks.push(used.anonymous_bytes);
                besides_bytes = besides_bytes.max(used.shared_bytes + used.kernel_bytes + device_bytes());
                if longest.is_some_and(|longest| begun.elapsed() > longest) {
                    is_cut_off = true;
                    kill_all(group);
                }
                std::thread::sleep(PAUSE);
            }
            let most = looks.iter().copied().max().unwrap_or(0);
            let memory =
                Memory { anonymous_bytes: held_bytes(looks), peak_anonymous_bytes: most, besides_bytes };
            Seen { memory, is_cut_off }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let seen = watch.join().unwrap_or_default();
        clear(group);
        (result, seen)
    })
}

/// The median of the looks since the program has first come near its most. The time in which it grows does
/// not count: it is another share of a fast run than of a slow one, though both hold as much afterwards.
fn held_bytes(looks: Vec<u64>) -> u64 {
    let most = looks.iter().copied().max().unwrap_or(0);
    let mut grown: Vec<u64> = looks.into_iter().skip_while(|&look| look < most / 10 * 9).collect();
    grown.sort_unstable();
    grown.get(grown.len() / 2).copied().unwrap_or(0)
}

/// What a program has started may end a little after it; the next run is not to share the machine with it.
fn clear(group: &MemoryGroup) {
    let begun = Instant::now();
    let is_empty = || fs::read_to_string(group.procs()).is_ok_and(|processes| processes.is_empty());
    while !is_empty() && begun.elapsed() < PATIENCE * 2 {
        if begun.elapsed() > PATIENCE {
            kill_all(group);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Again at each look: what is forked meanwhile is seen at the next.
fn kill_all(group: &MemoryGroup) {
    let processes = fs::read_to_string(group.procs()).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn number_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Counts that only grow: their difference is what a run has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// Pages that the machine has swapped in.
    pub(super) swapped_in_pages: u64,
    /// Processor time of children that have ended.
    pub(super) cpu_ticks: u64,
}

/// Of a tick, so many make a second, on every Linux.
const TICKS_PER_S: f64 = 100.0;

impl Spent {
    pub(super) fn now() -> Self {
        let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self { swapped_in_pages: number_of(&vmstat, "pswpin ").unwrap_or(0), cpu_ticks: ticks(&stat) }
    }

    pub(super) fn since(self, before: Self) -> (u64, f64) {
        let ticks = self.cpu_ticks.saturating_sub(before.cpu_ticks);
        (self.swapped_in_pages.saturating_sub(before.swapped_in_pages), ticks as f64 / TICKS_PER_S)
    }
}

/// `cutime` and `cstime` of proc_pid_stat(5).
fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::{Ended, under};
    use std::path::Path;

    #[test]
    fn what_takes_too_long_is_killed_with_all_that_it_started() {
        let group = MemoryGroup::new().unwrap();
        let begun = Instant::now();
        let (status, seen) = watching(Some(&group), &|| 0, Some(Duration::from_millis(300)), || {
            let mut command = under(&group.procs(), Path::new("/bin/sh"));
            let mut child = Ended(command.args(["-c", "sleep 60 & sleep 61"]).spawn().unwrap());
            child.0.wait().unwrap()
        });
        assert!(!status.success() && seen.is_cut_off, "{status} {seen:?}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(fs::read_to_string(group.procs()).unwrap(), "", "something is left");
    }

    #[test]
    fn memory_is_the_median_since_it_has_grown() {
        assert_eq!(held_bytes(vec![1, 2, 3, 4, 100, 96, 98]), 98);
        assert_eq!(held_bytes(vec![10; 9]), 10);
        assert_eq!(held_bytes(Vec::new()), 0);
    }

    #[test]
    fn numbers_are_found_by_their_names() {
        assert_eq!(number_of("pgpgin 4\npswpin 24\n", "pswpin "), Some(24));
        assert_eq!(number_of("pswpin 17\npswpout 4\n", "pswpin "), Some(17));
        assert_eq!(number_of("pswpout 4\n", "pswpin "), None);
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 130 170 20 0";
        assert_eq!(ticks(stat), 300);
    }
}
