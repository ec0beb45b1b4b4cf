//! Hint faults: NUMA balancing marks pages of slow nodes, the next access to a marked page faults, and the
//! kernel tells of the fault with its address and time (INDIGO, section 5.1). Linux 5.18 or later.
//!
//! Nothing outside the kernel can mark another process's pages but NUMA balancing, and it marks what it will:
//! mode 2 marks the pages of nodes in a slower tier than those with CPUs, some MiB in each period, whether a
//! policy asked for it or not. A fault on a page that the policy marked is its hint fault; where the kernel's
//! mark came later than the policy's, a kprobe tells when, so that the time from mark to access is known.
//! Mode 2 also promotes; the cap on that is set to nothing meanwhile, which holds unless the fast node has
//! more than 1 GiB (or 1/16 of it) to spare: status counts what the kernel moved. Source: Linux
//! `kernel/sched/fair.c` (`should_numa_migrate_memory`, `task_numa_work`), `mm/memory-tiers.c`.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spillway_sys::access_events::{Access, AccessEvents, Kind};
use spillway_sys::mark_events::{MarkEvents, Marked};

use super::frames_only::FramesOnly;
use super::notified::{Events, Notified};
use super::page_tables::PageTables;
use super::telemetry::{Facts, Seen, Source, SourceCounts, SourceError};
use crate::nodes::{Node, Nodes};
use crate::settings::{KernelSettings, SettingsError};

/// Its name, precision and cost, as `spillway doctor` and status tell them.
pub(super) const FACTS: Facts = Facts {
    name: "hint-faults",
    precision: "every page; an access to a marked far page is known by itself, with its time; \
                the time of its mark by a kprobe, else to one pass of the kernel's scan; \
                all else as page-tables",
    cost: "a fault of the program for each access to a marked page, and the kernel's scan in its time; \
           CPU time of the daemon as page-tables, and a record for each of its faults",
};

const MODE: &str = "proc/sys/kernel/numa_balancing";
const TIERING: &str = "2";
const PROMOTE_LIMIT: &str = "proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";
const SCAN: &str = "sys/kernel/debug/sched/numa_balancing";
/// The kernel's defaults, which it shows in debugfs only.
const SCAN_PERIOD_MS: u64 = 1000;
const SCAN_MIB: u64 = 256;
/// How old a fault may be when the policy hears of it.
const WAIT: Duration = Duration::from_millis(10);

/// Hint faults beside the accessed bits of the page tables.
pub struct HintFaults {
    root: PathBuf,
    notified: Notified,
    /// None where the kernel has no kprobes: the time of a mark is known to one pass then.
    mark_events: Option<MarkEvents>,
    marks: u64,
}

fn unavailable(reason: impl Into<String>) -> SourceError {
    SourceError::Unavailable { name: FACTS.name, reason: reason.into() }
}

/// Whether the kernel would mark a node's pages: it is in a slower tier than any with CPUs.
fn is_marked(node: &Node, nodes: &Nodes) -> bool {
    let top = nodes.all.iter().filter(|node| node.cpus).filter_map(|node| node.memory_tier).max();
    // Before Linux 6.1 shows tiers, those with CPUs are all there is to the upper one.
    match (node.memory_tier, top) {
        (Some(tier), Some(top)) => tier > top,
        _ => !node.cpus,
    }
}

/// Whether the kernel below `root` marks anything.
fn check(root: &Path) -> Result<(), SourceError> {
    if !root.join(MODE).exists() {
        return Err(unavailable("the kernel has no CONFIG_NUMA_BALANCING"));
    }
    let nodes = Nodes::read(root).map_err(|error| unavailable(error.to_string()))?;
    if nodes.all.len() < 2 {
        return Err(unavailable("NUMA balancing marks pages of slow nodes, and this machine has one node"));
    }
    if !nodes.all.iter().any(|node| is_marked(node, &nodes)) {
        return Err(unavailable(
            "NUMA balancing marks pages of nodes in a slower memory tier than those with CPUs, and the \
             kernel knows none (/sys/devices/virtual/memory_tiering)",
        ));
    }
    Ok(())
}

impl HintFaults {
    /// Begins to listen for faults.
    ///
    /// # Errors
    /// The kernel marks nothing here, or does not tell of faults.
    pub fn open() -> Result<Self, SourceError> {
        let root = Path::new("/");
        check(root)?;
        let events = AccessEvents::open(Kind::PageFaults)
            .map_err(|error| unavailable(format!("perf_event_open: {error}; it needs root (CAP_PERFMON)")))?;
        let pages: Box<dyn Source> = match PageTables::open() {
            Ok(tables) => Box::new(tables),
            Err(_) => Box::new(FramesOnly::new(root)),
        };
        let notified = Notified::new(Box::new(events) as Box<dyn Events>, pages);
        Ok(Self { root: root.to_owned(), notified, mark_events: MarkEvents::open().ok(), marks: 0 })
    }

    fn mode(&self) -> String {
        fs::read_to_string(self.root.join(MODE)).unwrap_or_default().trim().to_owned()
    }
}

/// What a file of the scan's settings holds.
fn scan_setting(root: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(root.join(SCAN).join(name)).ok()?.trim().parse().ok()
}

impl Source for HintFaults {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn precision(&self) -> String {
        let mib = scan_setting(&self.root, "scan_size_mb").unwrap_or(SCAN_MIB);
        let period_ms = scan_setting(&self.root, "scan_period_min_ms").unwrap_or(SCAN_PERIOD_MS);
        let rest = self.notified.pages().facts().name;
        let mark = if self.tells_marks() {
            "its mark by a kprobe on the kernel's scan"
        } else {
            "the time of a mark to one pass of the kernel's scan"
        };
        format!(
            "every page; an access to a marked far page by itself, with its time; {mark}, \
             which covers at most {mib} MiB in {period_ms} ms of each thread's CPU time; all else as {rest}"
        )
    }

    fn begin(&mut self, settings: &mut KernelSettings) -> Result<(), SettingsError> {
        // First the cap, so that nothing is promoted in between. Linux 6.0 and older have none, and promote.
        let limit = self.root.join(PROMOTE_LIMIT);
        if limit.exists() {
            settings.set(&limit, "0")?;
        }
        settings.set(&self.root.join(MODE), TIERING)
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        let mode = self.mode();
        if mode != TIERING {
            let setting = format!("/{MODE}");
            return Err(SourceError::Changed { name: FACTS.name, setting, value: mode });
        }
        self.notified.scan(FACTS.name, process, ranges, visit)
    }

    fn take_accesses(&mut self) -> Vec<Access> {
        self.notified.take()
    }

    fn take_marks(&mut self) -> Vec<Marked> {
        let mut marks = Vec::new();
        if let Some(events) = &mut self.mark_events {
            events.drain(|marked| marks.push(marked));
        }
        self.marks += marks.len() as u64;
        marks
    }

    fn tells_marks(&self) -> bool {
        self.mark_events.is_some()
    }

    fn longest_wait(&self) -> Option<Duration> {
        Some(WAIT)
    }

    fn forget(&mut self, process: u32) {
        self.notified.forget(process);
    }

    fn counts(&self) -> SourceCounts {
        let (accesses, lost) = self.notified.counts();
        SourceCounts { accesses, lost, marks: self.marks, ..SourceCounts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::{EVERYWHERE, FakeKernel};
    use crate::testing::Tree;

    struct Silence;

    impl Events for Silence {
        fn watch(&mut self, _process: u32) -> Result<(), rustix::io::Errno> {
            Ok(())
        }
        fn unwatch(&mut self, _process: u32) {}
        fn drain(&mut self, _each: &mut dyn FnMut(Access)) {}
        fn lost(&self) -> u64 {
            0
        }
    }

    fn source(tree: &Tree) -> HintFaults {
        let silence: Box<dyn Events> = Box::new(Silence);
        let notified = Notified::new(silence, Box::new(FakeKernel::default()));
        HintFaults { root: tree.root().to_owned(), notified, mark_events: None, marks: 0 }
    }

    #[test]
    fn a_kernel_that_marks_nothing_is_refused_with_the_reason() {
        let tree = Tree::new();
        let refusal = |tree: &Tree| check(tree.root()).unwrap_err().to_string();
        assert!(refusal(&tree).contains("CONFIG_NUMA_BALANCING"));
        tree.write(MODE, "0");
        tree.node(0, "0-3", 1024, 512);
        assert!(refusal(&tree).contains("one node"), "{}", refusal(&tree));
        tree.node(1, "", 1024, 512);
        assert!(check(tree.root()).is_ok(), "no tiers are shown: nodes without CPUs are slow");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1");
        assert!(refusal(&tree).contains("slower memory tier"), "{}", refusal(&tree));
        tree.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "1");
        assert!(check(tree.root()).is_ok());
    }

    #[test]
    fn the_kernel_marks_and_does_not_promote_until_the_end() {
        let tree = Tree::new();
        tree.write(MODE, "0");
        tree.write(PROMOTE_LIMIT, "65536");
        let (mut settings, _) = KernelSettings::open(&tree.root().join("journal")).unwrap();
        source(&tree).begin(&mut settings).unwrap();
        assert_eq!((tree.read(MODE), tree.read(PROMOTE_LIMIT)), ("2".into(), "0".into()));
        drop(settings);
        assert_eq!((tree.read(MODE), tree.read(PROMOTE_LIMIT)), ("0".into(), "65536".into()));
    }

    #[test]
    fn a_setting_that_another_changed_meanwhile_is_noticed_and_named() {
        let tree = Tree::new();
        tree.write(MODE, "2");
        let mut source = source(&tree);
        source.scan(7, EVERYWHERE, &mut |_| {}).unwrap();
        tree.write(MODE, "0");
        let error = source.scan(7, EVERYWHERE, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(MODE) && error.contains("'0'"), "{error}");
    }

    #[test]
    fn its_precision_is_that_of_the_kernels_scan() {
        let tree = Tree::new();
        assert!(source(&tree).precision().contains("256 MiB in 1000 ms"));
        tree.write(&format!("{SCAN}/scan_size_mb"), "1024");
        tree.write(&format!("{SCAN}/scan_period_min_ms"), "500");
        assert!(source(&tree).precision().contains("1024 MiB in 500 ms"));
    }
}
