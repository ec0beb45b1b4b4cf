//! The donor: lends a machine's idle memory to others, by the NBD protocol and, on the same machine, by a
//! shared-memory ring.
//!
//! From the bottom up:
//!
//! | file | holds |
//! |---|---|
//! | [`limits`], [`peer`] | what one client may take, and who one client is |
//! | [`journal`], [`status`] | what happened, and how the donor stands |
//! | [`frames`] | the memory that is lent, as frames that exports take and give back; who was promised what |
//! | [`share`] | what one client may hold |
//! | [`lending`] | how much is lent at present, by how the machine is off for memory |
//! | [`export`], [`staged`] | an export: a sparse array of pages; a write that comes in pieces |
//! | [`visitor`], [`refusal`], [`registry`] | which exports exist, who uses them, when a private one goes |
//! | [`sealed`], [`stream`] | a connection's TLS; its bounded buffers and deadlines |
//! | [`handshake`] | NBD until a client has chosen its export |
//! | [`transmission`] | NBD requests and replies |
//! | [`lane`] | the other end of a shared-memory ring |
//! | [`connections`] | who is let in, and who goes where there are too many |
//! | [`place`], [`error`], [`listening`] | where it listens, and why it cannot |
//! | [`protection`] | how memory is kept safe on this machine |
//! | [`server`] | threads, housekeeping, the end |
//!
//! Every connection has its own thread and its own buffers of fixed size; connections meet only in an
//! export's sharded page table and, for an instant a request, in the frame pool.

pub mod connections;
pub mod error;
pub mod export;
pub mod frames;
pub mod handshake;
pub mod journal;
pub mod lane;
pub mod lending;
pub mod limits;
pub mod listening;
pub mod peer;
pub mod place;
pub mod protection;
pub mod refusal;
pub mod registry;
pub mod sealed;
pub mod server;
pub mod share;
pub mod staged;
pub mod status;
pub mod stream;
pub mod transmission;
pub mod visitor;

pub use error::DonorError;
pub use server::{Config, Donor, Summary};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What the locks here guard is whole between any two statements, so a panic elsewhere does not spoil
/// it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
