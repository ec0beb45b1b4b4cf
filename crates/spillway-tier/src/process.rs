//! Processes: which belong to a group, whether they live, and which of their memory may move.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;
use spillway_sys::maps::Mapping;
use thiserror::Error;

/// Why a group has no processes.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProcessError {
    /// A process is not there.
    #[error("process {0}: there is none of this number")]
    NoProcess(u32),
    /// A control group is not there.
    #[error("cgroup {}: gone, or not a control group", .0.display())]
    NoCgroup(PathBuf),
}

/// A process, held so that its number cannot become another's without notice.
#[derive(Debug)]
pub struct Process {
    /// Its number, which the kernel may give to another after its end.
    pub id: u32,
    handle: OwnedFd,
}

impl Process {
    /// Holds a process.
    ///
    /// # Errors
    /// It is not there.
    pub fn open(id: u32) -> Result<Self, ProcessError> {
        let gone = || ProcessError::NoProcess(id);
        let pid = Pid::from_raw(id as i32).ok_or_else(gone)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
        Ok(Self { id, handle })
    }

    /// Whether it is still the process that was found.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }
}

/// The processes of a control group and of those below it.
///
/// # Errors
/// It is gone.
pub fn of_cgroup(path: &Path) -> Result<BTreeSet<u32>, ProcessError> {
    let text =
        fs::read_to_string(path.join("cgroup.procs")).map_err(|_| ProcessError::NoCgroup(path.to_owned()))?;
    let mut processes: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        // One that goes meanwhile had no processes.
        processes.extend(of_cgroup(&entry.path()).unwrap_or_default());
    }
    Ok(processes)
}

/// A process and those that descend from it.
#[must_use]
pub fn with_descendants(process: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut open = vec![process];
    while let Some(process) = open.pop() {
        if !found.insert(process) {
            continue;
        }
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

/// Memory of a process by what may be done with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessLayout {
    /// Addresses whose pages may move.
    #[serde(skip)]
    pub managed: Vec<Range<u64>>,
    /// Addresses that are left alone because the program locked them, in bytes.
    pub locked_bytes: u64,
    /// The same, because the program bound them to nodes.
    pub bound_bytes: u64,
    /// The same, because they are files' or shared.
    pub shared_bytes: u64,
}

/// What the kernel says of mappings beyond `maps`, by their first address.
#[derive(Default)]
struct Details {
    bound: BTreeSet<u64>,
    locked: BTreeSet<u64>,
}

/// Reads the layout of a process below `root`. None where it is gone.
#[must_use]
pub fn layout(root: &Path, process: u32) -> Option<ProcessLayout> {
    let directory = root.join(format!("proc/{process}"));
    let maps = fs::read_to_string(directory.join("maps")).ok()?;
    let details = Details::read(&directory);
    Some(sort(&maps, &details))
}

impl Details {
    fn read(directory: &Path) -> Self {
        let policies = fs::read_to_string(directory.join("numa_maps")).unwrap_or_default();
        let bound = policies.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            // Interleaved and preferred nodes are the program's wish too.
            (words.next()? != "default").then_some(address)
        });
        let locks_some = fs::read_to_string(directory.join("status")).is_ok_and(|status| {
            status.lines().any(|line| line.starts_with("VmLck:") && !line.contains(" 0 kB"))
        });
        let mut details = Self { bound: bound.collect(), ..Self::default() };
        if locks_some {
            details.read_locks(&fs::read_to_string(directory.join("smaps")).unwrap_or_default());
        }
        details
    }

    fn read_locks(&mut self, smaps: &str) {
        let mut address = None;
        for line in smaps.lines() {
            if let Some(flags) = line.strip_prefix("VmFlags:") {
                if flags.split_whitespace().any(|flag| flag == "lo") {
                    self.locked.extend(address);
                }
            } else if let Some(mapping) = Mapping::parse(line) {
                address = Some(mapping.start as u64);
            }
        }
    }
}

fn sort(maps: &str, details: &Details) -> ProcessLayout {
    let mut layout = ProcessLayout::default();
    for mapping in maps.lines().filter_map(Mapping::parse) {
        let (start, end) = (mapping.start as u64, mapping.end as u64);
        let bytes = end - start;
        let private = mapping.permissions.ends_with('p');
        let of_kernel = matches!(mapping.name.as_str(), "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]");
        if of_kernel || mapping.permissions.starts_with("---") {
            continue;
        }
        if !private || mapping.inode != 0 {
            layout.shared_bytes += bytes;
        } else if details.locked.contains(&start) {
            layout.locked_bytes += bytes;
        } else if details.bound.contains(&start) {
            layout.bound_bytes += bytes;
        } else {
            match layout.managed.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => layout.managed.push(start..end),
            }
        }
    }
    layout
}

/// What was read of a process.
struct Known {
    maps: String,
    layout: ProcessLayout,
    /// When it is read again although `maps` has not changed.
    until_ns: u64,
}

/// The layouts of processes, read anew when mappings have changed, and from time to time because locks and
/// bindings show in nothing else that is cheap to read.
#[derive(Default)]
pub struct ProcessLayouts {
    known: HashMap<u32, Known>,
}

/// How long a layout is believed at least while `maps` does not change.
const LEAST_BELIEVED_NS: u64 = 10_000_000_000;
/// The same, at most.
const MOST_BELIEVED_NS: u64 = 60_000_000_000;
/// In between, reading takes one part in so many of a core: for `numa_maps` the kernel goes through every
/// page.
const PART_OF_CORE: u64 = 1000;

/// How long a layout is believed that took so long to read.
fn believed_ns(cost: Duration) -> u64 {
    let cost_ns = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
    cost_ns.saturating_mul(PART_OF_CORE).clamp(LEAST_BELIEVED_NS, MOST_BELIEVED_NS)
}

impl ProcessLayouts {
    /// The layout of a process. None where it is gone.
    pub fn of(&mut self, root: &Path, process: u32, now_ns: u64) -> Option<&ProcessLayout> {
        let maps = fs::read_to_string(root.join(format!("proc/{process}/maps"))).ok()?;
        let fresh = |known: &Known| known.maps == maps && now_ns < known.until_ns;
        if !self.known.get(&process).is_some_and(fresh) {
            let began = Instant::now();
            let layout = layout(root, process)?;
            let until_ns = now_ns + believed_ns(began.elapsed());
            self.known.insert(process, Known { maps, layout, until_ns });
        }
        self.known.get(&process).map(|known| &known.layout)
    }

    /// A process is gone.
    pub fn forget(&mut self, process: u32) {
        self.known.remove(&process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    const MAPS: &str = "\
1000-2000 r-xp 00000000 fe:01 77   /bin/program
2000-4000 rw-p 00000000 00:00 0    [heap]
4000-5000 rw-p 00000000 00:00 0 
6000-7000 rw-p 00000000 00:00 0 
7000-8000 rw-s 00000000 00:01 9    /dev/shm/x
8000-9000 ---p 00000000 00:00 0 
9000-a000 rw-p 00000000 00:00 0 
a000-c000 rw-p 00000000 00:00 0    [stack]
d000-e000 r-xp 00000000 00:00 0    [vdso]";

    fn process(locked: &str) -> Tree {
        let tree = Tree::new();
        tree.write("proc/7/maps", MAPS);
        tree.write(
            "proc/7/numa_maps",
            "2000 default heap anon=1 N0=1\n6000 bind:0 anon=1\n9000 default anon=1",
        );
        tree.write("proc/7/status", &format!("Name:\tx\nVmLck:\t{locked:>8} kB"));
        tree.write(
            "proc/7/smaps",
            "6000-7000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr\n\
             9000-a000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr lo",
        );
        tree
    }

    #[test]
    fn what_is_shared_bound_or_locked_is_left_alone() {
        let found = layout(process("4").root(), 7).unwrap();
        assert_eq!(found.managed, [0x2000..0x5000, 0xA000..0xC000]);
        assert_eq!((found.bound_bytes, found.locked_bytes, found.shared_bytes), (0x1000, 0x1000, 0x2000));
        let found = layout(process("0").root(), 7).unwrap();
        assert_eq!(found.managed, [0x2000..0x5000, 0x9000..0xC000], "nothing is locked");
        assert_eq!(layout(process("0").root(), 8), None);
    }

    #[test]
    fn a_layout_is_read_again_when_mappings_change_or_time_has_passed() {
        let tree = process("4");
        let mut layouts = ProcessLayouts::default();
        let mut managed = |now_ns| layouts.of(tree.root(), 7, now_ns).unwrap().managed.len();
        assert_eq!(managed(0), 2);
        tree.write("proc/7/numa_maps", "2000 bind:0");
        assert_eq!(managed(1), 2);
        assert_eq!(managed(MOST_BELIEVED_NS), 3, "6000 is free now, 2000 is not");
        tree.write("proc/7/maps", "2000-3000 rw-p 00000000 00:00 0");
        assert_eq!(managed(MOST_BELIEVED_NS + 1), 0);
    }

    #[test]
    fn a_layout_that_takes_long_to_read_is_read_less_often() {
        assert_eq!(believed_ns(Duration::ZERO), LEAST_BELIEVED_NS);
        assert_eq!(believed_ns(Duration::from_millis(30)), 30_000_000_000, "0.1% of a core");
        assert_eq!(believed_ns(Duration::MAX), MOST_BELIEVED_NS);
    }

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(process.is_alive());
        assert!(with_descendants(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
        assert_eq!(Process::open(i32::MAX as u32).err(), Some(ProcessError::NoProcess(i32::MAX as u32)));
        assert!(Process::open(0).is_err());
    }

    #[test]
    fn a_control_group_has_the_processes_of_those_below() {
        let tree = Tree::new();
        tree.write("group/cgroup.procs", "5\n6");
        tree.write("group/below/cgroup.procs", "7");
        tree.write("group/other/file", "");
        let path = tree.root().join("group");
        assert_eq!(of_cgroup(&path).unwrap(), BTreeSet::from([5, 6, 7]));
        assert_eq!(of_cgroup(&path.join("other")), Err(ProcessError::NoCgroup(path.join("other"))));
    }

    #[test]
    fn this_process_has_memory_that_may_move() {
        let own = layout(Path::new("/"), std::process::id()).unwrap();
        assert!(!own.managed.is_empty() && own.shared_bytes > 0);
    }
}
