//! Inline mode in the program's threads: SIGBUS at memory of ours is a page fault, and system calls come as
//! SIGSYS so that what they use can be brought in first.
//!
//! Both handlers run on stacks of their own, since the fault may be one of the program's stack. Neither
//! signal may ever be blocked, and both may come while the other's handler runs.
//!
//! Each uses only what stands above it:
//!
//! - [`presence`]: whether this process is in inline mode;
//! - [`shapes`], [`arguments`]: what memory a system call uses;
//! - [`cancellation`]: threads that are cancelled in our code;
//! - [`signals`]: the program's own wishes for our two signals; [`leaving`]: the end of the mode;
//!   [`stack_readers`]: handlers that end it;
//! - [`clone`], [`descriptors`], [`exec_strings`]: calls that make threads and processes, that would move our
//!   descriptors, and that take more strings than can be held;
//! - [`system_calls`]: every call, made on the program's behalf;
//! - [`sites`]: libc's own system calls, which come by a jump instead; [`stub_calls`]: those of them that
//!   need no more than a look.

mod arguments;
mod cancellation;
mod clone;
mod descriptors;
pub mod exec_strings;
mod image;
pub mod leaving;
mod messages;
pub mod presence;
mod shapes;
mod signals;
pub mod sites;
mod stack_readers;
mod stub_calls;
pub mod system_calls;

use spillway_pager::inline::undisturbed::defer_signal;
use spillway_pager::run::stacks::Origin;
use spillway_sys::signal::{self, Context};
use spillway_sys::{call_stubs, dispatch};

use self::leaving::leave;
use self::presence::{ALT_STACKS, former_pager, pager};
use crate::process::set_errno;
use crate::{devices, memory_hooks};

/// `si_code` of an address that nothing answers for.
const BUS_ADRERR: i32 = 2;
/// `si_code` of a page that is marked as lost.
const BUS_MCEERR_AR: i32 = 4;

/// Has the calling thread, the only one of the program, serve its faults from now on. Where the kernel or a
/// filter does not allow it, handlers go on doing so.
pub fn enter() {
    let Some(pager) = pager() else { return };
    pager.note_alone();
    if take_over().is_err() {
        leave();
    }
}

fn take_over() -> rustix::io::Result<()> {
    dispatch::find_own_code()?;
    let stack = ALT_STACKS.claim(false)?;
    ALT_STACKS.give(stack, signal::own_thread());
    signal::use_alt_stack(stack);
    signals::take_over(on_bus, on_system_call)?;
    signal::set_mask(signals::allowed(signal::set_mask(0)));
    dispatch::enable()?;
    stub_calls::begin();
    Ok(())
}

/// The interrupted code finds errno as it left it.
struct KeptErrno(i32);

impl KeptErrno {
    fn new() -> Self {
        // SAFETY: libc's own thread-local errno, on a thread of the program.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// Handles SIGBUS: serves a fault in managed memory, and hands what is not ours to the program.
extern "C-unwind" fn on_bus(number: i32, info: &libc::siginfo_t, context: &mut libc::ucontext_t) {
    let _errno = KeptErrno::new();
    let mut context = Context(context);
    // SAFETY: a SIGBUS by a fault has an address, and another's is not looked at.
    let address = unsafe { info.si_addr() }.expose_provenance();
    match former_pager() {
        Some(pager) if info.si_code == BUS_MCEERR_AR && pager.was_kept_back(address) => {}
        Some(pager) if info.si_code == BUS_ADRERR && pager.manages(address) => {
            let (write, was_there) = context.fault_was();
            if !pager.serve(address, write, was_there, origin(&context)) {
                signals::to_program(number, info, &mut context);
            }
        }
        Some(pager) if info.si_code == BUS_ADRERR && pager.was_given_up(address, context.fault_was().0) => {}
        Some(_) if is_sent(info) && defer_signal(number) => {}
        _ => signals::to_program(number, info, &mut context),
    }
}

/// Where the thread is that the signal has interrupted.
fn origin(context: &Context<'_>) -> Origin {
    let register = |index| context.register(index) as u64;
    Origin {
        instruction: register(libc::REG_RIP),
        stack_pointer: register(libc::REG_RSP),
        frame_pointer: register(libc::REG_RBP),
    }
}

/// Somebody has sent the signal; it is not of the kernel's making (sigaction(2)).
fn is_sent(info: &libc::siginfo_t) -> bool {
    info.si_code <= 0
}

/// Handles SIGSYS: performs the system call that was stopped, and hands what is not ours to the program.
extern "C-unwind" fn on_system_call(number: i32, info: &libc::siginfo_t, context: &mut libc::ucontext_t) {
    let _errno = KeptErrno::new();
    let mut context = Context(context);
    if info.si_code != dispatch::SYS_USER_DISPATCH {
        if is_sent(info) && defer_signal(number) {
            return;
        }
        return signals::to_program(number, info, &mut context);
    }
    if dispatch::lets_all_pass() {
        // Inline mode was left as the call was on its way here.
        return context.go_back_to_system_call();
    }
    if let Some(pager) = pager() {
        pager.count_call_by_signal();
    }
    if call_stubs::traps().contains(&context.register(libc::REG_RIP)) {
        // SAFETY: the call has come from libc, which uses the thread's storage as it has laid it out.
        unsafe { call_stubs::use_stack() };
    }
    let (call_number, arguments) = context.system_call();
    if call_number == libc::SYS_rt_sigreturn as usize {
        return context.go_to_signal_return();
    }
    if system_calls::must_leave(call_number, arguments) {
        leave();
        if devices::may_give(call_number, arguments) {
            // Elsewhere than in libc nobody looks at it again.
            return context.set_result(memory_hooks::pass_on(call_number, arguments));
        }
        return context.go_back_to_system_call();
    }
    let result = system_calls::perform(call_number, arguments, Some(&mut context));
    context.set_result(result);
}
