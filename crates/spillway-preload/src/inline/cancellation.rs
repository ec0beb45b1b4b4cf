//! The cancellation of a thread (pthread_cancel(3)) that is in our code on behalf of a system call.
//!
//! libc cancels by a signal, whose handler unwinds the thread from wherever it is. Most of our code cannot be
//! unwound from, so libc's handler is called by way of one of ours, which puts a cancellation off that comes
//! at such a place: the thread's [next call](spillway_sys::cancellable) is cancelled instead, and if there is
//! none, libc's next cancellation point.

use std::sync::atomic::{AtomicUsize, Ordering};

use spillway_sys::signal::{Action, Context};
use spillway_sys::{cancellable, dispatch};

/// libc's own handler: there is one for all threads.
static LIBC_HANDLER: AtomicUsize = AtomicUsize::new(0);

type LibcHandler = extern "C-unwind" fn(i32, &libc::siginfo_t, &mut libc::ucontext_t);

/// What the kernel is asked for where libc asks for `action`.
pub fn with_ours(number: i32, action: Action) -> Action {
    let is_libcs = number == cancellable::CANCEL_SIGNAL
        && action.flags & libc::SA_SIGINFO as usize != 0
        && !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN);
    if !is_libcs {
        return action;
    }
    LIBC_HANDLER.store(action.handler, Ordering::Release);
    Action { handler: ours(), ..action }
}

/// What libc has asked for where the kernel has `action`.
pub fn with_libcs(action: Action) -> Action {
    let is_ours = action.handler == ours();
    if is_ours { Action { handler: LIBC_HANDLER.load(Ordering::Acquire), ..action } } else { action }
}

fn ours() -> usize {
    on_cancel as *const () as usize
}

/// Holds nothing that would have to be dropped: it is unwound.
extern "C-unwind" fn on_cancel(number: i32, info: &libc::siginfo_t, context: &mut libc::ucontext_t) {
    if must_wait(context) {
        return cancellable::note();
    }
    let handler = LIBC_HANDLER.load(Ordering::Acquire);
    // SAFETY: libc's handler, called as the kernel calls it.
    let handler: LibcHandler = unsafe { std::mem::transmute(handler) };
    handler(number, info, context);
}

/// Whether the thread is in our code, or in what that has called on the stack of our handlers, where it
/// cannot be unwound from.
fn must_wait(context: &mut libc::ucontext_t) -> bool {
    let stack = context.uc_stack.ss_sp.expose_provenance();
    let stack = stack..stack + context.uc_stack.ss_size;
    let context = Context(context);
    let at = context.register(libc::REG_RIP);
    let is_within = dispatch::is_own_code(at) || stack.contains(&context.register(libc::REG_RSP));
    is_within && !cancellable::can_unwind_from(at)
}
