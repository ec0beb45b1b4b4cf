//! Fuzzes the NBD codec: `cargo +nightly fuzz run nbd_wire`.
#![no_main]

#[path = "../../crates/spillway-nbd/tests/exercise/wire.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
