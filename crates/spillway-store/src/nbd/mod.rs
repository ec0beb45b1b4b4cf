//! NBD: the store for `nbd://` and `nbd+unix://`. Its protocol is in the crate `spillway-nbd`.
//!
//! | file | holds |
//! |---|---|
//! | [`connection`] | connecting and the client's handshake |
//! | [`exchange`] | a batch of requests and replies on one connection |
//! | [`client`] | the store: planning, reconnecting, outcomes |

pub mod client;
pub mod connection;
pub mod exchange;

pub use client::{drop_export, end, open, prepare};
