//! NBD: the store for `nbd://` and `nbd+unix://`. Its protocol is in the crate `spillway-nbd`.
//!
//! | file | holds |
//! |---|---|
//! | [`connection`] | connecting and the client's handshake |
//! | [`exchange`] | a batch of requests and replies on one connection |
//! | [`pool`] | the connections of a process, which its lanes borrow |
//! | [`lane`] | batches, what is posted, reconnecting, outcomes |
//! | [`standing`] | how a donor stands, and whether it is drained |
//! | [`client`] | the store: what a run's start checks, and what its processes open |

pub mod client;
pub mod connection;
pub mod exchange;
mod lane;
mod pool;
mod standing;

pub use client::{drop_export, end, open, prepare};
pub(crate) use client::{open_patiently, prepare_sized};
pub(crate) use pool::sleep;
pub use standing::{drain, standing};
