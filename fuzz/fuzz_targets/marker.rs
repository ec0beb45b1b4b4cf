//! Fuzzes the packets of `spillway tier` and its markers: `cargo +nightly fuzz run marker`.
#![no_main]

#[path = "../../crates/spillway-marker/tests/exercise/wire.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
