//! The donor: lends a machine's idle memory to others, by the NBD protocol and, on the same machine, by a
//! shared-memory ring.
//!
//! From the bottom up:
//!
//! | file | holds |
//! |---|---|
//! | [`frames`] | the memory that is lent, as frames that exports take and give back; the one budget |
//! | [`export`] | an export: a sparse array of pages |
//! | [`registry`] | which exports exist, who uses them, when a private one goes |
//! | [`stream`] | a connection's bounded buffers and deadlines |
//! | [`handshake`] | NBD until a client has chosen its export |
//! | [`transmission`] | NBD requests and replies |
//! | [`lane`] | the other end of a shared-memory ring |
//! | [`server`] | listening, threads, limits, the end |
//!
//! Every connection has its own thread and its own buffers of fixed size; connections meet only in an
//! export's sharded page table and, for an instant a request, in the frame pool.

pub mod export;
pub mod frames;
pub mod handshake;
pub mod lane;
pub mod registry;
pub mod server;
pub mod stream;
pub mod transmission;

pub use server::{Config, Donor, DonorError, Summary};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What the locks here guard is whole between any two statements, so a panic elsewhere does not spoil
/// it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
