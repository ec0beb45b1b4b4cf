//! What stands in place of libc's memory calls. Each makes the very system call that the program asked for,
//! in the program's own thread, and tells the pager before or after it.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use spillway_core::page::PAGE_SIZE;
use spillway_pager::attach::Startup;
use spillway_pager::kernel::ForkAdvice;
use spillway_pager::threads::calls::Operation;
use spillway_sys::raw;

use crate::inline::presence::is_single_threaded;
use crate::originals::{CURRENT_BREAK, HEAP_START};
use crate::process::{STARTUP, call, failed, set_errno, stop, to_libc, up};
use crate::reach::Reader;
use crate::{devices, fork_hooks, lock_hooks, process_hooks, remote, thread_hooks, user_dispatch};

const SYS_MSEAL: c_long = 462;
/// More vectors are refused (`UIO_MAXIOV`).
const MOST_VECTORS: usize = 1024;
/// Takes contents away, and has every access fail (Linux 6.13).
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_WIPEONFORK: c_int = 18;
const MADV_KEEPONFORK: c_int = 19;

fn is_range(address: usize, bytes: usize) -> bool {
    address.is_multiple_of(PAGE_SIZE) && address.checked_add(up(bytes)).is_some_and(|end| end <= 1 << 47)
}

/// A range whose contents the pager has given up was not taken away by the kernel after all.
fn contents_lost(what: &str, result: isize) -> ! {
    stop(&format!(
        "{what} failed (errno {}) for memory that was dropped before it; the program is stopped before it \
         reads wrong data",
        -result
    ))
}

fn is_manageable(flags: c_int, fd: c_int) -> bool {
    let anonymous = flags & libc::MAP_ANONYMOUS != 0 && flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
    // Thread stacks are left alone: the kernel and libc touch them where the pager cannot answer.
    let left_alone = libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_LOCKED;
    let _ = fd;
    anonymous && flags & left_alone == 0 && lock_hooks::future().is_none()
}

/// Stands in for libc's mmap(2), so that the pager knows of new memory, and of what it replaces.
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let result = raw_mmap([
        address.expose_provenance(),
        bytes,
        protection as usize,
        flags as usize,
        fd as usize,
        offset as usize,
    ]);
    std::ptr::with_exposed_provenance_mut(to_libc(result) as usize)
}

fn raw_mmap(mut arguments: [usize; 6]) -> isize {
    let [address, bytes, protection, flags, fd, _] = arguments;
    let flags = flags as c_int;
    let manage = is_manageable(flags, fd as c_int);
    let replaces =
        flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE != libc::MAP_FIXED_NOREPLACE;
    let mut held = 0;
    if replaces && bytes != 0 && is_range(address, bytes) {
        held = call(Operation::Forget, [address, up(bytes), 0, 0]);
    }
    if manage {
        // Pages must come in through the pager, to be counted.
        arguments[3] &= !(libc::MAP_POPULATE as usize);
    }
    let locks = lock_hooks::future();
    if locks == Some(0) {
        arguments[3] |= libc::MAP_LOCKED as usize;
    }
    // SAFETY: the program's own call, word by word but for what is said above.
    let mut result = unsafe { raw::syscall(libc::SYS_mmap as usize, arguments) };
    if let (Some(how @ 1..), false) = (locks, failed(result))
        && !lock_hooks::lock_new(result as usize, up(bytes), how)
    {
        // SAFETY: nobody knows of the mapping yet.
        unsafe { raw::syscall(libc::SYS_munmap as usize, [result as usize, bytes, 0, 0, 0, 0]) };
        result = -libc::EAGAIN as isize;
    }
    if failed(result) {
        if held > 0 {
            contents_lost("mmap", result);
        }
        return result;
    }
    if !manage {
        call(Operation::CountUnmanaged, [up(bytes), 0, 0, 0]);
        return result;
    }
    // A reservation would take room that it does not use.
    let is_reservation = protection as c_int == libc::PROT_NONE || flags & libc::MAP_NORESERVE != 0;
    let range = [result as usize, up(bytes), usize::from(!is_reservation), 0];
    if call(Operation::Map, range) != 0 && flags & libc::MAP_POPULATE != 0 {
        let populate = [result as usize, up(bytes), libc::MADV_POPULATE_WRITE as usize, 0, 0, 0];
        // SAFETY: faults in the mapping that was just made; failure is no error for MAP_POPULATE.
        unsafe { raw::syscall(libc::SYS_madvise as usize, populate) };
    }
    result
}

/// Stands in for libc's munmap(2), so that the pager forgets what was there.
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    to_libc(raw_munmap(address.expose_provenance(), bytes)) as c_int
}

fn raw_munmap(address: usize, bytes: usize) -> isize {
    let mut held = 0;
    if bytes != 0 && is_range(address, bytes) {
        held = call(Operation::Forget, [address, up(bytes), 1, 0]);
    }
    // SAFETY: the program's own call.
    let result = unsafe { raw::syscall(libc::SYS_munmap as usize, [address, bytes, 0, 0, 0, 0]) };
    if failed(result) && held > 0 {
        contents_lost("munmap", result);
    }
    result
}

/// Stands in for libc's mremap(2), so that what is far moves with its mapping.
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let result = raw_mremap([
        old.expose_provenance(),
        old_bytes,
        new_bytes,
        flags as usize,
        new.expose_provenance(),
        0,
    ]);
    std::ptr::with_exposed_provenance_mut(to_libc(result) as usize)
}

fn raw_mremap(arguments: [usize; 6]) -> isize {
    let [old, old_bytes, new_bytes, flags, new, _] = arguments;
    let flags = flags as c_int;
    if old_bytes == 0 || !is_range(old, old_bytes) || new_bytes == 0 {
        // SAFETY: the program's own call.
        return unsafe { raw::syscall(libc::SYS_mremap as usize, arguments) };
    }
    let stays = flags & (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) == 0;
    let fixed = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    if stays || (up(new_bytes) <= up(old_bytes) && !fixed) {
        return resize_in_place(arguments);
    }
    let mut held = 0;
    if flags & libc::MREMAP_FIXED != 0 && is_range(new, new_bytes) {
        held = call(Operation::Forget, [new, up(new_bytes), 0, 0]);
    }
    call(Operation::RemapBegin, [old, up(old_bytes), 0, 0]);
    // SAFETY: the program's own call.
    let result = unsafe { raw::syscall(libc::SYS_mremap as usize, arguments) };
    if failed(result) {
        call(Operation::RemapEnd, [old, up(old_bytes), 0, 0]);
        if held > 0 {
            contents_lost("mremap", result);
        }
        return result;
    }
    call(Operation::RemapEnd, [old, up(old_bytes), result as usize, up(new_bytes)]);
    if flags & libc::MREMAP_DONTUNMAP != 0 {
        call(Operation::Map, [old, up(old_bytes), 0, 0]);
    }
    result
}

/// An mremap(2) that moves nothing: other threads may use the memory meanwhile.
fn resize_in_place(arguments: [usize; 6]) -> isize {
    let [old, old_bytes, new_bytes, ..] = arguments;
    let (old_end, new_end) = (old + up(old_bytes), old + up(new_bytes));
    let held =
        if new_end < old_end { call(Operation::Forget, [new_end, old_end - new_end, 1, 0]) } else { 0 };
    // SAFETY: the program's own call.
    let result = unsafe { raw::syscall(libc::SYS_mremap as usize, arguments) };
    if failed(result) && held > 0 {
        contents_lost("mremap", result);
    }
    if !failed(result) && new_end > old_end {
        call(Operation::Grown, [old, old_end, new_end - old_end, 0]);
    }
    result
}

/// Stands in for libc's madvise(2), so that the pager hears of advice that takes contents away.
pub unsafe extern "C" fn madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    to_libc(raw_madvise(address.expose_provenance(), bytes, advice)) as c_int
}

fn raw_madvise(address: usize, bytes: usize, advice: c_int) -> isize {
    let range = [address, up(bytes), 0, 0];
    let sound = bytes != 0 && is_range(address, bytes);
    let managed = match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | MADV_GUARD_INSTALL if sound => {
            call(Operation::Discard, range)
        }
        _ => 0,
    };
    if managed == up(bytes) && sound && advice != MADV_GUARD_INSTALL {
        return 0;
    }
    if sound && let Some(result) = advise_on_fork(address, up(bytes), advice) {
        return result;
    }
    let arguments = [address, bytes, advice as usize, 0, 0, 0];
    // SAFETY: the program's own call.
    unsafe { raw::syscall(libc::SYS_madvise as usize, arguments) }
}

/// Has the pager do what is about forked children; `None` for other advice, and where there is no pager.
fn advise_on_fork(address: usize, bytes: usize, advice: c_int) -> Option<isize> {
    let advice = match advice {
        libc::MADV_DOFORK => ForkAdvice::Inherit,
        MADV_KEEPONFORK => ForkAdvice::Keep,
        MADV_WIPEONFORK => ForkAdvice::Wipe,
        libc::MADV_DONTFORK => ForkAdvice::Drop,
        _ => return None,
    };
    let answer = call(Operation::AdviseOnFork, [address, bytes, advice as usize, 0]);
    Some(-(answer.checked_sub(1)? as isize))
}

/// process_madvise(2), which is madvise(2) where it is this process's own memory. Returns bytes, as many as
/// come before the first range that is refused.
fn process_madvise(arguments: [usize; 6]) -> isize {
    let [process, vectors, count, advice, flags, _] = arguments;
    if flags != 0 || count > MOST_VECTORS || !is_own_process(process as c_int) {
        // SAFETY: the program's own call.
        return unsafe { raw::syscall(libc::SYS_process_madvise as usize, arguments) };
    }
    let (mut done, mut reader) = (0, Reader::default());
    let mut ranges = Vec::new();
    for at in (0..count).map(|index| vectors.wrapping_add(index * 2 * size_of::<usize>())) {
        let (Ok(start), Ok(bytes)) = (reader.word(at), reader.word(at.wrapping_add(size_of::<usize>())))
        else {
            return -libc::EFAULT as isize;
        };
        ranges.push((start, bytes));
    }
    for (start, bytes) in ranges {
        let result = raw_madvise(start, bytes, advice as c_int);
        if failed(result) {
            return if done == 0 { result } else { done };
        }
        done += bytes as isize;
    }
    done
}

/// Whether a descriptor is of this process (pidfd_open(2)).
fn is_own_process(descriptor: c_int) -> bool {
    /// What the kernel takes for a descriptor of the caller's process (`PIDFD_SELF_THREAD_GROUP`, Linux
    /// 6.14).
    const PIDFD_SELF: c_int = -10001;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap_or_default();
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<u32>().ok());
    descriptor == PIDFD_SELF || pid == Some(std::process::id())
}

/// mseal(2). What may not be taken away any more is left alone.
fn raw_mseal(arguments: [usize; 6]) -> isize {
    let [start, bytes, flags, ..] = arguments;
    if flags == 0 && bytes != 0 && is_range(start, bytes) {
        call(Operation::Unmanage, [start, up(bytes)]);
    }
    // SAFETY: the program's own call.
    unsafe { raw::syscall(SYS_MSEAL as usize, arguments) }
}

/// The break, where libc does not say.
static BREAK: AtomicUsize = AtomicUsize::new(0);

/// brk(2), as libc's wrapper: 0 or -1.
pub unsafe extern "C" fn brk(address: *mut c_void) -> c_int {
    let wanted = address.expose_provenance();
    let libc_break = CURRENT_BREAK.get().copied().unwrap_or(0);
    let known = match libc_break {
        0 => 0,
        // SAFETY: libc's variable, which its own brk sets here; libc serialises its callers.
        at => unsafe { *std::ptr::with_exposed_provenance::<usize>(at) },
    };
    let now = raw_brk(wanted, known);
    if libc_break != 0 {
        // SAFETY: as above.
        unsafe { *std::ptr::with_exposed_provenance_mut::<usize>(libc_break) = now };
    }
    if now < wanted {
        set_errno(libc::ENOMEM);
        return -1;
    }
    0
}

fn raw_brk(wanted: usize, known: usize) -> usize {
    let kernel = |address| {
        // SAFETY: the program's own call; with 0 it only asks.
        unsafe { raw::syscall(libc::SYS_brk as usize, [address, 0, 0, 0, 0, 0]) as usize }
    };
    let before = if known == 0 { kernel(0) } else { known };
    if wanted == 0 {
        return before;
    }
    let shrinks = up(wanted) < up(before);
    // Below the heap's start the kernel refuses it, and nothing goes.
    let may_go = HEAP_START.get().is_some_and(|start| wanted >= *start);
    let mut held = 0;
    if shrinks && may_go {
        held = call(Operation::Forget, [up(wanted), up(before) - up(wanted), 1, 0]);
    }
    let mut now = kernel(wanted);
    if now != wanted && held > 0 {
        contents_lost("brk", -(libc::ENOMEM as isize));
    }
    if shrinks && !may_go && now == wanted {
        // But for one with CONFIG_COMPAT_BRK.
        call(Operation::Forget, [up(now), up(before) - up(now), 0, 0]);
    }
    if up(now) > up(before) {
        let grown = [up(before), up(now) - up(before), 1, 0];
        match lock_hooks::future() {
            None => drop(call(Operation::Map, grown)),
            Some(how) if !lock_hooks::lock_new(grown[0], grown[1], how) => now = kernel(before),
            Some(_) => {}
        }
    }
    BREAK.store(now, Ordering::Relaxed);
    now
}

/// seccomp(2). A filter for all threads would bind the pager's too, and kill the process with the first page.
/// Where the program has one thread, all its threads are that one; where it has more, the kernel decides.
fn raw_seccomp(mut arguments: [usize; 6]) -> isize {
    let sets_filter = arguments[0] == libc::SECCOMP_SET_MODE_FILTER as usize;
    if sets_filter && arguments[1] & libc::SECCOMP_FILTER_FLAG_TSYNC as usize != 0 && is_single_threaded() {
        arguments[1] &= !(libc::SECCOMP_FILTER_FLAG_TSYNC as usize);
    }
    // SAFETY: the program's own call.
    unsafe { raw::syscall(libc::SYS_seccomp as usize, arguments) }
}

/// What mincore(2) tells beyond what the kernel has told: a page that holds something counts as resident,
/// local or far. `told` is the kernel's answer.
pub fn tell_residency(arguments: [usize; 6], told: isize) -> isize {
    let [start, bytes, to, ..] = arguments;
    if told == 0
        && let Some(engine) = STARTUP.get().and_then(Startup::engine)
    {
        let first = start / PAGE_SIZE;
        for (page_number, word) in engine.table.range(first as u64, (first + up(bytes) / PAGE_SIZE) as u64) {
            if !word.peek().is_absent() {
                let at = to + (page_number as usize - first);
                // SAFETY: the kernel has just written there, one byte for each page.
                unsafe { *std::ptr::with_exposed_provenance_mut::<u8>(at) |= 1 };
            }
        }
    }
    told
}

/// A system call that changes the address space; `None` for any other.
pub fn by_number(number: usize, arguments: [usize; 6]) -> Option<isize> {
    let [a, b, c, ..] = arguments;
    Some(match number as c_long {
        libc::SYS_mmap => raw_mmap(arguments),
        libc::SYS_munmap => raw_munmap(a, b),
        libc::SYS_mremap => raw_mremap(arguments),
        libc::SYS_madvise => raw_madvise(a, b, c as c_int),
        libc::SYS_brk => raw_brk(a, 0) as isize,
        libc::SYS_process_madvise => process_madvise(arguments),
        SYS_MSEAL => raw_mseal(arguments),
        _ => return lock_hooks::by_number(number, arguments),
    })
}

/// A system call by number in thread mode.
pub fn pass_on(number: usize, arguments: [usize; 6]) -> isize {
    if let Some(result) = by_number(number, arguments) {
        return result;
    }
    if let Some(result) = user_dispatch::by_number(number, arguments) {
        return result;
    }
    devices::give(number, arguments);
    match number as c_long {
        libc::SYS_seccomp => raw_seccomp(arguments),
        libc::SYS_unshare => process_hooks::raw_unshare(arguments[0]),
        libc::SYS_setns => process_hooks::raw_setns(arguments[0], arguments[1]),
        libc::SYS_exit => process_hooks::raw_exit(arguments[0]),
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | fork_hooks::SYS_CLONE3 => {
            fork_hooks::by_system_call(number, arguments)
        }
        libc::SYS_mincore => tell_residency(arguments, kernel(number, arguments)),
        libc::SYS_set_tid_address | libc::SYS_set_robust_list => {
            thread_hooks::keep_thread_words(number, arguments);
            kernel(number, arguments)
        }
        libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
            remote::transfer(number, arguments, &mut kernel)
        }
        _ => kernel(number, arguments),
    }
}

/// The program's own call.
fn kernel(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: by the program's word.
    unsafe { raw::syscall(number, arguments) }
}
