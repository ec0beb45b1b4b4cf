//! What the stores in this machine's own memory have in common.

use std::os::fd::OwnedFd;

use rustix::fs::fstat;
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;

use crate::spec::MAX_SIZE;
use crate::{StoreError, StoreSpec};

/// Memory of this machine in bytes (`MemTotal`).
pub(crate) fn total_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// Whole pages in a size that the user gave, by default in the memory of the machine.
pub(crate) fn pages_in(size: Option<Size>) -> u64 {
    size.map_or_else(total_bytes, Size::bytes).min(MAX_SIZE.bytes()) / PAGE_SIZE as u64
}

/// Bytes of memory that the memory file takes at this moment; 0 when it cannot be asked.
pub(crate) fn held_bytes(file: &OwnedFd) -> u64 {
    fstat(file).map_or(0, |status| u64::try_from(status.st_blocks).unwrap_or(0) * 512)
}

/// The memory file that the run's processes share.
pub(crate) fn shared_file(spec: &StoreSpec, file: Option<OwnedFd>) -> Result<OwnedFd, StoreError> {
    file.ok_or_else(|| spec.unusable("the run's memory file did not arrive", "start the run anew"))
}

/// The error for a memory file that cannot be made or mapped.
pub(crate) fn no_memory_file(spec: &StoreSpec, errno: rustix::io::Errno) -> StoreError {
    spec.unusable(
        format_args!("its memory file cannot be made or mapped: {errno}"),
        "give it a smaller size, or raise the limit on address space (ulimit -v)",
    )
}

/// The error for a slot number that the store has not got.
pub(crate) fn no_such_slot(uri: &str, slot: u32, capacity_slots: u32) -> StoreError {
    StoreError::Io {
        store: uri.to_owned(),
        reason: format!("it has no slot {slot}, only {capacity_slots} slots"),
    }
}

/// Calls `action` with the first slot and the length of every run of neighbours in `slots`.
pub(crate) fn for_each_run(slots: &[u32], mut action: impl FnMut(u32, u32)) {
    let mut sorted = slots.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    for run in sorted.chunk_by(|one, next| one + 1 == *next) {
        if let Some(first) = run.first() {
            action(*first, run.len() as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_make_runs() {
        let mut runs = Vec::new();
        for_each_run(&[7, 3, 4, 9, 5, 8, 3, 0], |first, length| runs.push((first, length)));
        assert_eq!(runs, [(0, 1), (3, 3), (7, 3)]);
        for_each_run(&[], |_, _| panic!("a run of nothing"));
    }

    #[test]
    fn the_machine_has_memory() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib: u64 = text.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(total_bytes(), kib * 1024);
        assert_eq!(pages_in(None), kib / 4);
        assert_eq!(pages_in(Some(Size::from_bytes(9000))), 2);
    }
}
