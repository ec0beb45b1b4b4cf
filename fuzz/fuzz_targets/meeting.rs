//! Fuzzes the meeting of a run's lanes and its relay for TLS: `cargo +nightly fuzz run meeting`.
#![no_main]

#[path = "../../crates/spillway-store/tests/exercise/meeting.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
