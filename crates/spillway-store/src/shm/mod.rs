//! A donor on the same machine, by a shared-memory ring: `shm:NAME`.
//!
//! | file | holds |
//! |---|---|
//! | [`hello`] | how the two sides meet, over an abstract Unix socket |
//! | [`ring`] | the memory that they share |
//! | [`doorbell`] | how one wakes the other |
//! | [`client`] | the store |

pub mod client;
pub mod doorbell;
pub mod hello;
pub mod ring;

pub use client::{end, open, prepare};
