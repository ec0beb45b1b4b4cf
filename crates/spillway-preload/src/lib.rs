//! The library that enters the target program: finds out at its start whether the program belongs to a run, brings
//! paging to life and redirects the functions of libc that change the address space. No logic beyond that.
//!
//! - [`heap`]: an allocator of the library's own;
//! - [`install`]: which functions are redirected, and how the originals stay callable;
//! - [`memory_hooks`], [`lock_hooks`], [`process_hooks`], [`fork_hooks`], [`exec_hooks`]: what stands in their place;
//! - [`syscall_entry`]: the way to them from syscall(2);
//! - [`inline`]: faults and system calls served in the program's own threads, where the run has it so;
//! - [`reach`]: what the program hands to the kernel, read where its address may be wrong;
//! - [`adopt`]: memory that the program has before the hooks are in.
#![allow(unsafe_code)]

mod adopt;
mod exec_hooks;
mod fork_hooks;
mod heap;
mod inline;
mod install;
mod lock_hooks;
mod memory_hooks;
mod process_hooks;
mod reach;
mod syscall_entry;

use std::sync::OnceLock;

use spillway_pager::attach::Startup;
use spillway_pager::run::settings::RUN_VARIABLE;
use spillway_pager::threads::calls::{Calls, Operation};
use spillway_sys::raw_thread::is_raw_thread;

/// Exit status when Spillway cannot manage the program.
const EXIT_CANNOT_MANAGE: i32 = 125;

static BIRTH: OnceLock<Startup> = OnceLock::new();

/// This library as the loader was told of it, and the run's variable: what the next program needs too.
static OWN_VARIABLES: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();

/// The pager of this process. Hooks are in place only once it is there.
fn calls() -> Option<&'static Calls> {
    Some(&BIRTH.get()?.engine()?.calls)
}

/// Asks the pager.
fn call<const N: usize>(operation: Operation, arguments: [usize; N]) -> usize {
    if is_raw_thread() {
        return 0;
    }
    calls().map_or(0, |calls| calls.call(operation, arguments))
}

/// Tells the user, in the program's own thread.
fn complain(text: &str) {
    let line = format!("spillway: {text}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Ends the program where going on would mean wrong data.
fn stop(text: &str) -> ! {
    complain(text);
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

fn set_errno(errno: i32) {
    // SAFETY: libc's own thread-local errno, on a thread of the program.
    unsafe { *libc::__errno_location() = errno };
}

/// A raw result as libc's wrappers return it.
fn to_libc(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        set_errno(-result as i32);
        -1
    } else {
        result
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs before the program's main.
extern "C" fn start() {
    let Ok(run) = std::env::var(RUN_VARIABLE) else { return };
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    if let Some(library) = preload.split([':', ' ']).find(|path| path.contains("libspillway_preload")) {
        OWN_VARIABLES.get_or_init(|| (library.as_bytes().to_vec(), run.as_bytes().to_vec()));
    }
    let begun = Startup::new(&run).map_err(|error| error.to_string()).and_then(|birth| {
        let birth = BIRTH.get_or_init(|| birth);
        install::install_syscall().map_err(|error| error.to_string())?;
        birth.attach()?;
        install::install().map_err(|error| error.to_string())?;
        inline::enter()?;
        adopt::adopt_existing();
        Ok(())
    });
    if let Err(reason) = begun {
        complain(&format!("this program cannot be managed: {reason}"));
        // Nothing of the program has run yet.
        std::process::exit(EXIT_CANNOT_MANAGE);
    }
}
