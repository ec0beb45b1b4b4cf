//! NBD: the store for `nbd://` and `nbd+unix://`. Its protocol is in the crate `spillway-nbd`.
//!
//! | file | holds |
//! |---|---|
//! | [`progress`] | what a call on a socket comes to |
//! | [`tls_socket`], [`socket`] | a socket with TLS on it, and either kind |
//! | [`reaching`] | a socket until an attempt is over, and why there is no connection |
//! | [`meeting`] | how a lane and the run's relay find and know each other |
//! | [`connection`] | connecting and the client's handshake |
//! | `relay` | the process that begins TLS for a run's lanes |
//! | [`exchange`] | a batch of requests and replies on one connection |
//! | [`pool`] | the connections of a process, which its lanes borrow |
//! | [`holdings`] | which there are, and what a refusal of a further one means |
//! | [`effort`] | how long one is tried for |
//! | [`lane`] | batches, what is posted, reconnecting, outcomes |
//! | [`mark`] | what a server that is none of ours shows of a pool's run |
//! | [`standing`] | how a donor stands, and whether it is drained |
//! | [`client`] | the store: what a run's start checks, and what its processes open |

pub mod client;
pub mod connection;
mod effort;
pub mod exchange;
mod holdings;
mod lane;
pub mod mark;
pub mod meeting;
mod pool;
mod progress;
pub mod reaching;
mod relay;
mod socket;
mod standing;
mod tls_socket;

pub use client::{drop_export, end, open, prepare};
pub(crate) use client::{
    expect_key, keep_relay, known_address, let_relays_start, mark_of, open_one_of_several, prepare_sized,
};
pub(crate) use pool::sleep;
pub use spillway_nbd::run_standing::RunStanding;
pub use standing::{Door, drain, runs, standing};
