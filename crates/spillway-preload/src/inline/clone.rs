//! clone(2), clone3(2), fork(2) and vfork(2): a new thread, or a process that shares this memory, or one that
//! does not.

use spillway_core::page::PAGE_SIZE;
use spillway_pager::inline::Inline;
use spillway_pager::threads::calls::Operation;
use spillway_sys::raw_thread::control_block;
use spillway_sys::signal::{self, Context};
use spillway_sys::{call_stubs, dispatch, raw};

use super::leaving::leave;
use super::presence::{ALT_STACKS, frame, is_forking, is_own_process, pager};
use super::signals;
use crate::process::{call, complain};
use crate::program_memory::{read, read_words, write_words};
use crate::{fork_hooks, memory_hooks};

/// `struct clone_args` (clone3(2)) in words.
mod field {
    pub const FLAGS: usize = 0;
    pub const PIDFD: usize = 1;
    pub const CHILD_TID: usize = 2;
    pub const PARENT_TID: usize = 3;
    pub const STACK: usize = 5;
    pub const STACK_BYTES: usize = 6;
    pub const TLS: usize = 7;
    pub const SET_TID: usize = 8;
    pub const SET_TID_COUNT: usize = 9;
}

/// `CLONE_ARGS_SIZE_VER0`: less is refused.
const LEAST_BYTES: usize = 64;
/// More than a page is refused.
const MOST_WORDS: usize = PAGE_SIZE / 8;

/// Every signal that has a handler gets its default in the child (`CLONE_CLEAR_SIGHAND`).
const CLEAR_HANDLERS: u64 = 1 << 32;
const REFUSED: isize = -(libc::ENOSYS as isize);

/// What is asked for: the fields of clone3(2), whichever call it was. Not in the heap, which a fork holds.
struct Wanted {
    fields: [usize; MOST_WORDS],
    number: usize,
    arguments: [usize; 6],
}

impl Wanted {
    /// From a call's arguments, or what the kernel answers to arguments that cannot be right.
    fn new(number: usize, a: [usize; 6]) -> Result<Self, isize> {
        let mut wanted = Self { fields: [0; MOST_WORDS], number, arguments: a };
        let fields = &mut wanted.fields;
        match number as i64 {
            libc::SYS_clone3 => {
                if !(LEAST_BYTES..=PAGE_SIZE).contains(&a[1]) {
                    // SAFETY: the kernel refuses such lengths before it looks at anything.
                    return Err(unsafe { raw::syscall(number, a) });
                }
                let mut bytes = [0; PAGE_SIZE];
                read(a[0], &mut bytes[..a[1]]).map_err(|_| -libc::EFAULT as isize)?;
                bytes.as_chunks().0.iter().zip(fields.iter_mut()).for_each(|(word, field)| {
                    *field = usize::from_ne_bytes(*word);
                });
            }
            libc::SYS_clone => {
                fields[field::FLAGS] = a[0] & 0xFFFF_FFFF;
                (fields[field::PARENT_TID], fields[field::CHILD_TID]) = (a[2], a[3]);
                (fields[field::STACK], fields[field::TLS]) = (a[1], a[4]);
                if a[0] & libc::CLONE_PIDFD as usize != 0 {
                    fields[field::PIDFD] = a[2];
                }
            }
            libc::SYS_vfork => fields[field::FLAGS] = (libc::CLONE_VM | libc::CLONE_VFORK) as usize,
            _ => {}
        }
        Ok(wanted)
    }

    fn is_extended(&self) -> bool {
        self.number as i64 == libc::SYS_clone3
    }

    fn has(&self, flag: i32) -> bool {
        self.fields[field::FLAGS] & flag as u32 as usize != 0
    }

    /// Where the child's stack begins; 0 where it goes on on its parent's.
    fn stack_top(&self) -> usize {
        self.fields[field::STACK].wrapping_add(self.fields[field::STACK_BYTES])
    }

    /// What the kernel reads and writes for it.
    fn places(&self) -> [(usize, usize); 4] {
        let half = |index: usize, flag: i32| (if self.has(flag) { self.fields[index] } else { 0 }, 4);
        let ids = self.fields[field::SET_TID_COUNT].min(PAGE_SIZE);
        [
            half(field::PIDFD, libc::CLONE_PIDFD),
            half(field::PARENT_TID, libc::CLONE_PARENT_SETTID),
            half(field::CHILD_TID, libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID),
            (self.fields[field::SET_TID], ids * 4),
        ]
    }

    /// The call as the kernel is to have it: without these flags, and on this stack.
    fn call(&mut self, without: u64, stack: usize, stack_bytes: usize) -> (usize, [usize; 6]) {
        let mut a = self.arguments;
        let number = match self.number as i64 {
            libc::SYS_clone3 => {
                self.fields[field::FLAGS] &= !(without as usize);
                (self.fields[field::STACK], self.fields[field::STACK_BYTES]) = (stack, stack_bytes);
                a[0] = self.fields.as_ptr().expose_provenance();
                libc::SYS_clone3
            }
            libc::SYS_clone => {
                (a[0], a[1]) = (a[0] & !(without as usize), stack);
                libc::SYS_clone
            }
            _ => {
                let flags = (self.fields[field::FLAGS] & !(without as usize)) | libc::SIGCHLD as usize;
                a = [flags, stack, 0, 0, 0, 0];
                libc::SYS_clone
            }
        };
        (number as usize, a)
    }
}

/// Makes such a call. `context` is the interrupted thread's where a signal has brought us here.
pub fn clone(number: usize, a: [usize; 6], context: Option<&mut Context<'_>>) -> isize {
    let mut wanted = match Wanted::new(number, a) {
        Ok(wanted) => wanted,
        Err(answer) => return answer,
    };
    let (stack, stack_bytes) = (wanted.fields[field::STACK], wanted.fields[field::STACK_BYTES]);
    if wanted.is_extended() && (stack == 0) != (stack_bytes == 0) {
        return -libc::EINVAL as isize;
    }
    match context {
        _ if stack == 0 => on_own_stack(&mut wanted),
        Some(context) if wanted.has(libc::CLONE_VM) || is_forking() => onto_new_stack(&mut wanted, context),
        Some(context) => fork_onto(&mut wanted, context),
        // libc's syscall(2), whose child returns on a copy of its parent's stack.
        None if !wanted.has(libc::CLONE_VM) => fork(&mut wanted, true, 0),
        // Its child would return from libc's syscall(2) on a stack where that was not called.
        None => {
            leave();
            memory_hooks::pass_on(number, a)
        }
    }
}

fn refuse(reason: &str) -> isize {
    complain(&format!(
        "clone(2) is refused in inline mode, since {reason}; run the program with --fault-mode thread"
    ));
    REFUSED
}

/// Without a stack of its own: a fork, or a vfork, whose child may not share ours.
fn on_own_stack(wanted: &mut Wanted) -> isize {
    if is_forking() {
        // SAFETY: made ready by the hook that we are in.
        return unsafe { raw::syscall(wanted.number, wanted.arguments) };
    }
    fork(wanted, false, 0)
}

/// A child with memory of its own, which goes on where its parent does: not on a stack that was asked for,
/// and without these flags.
fn fork(wanted: &mut Wanted, drops_stack: bool, without: u64) -> isize {
    // The kernel would take our handlers from the child too.
    let clears_handlers = wanted.is_extended()
        && !wanted.has(libc::CLONE_SIGHAND)
        && wanted.fields[field::FLAGS] as u64 & CLEAR_HANDLERS != 0;
    let without = without | if clears_handlers { CLEAR_HANDLERS } else { 0 };
    let (number, arguments) = match without {
        0 if !drops_stack => (wanted.number, wanted.arguments),
        _ => wanted.call(without, 0, 0),
    };
    let result = fork_hooks::by_system_call(number, arguments);
    if result == 0 && clears_handlers {
        signals::clear_handlers();
    }
    result
}

/// A child with memory and a stack of its own.
fn fork_onto(wanted: &mut Wanted, context: &mut Context<'_>) -> isize {
    let (stack_top, tls) = (wanted.stack_top(), wanted.fields[field::TLS]);
    let sets_tls = wanted.has(libc::CLONE_SETTLS);
    // The child has work to do before it may be on its stack and have its thread-local storage.
    let result = fork(wanted, true, libc::CLONE_SETTLS as u64);
    if result == 0 {
        context.set_stack_pointer(stack_top);
        if sets_tls {
            // SAFETY: the storage that the program has chosen for this thread, which goes back to the
            // program.
            unsafe { dispatch::set_thread_pointer(tls) };
        }
    }
    result
}

/// A thread, or a process that shares this memory, on a stack of its own.
fn onto_new_stack(wanted: &mut Wanted, context: &Context<'_>) -> isize {
    let pager = pager().filter(|_| !is_forking());
    let hold = pager.and_then(|pager| pager.hold(frame()));
    if let Some(pager) = pager {
        for (start, bytes) in wanted.places().into_iter().filter(|&(start, _)| start != 0) {
            let mut room = bytes + 2 * PAGE_SIZE;
            if !pager.make_ready(start..start.saturating_add(bytes), hold.as_ref(), &mut room) {
                return -libc::EFAULT as isize;
            }
        }
        keep_thread_local(pager, wanted);
    }
    let (stack, stack_bytes, stack_top) =
        (wanted.fields[field::STACK], wanted.fields[field::STACK_BYTES], wanted.stack_top());
    let (number, arguments) = if wanted.is_extended() {
        let Some(rest) = stack_bytes.checked_sub(dispatch::CHILD_BYTES).filter(|&rest| rest > 0) else {
            return refuse("its child's stack is too small");
        };
        wanted.call(0, stack, rest)
    } else {
        wanted.call(0, stack.wrapping_sub(dispatch::CHILD_BYTES), 0)
    };
    let block = [0; dispatch::CHILD_BYTES / 8];
    if write_words(stack_top.wrapping_sub(dispatch::CHILD_BYTES), &block).is_err() {
        return -libc::EFAULT as isize;
    }
    clone_onto(wanted, number, arguments, stack_top, context)
}

fn clone_onto(
    wanted: &Wanted,
    number: usize,
    arguments: [usize; 6],
    stack_top: usize,
    context: &Context<'_>,
) -> isize {
    let Ok(own) = ALT_STACKS.claim(is_own_process()) else { return -libc::EAGAIN as isize };
    let shares_memory = wanted.has(libc::CLONE_VM);
    // After vfork(2) the parent waits until its memory is its own again.
    if let Some(pager) = pager()
        && shares_memory
        && !wanted.has(libc::CLONE_VFORK)
    {
        pager.note_company();
    }
    let mask = signal::set_mask(u64::MAX);
    let sharing = shares_memory.then(|| ShareStorage::new(wanted));
    // SAFETY: the program's own call, its stack lower by what clone_onto needs.
    // A process of its own is served only once it has a pager of its own.
    let result = unsafe { dispatch::clone_onto(number, arguments, stack_top, context, own, shares_memory) };
    let has_ended = wanted.has(libc::CLONE_VFORK) || !shares_memory;
    if let Some(sharing) = sharing.filter(|_| has_ended || result < 0) {
        sharing.end();
    }
    match result {
        ..0 => ALT_STACKS.give(own, 0),
        thread if wanted.has(libc::CLONE_THREAD) => ALT_STACKS.give(own, thread as u32),
        _ if has_ended => ALT_STACKS.give(own, 0),
        // A process that shares this memory for as long as it likes: its stack stays its own.
        _ => {}
    }
    signal::set_mask(mask);
    result
}

/// A child that shares this memory gets thread-local storage of its own, or uses its parent's: then neither
/// may use the stack that is noted there.
struct ShareStorage {
    /// What was so before, where it is the parent's storage.
    was_refused: Option<bool>,
}

impl ShareStorage {
    fn new(wanted: &Wanted) -> Self {
        let tls = wanted.fields[field::TLS];
        if wanted.has(libc::CLONE_SETTLS) && tls != control_block() {
            // Of a thread that had this storage before, and has ended.
            let note = call_stubs::note_of(tls);
            if read_words(note) == Ok([note]) {
                let _ = write_words(note, &[0]);
            }
            return Self { was_refused: None };
        }
        // SAFETY: errno is used on this thread, too.
        Self { was_refused: Some(unsafe { call_stubs::refuse_stack(true) }) }
    }

    /// There is no such child, or it shares nothing any more.
    fn end(self) {
        if let Some(was_refused) = self.was_refused {
            // SAFETY: as above.
            unsafe { call_stubs::refuse_stack(was_refused) };
        }
    }
}

/// Brings a range in for good, where it is managed or may come to be.
pub fn keep_local(pager: &Inline, start: usize, bytes: usize) {
    let first_page = start / PAGE_SIZE * PAGE_SIZE;
    let pages = first_page..start.saturating_add(bytes).div_ceil(PAGE_SIZE).saturating_mul(PAGE_SIZE);
    if pager.may_leave(&pages) {
        call(Operation::Unmanage, [pages.start, pages.len(), 0, 0]);
    }
}

/// Where a new thread starts and what it needs before it can serve a fault: its first words on its stack, and
/// its thread-local storage, which threading libraries put above the stack (handlers use errno).
fn keep_thread_local(pager: &Inline, wanted: &Wanted) {
    /// Of static thread-local storage. More is not taken for such.
    const MOST_STATIC_BYTES: usize = 64 << 20;
    /// Behind the thread pointer: its own address and what the compiler expects there.
    const HEADER_BYTES: usize = 64;
    let (stack_top, tls) = (wanted.stack_top(), wanted.fields[field::TLS]);
    let start = stack_top.saturating_sub(dispatch::CHILD_BYTES);
    if !wanted.has(libc::CLONE_SETTLS) {
        keep_local(pager, start, dispatch::CHILD_BYTES);
    } else if (stack_top..stack_top.saturating_add(MOST_STATIC_BYTES)).contains(&tls) {
        keep_local(pager, start, tls - start + HEADER_BYTES);
    } else {
        keep_local(pager, start, dispatch::CHILD_BYTES);
        keep_local(pager, tls.saturating_sub(PAGE_SIZE), PAGE_SIZE + HEADER_BYTES);
    }
    // Written when the thread starts or ends, and not again where that fails.
    if wanted.has(libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) {
        keep_local(pager, wanted.fields[field::CHILD_TID], size_of::<u32>());
    }
}
