//! One run: what its processes share, and the supervisor beside them.
//!
//! - [`state`]: the memory file of atomics that all processes map, with each process's [`process_entry`];
//! - [`counter`], [`store_counts`]: what is counted there;
//! - [`inquiry`], [`heat`]: what a process is asked of its pages from outside;
//! - [`known_sites`]: what one program of a run has found in libc's code for the others;
//! - [`rendezvous`], [`supervisor`]: how a process gets it, and gives it back;
//! - [`connections`]: what an ended process has sent to servers, and when that is done;
//! - [`reaper`]: gives back what ended processes held;
//! - [`returns`]: how far pages were that came back, for who asks how much memory would do;
//! - [`sites`], [`stacks`]: which instructions waited for pages, and in which calls;
//! - [`settings`], [`report`], [`program`]: what goes in, what comes out, what can be run;
//! - [`noted`]: what programs' pagers have to tell, for the supervisor to make events of;
//! - [`own_stores`]: the supervisor's own use of the stores;
//! - [`slot_ranges`]: which slots are which store's;
//! - [`store_health`]: what the user is told of stores that keep somebody waiting;
//! - [`store_watch`]: who looks after stores while nobody needs them;
//! - [`told_uses`]: what it tells processes of their own use;
//! - [`tape_log`]: by which what was faulted on goes to the supervisor, for a tape;
//! - [`trace_ring`]: by which a process's fault trace goes to the supervisor.
//!
//! Invariant: the shared state holds atomics and no lock, so that a process killed at any moment blocks
//! nobody, and the supervisor can give back whatever the dead process held.

mod connections;
pub mod counter;
pub mod heat;
pub mod inquiry;
pub mod known_sites;
pub mod noted;
mod own_stores;
pub mod process_entry;
pub mod program;
mod reaper;
pub mod rendezvous;
pub mod report;
pub mod returns;
pub mod settings;
pub mod sites;
mod slot_ranges;
pub mod stacks;
pub mod state;
pub mod store_counts;
pub mod store_health;
mod store_watch;
pub mod supervisor;
pub mod tape_log;
pub mod told_uses;
pub mod trace_ring;
pub mod views;
