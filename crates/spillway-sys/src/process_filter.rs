//! A filter for events of all processes: a BPF program of a few instructions that lets through those of some
//! processes, so that others' leave no trace. Needs CAP_BPF and CAP_PERFMON (or root).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};

use crate::bpf::{self, instruction};

const MAP_TYPE_HASH: u32 = 1;
const PROG_TYPE_PERF_EVENT: u32 = 7;
/// Most processes that are let through.
const MOST_PROCESSES: u32 = 1 << 14;

/// The program: 1 where the map has the process, else 0.
fn instructions(map: i32) -> [u64; 13] {
    [
        instruction(0x85, 0, 0, 0, 14),  // r0 = bpf_get_current_pid_tgid()
        instruction(0x77, 0, 0, 0, 32),  // r0 >>= 32: the process
        instruction(0x63, 10, 0, -4, 0), // *(u32 *)(r10 - 4) = r0
        instruction(0xBF, 2, 10, 0, 0),  // r2 = r10
        instruction(0x07, 2, 0, 0, -4),  // r2 += -4
        instruction(0x18, 1, 1, 0, map), // r1 = map
        instruction(0x00, 0, 0, 0, 0),   //
        instruction(0x85, 0, 0, 0, 1),   // r0 = bpf_map_lookup_elem(r1, r2)
        instruction(0x15, 0, 0, 2, 0),   // if r0 == 0 goto none
        instruction(0xB7, 0, 0, 0, 1),   // r0 = 1
        instruction(0x95, 0, 0, 0, 0),   // return r0
        instruction(0xB7, 0, 0, 0, 0),   // none: r0 = 0
        instruction(0x95, 0, 0, 0, 0),   // return r0
    ]
}

/// The filter; nothing passes at first.
#[derive(Debug)]
pub(crate) struct ProcessFilter {
    program: OwnedFd,
    map: OwnedFd,
}

impl ProcessFilter {
    /// Loads the program.
    pub(crate) fn new() -> Result<Self> {
        let map = bpf::map(MAP_TYPE_HASH, 4, 4, MOST_PROCESSES, 0)?;
        let program = bpf::load(PROG_TYPE_PERF_EVENT, 0, &instructions(map.as_raw_fd()))?;
        Ok(Self { program, map })
    }

    /// From now on this process passes.
    pub(crate) fn add(&self, process: u32) -> Result<()> {
        bpf::insert(&self.map, process, 1)
    }

    /// It no longer does.
    pub(crate) fn remove(&self, process: u32) -> Result<()> {
        match bpf::remove(&self.map, process) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }
}

impl AsFd for ProcessFilter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}
