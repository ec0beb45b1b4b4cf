//! The program's own wishes for the two signals that inline mode has taken: kept, reported back as the kernel
//! would, and heeded where a signal is not ours.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::io::Result;
use spillway_sys::signal::{self, Action, Context, Handler, bit};

use super::cancellation;
use super::presence::{is_own_process, note_process};
use crate::program_memory::{BadAddress, read_words, write_words};

const OURS: [i32; 2] = [libc::SIGBUS, libc::SIGSYS];
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

struct Wish {
    handler: AtomicUsize,
    flags: AtomicUsize,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

impl Wish {
    const fn new() -> Self {
        Self {
            handler: AtomicUsize::new(SIG_DFL),
            flags: AtomicUsize::new(0),
            restorer: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn get(&self) -> Action {
        Action {
            handler: self.handler.load(Ordering::Acquire),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    fn set(&self, action: Action) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Release);
    }
}

static WISHES: [Wish; 2] = [const { Wish::new() }; 2];

fn wish(number: i32) -> Option<&'static Wish> {
    OURS.iter().position(|&own| own == number).map(|index| &WISHES[index])
}

/// A mask without the signals that must not be blocked.
pub fn allowed(mask: u64) -> u64 {
    mask & !(bit(libc::SIGBUS) | bit(libc::SIGSYS))
}

/// Blocks all signals that may be blocked. Returns the mask before.
pub fn block() -> u64 {
    signal::set_mask(allowed(u64::MAX))
}

/// Sets our handlers of SIGBUS and SIGSYS.
pub fn take_over(on_bus: Handler, on_system_call: Handler) -> Result<()> {
    note_process();
    // While a fault is served nothing else may run in its thread: it may hold locks of the pager's.
    // SAFETY: both keep to what handlers may do: memory of their own, locks that no interrupted code of the
    // thread holds.
    let (bus, sys) = unsafe {
        (
            signal::set_handler(libc::SIGBUS, on_bus, allowed(u64::MAX))?,
            signal::set_handler(libc::SIGSYS, on_system_call, allowed(u64::MAX))?,
        )
    };
    WISHES.iter().zip([bus, sys]).for_each(|(wish, action)| wish.set(action));
    Ok(())
}

/// Gives the program's actions back to the kernel.
pub fn give_back() {
    for (number, wish) in OURS.into_iter().zip(&WISHES) {
        // SAFETY: the program's own action.
        unsafe { signal::raw_action(number, &wish.get(), std::ptr::null_mut()) };
    }
}

/// Does the program's rt_sigaction(2); of a signal that is ours only its wish is kept.
pub fn action(arguments: [usize; 6]) -> isize {
    changed_action(arguments).unwrap_or(-libc::EFAULT as isize)
}

fn changed_action(arguments: [usize; 6]) -> std::result::Result<isize, BadAddress> {
    let [number, new, old, bytes, ..] = arguments;
    if bytes != size_of::<u64>() {
        return Ok(-libc::EINVAL as isize);
    }
    let new = match new {
        0 => None,
        new => {
            let [handler, flags, restorer, mask] = read_words(new)?;
            Some(Action { handler, flags, restorer, mask: allowed(mask as u64) })
        }
    };
    let mut before = Action::default();
    if let Some(wish) = wish(number as i32) {
        before = wish.get();
        // A child that shares this memory means its own signals.
        if let Some(new) = new.filter(|_| is_own_process()) {
            wish.set(new);
        }
    } else {
        let new = new.map(|new| cancellation::with_ours(number as i32, new));
        let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the program's own call, with a copy of what it passes.
        let result = unsafe { signal::raw_action(number as i32, new, &mut before) };
        if result < 0 {
            return Ok(result);
        }
        before = cancellation::with_libcs(before);
    }
    if old != 0 {
        write_words(old, &[before.handler, before.flags, before.restorer, before.mask as usize])?;
    }
    Ok(0)
}

/// rt_sigprocmask(2) by a thread of the program that has `before` blocked. Returns the answer, and what is
/// blocked then.
pub fn change_mask(arguments: [usize; 6], before: u64) -> (isize, u64) {
    match changed_mask(arguments, before) {
        Ok(mask) => (0, mask),
        Err(errno) => (-errno as isize, before),
    }
}

fn changed_mask([how, new, old, bytes, ..]: [usize; 6], before: u64) -> std::result::Result<u64, i32> {
    const NEVER: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
    if bytes != size_of::<u64>() {
        return Err(libc::EINVAL);
    }
    let mut mask = before;
    if new != 0 {
        let [new] = read_words(new).map_err(|BadAddress| libc::EFAULT)?;
        mask = match how as i32 {
            libc::SIG_BLOCK => before | new as u64,
            libc::SIG_UNBLOCK => before & !(new as u64),
            libc::SIG_SETMASK => new as u64,
            _ => return Err(libc::EINVAL),
        };
        mask = allowed(mask) & !NEVER;
    }
    if old != 0 {
        write_words(old, &[before as usize]).map_err(|BadAddress| libc::EFAULT)?;
    }
    Ok(mask)
}

/// sigaltstack(2). The stacks that our handlers need are the only ones; the program's run there too.
pub fn alt_stack(new: usize, old: usize) -> isize {
    let is_readable = new == 0 || read_words::<3>(new).is_ok();
    let none = [0, libc::SS_DISABLE as usize, 0];
    let is_told = is_readable && (old == 0 || write_words(old, &none).is_ok());
    if is_told { 0 } else { -libc::EFAULT as isize }
}

/// Every signal that the program handles gets its default action (`CLONE_CLEAR_SIGHAND`); ours stay ours.
pub fn clear_handlers() {
    const SIGNALS: i32 = 64;
    let is_handled = |action: &Action| !matches!(action.handler, SIG_DFL | SIG_IGN);
    for number in 1..=SIGNALS {
        let mut action = Action::default();
        if let Some(wish) = wish(number) {
            if is_handled(&wish.get()) {
                wish.set(action);
            }
            continue;
        }
        // SAFETY: only asks.
        let is_known = unsafe { signal::raw_action(number, std::ptr::null(), &mut action) } == 0;
        if is_known && is_handled(&action) {
            // SAFETY: the default action has no code to run.
            unsafe { signal::raw_action(number, &Action::default(), std::ptr::null_mut()) };
        }
    }
}

/// A signal that is not ours: does what the program wants of it.
pub fn to_program(number: i32, info: &libc::siginfo_t, context: &mut Context<'_>) {
    let Some(wish) = wish(number) else { return };
    let Action { handler, flags, mask, .. } = wish.get();
    let by_fault = info.si_code > 0;
    match handler {
        SIG_IGN if !by_fault => {}
        SIG_DFL | SIG_IGN => die(number, by_fault),
        handler => {
            if flags & libc::SA_RESETHAND as usize != 0 {
                wish.set(Action::default());
            }
            // The program's handler runs with the mask that it asked for.
            let ours = signal::set_mask(allowed(context.signal_mask() | mask));
            let context = std::ptr::from_mut(context.0);
            // SAFETY: the program's own handler, called as the kernel calls it.
            unsafe {
                let handler: extern "C" fn(i32, &libc::siginfo_t, *mut libc::ucontext_t) =
                    std::mem::transmute(handler);
                handler(number, info, context);
            }
            signal::set_mask(ours);
        }
    }
}

/// The kernel's default: the same access again, or the same signal, ends the process.
fn die(number: i32, by_fault: bool) {
    // SAFETY: the default is no function.
    unsafe { signal::raw_action(number, &Action::default(), std::ptr::null_mut()) };
    if !by_fault {
        let arguments =
            [signal::own_process() as usize, signal::own_thread() as usize, number as usize, 0, 0, 0];
        // SAFETY: takes no address.
        unsafe { spillway_sys::raw::syscall(libc::SYS_tgkill as usize, arguments) };
    }
}
