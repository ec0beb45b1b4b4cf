//! The fault engine: pages a program's private anonymous memory between local memory and stores, from inside
//! the program, and supervises the programs of one run. Knows neither a store nor a policy by name, but for
//! dcm's replacement, the only one so far.
//!
//! Rooms, lowest first; each opens with what it is for, its invariants, and what it may touch:
//! - [`kernel`]: the seam to Linux, or to a simulator of it; everything above is generic over it;
//! - [`run`]: what all processes of a run share, and the supervisor;
//! - [`pages`]: where a page is: words, frames, checksums;
//! - [`seal`]: what leaves the machine is encrypted and signed first;
//! - [`process`]: the state of paging in one process, and what its pager threads work with;
//! - [`evict`]: a page goes out, and room comes of it; [`fault`]: a page comes in;
//! - [`space`]: the program maps, unmaps, moves, locks, forks;
//! - [`threads`]: who does all this, and who asks;
//! - [`inline`]: faults served in the thread that has them;
//! - [`attach`]: brings paging to life, at the start and in forked children.

pub mod attach;
pub mod evict;
pub mod fault;
pub mod inline;
pub mod kernel;
pub mod pages;
pub mod process;
pub mod run;
pub mod seal;
pub mod space;
pub mod threads;
