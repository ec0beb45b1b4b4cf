//! Moments at which NUMA balancing marks memory of a process, so that the next access to each page of it
//! faults: a kprobe on the kernel's function that does it, one ring a CPU. Needs root (CAP_PERFMON) and
//! kprobes. Source: Linux `kernel/events/core.c` (`perf_kprobe`), `mm/mempolicy.c`
//! (`change_prot_numa(vma, start, end)`).

use std::ffi::CStr;
use std::ops::Range;

use rustix::io::{Errno, Result};

use crate::access_events::online_cpus;
use crate::perf::{
    self, Attributes, RECORD_SAMPLE, Ring, SAMPLE_REGS_INTERRUPT, SAMPLE_TID, SAMPLE_TIME, flag,
};

const PMU_TYPE: &str = "/sys/bus/event_source/devices/kprobe/type";
/// Marks the pages of a range that are on nodes it cares for, in the context of the process.
const FUNCTION: &CStr = c"change_prot_numa";
/// Registers by their numbers in `asm/perf_regs.h`, those of the second and third argument.
const REGISTER_DX: u64 = 3;
const REGISTER_SI: u64 = 4;
/// 2,048 records: a process's ranges are marked a few times a second.
const DATA_BYTES: usize = 128 << 10;

/// Memory was marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Whose.
    pub process: u32,
    /// Which addresses.
    pub range: Range<u64>,
    /// When, on CLOCK_MONOTONIC.
    pub time_ns: u64,
}

/// Understands a record: its kind, and its words after the header.
#[must_use]
pub fn decode(kind: u32, words: &[u64]) -> Option<Marked> {
    match (kind, words) {
        // After the registers' kind they lie in the order of their numbers.
        (RECORD_SAMPLE, &[ids, time_ns, abi, end, start]) if abi != 0 && start < end => {
            Some(Marked { process: ids as u32, range: start..end, time_ns })
        }
        _ => None,
    }
}

/// Tells of marks.
#[derive(Debug)]
pub struct MarkEvents {
    rings: Vec<Ring>,
}

impl MarkEvents {
    /// Begins on all CPUs that are online.
    ///
    /// # Errors
    /// EACCES or EPERM without CAP_PERFMON; ENOENT where the kernel has no kprobes, or not this function.
    pub fn open() -> Result<Self> {
        let kind = std::fs::read_to_string(PMU_TYPE).ok().and_then(|text| text.trim().parse().ok());
        let attributes = Attributes {
            kind: kind.ok_or(Errno::NOENT)?,
            config1: FUNCTION.as_ptr().expose_provenance() as u64,
            sample_period: 1,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_REGS_INTERRUPT,
            sample_regs_interrupt: 1 << REGISTER_DX | 1 << REGISTER_SI,
            clock: libc::CLOCK_MONOTONIC,
            flags: flag::DISABLED | flag::USE_CLOCK,
            ..Attributes::default()
        };
        let mut rings = Vec::new();
        for cpu in online_cpus() {
            match perf::open(&attributes, -1, cpu, None) {
                Ok(event) => rings.push(Ring::new(event, DATA_BYTES)?),
                // It went offline.
                Err(Errno::NODEV) if !rings.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        rings.iter().try_for_each(|ring| ring.enable(true))?;
        Ok(Self { rings })
    }

    /// Tells `each` of the marks since the last time, in the order of time on each CPU.
    pub fn drain(&mut self, mut each: impl FnMut(Marked)) {
        for ring in &mut self.rings {
            ring.drain(&mut |kind, words| decode(kind, words).into_iter().for_each(&mut each));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_understood_or_passed_over() {
        let marked = Marked { process: 7, range: 0x1000..0x5000, time_ns: 99 };
        assert_eq!(decode(RECORD_SAMPLE, &[8 << 32 | 7, 99, 2, 0x5000, 0x1000]), Some(marked));
        for (kind, words) in [
            (RECORD_SAMPLE, &[7, 99, 0, 0x5000, 0x1000][..]),
            (RECORD_SAMPLE, &[7, 99, 2, 0x1000, 0x1000]),
            (RECORD_SAMPLE, &[7, 99, 2, 0x1000]),
            (RECORD_SAMPLE, &[]),
            (0, &[7, 99, 2, 0x5000, 0x1000]),
        ] {
            assert_eq!(decode(kind, words), None, "{kind} {words:?}");
        }
    }
}
