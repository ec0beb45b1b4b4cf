//! System calls that come from libc by a jump and need no more than a look: their memory is there, and is
//! held while they last. With the program's signals let in all the while, so nothing here takes a lock,
//! allocates, or waits but in the call itself. What needs more is declined, and comes again as a signal.
//!
//! Runs on the thread's stack for signal handlers. Nothing here may use more vector registers than the entry
//! keeps, so no function of libc's either.

use std::arch::asm;
use std::cell::Cell;
use std::ops::Range;

use spillway_core::page::PAGE_SIZE;
use spillway_pager::inline::Inline;
use spillway_pager::space::holds::{Frame, Hold};
use spillway_sys::call_stubs::{self, StubCall};
use spillway_sys::{cancellable, raw};

use super::arguments::used;
use super::presence::pager;
use super::signals::allowed;
use crate::devices::SOL_XDP;

const EFAULT: isize = -(libc::EFAULT as isize);
/// No `how` of rt_sigprocmask(2).
const NO_CHANGE: usize = 99;

/// Has stubs serve the calls of this process's threads, of which there is one.
pub fn begin() {
    call_stubs::set_handler(on_stub_call);
    call_stubs::set_direct(is_direct);
    // SAFETY: the program's first thread, which libc has started.
    unsafe { call_stubs::use_stack() };
}

/// Whether a call may be made as it is: it uses no memory, no descriptor of ours can be hurt by it, and it is
/// none that [`super::system_calls`] changes.
fn is_direct(number: usize) -> bool {
    matches!(
        number as i64,
        libc::SYS_getpid
            | libc::SYS_getppid
            | libc::SYS_gettid
            | libc::SYS_getuid
            | libc::SYS_geteuid
            | libc::SYS_getgid
            | libc::SYS_getegid
            | libc::SYS_getpgid
            | libc::SYS_getpgrp
            | libc::SYS_getsid
            | libc::SYS_getpriority
            | libc::SYS_setpriority
            | libc::SYS_sched_yield
            | libc::SYS_sched_getscheduler
            | libc::SYS_sched_get_priority_max
            | libc::SYS_sched_get_priority_min
            | libc::SYS_lseek
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync
            | libc::SYS_syncfs
            | libc::SYS_sync_file_range
            | libc::SYS_flock
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_fadvise64
            | libc::SYS_readahead
            | libc::SYS_fchdir
            | libc::SYS_fchmod
            | libc::SYS_fchown
            | libc::SYS_epoll_create1
            | libc::SYS_eventfd
            | libc::SYS_eventfd2
            | libc::SYS_inotify_init1
            | libc::SYS_inotify_rm_watch
            | libc::SYS_timerfd_create
            | libc::SYS_umask
            | libc::SYS_socket
            | libc::SYS_listen
            | libc::SYS_shutdown
            | libc::SYS_kill
            | libc::SYS_tkill
            | libc::SYS_tgkill
            | libc::SYS_alarm
            | libc::SYS_membarrier
            | libc::SYS_exit_group
    )
}

/// Whether a call is made as it is once the memory that its shape names is held.
fn is_held(number: usize, a: [usize; 6]) -> bool {
    match number as i64 {
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_sendto
        | libc::SYS_recvfrom
        | libc::SYS_sendmsg
        | libc::SYS_recvmsg
        | libc::SYS_sendfile
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_bind
        | libc::SYS_getsockname
        | libc::SYS_getpeername
        | libc::SYS_getsockopt
        | libc::SYS_socketpair
        | libc::SYS_poll
        | libc::SYS_select
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_ctl
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_open
        | libc::SYS_openat
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_fstat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_access
        | libc::SYS_faccessat
        | libc::SYS_readlink
        | libc::SYS_readlinkat
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_rename
        | libc::SYS_mkdir
        | libc::SYS_getdents64
        | libc::SYS_getcwd
        | libc::SYS_pipe
        | libc::SYS_pipe2
        | libc::SYS_clock_gettime
        | libc::SYS_gettimeofday
        | libc::SYS_getrusage
        | libc::SYS_times
        | libc::SYS_getrandom
        | libc::SYS_wait4
        | libc::SYS_timerfd_settime
        | libc::SYS_timerfd_gettime
        | libc::SYS_semop => true,
        libc::SYS_setsockopt => a[1] != SOL_XDP,
        // With a mask that must not have our signals in it.
        libc::SYS_ppoll => a[3] == 0,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => a[4] == 0,
        libc::SYS_pselect6 => a[5] == 0,
        _ => false,
    }
}

extern "C-unwind" fn on_stub_call(call: &mut StubCall) -> bool {
    let made = make(call);
    if let Some(result) = made {
        call.number = result as usize;
    }
    made.is_some()
}

/// Makes a call, or declines.
fn make(call: &StubCall) -> Option<isize> {
    let pager = pager()?;
    // The kernel looks at no more of it.
    let (number, a) = (call.number as u32 as usize, call.arguments);
    let is_ours = |index: usize| pager.owns_descriptor(a[index] as i32);
    match number as i64 {
        // Does nothing where its memory is not there, and may wait for long: it holds nothing.
        libc::SYS_futex => Some(now(number, a)).filter(|&result| result != EFAULT),
        libc::SYS_close | libc::SYS_dup if !is_ours(0) => Some(now(number, a)),
        libc::SYS_dup2 | libc::SYS_dup3 if !is_ours(0) && !is_ours(1) => Some(now(number, a)),
        libc::SYS_fcntl if !is_ours(0) && uses_no_memory(a[1]) => Some(now(number, a)),
        libc::SYS_rt_sigprocmask => Held::new(pager, call)?.change_mask(a),
        _ if is_held(number, a) => Held::new(pager, call)?.make(number, a),
        _ => None,
    }
}

/// Makes a call as it is.
fn now(number: usize, a: [usize; 6]) -> isize {
    // SAFETY: the program's own call.
    unsafe { cancellable::syscall(number, a) }
}

/// Whether a command of fcntl(2) takes a number, or nothing.
fn uses_no_memory(command: usize) -> bool {
    let numbers =
        [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];
    numbers.contains(&(command as i32))
}

/// A stub has put it on the stack of the thread's handlers.
fn frame(call: &StubCall) -> Frame {
    Frame { stack: call_stubs::noted_stack(), address: std::ptr::from_ref(call).expose_provenance() }
}

/// What a call holds.
struct Held<'a> {
    pager: &'a Inline,
    hold: Hold<'static>,
    stack_pointer: usize,
    /// Bytes that may be held yet.
    room: Cell<usize>,
    is_ready: Cell<bool>,
}

impl<'a> Held<'a> {
    fn new(pager: &'a Inline, call: &StubCall) -> Option<Self> {
        Some(Self {
            pager,
            hold: pager.hold(frame(call))?,
            stack_pointer: call.stack_pointer,
            room: Cell::new(pager.most_held_bytes()),
            is_ready: Cell::new(true),
        })
    }

    fn make(&self, number: usize, a: [usize; 6]) -> Option<isize> {
        let is_known = used(number, a, &|at, into| self.read(at, into), &mut |range| self.hold(&range));
        (is_known && self.is_ready.get()).then(|| now(number, a))
    }

    /// rt_sigprocmask(2), which lets our signals be.
    fn change_mask(&self, a: [usize; 6]) -> Option<isize> {
        let [how, new, old, bytes, ..] = a;
        let mut word = [0; 8];
        if bytes != size_of::<u64>() || new != 0 && !self.read(new, &mut word) {
            return None;
        }
        let mask = allowed(u64::from_ne_bytes(word));
        let new = if new == 0 { 0 } else { std::ptr::from_ref(&mask).expose_provenance() };
        if old != 0 {
            self.hold(&(old..old.saturating_add(bytes)));
        }
        self.is_ready.get().then(|| now(libc::SYS_rt_sigprocmask as usize, [how, new, old, bytes, 0, 0]))
    }

    fn hold(&self, range: &Range<usize>) {
        let room = self.room.get().checked_sub(range.len());
        self.room.set(room.unwrap_or(0));
        self.is_ready.set(self.is_ready.get() && room.is_some() && self.pager.is_ready(range, &self.hold));
    }

    /// Reads the program's memory, if it is there; else the call is declined.
    fn read(&self, address: usize, into: &mut [u8]) -> bool {
        let range = address..address.saturating_add(into.len());
        self.hold(&range);
        self.is_ready.set(self.is_ready.get() && self.can_be_read(&range));
        if self.is_ready.get() {
            // SAFETY: readable as of now, and held; `into` is ours.
            unsafe {
                asm!(
                    "rep movsb",
                    inout("rcx") into.len() => _,
                    inout("rsi") address => _,
                    inout("rdi") into.as_mut_ptr() => _,
                    options(nostack, preserves_flags),
                );
            }
        }
        self.is_ready.get()
    }

    /// The page of the caller's stack can be; of others the kernel is asked.
    fn can_be_read(&self, range: &Range<usize>) -> bool {
        let page_of = |address: usize| address & !(PAGE_SIZE - 1);
        let pages = page_of(range.start)..range.end;
        pages.step_by(PAGE_SIZE).all(|page| {
            let word = page.max(range.start) & !7;
            // SAFETY: changes nothing, for there is no such change; it reads the word before it says so.
            let asked = || unsafe {
                raw::syscall(libc::SYS_rt_sigprocmask as usize, [NO_CHANGE, word, 0, size_of::<u64>(), 0, 0])
            };
            page == page_of(self.stack_pointer) || asked() == -(libc::EINVAL as isize)
        })
    }
}
