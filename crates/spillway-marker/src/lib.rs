//! Marks pages of the process that it is in, so that their next access faults, as HotBox does in the kernel
//! (section 5.2: a hot page of far memory is unmapped, and migrated when it is accessed next).
//!
//! A stock kernel lets nobody mark the pages of another process, and most ways to mark one's own do not
//! catch every access: PROT_NONE and protection keys make system calls fail with EFAULT where they meet a
//! marked page, write protection by userfaultfd lets reads pass. What catches all of them is a page that is
//! not there. So the *marker*, a thread in the program that `spillway tier` starts, moves a page that the
//! daemon names out of its place by UFFDIO_MOVE, frame and all, and moves it back when somebody accesses it:
//! a thread of the program or the kernel on its behalf. It copies nothing, and migrates nothing. It tells the
//! daemon of the access, which has the kernel migrate the page at once.
//!
//! Invariants:
//! - Every page that is held is given back: at its access, after a time without one, and when the daemon
//!   is gone.
//! - Who changes the address space waits until the marker knows of it (userfaultfd's events), whichever way
//!   the system call was made. While it does not know, the kernel refuses every request of the marker's.
//! - A forked child gets copies of what is held. Its kernel would give it zeros.
//! - The daemon has the userfaultfd open, too: when the process ends, a thread that runs on for a moment
//!   waits rather than read zeros.
//! - The marker touches no memory of the program's, which may be held. It allocates nothing by the program's
//!   allocator.
//!
//! Files, each using only what stands above it: [`wire`], what daemon and marker say to each other;
//! [`excluded`], pages that are never held; [`held`], which pages are; [`registered`], where faults come
//! from; [`places`], which memory may be marked; [`program`], memory by address; [`rights`], what the thread
//! may do; [`heirs`], forked children; [`marker`], the thread itself; [`call`], how it comes to be connected.

pub mod call;
pub mod excluded;
mod heirs;
pub mod held;
pub mod marker;
mod places;
mod program;
mod registered;
mod rights;
pub mod wire;
