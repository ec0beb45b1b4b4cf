//! NBD: the store for `nbd://` and `nbd+unix://`, and the codec that the donor shares.
//!
//! | file | holds |
//! |---|---|
//! | [`wire`] | the protocol over byte slices |
//! | [`private`] | how a run keeps its export to itself |
//! | [`connection`] | connecting and the client's handshake |
//! | [`exchange`] | a batch of requests and replies on one connection |
//! | [`client`] | the store: planning, reconnecting, outcomes |

pub mod client;
pub mod connection;
pub mod exchange;
pub mod private;
pub mod wire;

pub use client::{drop_export, open, prepare};
