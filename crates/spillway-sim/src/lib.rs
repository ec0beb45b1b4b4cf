//! A seeded simulator of the pager: its own code - fault, fetch, evict, write-back, charge, reserve,
//! read-ahead, native, fork - on a simulated kernel, in several processes of a run, under one scheduler that
//! draws every step from a seed.
//!
//! - [`config`]: what a seed means;
//! - [`world`], [`tasks`], [`draws`]: one thread runs all tasks, one step after the other, in virtual time;
//! - [`physical`], [`space`], [`kernel`]: the machine's memory, a process's page table with userfaultfd's
//!   semantics, and the seam;
//! - [`own_memory`]: the pager's own frames, which are real memory: the only `unsafe` file;
//! - [`store_model`], [`store`], [`late_writes`]: stores in which everything goes wrong that may;
//! - [`process`], [`program`], [`contents`]: what runs, what it maps and what it writes;
//! - [`pager`], [`supervisor`]: the real engine attached to all this; [`actor`], [`access`]: the program's
//!   threads;
//! - [`shadow`], [`oracle`], [`invariants`], [`sealing`]: what must be read, and what must hold of the
//!   pager's books and of what it seals;
//! - [`run`], [`trace`], [`report`], [`shrink`]: a world from its beginning to what is said of it;
//! - [`mistakes`]: what can be planted in the pager for all this to find.

pub mod access;
pub mod actor;
pub mod config;
pub mod contents;
pub mod draws;
pub mod invariants;
pub mod kernel;
mod late_writes;
pub mod mistakes;
pub mod oracle;
pub mod own_memory;
pub mod pager;
pub mod physical;
pub mod process;
pub mod program;
pub mod report;
pub mod run;
pub mod sealing;
pub mod shadow;
pub mod shrink;
pub mod space;
pub mod store;
pub mod store_config;
pub mod store_model;
pub mod supervisor;
pub mod tape;
pub mod tape_config;
pub mod tasks;
pub mod trace;
pub mod world;
mod worlds;
