//! Sealing: what leaves the machine is encrypted and signed first, so that whoever keeps it can neither read
//! a page nor put another in its place.
//!
//! - [`cipher`]: AES-256-GCM over one page;
//! - [`sealing`]: the key of the run, and the versions and tags that it keeps;
//! - [`lane`]: a way to a store by which pages are sealed as they go and opened as they come.
//!
//! Invariants:
//! - No nonce serves for two pages: a version of the run's is taken before each page is sealed, whatever
//!   becomes of it then ([`spillway_core::seals`]). What a store sends again of itself is the very same
//!   bytes.
//! - A page is opened with the version and the tag that are noted of its slot on this side, or not at all. So
//!   a page of another slot, another time or another run does not open.
//! - The key lies in the memory that the run's processes share, and spread out in each process's own; it is
//!   in no message, no file, no argument and no environment.
//!
//! The cipher neither allocates nor asks libc for anything: it works on threads that libc does not know, and
//! in signal handlers. Knows stores, and no page's word.

pub mod cipher;
pub(crate) mod lane;
pub mod sealing;
