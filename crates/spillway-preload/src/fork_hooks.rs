//! What stands in place of fork: paging stops while the kernel copies the address space, and the child
//! brings up paging of its own before it does anything else.

use std::ffi::{c_int, c_void};

use spillway_core::page::PAGE_SIZE;
use spillway_pager::inline::undisturbed::undisturbed;
use spillway_pager::threads::calls::Operation;
use spillway_sys::raw;
use spillway_sys::raw_thread::SignalsBlocked;
use spillway_sys::signal::bit;

use crate::heap;
use crate::inline::leaving::leave;
use crate::inline::presence::{self, forking};
use crate::lock_hooks;
use crate::originals::{ORIGINAL_CLONE, ORIGINAL_FORK};
use crate::process::{STARTUP, call, complain, set_errno, stop};
use crate::reach::{BadAddress, Reader};
use crate::thread_hooks;

/// Does what belongs to a fork with signals blocked: a handler that touches far memory would wait for the
/// fork's end. In inline mode two cannot be blocked, since libc's own fork raises them; those that somebody
/// sends wait.
fn without_signals<T>(work: impl FnOnce(&SignalsBlocked) -> T) -> T {
    if presence::pager().is_none() {
        return work(&SignalsBlocked::but(0));
    }
    undisturbed(|| work(&SignalsBlocked::but(bit(libc::SIGBUS) | bit(libc::SIGSYS))))
}

/// libc's `_Fork`, on which fork(3) stands.
pub unsafe extern "C" fn fork() -> c_int {
    around_fork(Uses::default(), || {
        let Some(&original) = ORIGINAL_FORK.get() else { return -1 };
        // SAFETY: the moved beginning of `_Fork`, which takes nothing and returns a pid.
        let original: extern "C" fn() -> c_int = unsafe { std::mem::transmute(original) };
        forking(|| original())
    })
    .unwrap_or_else(|| {
        set_errno(libc::ENOMEM);
        -1
    })
}

/// fork(2), vfork(2), clone(2) or clone3(2) by number, where the child is to go on as this thread. Returns
/// the raw result.
pub fn by_system_call(number: usize, arguments: [usize; 6]) -> isize {
    let mut asked = match Asked::new(number, arguments) {
        Ok(asked) => asked,
        Err(errno) => return -(errno as isize),
    };
    if !asked.is_fork() {
        complain(&format!(
            "system call {number} for a child on another stack is refused; libc's clone serves such calls"
        ));
        return -libc::ENOSYS as isize;
    }
    let uses = asked.uses();
    let (number, arguments) = asked.call();
    around_fork(uses, || {
        // SAFETY: the program's own call; it shares no memory with its child.
        unsafe { raw::syscall(number, arguments) as c_int }
    })
    .map_or(-libc::ENOMEM as isize, |result| result as isize)
}

/// What a call that makes a process was asked for.
enum Asked {
    /// Flags, stack, and the addresses of the two numbers and of thread-local storage.
    Clone([usize; 6]),
    Clone3(CloneArguments),
}

/// A copy of `struct clone_args`, as far as it is known here, and of what it leads to.
pub struct CloneArguments {
    /// The structure, and how much of it the program passed.
    pub words: [usize; CLONE3_WORDS],
    bytes: usize,
    set_tid: [u32; MOST_SET_TID],
}

pub const SYS_CLONE3: i64 = 435;
/// Words of the longest `struct clone_args` that is known here (`CLONE_ARGS_SIZE_VER2`), and their order.
const CLONE3_WORDS: usize = 11;
const CLONE3_FIRST_WORDS: usize = 8;
/// Bytes at most, known or not: the kernel refuses more than a page.
const CLONE3_MOST_BYTES: usize = PAGE_SIZE;
pub const FLAGS: usize = 0;
const DESCRIPTOR: usize = 1;
pub const CHILD_TID: usize = 2;
const PARENT_TID: usize = 3;
const EXIT_SIGNAL: usize = 4;
pub const STACK: usize = 5;
pub const STACK_BYTES: usize = 6;
pub const TLS: usize = 7;
const SET_TID: usize = 8;
const SET_TID_SIZE: usize = 9;
/// The most ids that `set_tid` may have (`MAX_PID_NS_LEVEL`).
const MOST_SET_TID: usize = 32;

impl CloneArguments {
    /// Copies what the kernel would read. Its own errno where that is wrong (clone(2),
    /// `copy_struct_from_user`).
    pub fn read(address: usize, bytes: usize) -> Result<Self, c_int> {
        if bytes > CLONE3_MOST_BYTES {
            return Err(libc::E2BIG);
        }
        if bytes < CLONE3_FIRST_WORDS * size_of::<usize>() {
            return Err(libc::EINVAL);
        }
        let (mut words, mut reader) = ([0; CLONE3_WORDS], Reader::default());
        for index in 0..bytes / size_of::<usize>() {
            let word = reader.word(address.wrapping_add(index * size_of::<usize>()));
            let word = word.map_err(|BadAddress| libc::EFAULT)?;
            match words.get_mut(index) {
                Some(known) => *known = word,
                None if word != 0 => return Err(libc::E2BIG),
                None => {}
            }
        }
        let mut set_tid = [0; MOST_SET_TID];
        let wanted = set_tid.iter_mut().take(words[SET_TID_SIZE]).enumerate();
        for (index, number) in wanted.filter(|_| words[SET_TID] != 0 && words[SET_TID_SIZE] <= MOST_SET_TID) {
            let at = words[SET_TID].wrapping_add(index * size_of::<u32>());
            *number = reader.half_word(at).map_err(|BadAddress| libc::EFAULT)?;
        }
        if !Self::are_consistent(&words) {
            return Err(libc::EINVAL);
        }
        Ok(Self { words, bytes: bytes.min(size_of_val(&words)), set_tid })
    }

    /// What the kernel would refuse must not become something that it takes (`clone3_args_valid`,
    /// `copy_process`).
    fn are_consistent(words: &[usize; CLONE3_WORDS]) -> bool {
        const CLONE_CLEAR_SIGHAND: usize = 1 << 32;
        let all = |flags: usize| words[FLAGS] & flags == flags;
        let (thread, handlers) = (libc::CLONE_THREAD as usize, libc::CLONE_SIGHAND as usize);
        let is_signalled = words[EXIT_SIGNAL] != 0;
        !(all(handlers | CLONE_CLEAR_SIGHAND)
            || all(thread) && !all(handlers)
            || is_signalled && (all(thread) || all(libc::CLONE_PARENT as usize))
            || (words[STACK] == 0) != (words[STACK_BYTES] == 0))
    }

    /// Arguments for clone3(2) that lead to these copies.
    fn call(&mut self) -> [usize; 6] {
        if self.words[SET_TID] != 0 && self.words[SET_TID_SIZE] <= MOST_SET_TID {
            self.words[SET_TID] = self.set_tid.as_ptr().expose_provenance();
        }
        [self.words.as_ptr().expose_provenance(), self.bytes, 0, 0, 0, 0]
    }
}

/// Whether a call would make a process that has its own memory and shares this one's file table. In inline
/// mode it cannot: each serves its faults by descriptors with the same numbers.
pub fn shares_files_alone(number: usize, arguments: [usize; 6]) -> bool {
    let flags = match number as i64 {
        libc::SYS_clone => arguments[0],
        SYS_CLONE3 => Reader::default().word(arguments[0]).unwrap_or(0),
        _ => 0,
    };
    flags & (libc::CLONE_FILES | libc::CLONE_VM) as usize == libc::CLONE_FILES as usize
}

impl Asked {
    fn new(number: usize, arguments: [usize; 6]) -> Result<Self, c_int> {
        let child_signal = libc::SIGCHLD as usize;
        Ok(match number as i64 {
            libc::SYS_fork => Self::Clone([child_signal, 0, 0, 0, 0, 0]),
            libc::SYS_vfork => Self::Clone([libc::CLONE_VFORK as usize | child_signal, 0, 0, 0, 0, 0]),
            SYS_CLONE3 => Self::Clone3(CloneArguments::read(arguments[0], arguments[1])?),
            _ => Self::Clone(arguments),
        })
    }

    /// Whether the child is to go on where this thread is: on its stack, in memory of its own. Where it
    /// asks to share the memory for a while, as vfork(2) does, it gets its own.
    fn is_fork(&mut self) -> bool {
        let (has_stack, flags) = match self {
            Self::Clone(words) => (words[1] != 0, &mut words[0]),
            Self::Clone3(CloneArguments { words, .. }) => {
                (words[STACK] != 0 && words[STACK_BYTES] != 0, &mut words[FLAGS])
            }
        };
        if *flags & libc::CLONE_SIGHAND as usize == 0 {
            *flags &= !(libc::CLONE_VM as usize);
        }
        !has_stack && *flags & libc::CLONE_VM as usize == 0
    }

    fn uses(&self) -> Uses {
        match self {
            Self::Clone([_, stack, parent_tid, child_tid, tls, _]) => {
                Uses { stack: *stack, tls: *tls, numbers: [*parent_tid, *child_tid, 0] }
            }
            Self::Clone3(CloneArguments { words, .. }) => Uses {
                stack: 0,
                tls: words[TLS],
                numbers: [words[DESCRIPTOR], words[PARENT_TID], words[CHILD_TID]],
            },
        }
    }

    /// The system call to be made, which reads nothing that may be far.
    fn call(&mut self) -> (usize, [usize; 6]) {
        match self {
            Self::Clone(words) => (libc::SYS_clone as usize, *words),
            Self::Clone3(arguments) => (SYS_CLONE3 as usize, arguments.call()),
        }
    }
}

/// Addresses that are used while paging is stopped, 0 for none: around the child's stack and thread-local
/// storage, and where the kernel writes numbers.
#[derive(Clone, Copy, Default)]
struct Uses {
    stack: usize,
    tls: usize,
    numbers: [usize; 3],
}

impl Uses {
    fn request(&self, signals: &SignalsBlocked) -> [usize; 6] {
        let here = std::ptr::from_ref(signals).expose_provenance();
        let [a, b, c] = self.numbers;
        [here, self.stack, self.tls, a, b, c]
    }
}

/// Forks by `fork`, which returns a pid, 0 in the child, or a negative number. `None` when the local limit
/// has no room for the child.
fn around_fork(uses: Uses, fork: impl FnOnce() -> c_int) -> Option<c_int> {
    // No handler may run in the child before its memory is whole.
    without_signals(|signals| {
        let child = call(Operation::ForkBegin, uses.request(signals));
        if child == 0 {
            return None;
        }
        let heap = heap::hold();
        let pid = fork();
        drop(heap);
        if pid == 0 {
            attach_child(child);
        } else {
            call(Operation::ForkEnd, [pid.max(0) as usize, child]);
        }
        Some(pid)
    })
}

fn attach_child(child: usize) {
    let Some(startup) = STARTUP.get() else { return };
    if let Err(reason) = startup.attach_forked(child) {
        stop(&format!("a forked process cannot be managed, so it is stopped: {reason}"));
    }
    lock_hooks::forget();
    if !presence::enter_child() {
        leave();
    }
    startup.note_served();
}

struct CloneStart {
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
    child: usize,
    heap: heap::Held,
}

extern "C" fn clone_child(start: *mut c_void) -> c_int {
    // SAFETY: the parent's value, which the child has a copy of: its memory is not shared.
    let CloneStart { function, argument, child, heap } = unsafe { start.cast::<CloneStart>().read() };
    drop(heap);
    attach_child(child);
    let status = function(argument);
    // libc would end this thread only, which the pager's would outlive.
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

type Clone = unsafe extern "C" fn(
    extern "C" fn(*mut c_void) -> c_int,
    *mut c_void,
    c_int,
    *mut c_void,
    usize,
    usize,
    usize,
) -> c_int;

/// clone(2) as libc's wrapper. With CLONE_VM the child shares this address space and its pager.
pub unsafe extern "C" fn clone(
    function: extern "C" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: usize,
    tls: usize,
    child_tid: usize,
) -> c_int {
    let Some(&original) = ORIGINAL_CLONE.get() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the moved beginning of `clone`, which has this signature.
    let original: Clone = unsafe { std::mem::transmute(original) };
    if flags & libc::CLONE_VM != 0 {
        if flags & libc::CLONE_CHILD_CLEARTID != 0 && presence::pager().is_none() {
            thread_hooks::keep_thread_number(child_tid);
        }
        // SAFETY: the program's own call.
        return unsafe { original(function, stack, flags, argument, parent_tid, tls, child_tid) };
    }
    if presence::pager().is_some() && flags & libc::CLONE_FILES != 0 {
        leave();
    }
    let numbers = [parent_tid, child_tid, 0];
    let uses = Uses { stack: stack.expose_provenance(), tls, numbers };
    without_signals(|signals| {
        let child = call(Operation::ForkBegin, uses.request(signals));
        if child == 0 {
            set_errno(libc::ENOMEM);
            return -1;
        }
        let mut start = CloneStart { function, argument, child, heap: heap::hold() };
        let start_at = std::ptr::from_mut(&mut start).cast();
        // SAFETY: the program's own call, with a child that attaches first.
        let pid =
            forking(|| unsafe { original(clone_child, stack, flags, start_at, parent_tid, tls, child_tid) });
        drop(start);
        call(Operation::ForkEnd, [pid.max(0) as usize, child]);
        pid
    })
}
