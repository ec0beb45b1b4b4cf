//! The library that enters the target program: finds out at its start whether the program belongs to a run,
//! brings paging to life and redirects the functions of libc that change the address space. No logic beyond
//! that.
//!
//! Each uses only what stands above it:
//!
//! - [`heap`]: an allocator of the library's own;
//! - [`process`]: the pager of this process, and how hooks speak to it, to the user and to libc;
//! - [`originals`]: what of libc's functions stays callable;
//! - [`reach`], [`program_memory`]: what the program hands to the kernel, read where its address may be
//!   wrong;
//! - [`vectors`], [`remote`]: lists of ranges, and another process's memory;
//! - [`file_kind`], [`devices`]: what a descriptor is of, and memory that the program gives to a device;
//! - [`lock_hooks`], [`fork_hooks`], [`process_hooks`], [`memory_hooks`]: what stands in the place of mlock,
//!   of fork, of calls that want a process of one thread, and of the memory calls;
//! - [`inline`]: faults and system calls served in the program's own threads, where the run has it so;
//! - [`user_dispatch`]: why a program has no syscall user dispatch;
//! - [`exec_hooks`], [`number_hooks`]: what stands in the place of exec, and of system calls by number;
//! - [`syscall_entry`]: the way to them from syscall(2);
//! - [`install`]: which functions are redirected;
//! - [`watchers`]: sanitizers and simulators, which do that themselves;
//! - [`adopt`]: memory that the program has before the hooks are in;
//! - [`tier_marker`]: what there is of all this in a program of `spillway tier`.
#![allow(unsafe_code)]

mod adopt;
mod devices;
mod exec_hooks;
mod file_kind;
mod fork_hooks;
mod heap;
mod inline;
mod install;
mod lock_hooks;
mod memory_hooks;
mod number_hooks;
mod originals;
mod process;
mod process_hooks;
mod program_memory;
mod reach;
mod remote;
mod syscall_entry;
mod thread_hooks;
mod tier_marker;
mod user_dispatch;
mod vectors;
mod watchers;

use spillway_pager::attach::Startup;
use spillway_pager::run::settings::RUN_VARIABLE;

use crate::process::{OWN_VARIABLES, STARTUP, complain};

/// Exit status when Spillway cannot manage the program.
const EXIT_CANNOT_MANAGE: i32 = 125;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs before the program's main.
extern "C" fn start() {
    spillway_sys::error_text::use_own();
    let Ok(run) = std::env::var(RUN_VARIABLE) else { return tier_marker::start() };
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    if let Some(library) = preload.split([':', ' ']).find(|path| path.contains("libspillway_preload")) {
        OWN_VARIABLES.get_or_init(|| (library.as_bytes().to_vec(), run.as_bytes().to_vec()));
    }
    if let Some(reason) = watchers::reason(&preload, &watchers::is_defined) {
        return complain(&format!("this program runs unmanaged: {reason}"));
    }
    let begun = Startup::new(&run).map_err(|error| error.to_string()).and_then(|startup| {
        let startup = STARTUP.get_or_init(|| startup);
        install::install_syscall().map_err(|error| error.to_string())?;
        startup.attach(&inline::sites::patch)?;
        // A library may have begun others. They have no stacks for our handlers, and map and unmap memory
        // while we look at what there is.
        let is_alone = inline::presence::is_single_threaded();
        // A debugger would be told of each of our faults as of a signal.
        if !is_alone || inline::presence::is_traced() {
            inline::leaving::leave();
        }
        install::install().map_err(|error| error.to_string())?;
        inline::enter();
        startup.note_served();
        if is_alone {
            adopt::adopt_existing();
        }
        Ok(())
    });
    if let Err(reason) = begun {
        complain(&format!("this program cannot be managed: {reason}"));
        // Nothing of the program has run yet.
        std::process::exit(EXIT_CANNOT_MANAGE);
    }
}
