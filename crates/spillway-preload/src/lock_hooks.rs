//! What stands in place of mlock(2) and its kin. Locked memory is not managed. The pager's own memory is
//! never locked with the program's: much of it is address space only, and it must not count against the
//! program's limit (RLIMIT_MEMLOCK).

use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};
use spillway_core::page::PAGE_SIZE;
use spillway_pager::threads::calls::Operation;
use spillway_sys::{maps, own_memory, raw};

use crate::process::{call, failed, to_libc, up};

const MLOCK_ONFAULT: usize = libc::MLOCK_ONFAULT as usize;

/// Flags for mlock2(2) of every new mapping, plus one; 0 while mlockall(MCL_FUTURE) is not in force. The
/// kernel does not know of it, since it would lock the pager's new mappings too.
static FUTURE: AtomicUsize = AtomicUsize::new(0);

/// How new mappings are locked: flags for mlock2(2).
pub fn future() -> Option<usize> {
    FUTURE.load(Ordering::Relaxed).checked_sub(1)
}

/// In a forked child, which inherits no lock.
pub fn forget() {
    FUTURE.store(0, Ordering::Relaxed);
}

/// Locks what was mapped just now. False where that is more than the program may lock; what cannot be
/// brought in is no error.
pub fn lock_new(start: usize, bytes: usize, how: usize) -> bool {
    !failed(raw_lock(libc::SYS_mlock2, start, bytes, how)) || may_lock(bytes).is_ok()
}

/// Stands in for libc's mlock(2), so that the range is managed no more.
pub unsafe extern "C" fn mlock(address: *const c_void, bytes: usize) -> c_int {
    to_libc(lock(libc::SYS_mlock, address.expose_provenance(), bytes, 0)) as c_int
}

/// Stands in for libc's mlock2(2), so that the range is managed no more.
pub unsafe extern "C" fn mlock2(address: *const c_void, bytes: usize, flags: c_int) -> c_int {
    to_libc(lock(libc::SYS_mlock2, address.expose_provenance(), bytes, flags as usize)) as c_int
}

/// Stands in for libc's mlockall(2), so that the pager's memory is not locked with the program's.
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    to_libc(lock_all(flags)) as c_int
}

/// Stands in for libc's munlockall(2), so that new mappings are managed again.
pub unsafe extern "C" fn munlockall() -> c_int {
    to_libc(unlock_all()) as c_int
}

/// Any of them by number.
pub fn by_number(number: usize, [a, b, c, ..]: [usize; 6]) -> Option<isize> {
    Some(match number as c_long {
        libc::SYS_mlock => lock(libc::SYS_mlock, a, b, 0),
        libc::SYS_mlock2 => lock(libc::SYS_mlock2, a, b, c),
        libc::SYS_mlockall => lock_all(a as c_int),
        libc::SYS_munlockall => unlock_all(),
        _ => return None,
    })
}

fn raw_lock(number: c_long, start: usize, bytes: usize, flags: usize) -> isize {
    // SAFETY: locks memory and changes no contents.
    unsafe { raw::syscall(number as usize, [start, bytes, flags, 0, 0, 0]) }
}

/// mlock(2) and mlock2(2). What the kernel would refuse is left as it is: far.
fn lock(number: c_long, address: usize, bytes: usize, flags: usize) -> isize {
    const END: usize = 1 << 47;
    let start = address & !(PAGE_SIZE - 1);
    let end = address.checked_add(bytes).map(up).filter(|&end| end <= END);
    let (Some(end), true, true) = (end, bytes != 0, flags & !MLOCK_ONFAULT == 0) else {
        return raw_lock(number, address, bytes, flags);
    };
    if let Err(errno) = may_lock(end - start) {
        let new_bytes = end - start - locked_bytes(&(start..end));
        if new_bytes == end - start || may_lock(new_bytes.max(PAGE_SIZE)).is_err() {
            return -errno as isize;
        }
    }
    call(Operation::Unmanage, [start, end - start]);
    let parts = own_memory::parts_of_program(&(start..end));
    let results = parts.iter().map(|part| raw_lock(number, part.start, part.len(), flags));
    results.into_iter().find(|&result| failed(result)).unwrap_or(0)
}

/// What the kernel says to `bytes` more of locked memory: asked for with pages that cannot be used, which
/// takes none.
fn may_lock(bytes: usize) -> Result<(), c_int> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let arguments = [0, bytes, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
    // SAFETY: a new mapping, which nobody uses.
    let start = unsafe { raw::syscall(libc::SYS_mmap as usize, arguments) };
    if failed(start) {
        return Ok(());
    }
    let result = raw_lock(libc::SYS_mlock2, start as usize, bytes, MLOCK_ONFAULT);
    // SAFETY: the mapping that was made above.
    unsafe { raw::syscall(libc::SYS_munmap as usize, [start as usize, bytes, 0, 0, 0, 0]) };
    if failed(result) { Err(-result as c_int) } else { Ok(()) }
}

/// How much of a range is locked, as /proc/PID/smaps tells (proc(5): `lo`).
fn locked_bytes(range: &Range<usize>) -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let (mut current, mut bytes) = (0..0, 0);
    for line in text.lines() {
        if let Some(mapping) = maps::Mapping::parse(line) {
            current = mapping.start.max(range.start)..mapping.end.min(range.end);
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && flags.split_whitespace().any(|flag| flag == "lo")
        {
            bytes += current.len();
        }
    }
    bytes
}

/// Does mlockall(2) for the program's memory alone. Returns the raw result.
fn lock_all(flags: c_int) -> isize {
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags & !known != 0 || flags & (libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 {
        return -libc::EINVAL as isize;
    }
    let how = if flags & libc::MCL_ONFAULT != 0 { MLOCK_ONFAULT } else { 0 };
    let current = (flags & libc::MCL_CURRENT != 0).then(mappings_of_program);
    let bytes = current.iter().flatten().map(Range::len).sum();
    if let Err(errno) = may_lock_all(bytes) {
        return -errno as isize;
    }
    FUTURE.store(if flags & libc::MCL_FUTURE != 0 { how + 1 } else { 0 }, Ordering::Relaxed);
    let Some(current) = current else { return 0 };
    call(Operation::Unmanage, [0, 1 << 47]);
    for part in current {
        // As the kernel does it: what cannot be brought in is no error.
        raw_lock(libc::SYS_mlock2, part.start, part.len(), how);
    }
    0
}

/// Whether a program of so many bytes may lock them all. The limit is for the whole, whatever is locked
/// already.
fn may_lock_all(bytes: usize) -> Result<(), c_int> {
    let Some(limit) = getrlimit(Resource::Memlock).current else { return Ok(()) };
    // More than the limit is granted to those only whom it does not bind.
    match may_lock((limit as usize).saturating_add(PAGE_SIZE)) {
        Err(libc::EPERM) => Err(libc::EPERM),
        Err(errno) if bytes as u64 > limit => Err(errno),
        _ => Ok(()),
    }
}

/// The program's mappings, less what the kernel maps into every process.
fn mappings_of_program() -> Vec<Range<usize>> {
    let mappings = maps::read().unwrap_or_default();
    let of_program = mappings
        .iter()
        .filter(|mapping| !mapping.name.starts_with("[v") && !mapping.name.contains("libspillway_preload"));
    of_program.flat_map(|mapping| own_memory::parts_of_program(&(mapping.start..mapping.end))).collect()
}

fn unlock_all() -> isize {
    forget();
    // SAFETY: changes no contents.
    unsafe { raw::syscall(libc::SYS_munlockall as usize, [0; 6]) }
}
