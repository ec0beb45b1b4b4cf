//! System calls on the program's behalf, with what they use brought in.

use std::ops::Range;

use spillway_pager::inline::Inline;
use spillway_sys::signal::Context;
use spillway_sys::{cancellable, raw};

use super::clone::{clone, keep_local};
use super::exec_strings::bring_strings;
use super::leaving::leave;
use super::presence::{frame, is_forking, pager};
use super::{arguments, descriptors, signals, stack_readers};
use crate::file_kind::file_kind;
use crate::program_memory::{read, read_words, write_words};
use crate::remote;
use crate::vectors::Vectors;
use crate::{devices, fork_hooks, memory_hooks, process_hooks, user_dispatch};

/// io_uring_setup(2), io_uring_enter(2) and io_uring_register(2): a ring may come from another process.
const IO_URING: std::ops::RangeInclusive<i64> = 425..=427;
const SECCOMP_GET_ACTION_AVAIL: usize = 2;
const KVM_CREATE_VM: usize = 0xAE01;
const VHOST_SET_OWNER: usize = 0xAF01;

/// Times that a call is made again which failed because something had gone meanwhile.
const TRIES: usize = 64;
/// What a call may use at once that cannot be made in parts, in parts of another.
const MOST_PARTS: usize = 4;
/// What the kernel reads or writes at most in one call (`MAX_RW_COUNT`).
pub(super) const MOST_BYTES: usize = 0x7FFF_F000;
const EFAULT: isize = -(libc::EFAULT as isize);

/// Whether a system call is one after which the program cannot go on in inline mode: a filter may forbid what
/// serving takes; io_uring, Linux's AIO, KVM, vhost and devices use memory outside system calls; two
/// processes that share a file table and nothing else cannot each have descriptors of their own; who reads
/// the stacks of threads that a signal has stopped would find ours; and a debugger is told of every signal,
/// so of each of our faults, and its program waits for it.
pub fn must_leave(number: usize, a: [usize; 6]) -> bool {
    match number as i64 {
        libc::SYS_prctl => a[0] as i32 == libc::PR_SET_SECCOMP,
        libc::SYS_seccomp => a[0] != SECCOMP_GET_ACTION_AVAIL,
        libc::SYS_ioctl => matches!(a[1], KVM_CREATE_VM | VHOST_SET_OWNER) || devices::may_give(number, a),
        libc::SYS_setsockopt => devices::may_give(number, a),
        libc::SYS_ptrace => a[0] as u32 == libc::PTRACE_TRACEME,
        libc::SYS_io_setup => true,
        libc::SYS_rt_sigaction => stack_readers::is_set_by(a),
        libc::SYS_clone | libc::SYS_clone3 => !is_forking() && fork_hooks::shares_files_alone(number, a),
        number => IO_URING.contains(&number),
    }
}

/// Makes a system call. `context` is the interrupted thread's where a signal has brought us here.
pub fn perform(number: usize, a: [usize; 6], context: Option<&mut Context<'_>>) -> isize {
    let Some(pager) = pager() else {
        return match context {
            // SAFETY: the program's own call.
            Some(_) => unsafe { raw::syscall(number, a) },
            None => memory_hooks::pass_on(number, a),
        };
    };
    if must_leave(number, a) {
        leave();
        return memory_hooks::pass_on(number, a);
    }
    match context {
        Some(context) => Caller { pager, mask: context.signal_mask() }.perform(number, a, Some(context)),
        None => {
            let mask = signals::block();
            let (result, mask) = match number as i64 {
                libc::SYS_rt_sigprocmask => signals::change_mask(a, mask),
                _ => (Caller { pager, mask }.perform(number, a, None), mask),
            };
            // SAFETY: a thread of the program's, with libc's storage.
            unsafe { cancellable::set_mask(mask) };
            result
        }
    }
}

/// A thread of the program that calls the kernel. Signals are blocked but within the call itself: a handler
/// of the program's might wait for a lock that bringing memory in holds.
pub(super) struct Caller<'a> {
    pager: &'a Inline,
    /// What the program has blocked.
    mask: u64,
}

impl Caller<'_> {
    fn perform(&self, number: usize, a: [usize; 6], context: Option<&mut Context<'_>>) -> isize {
        let pager = self.pager;
        let answer = memory_hooks::by_number(number, a).or_else(|| user_dispatch::by_number(number, a));
        if let Some(result) = answer {
            return result;
        }
        match number as i64 {
            libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
                clone(number, a, context)
            }
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
            libc::SYS_rt_sigprocmask => context.map_or(0, |context| {
                let (result, mask) = signals::change_mask(a, context.signal_mask());
                context.set_signal_mask(mask);
                result
            }),
            libc::SYS_sigaltstack => signals::alt_stack(a[0], a[1]),
            libc::SYS_ppoll => self.with_mask(number, a, 3),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => self.with_mask(number, a, 4),
            libc::SYS_epoll_wait => {
                self.with_mask(libc::SYS_epoll_pwait as usize, [a[0], a[1], a[2], a[3], 0, 0], 4)
            }
            libc::SYS_rt_sigsuspend if a[0] != 0 => self.with_mask(number, a, 0),
            libc::SYS_pause => self.with_mask(libc::SYS_rt_sigsuspend as usize, [0; 6], 0),
            libc::SYS_pselect6 => self.select(number, a),
            libc::SYS_nanosleep => self.sleep(number, a, 0),
            libc::SYS_clock_nanosleep => self.sleep(number, a, 2),
            libc::SYS_close_range => descriptors::close_range(pager, a),
            libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64
                if (pager.most_held_bytes()..=isize::MAX as usize).contains(&a[2]) =>
            {
                self.in_parts(number, a)
            }
            libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_preadv
            | libc::SYS_pwritev
            | libc::SYS_preadv2
            | libc::SYS_pwritev2
            | libc::SYS_vmsplice => self.vectors_in_parts(number, a),
            libc::SYS_sendto | libc::SYS_recvfrom if a[2] > pager.most_held_bytes() => {
                self.transfer(number, a)
            }
            libc::SYS_sendmsg | libc::SYS_recvmsg => self.message(number, a),
            libc::SYS_getrandom if a[1] > pager.most_held_bytes() => self.random(number, a),
            libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
                remote::transfer(number, a, &mut |number, a| self.ready_call(number, a))
            }
            libc::SYS_mincore => memory_hooks::tell_residency(a, self.ready_call(number, a)),
            // What the kernel writes to between system calls, or while the thread ends, must stay local.
            libc::SYS_rseq | libc::SYS_set_robust_list => self.at_home(number, a, a[1]),
            libc::SYS_set_tid_address => self.at_home(number, a, size_of::<u32>()),
            // Nothing of the program's memory, or what costs nothing to look at again. After an exec nobody
            // lets go of a hold, and the pager itself waits, with locks.
            libc::SYS_futex
            | libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_exit_group
            | libc::SYS_msync
            | libc::SYS_mbind
            | libc::SYS_sched_yield
            | libc::SYS_getpid
            | libc::SYS_gettid
            | libc::SYS_lseek
            | libc::SYS_tgkill => self.again_if_gone(number, a),
            _ => descriptors::answer(pager, number, a).unwrap_or_else(|| self.ready_call(number, a)),
        }
    }

    /// Brings in what the call uses and makes it. Where all of that is known, an address that the kernel does
    /// not find is wrong.
    pub(super) fn ready_call(&self, number: usize, a: [usize; 6]) -> isize {
        let pager = self.pager;
        let Some(hold) = pager.hold(frame()) else { return self.again_if_gone(number, a) };
        let mut room = MOST_PARTS * pager.most_held_bytes();
        let mut is_ready = true;
        let is_known = used(number, a, &mut |range| {
            is_ready &= pager.make_ready(range, Some(&hold), &mut room);
        });
        if !is_ready {
            return EFAULT;
        }
        let result = self.call(number, a);
        if result == EFAULT && (!is_known || room == 0) {
            let mut uses_ours = false;
            used(number, a, &mut |range| {
                uses_ours |= pager.manages(range.start) && read(range.start, &mut [0]).is_ok();
            });
            if uses_ours {
                leave();
                return self.call(number, a);
            }
        }
        result
    }

    /// Makes a call that does nothing when it cannot have its memory, as often as that takes.
    fn again_if_gone(&self, number: usize, a: [usize; 6]) -> isize {
        for _ in 0..TRIES {
            let result = self.call(number, a);
            if result != EFAULT {
                return result;
            }
            match bring_strings(number, a) {
                Some(Ok(())) => {}
                Some(Err(errno)) => return -errno as isize,
                None if self.bring_in(number, a) => {}
                None => return result,
            }
        }
        leave();
        self.call(number, a)
    }

    /// Brings in what a call has not found. False where it was none of ours, or nothing is at one of its
    /// addresses.
    fn bring_in(&self, number: usize, a: [usize; 6]) -> bool {
        let pager = self.pager;
        let hold = pager.hold(frame());
        let mut room = MOST_PARTS * pager.most_held_bytes();
        let (mut uses_ours, mut is_there) = (false, true);
        used(number, a, &mut |range: Range<usize>| {
            let start = range.start;
            uses_ours |= pager.may_leave(&range);
            is_there &= pager.make_ready(range, hold.as_ref(), &mut room) && read(start, &mut [0]).is_ok();
        });
        uses_ours && is_there
    }

    /// A read or write of more than should be held at once.
    fn in_parts(&self, number: usize, a: [usize; 6]) -> isize {
        let part = self.pager.most_held_bytes();
        let has_offset = matches!(number as i64, libc::SYS_pread64 | libc::SYS_pwrite64);
        let all = a[2].min(MOST_BYTES);
        let mut done = 0;
        while done < all {
            let bytes = part.min(all - done);
            let offset = if has_offset { a[3].wrapping_add(done) } else { 0 };
            let result = self.ready_call(number, [a[0], a[1].wrapping_add(done), bytes, offset, 0, 0]);
            if result < 0 {
                return if done == 0 { result } else { done as isize };
            }
            done += result as usize;
            if (result as usize) < bytes || !goes_on(number, a[0]) {
                break;
            }
        }
        done as isize
    }

    /// What a part of a call should hold at most.
    pub(super) fn most_bytes(&self) -> usize {
        self.pager.most_held_bytes()
    }

    /// The same with vectors.
    fn vectors_in_parts(&self, number: usize, a: [usize; 6]) -> isize {
        let part = self.pager.most_held_bytes();
        let all = Vectors::of_program(a[1], a[2]);
        // What the kernel refuses it refuses as a whole.
        let Some(mut vectors) = all.filter(|all| all.left > part) else { return self.ready_call(number, a) };
        let is_at_offset = match number as i64 {
            libc::SYS_preadv | libc::SYS_pwritev => true,
            libc::SYS_preadv2 | libc::SYS_pwritev2 => a[3] != usize::MAX,
            _ => false,
        };
        let mut done = 0;
        while vectors.left > 0 {
            let now = vectors.first(part);
            let bytes = part.min(vectors.left);
            let offset = if is_at_offset { a[3].wrapping_add(done) } else { a[3] };
            let at = now.as_ptr().expose_provenance();
            let result = self.ready_call(number, [a[0], at, now.len(), offset, a[4], a[5]]);
            if result < 0 {
                return if done == 0 { result } else { done as isize };
            }
            done += result as usize;
            vectors.advance(result as usize);
            if (result as usize) < bytes || !goes_on(number, a[0]) {
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

    /// A call with a mask of blocked signals as its argument `index`: a copy without ours, or the program's
    /// own mask. The kernel lets signals through as it begins to wait: one that came since the program made
    /// the call ends it.
    fn with_mask(&self, number: usize, mut a: [usize; 6], index: usize) -> isize {
        let mut mask = Box::new(self.mask);
        if a[index] == 0 {
            a[index + 1] = size_of::<u64>();
        } else if let Ok([given]) = read_words(a[index]) {
            *mask = signals::allowed(given as u64);
        } else {
            // The kernel refuses a mask that it cannot read.
            return self.ready_call(number, a);
        }
        a[index] = std::ptr::from_mut(&mut *mask).expose_provenance();
        let result = self.ready_call(number, a);
        std::hint::black_box(mask);
        result
    }

    /// pselect6(2), whose last argument leads to the mask.
    fn select(&self, number: usize, mut a: [usize; 6]) -> isize {
        let mut mask = Box::new(self.mask);
        let mut bytes = size_of::<u64>();
        if a[5] != 0 {
            let Ok([at, given_bytes]) = read_words(a[5]) else { return self.ready_call(number, a) };
            if at != 0 {
                let Ok([given]) = read_words(at) else { return self.ready_call(number, a) };
                (*mask, bytes) = (signals::allowed(given as u64), given_bytes);
            }
        }
        let pair = Box::new([std::ptr::from_mut(&mut *mask).expose_provenance(), bytes]);
        a[5] = pair.as_ptr().expose_provenance();
        let result = self.ready_call(number, a);
        std::hint::black_box((mask, pair));
        result
    }

    /// A sleep, whose time is the argument `index`, and where to say what was left of it the next. Not made
    /// again when that is far.
    fn sleep(&self, number: usize, mut a: [usize; 6], index: usize) -> isize {
        let Ok(time) = read_words::<2>(a[index]) else { return self.call(number, a) };
        let rest_at = a[index + 1];
        let mut times = Box::new([time, time]);
        a[index] = times[0].as_ptr().expose_provenance();
        if rest_at != 0 {
            a[index + 1] = times[1].as_mut_ptr().expose_provenance();
        }
        let result = self.call(number, a);
        let is_absolute =
            number as i64 == libc::SYS_clock_nanosleep && a[1] & libc::TIMER_ABSTIME as usize != 0;
        let says_rest = result == -(libc::EINTR as isize) && rest_at != 0 && !is_absolute;
        let rest = std::hint::black_box(times)[1];
        if says_rest && write_words(rest_at, &rest).is_err() { EFAULT } else { result }
    }

    /// The program's own call, with the signals that it takes.
    pub(super) fn call(&self, number: usize, a: [usize; 6]) -> isize {
        let brings_mask = matches!(
            number as i64,
            libc::SYS_ppoll
                | libc::SYS_pselect6
                | libc::SYS_epoll_pwait
                | libc::SYS_epoll_pwait2
                | libc::SYS_rt_sigsuspend
        );
        if !brings_mask {
            // SAFETY: a thread of the program's, with libc's storage.
            unsafe { cancellable::set_mask(self.mask) };
        }
        // SAFETY: by the program's word.
        let result = unsafe { cancellable::syscall(number, a) };
        signals::block();
        result
    }
}

/// Each range that a call uses; whether those are all.
fn used(number: usize, a: [usize; 6], uses: &mut dyn FnMut(Range<usize>)) -> bool {
    arguments::used(number, a, &|address, into| read(address, into).is_ok(), uses)
}

/// Whether a call that did all of a part would have gone on, where another part could make it wait: what
/// comes through a pipe or a socket is read as far as it is there.
fn goes_on(number: usize, fd: usize) -> bool {
    match number as i64 {
        libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 => {
            !matches!(file_kind(fd), 0 | libc::S_IFIFO | libc::S_IFSOCK) && !is_terminal(fd)
        }
        libc::SYS_vmsplice => false,
        _ => true,
    }
}

fn is_terminal(fd: usize) -> bool {
    /// More than a `struct termios` of the kernel's has.
    const BYTES: usize = 64;
    let mut settings = Box::new([0_u8; BYTES]);
    let at = settings.as_mut_ptr().expose_provenance();
    // SAFETY: fills a `struct termios`.
    unsafe { raw::syscall(libc::SYS_ioctl as usize, [fd, libc::TCGETS as usize, at, 0, 0, 0]) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_call_to_a_ring_ends_inline_mode_and_reads_do_not() {
        for number in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
            assert!(must_leave(number as usize, [0; 6]), "{number}");
        }
        for number in [libc::SYS_read, libc::SYS_preadv2, libc::SYS_pidfd_send_signal, libc::SYS_vmsplice] {
            assert!(!must_leave(number as usize, [0; 6]), "{number}");
        }
    }
}
