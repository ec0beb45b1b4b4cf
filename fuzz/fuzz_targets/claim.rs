//! Fuzzes what runs write on an export that others may open, to claim it: `cargo +nightly fuzz run claim`.
#![no_main]

#[path = "../../crates/spillway-store/tests/exercise/claim.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
