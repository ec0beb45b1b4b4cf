//! Fuzzes what runs and daemons are asked, and what they say of themselves:
//! `cargo +nightly fuzz run snapshot`.
#![no_main]

#[path = "../../crates/spillway-snapshot/tests/exercise/snapshot.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
