//! Accesses to memory that the kernel or the processor tells of, with address and time: page faults of the
//! programs, and samples of loads that the processor takes (PEBS, IBS). One ring a CPU, for all processes
//! that are watched. Source: perf_event_open(2); Linux `arch/x86/mm/fault.c` (every fault at a user address
//! counts, hint faults too).

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, Result};

use crate::nodes;
use crate::perf::{
    self, Attributes, RECORD_LOST, RECORD_SAMPLE, Ring, SAMPLE_ADDR, SAMPLE_DATA_SRC, SAMPLE_TID,
    SAMPLE_TIME, flag,
};
use crate::process_filter::ProcessFilter;

const PERF_COUNT_SW_PAGE_FAULTS: u64 = 2;
/// Room for 16,384 records of 32 bytes.
const DATA_BYTES: usize = 512 << 10;
/// A store, among the kinds of access in `perf_mem_data_src`.
const MEM_OP_STORE: u64 = 4;
/// Addresses of programs end here, with five levels of page tables.
const USER_END: u64 = 1 << 56;

/// One access to memory, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The process that made it.
    pub process: u32,
    /// The address that was accessed.
    pub address: u64,
    /// When it was, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Whether it is known to have been a store.
    pub write: bool,
}

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// An access to watched memory.
    Access(Access),
    /// So many had no room in the ring.
    Lost(u64),
}

/// Understands a record: its kind, and its words after the header. None for what tells of no access to a
/// program's memory.
#[must_use]
pub fn decode(kind: u32, words: &[u64]) -> Option<Record> {
    match (kind, words) {
        // Where a sample has no data address, it is 0.
        (RECORD_SAMPLE, &[ids, time_ns, address, ref rest @ ..]) if (1..USER_END).contains(&address) => {
            // Page faults come without what kind of access it was.
            let write = rest.first().is_some_and(|kind| kind & MEM_OP_STORE != 0);
            Some(Record::Access(Access { process: ids as u32, address, time_ns, write }))
        }
        (RECORD_LOST, &[_, count, ..]) => Some(Record::Lost(count)),
        _ => None,
    }
}

/// Understands the records that lie in a ring between `tail` and `head`, which count bytes and never start
/// again.
pub fn decode_ring(ring: &[u64], tail: u64, head: u64, each: &mut dyn FnMut(Record)) {
    let words = ring.len() as u64;
    if words == 0 {
        return;
    }
    let word = |at: u64| ring[(at / 8 % words) as usize];
    perf::walk(&word, words * 8, tail, head, &mut Vec::new(), &mut |kind, words| {
        decode(kind, words).into_iter().for_each(&mut *each);
    });
}

/// An event of a processor's, as its PMU in sysfs describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareEvent {
    /// The type by which the kernel knows its PMU.
    pub kind: u32,
    /// The event's number within its PMU.
    pub config: u64,
    /// The same, second word.
    pub config1: u64,
    /// A sample every so many.
    pub period: u64,
    /// Skid that is asked for; 0 where the event is exact by itself.
    pub precise: u64,
    /// An event of the same PMU that has to be opened first (`mem-loads-aux`).
    pub leader_config: Option<u64>,
    /// Whether the processor can leave out the kernel's own accesses.
    pub excludes_kernel: bool,
}

/// What is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An event at every page fault.
    PageFaults,
    /// Samples that the hardware takes.
    Hardware(HardwareEvent),
}

impl Kind {
    fn attributes(self) -> Attributes {
        let common = Attributes {
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDR,
            clock: libc::CLOCK_MONOTONIC,
            flags: flag::DISABLED | flag::USE_CLOCK,
            ..Attributes::default()
        };
        match self {
            // The kernel's accesses on behalf of a program fault too.
            Self::PageFaults => Attributes {
                kind: perf::TYPE_SOFTWARE,
                config: PERF_COUNT_SW_PAGE_FAULTS,
                sample_period: 1,
                ..common
            },
            Self::Hardware(event) => {
                let exclude = if event.excludes_kernel { flag::EXCLUDE_KERNEL | flag::EXCLUDE_HV } else { 0 };
                Attributes {
                    kind: event.kind,
                    config: event.config,
                    config1: event.config1,
                    sample_period: event.period,
                    sample_type: common.sample_type | SAMPLE_DATA_SRC,
                    flags: common.flags | event.precise << flag::PRECISE_SHIFT | exclude,
                    ..common
                }
            }
        }
    }

    fn open(self, cpu: u32) -> Result<(Ring, Option<OwnedFd>)> {
        let attributes = self.attributes();
        let leader = match self {
            Self::Hardware(HardwareEvent { leader_config: Some(config), kind, .. }) => {
                let attributes =
                    Attributes { kind, config, flags: attributes.flags, ..Attributes::default() };
                Some(perf::open(&attributes, -1, cpu, None)?)
            }
            _ => None,
        };
        let event = perf::open(&attributes, -1, cpu, leader.as_ref().map(AsFd::as_fd))?;
        Ok((Ring::new(event, DATA_BYTES)?, leader))
    }
}

/// Tells of accesses to processes' memory.
#[derive(Debug)]
pub struct AccessEvents {
    /// With the leader that each needs, if one.
    rings: Vec<(Ring, Option<OwnedFd>)>,
    /// None where the kernel takes no BPF program: what others do is thrown away here then.
    filter: Option<ProcessFilter>,
    lost: u64,
}

impl AccessEvents {
    /// Begins on all CPUs that are online.
    ///
    /// # Errors
    /// EACCES or EPERM without CAP_PERFMON; ENOENT, ENODEV or EOPNOTSUPP where the machine has no such event.
    pub fn open(kind: Kind) -> Result<Self> {
        let mut rings = Vec::new();
        for cpu in online_cpus() {
            match kind.open(cpu) {
                Ok(ring) => rings.push(ring),
                // It went offline.
                Err(Errno::NODEV) if !rings.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        let events = Self { rings, filter: ProcessFilter::new().ok(), lost: 0 };
        for (ring, leader) in &events.rings {
            if let Some(filter) = &events.filter {
                ring.filter(filter.as_fd())?;
            }
            if let Some(leader) = leader {
                perf::enable(leader)?;
            }
            ring.enable(true)?;
        }
        Ok(events)
    }

    /// Whether the kernel tells only of processes that are watched.
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.filter.is_some()
    }

    /// A process is watched from now on.
    ///
    /// # Errors
    /// Too many are.
    pub fn watch(&self, process: u32) -> Result<()> {
        self.filter.as_ref().map_or(Ok(()), |filter| filter.add(process))
    }

    /// It is no longer.
    pub fn unwatch(&self, process: u32) {
        if let Some(filter) = &self.filter {
            // One that cannot be taken out costs some records, which nobody asks for.
            let _ = filter.remove(process);
        }
    }

    /// Tells `each` of the accesses since the last time, in the order of time on each CPU.
    pub fn drain(&mut self, mut each: impl FnMut(Access)) {
        let lost = &mut self.lost;
        for (ring, _) in &mut self.rings {
            ring.drain(&mut |kind, words| match decode(kind, words) {
                Some(Record::Access(access)) => each(access),
                Some(Record::Lost(count)) => *lost += count,
                None => {}
            });
        }
    }

    /// Accesses that had no room: drain more often.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

pub(crate) fn online_cpus() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus: Vec<u32> = nodes::list(&text).into_iter().map(|cpu| cpu as u32).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Area;

    const PAGES: usize = 256;

    fn now_ns() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    #[test]
    fn each_page_that_is_faulted_in_is_told_with_its_address_and_time() {
        let mut events = AccessEvents::open(Kind::PageFaults).unwrap();
        let (own, filtered) = (std::process::id(), events.is_filtered());
        let unwatched = Area::new(PAGES * 4096).unwrap();
        (0..PAGES).for_each(|page| {
            unwatched.words(page * 4096, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed)
        });
        events.watch(own).unwrap();
        let area = Area::new(PAGES * 4096).unwrap();
        let began_ns = now_ns();
        (0..PAGES)
            .for_each(|page| area.words(page * 4096, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed));
        let ended_ns = now_ns();
        let mut found = Vec::new();
        events.drain(|access| {
            assert!(access.process == own || !filtered);
            let inside = |area: &Area| {
                (area.address()..area.address() + PAGES * 4096).contains(&(access.address as usize))
            };
            assert!(!filtered || !inside(&unwatched), "not watched at the time");
            if access.process == own && inside(&area) {
                assert!((began_ns..=ended_ns).contains(&access.time_ns), "{access:?}");
                found.push((access.address as usize - area.address()) / 4096);
            }
        });
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), PAGES, "every page was faulted in");
        assert_eq!(events.lost(), 0);
        events.unwatch(own);
        let late = Area::new(4096).unwrap();
        late.words(0, 1)[0].store(1, std::sync::atomic::Ordering::Relaxed);
        events.drain(|access| assert_ne!(access.address as usize / 4096, late.address() / 4096));
    }

    #[test]
    fn records_are_understood_or_passed_over() {
        let access = Access { process: 7, address: 0x5000, time_ns: 99, write: false };
        assert_eq!(decode(RECORD_SAMPLE, &[8 << 32 | 7, 99, 0x5000]), Some(Record::Access(access)));
        assert_eq!(decode(RECORD_SAMPLE, &[8 << 32 | 7, 99, 0x5000, 1, 2]), Some(Record::Access(access)));
        let store = Record::Access(Access { write: true, ..access });
        assert_eq!(decode(RECORD_SAMPLE, &[8 << 32 | 7, 99, 0x5000, MEM_OP_STORE]), Some(store));
        assert_eq!(decode(RECORD_LOST, &[1, 5]), Some(Record::Lost(5)));
        for (kind, words) in [
            (RECORD_SAMPLE, &[7, 99][..]),
            (RECORD_SAMPLE, &[7, 99, 0]),
            (RECORD_SAMPLE, &[7, 99, u64::MAX]),
            (RECORD_LOST, &[1]),
            (RECORD_LOST, &[]),
            (0, &[1, 2, 3]),
            (u32::MAX, &[]),
        ] {
            assert_eq!(decode(kind, words), None, "{kind} {words:?}");
        }
    }

    #[test]
    fn an_event_that_the_machine_has_not_got_is_an_error() {
        let event = HardwareEvent {
            kind: u32::MAX,
            config: 0,
            config1: 0,
            period: 1,
            precise: 0,
            leader_config: None,
            excludes_kernel: true,
        };
        assert!(AccessEvents::open(Kind::Hardware(event)).is_err());
    }
}
