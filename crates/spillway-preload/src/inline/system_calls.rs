//! System calls on the program's behalf, with what they use brought in.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Resource, getrlimit};
use spillway_core::page::PAGE_SIZE;
use spillway_pager::inline::Inline;
use spillway_pager::threads::calls::Operation;
use spillway_sys::signal::{self, Context};
use spillway_sys::{dispatch, raw};

use super::{ALT_STACKS, arguments, pager, signals};
use crate::fork_hooks::{CHILD_TID, CloneArguments, FLAGS, STACK, STACK_BYTES, SYS_CLONE3, TLS};
use crate::reach::{BadAddress, Reader};
use crate::{call, complain, fork_hooks, memory_hooks, process_hooks};

const SYS_CLOSE_RANGE: i64 = 436;
const SYS_IO_URING_SETUP: i64 = 425;
const SECCOMP_GET_ACTION_AVAIL: usize = 2;
const KVM_CREATE_VM: usize = 0xAE01;

/// `MAX_ARG_STRLEN`: exec refuses longer ones.
const MOST_STRING_BYTES: usize = 32 * PAGE_SIZE;

/// Times that a call is made again which failed because something had gone meanwhile.
const TRIES: usize = 64;

/// Whether a system call is one after which the program cannot go on in inline mode: a filter may forbid what serving
/// takes; io_uring, Linux's AIO and KVM let the kernel use memory outside system calls; and two processes that share a file
/// table and nothing else cannot each have descriptors of their own.
pub fn must_leave(number: usize, a: [usize; 6]) -> bool {
    match number as i64 {
        libc::SYS_prctl => a[0] as i32 == libc::PR_SET_SECCOMP,
        libc::SYS_seccomp => a[0] != SECCOMP_GET_ACTION_AVAIL,
        libc::SYS_ioctl => a[1] == KVM_CREATE_VM,
        libc::SYS_io_setup => true,
        libc::SYS_clone | SYS_CLONE3 => !is_forking() && fork_hooks::shares_files_alone(number, a),
        number => number == SYS_IO_URING_SETUP,
    }
}

/// The answer to such a call in a program with several threads, of which none may be left between two modes.
pub fn refuse(number: usize) -> isize {
    complain(&format!(
        "system call {number} is refused, since the program has several threads in inline mode; \
         run it with --fault-mode thread"
    ));
    -libc::ENOSYS as isize
}

/// Makes a system call. `context` is the interrupted thread's where a signal has brought us here.
pub fn perform(number: usize, a: [usize; 6], context: Option<&mut Context<'_>>) -> isize {
    let Some(pager) = pager() else {
        // SAFETY: the program's own call.
        return unsafe { raw::syscall(number, a) };
    };
    if must_leave(number, a) {
        return if super::leave() { memory_hooks::pass_on(number, a) } else { refuse(number) };
    }
    match context {
        Some(context) => Caller { pager, mask: context.signal_mask() }.perform(number, a, Some(context)),
        None => {
            let mask = signals::block();
            let result = Caller { pager, mask }.perform(number, a, None);
            signal::set_mask(mask);
            result
        }
    }
}

/// A thread of the program that calls the kernel. Signals are blocked but within the call itself: a handler of the
/// program's might wait for a lock that bringing memory in holds.
struct Caller<'a> {
    pager: &'a Inline,
    /// What the program has blocked.
    mask: u64,
}

impl Caller<'_> {
    fn perform(&self, number: usize, a: [usize; 6], context: Option<&mut Context<'_>>) -> isize {
        let pager = self.pager;
        if let Some(result) = memory_hooks::by_number(number, a) {
            return result;
        }
        match number as i64 {
            libc::SYS_clone | SYS_CLONE3 | libc::SYS_fork | libc::SYS_vfork => clone(number, a, context),
            libc::SYS_rt_sigprocmask if context.is_none() => self.with_mask(number, a, 1),
            // Nothing can be served before the fork is over, and nothing needs to be.
            _ if is_forking() && number as i64 != libc::SYS_rt_sigprocmask => {
                // SAFETY: the program's own call.
                unsafe { raw::syscall(number, a) }
            }
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                let key = if number as i64 == libc::SYS_mprotect { 0 } else { a[3] };
                let is_readable = a[2] & (libc::PROT_READ | libc::PROT_WRITE) as usize != 0 && key == 0;
                if !is_readable {
                    pager.note_unreadable(a[0]..a[0].saturating_add(a[1]));
                }
                self.call(number, a)
            }
            libc::SYS_unshare => process_hooks::raw_unshare(a[0]),
            libc::SYS_setns => process_hooks::raw_setns(a[0], a[1]),
            libc::SYS_exit => process_hooks::raw_exit(a[0]),
            libc::SYS_rt_sigaction => signals::action(a),
            libc::SYS_rt_sigprocmask => context.map_or(0, |context| signals::change_mask(a, context)),
            // The stacks that our handlers need are the only ones; the program's run there too.
            libc::SYS_sigaltstack => alt_stack(a[1]),
            libc::SYS_ppoll => self.with_mask(number, a, 3),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => self.with_mask(number, a, 4),
            libc::SYS_rt_sigsuspend => self.with_mask(number, a, 0),
            libc::SYS_pselect6 => self.select(number, a),
            libc::SYS_close if pager.owns_descriptor(a[0] as i32) => -libc::EBADF as isize,
            libc::SYS_dup2 | libc::SYS_dup3 if pager.owns_descriptor(a[1] as i32) => -libc::EBUSY as isize,
            SYS_CLOSE_RANGE => close_range(pager, a),
            libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64
                if a[2] > pager.most_held_bytes() =>
            {
                self.in_parts(number, a)
            }
            // What the kernel writes to between system calls, or while the thread ends, must stay local.
            libc::SYS_rseq | libc::SYS_set_robust_list => self.at_home(number, a, a[1]),
            libc::SYS_set_tid_address => self.at_home(number, a, size_of::<u32>()),
            // Nothing of the program's memory, or what costs nothing to look at again. After an exec nobody lets go of a
            // hold, and the pager itself waits and sleeps, with locks.
            libc::SYS_futex
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_exit_group
            | libc::SYS_msync
            | libc::SYS_mbind
            | libc::SYS_sched_yield
            | libc::SYS_getpid
            | libc::SYS_gettid
            | libc::SYS_close
            | libc::SYS_lseek
            | libc::SYS_tgkill => self.again_if_gone(number, a),
            _ => self.ready_call(number, a),
        }
    }

    /// Brings in what the call uses and makes it.
    fn ready_call(&self, number: usize, a: [usize; 6]) -> isize {
        let pager = self.pager;
        let Some(hold) = pager.hold(frame()) else { return self.again_if_gone(number, a) };
        let mut is_ready = true;
        arguments::used(number, a, |range| is_ready &= pager.make_ready(range, &hold));
        if !is_ready {
            return -libc::EFAULT as isize;
        }
        let result = self.call(number, a);
        if result != -libc::EFAULT as isize {
            return result;
        }
        drop(hold);
        self.again_if_gone(number, a)
    }

    /// Makes a call that does nothing when it cannot have its memory, as often as that takes.
    fn again_if_gone(&self, number: usize, a: [usize; 6]) -> isize {
        for _ in 0..TRIES {
            let result = self.call(number, a);
            if result != -libc::EFAULT as isize {
                return result;
            }
            signals::block();
            let pager = self.pager;
            let (mut uses_ours, mut is_ready) = (false, true);
            let hold = pager.hold(frame());
            arguments::used(number, a, |range| {
                uses_ours |= pager.manages(range.start);
                is_ready &= hold.as_ref().is_none_or(|hold| pager.make_ready(range, hold));
            });
            match bring_strings(number, a) {
                Some(Ok(())) => (uses_ours, is_ready) = (true, true),
                Some(Err(errno)) => return -errno as isize,
                None => {}
            }
            if !uses_ours || !is_ready {
                return result;
            }
        }
        report(number);
        -libc::EFAULT as isize
    }

    /// A read or write of more than should be held at once.
    fn in_parts(&self, number: usize, a: [usize; 6]) -> isize {
        let part = self.pager.most_held_bytes();
        let has_offset = matches!(number as i64, libc::SYS_pread64 | libc::SYS_pwrite64);
        let mut done = 0;
        while done < a[2] {
            let bytes = part.min(a[2] - done);
            let offset = if has_offset { a[3] + done } else { 0 };
            let result = self.ready_call(number, [a[0], a[1] + done, bytes, offset, 0, 0]);
            if result < 0 {
                return if done == 0 { result } else { done as isize };
            }
            done += result as usize;
            signals::block();
            if (result as usize) < bytes {
                break;
            }
        }
        done as isize
    }

    /// Makes a call whose first argument is where the kernel may write at any time.
    fn at_home(&self, number: usize, a: [usize; 6], bytes: usize) -> isize {
        keep_local(self.pager, a[0], bytes);
        self.call(number, a)
    }

    /// A call with a mask of blocked signals as its argument `index`: a copy without ours.
    fn with_mask(&self, number: usize, mut a: [usize; 6], index: usize) -> isize {
        let mut mask = 0;
        if a[index] != 0 {
            mask = signals::allowed(read_word(a[index]));
            a[index] = std::ptr::from_ref(&mask).expose_provenance();
        }
        let result = self.ready_call(number, a);
        std::hint::black_box(mask);
        result
    }

    /// pselect6(2), whose last argument leads to the mask.
    fn select(&self, number: usize, mut a: [usize; 6]) -> isize {
        let (mut mask, mut pair) = (0_u64, [0_usize; 2]);
        if a[5] != 0 && read_word(a[5]) != 0 {
            mask = signals::allowed(read_word(read_word(a[5]) as usize));
            pair = [std::ptr::from_ref(&mask).expose_provenance(), read_word(a[5] + 8) as usize];
            a[5] = pair.as_ptr().expose_provenance();
        }
        let result = self.ready_call(number, a);
        std::hint::black_box((mask, pair));
        result
    }

    /// The program's own call, with the signals that it takes.
    fn call(&self, number: usize, a: [usize; 6]) -> isize {
        signal::set_mask(self.mask);
        // SAFETY: by the program's word.
        unsafe { raw::syscall(number, a) }
    }
}

/// An address in this thread's stack, if that is the one of its handlers: only there does a deeper one mean a later call.
fn frame() -> usize {
    let here = 0_u8;
    let address = std::ptr::from_ref(&here).expose_provenance();
    if ALT_STACKS.contains(address) { address } else { 0 }
}

/// Touches the strings of an exec, of which there may be more than can be held. `None` for any other call, and the kernel's
/// errno where an address is wrong or there are too many.
fn bring_strings(number: usize, a: [usize; 6]) -> Option<Result<(), i32>> {
    let (path, arrays) = match number as i64 {
        libc::SYS_execve => (a[0], [a[1], a[2]]),
        libc::SYS_execveat => (a[1], [a[2], a[3]]),
        _ => return None,
    };
    let (mut reader, mut bytes) = (Reader::default(), 0);
    let mut bring = || {
        reader.string(path, MOST_STRING_BYTES)?;
        for array in arrays.into_iter().filter(|&array| array != 0) {
            for string in reader.pointers(array)? {
                bytes += size_of::<usize>() + reader.string(string, MOST_STRING_BYTES)?.len() + 1;
            }
        }
        Ok(())
    };
    Some(match bring() {
        Err(BadAddress) => Err(libc::EFAULT),
        Ok(()) if bytes > most_exec_bytes() => Err(libc::E2BIG),
        Ok(()) => Ok(()),
    })
}

/// What the strings of an exec and their addresses may take (`bprm_stack_limits`).
fn most_exec_bytes() -> usize {
    const MOST: u64 = 6 << 20;
    const LEAST: u64 = 128 << 10;
    let stack_bytes = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    (stack_bytes / 4).min(MOST).max(LEAST) as usize
}

/// Names a call that the kernel could not have served, each once a process, as far as 64 bits can tell.
fn report(number: usize) {
    static NAMED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let bit = 1 << (number % 64);
    if NAMED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        complain(&format!(
            "system call {number} did not find the memory that it uses; run the program with --fault-mode thread"
        ));
    }
}

/// Brings a range in for good, where it is managed or may come to be.
fn keep_local(pager: &Inline, start: usize, bytes: usize) {
    let first_page = start / PAGE_SIZE * PAGE_SIZE;
    let pages = first_page..start.saturating_add(bytes).div_ceil(PAGE_SIZE).saturating_mul(PAGE_SIZE);
    if pager.may_leave(&pages) {
        call(Operation::Unmanage, [pages.start, pages.len(), 0, 0]);
    }
}

/// Where a new thread starts and what it needs before it can serve a fault: its first words on its stack, and its
/// thread-local storage, which threading libraries put above the stack (handlers use errno).
fn keep_thread_local(pager: &Inline, flags: usize, stack_top: usize, tls: usize, child_tid: usize) {
    /// Of static thread-local storage. More is not taken for such.
    const MOST_STATIC_BYTES: usize = 64 << 20;
    /// Behind the thread pointer: its own address and what the compiler expects there.
    const HEADER_BYTES: usize = 64;
    let has = |bits: i32| flags & bits as usize != 0;
    let start = stack_top.saturating_sub(dispatch::CHILD_BYTES);
    if !has(libc::CLONE_SETTLS) {
        keep_local(pager, start, dispatch::CHILD_BYTES);
    } else if (stack_top..stack_top.saturating_add(MOST_STATIC_BYTES)).contains(&tls) {
        keep_local(pager, start, tls - start + HEADER_BYTES);
    } else {
        keep_local(pager, start, dispatch::CHILD_BYTES);
        keep_local(pager, tls.saturating_sub(PAGE_SIZE), PAGE_SIZE + HEADER_BYTES);
    }
    // Written when the thread starts or ends, and not again where that fails.
    if has(libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) {
        keep_local(pager, child_tid, size_of::<u32>());
    }
}

fn read_word(address: usize) -> u64 {
    // SAFETY: memory that the program passes to the kernel; a wrong address gives a signal in the thread that passes it.
    unsafe { std::ptr::with_exposed_provenance::<u64>(address).read_unaligned() }
}

fn alt_stack(old: usize) -> isize {
    if old != 0 {
        let none = [0, libc::SS_DISABLE as usize, 0];
        // SAFETY: the program passes a `stack_t` to be written.
        unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 3]>(old).write_unaligned(none) };
    }
    0
}

/// close_range(2) around our descriptors.
fn close_range(pager: &Inline, a: [usize; 6]) -> isize {
    let [first, last, flags, ..] = a;
    if first > last {
        return -libc::EINVAL as isize;
    }
    let mut own: Vec<usize> = pager.descriptors().iter().map(|&fd| fd as usize).collect();
    own.sort_unstable();
    let mut start = first;
    let mut result = 0;
    for end in own.into_iter().filter(|fd| (first..=last).contains(fd)).chain([last.saturating_add(1)]) {
        if start < end {
            // SAFETY: takes no address.
            let part = unsafe { raw::syscall(SYS_CLOSE_RANGE as usize, [start, end - 1, flags, 0, 0, 0]) };
            result = result.min(part);
        }
        start = end + 1;
    }
    result
}

/// The thread that is about to fork in a hook of ours, which has made everything ready.
static FORKING: AtomicU32 = AtomicU32::new(0);

fn is_forking() -> bool {
    let forking = FORKING.load(Ordering::Relaxed);
    forking != 0 && forking == signal::own_thread()
}

/// A fork by libc's own code within `fork`.
pub fn forking<T>(fork: impl FnOnce() -> T) -> T {
    if pager().is_none() {
        return fork();
    }
    FORKING.store(signal::own_thread(), Ordering::Relaxed);
    let result = fork();
    FORKING.store(0, Ordering::Relaxed);
    result
}

/// A new thread, or a process that shares this memory, or one that does not.
fn clone(number: usize, mut a: [usize; 6], context: Option<&mut Context<'_>>) -> isize {
    let mut extended = match number as i64 {
        SYS_CLONE3 => match CloneArguments::read(a[0], a[1]) {
            Ok(arguments) => arguments.words,
            Err(errno) => return -errno as isize,
        },
        _ => Default::default(),
    };
    let is_extended = number as i64 == SYS_CLONE3;
    let (flags, stack, child_tid) = match number as i64 {
        SYS_CLONE3 => (extended[FLAGS], extended[STACK] + extended[STACK_BYTES], extended[CHILD_TID]),
        libc::SYS_clone => (a[0], a[1], a[3]),
        _ => (0, 0, 0),
    };
    let shares_memory = flags & libc::CLONE_VM as usize != 0;
    if stack == 0 || (context.is_none() && !shares_memory) {
        return fork(number, a);
    }
    if !shares_memory && !is_forking() {
        return -libc::ENOSYS as isize;
    }
    let Some(context) = context else { return -libc::ENOSYS as isize };
    let tls = if is_extended { extended[TLS] } else { a[4] };
    if let Some(pager) = pager().filter(|_| !is_forking()) {
        keep_thread_local(pager, flags, stack, tls, child_tid);
    }
    if is_extended {
        extended[STACK_BYTES] -= dispatch::CHILD_BYTES;
        a[0] = extended.as_ptr().expose_provenance();
    } else {
        a[1] -= dispatch::CHILD_BYTES;
    }
    clone_onto(number, a, (stack, flags), context)
}

fn clone_onto(number: usize, a: [usize; 6], (stack, flags): (usize, usize), context: &Context<'_>) -> isize {
    let Ok(own) = ALT_STACKS.claim(signals::is_own_process()) else { return -libc::EAGAIN as isize };
    let shares_memory = flags & libc::CLONE_VM as usize != 0;
    // After vfork(2) the parent waits until its memory is its own again.
    if let Some(pager) = pager()
        && shares_memory
        && flags & libc::CLONE_VFORK as usize == 0
    {
        pager.note_company();
    }
    let mask = signal::set_mask(u64::MAX);
    // SAFETY: the program's own call, its stack lower by what clone_onto needs.
    // A process of its own is served only once it has a pager of its own.
    let result = unsafe { dispatch::clone_onto(number, a, stack, context, own, shares_memory) };
    let is_thread = flags & libc::CLONE_THREAD as usize != 0;
    let has_ended = flags & libc::CLONE_VFORK as usize != 0 || !shares_memory;
    match result {
        ..0 => ALT_STACKS.give(own, 0),
        thread if is_thread => ALT_STACKS.give(own, thread as u32),
        _ if has_ended => ALT_STACKS.give(own, 0),
        // A process that shares this memory for as long as it likes: its stack stays its own.
        _ => {}
    }
    signal::set_mask(mask);
    result
}

/// A child with memory of its own, on this stack. vfork(2) too: its child may not share our stack.
fn fork(number: usize, a: [usize; 6]) -> isize {
    if is_forking() {
        // SAFETY: made ready by the hook that we are in.
        return unsafe { raw::syscall(number, a) };
    }
    fork_hooks::by_system_call(number, a)
}
