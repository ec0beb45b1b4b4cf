//! Loads that the processor samples, with their data addresses: PEBS of Intel's, IBS of AMD's, through
//! perf_event_open(2). Source: Linux `Documentation/admin-guide/perf-security.rst`,
//! `arch/x86/events/intel/core.c` (`mem-loads-aux`), perf-amd-ibs(1), perf-mem(1); sysfs
//! `bus/event_source/devices/*/{type,format,events}`.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use spillway_sys::access_events::{Access, AccessEvents, HardwareEvent, Kind};

use super::frames_only::FramesOnly;
use super::notified::Notified;
use super::telemetry::{Facts, Seen, Source, SourceCounts, SourceError};

/// Its name, precision and cost, as `spillway doctor` and status tell them.
pub(super) const FACTS: Facts = Facts {
    name: "hardware-samples",
    precision: "one load in so many (1000 of PEBS, 100000 operations of IBS), with its time; \
                a page that is not sampled is taken for unused; writes only where IBS samples them",
    cost: "an interrupt of the program for some samples; \
           CPU time of the daemon: the page map, and a record a sample",
};

const DEVICES: &str = "sys/bus/event_source/devices";
/// A sample every so many loads that took longer than [`LATENCY_CYCLES`].
const PEBS_PERIOD: u32 = 1000;
/// Loads that took less were served by caches near the core.
const LATENCY_CYCLES: u64 = 30;
/// A sample every so many operations; a multiple of 16, as IBS has it.
const IBS_PERIOD: u32 = 100_000;
const WAIT: Duration = Duration::from_millis(10);

fn unavailable(reason: impl Into<String>) -> SourceError {
    SourceError::Unavailable { name: FACTS.name, reason: reason.into() }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Puts a value where a format says: `config:0-7`, or `config1:0-15`, or parts of it in several places
/// (`config:0-7,32-35`).
fn place(format: &str, value: u64, config: &mut u64, config1: &mut u64) -> Option<()> {
    let (word, bits) = format.split_once(':')?;
    let word = match word {
        "config" => config,
        "config1" => config1,
        _ => return None,
    };
    let mut rest = value;
    for part in bits.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last > 63 {
            return None;
        }
        let count = last - first + 1;
        let mask = u64::MAX >> (64 - count);
        *word |= (rest & mask) << first;
        rest = rest.checked_shr(count).unwrap_or(0);
    }
    Some(())
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// What an event of a PMU is as numbers: `event=0xcd,umask=0x1,ldlat=3`, by the formats of its terms.
fn event(device: &Path, name: &str, latency_cycles: u64) -> Option<(u64, u64)> {
    let (mut config, mut config1) = (0, 0);
    for term in read(&device.join("events").join(name))?.split(',') {
        let (key, value) = term.split_once('=').unwrap_or((term, "1"));
        let value = if key == "ldlat" { latency_cycles } else { number(value)? };
        place(&read(&device.join("format").join(key))?, value, &mut config, &mut config1)?;
    }
    Some((config, config1))
}

/// The event to sample, below `root`.
fn find(root: &Path) -> Result<HardwareEvent, SourceError> {
    let kind = |device: &Path| read(&device.join("type"))?.parse::<u32>().ok();
    for name in ["cpu", "cpu_core"] {
        let device = root.join(DEVICES).join(name);
        let (Some(kind), Some((config, config1))) =
            (kind(&device), event(&device, "mem-loads", LATENCY_CYCLES))
        else {
            continue;
        };
        let leader_config = event(&device, "mem-loads-aux", 0).map(|(config, _)| config);
        let (period, precise) = (u64::from(PEBS_PERIOD), 2);
        return Ok(HardwareEvent {
            kind,
            config,
            config1,
            period,
            precise,
            leader_config,
            excludes_kernel: true,
        });
    }
    if let Some(kind) = kind(&root.join(DEVICES).join("ibs_op")) {
        let (period, precise) = (u64::from(IBS_PERIOD), 0);
        return Ok(HardwareEvent {
            kind,
            config: 0,
            config1: 0,
            period,
            precise,
            leader_config: None,
            excludes_kernel: false,
        });
    }
    Err(unavailable(
        "the processor, or the machine that this one is a guest of, offers neither PEBS \
         (mem-loads) nor IBS (ibs_op)",
    ))
}

/// Sampled loads beside the frames of the page map.
pub struct HardwareSamples {
    notified: Notified<AccessEvents>,
    /// A sample every so many loads or operations.
    period: u32,
}

impl HardwareSamples {
    /// Begins to sample.
    ///
    /// # Errors
    /// The processor has no such samples, or the kernel does not let us.
    pub fn open() -> Result<Self, SourceError> {
        let root = Path::new("/");
        let event = find(root)?;
        let events = AccessEvents::open(Kind::Hardware(event))
            .map_err(|error| unavailable(format!("perf_event_open: {error}; it needs root (CAP_PERFMON)")))?;
        let period = event.period as u32;
        Ok(Self { notified: Notified::new(events, Box::new(FramesOnly::new(root))), period })
    }
}

impl Source for HardwareSamples {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        self.notified.scan(FACTS.name, process, ranges, visit)
    }

    fn take_accesses(&mut self) -> Vec<Access> {
        self.notified.take()
    }

    fn longest_wait(&self) -> Option<Duration> {
        Some(WAIT)
    }

    /// The processor's stays: it is one that keeps the cost of its interrupts low.
    fn sample_every(&mut self, _period: u32) -> u32 {
        self.period
    }

    fn forget(&mut self, process: u32) {
        self.notified.forget(process);
    }

    fn counts(&self) -> SourceCounts {
        let (accesses, lost) = self.notified.counts();
        SourceCounts { accesses, lost, ..SourceCounts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    fn intel() -> Tree {
        let tree = Tree::new();
        let write = |path: &str, text: &str| tree.write(&format!("{DEVICES}/cpu/{path}"), text);
        write("type", "4");
        write("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3");
        write("format/event", "config:0-7");
        write("format/umask", "config:8-15");
        write("format/ldlat", "config1:0-15");
        tree
    }

    #[test]
    fn intels_loads_are_sampled_above_a_latency() {
        let event = find(intel().root()).unwrap();
        assert_eq!((event.kind, event.config, event.config1), (4, 0x1CD, LATENCY_CYCLES));
        assert_eq!((event.precise, event.leader_config), (2, None));
        let tree = intel();
        tree.write(&format!("{DEVICES}/cpu/events/mem-loads-aux"), "event=0x03,umask=0x82");
        assert_eq!(find(tree.root()).unwrap().leader_config, Some(0x8203));
    }

    #[test]
    fn amds_operations_are_sampled_where_there_is_no_pebs() {
        let tree = Tree::new();
        tree.write(&format!("{DEVICES}/ibs_op/type"), "9");
        let event = find(tree.root()).unwrap();
        assert_eq!((event.kind, event.period % 16, event.excludes_kernel), (9, 0, false));
    }

    #[test]
    fn a_processor_without_either_is_refused_by_name() {
        let tree = Tree::new();
        tree.write(&format!("{DEVICES}/software/type"), "1");
        let error = find(tree.root()).unwrap_err().to_string();
        assert!(
            error.contains("hardware-samples") && error.contains("PEBS") && error.contains("IBS"),
            "{error}"
        );
    }

    #[test]
    fn formats_are_followed_and_nonsense_is_refused() {
        let mut words = (0, 0);
        place("config:0-7,32-35", 0xABC, &mut words.0, &mut words.1).unwrap();
        assert_eq!(words, (0xBC | 0xA << 32, 0));
        place("config1:63", 1, &mut words.0, &mut words.1).unwrap();
        place("config1:0-63", 2, &mut words.0, &mut words.1).unwrap();
        assert_eq!(words.1, 1 << 63 | 2);
        for wrong in ["config", "config9:0-7", "config:7-0", "config:0-64", "config:a-b", "config:"] {
            assert_eq!(place(wrong, 1, &mut words.0, &mut words.1), None, "{wrong}");
        }
        let tree = intel();
        tree.write(&format!("{DEVICES}/cpu/events/mem-loads"), "event=many");
        assert!(find(tree.root()).is_err());
    }
}
