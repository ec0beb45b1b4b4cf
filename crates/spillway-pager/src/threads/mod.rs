//! The pager's threads in a process, and how the program's threads ask them for something.
//!
//! - [`handlers`]: read faults and answer them; [`leader`] says which of them reads, [`placement`] and
//!   [`place`] for whose node;
//! - [`evictor`]: makes room ahead of need and reads ahead; [`ahead_of_need`], [`background`], [`density`]
//!   and [`use_scan`] are its other work;
//! - [`inquiries`]: what the evictor tells who asks from outside;
//! - [`calls`], [`serve_calls`]: what hooks ask for, by page faults; [`births`]: what a tape is told of it.
//!
//! Invariants:
//! - A pager thread takes no signal, uses no libc lock, and allocates from a heap that no hook sees.
//! - A request is taken up once and answered once; no thread sleeps for ever before its doorbell.
//! - No lock is held while a store is asked.

pub mod ahead_of_need;
pub(crate) mod background;
pub mod births;
pub mod calls;
pub(crate) mod density;
pub mod evictor;
pub mod handlers;
pub(crate) mod inquiries;
pub mod leader;
pub mod place;
pub mod placement;
pub(crate) mod raw;
pub mod serve_calls;
pub(crate) mod use_scan;
