//! Fuzzes the decoder of perf_event_open(2)'s rings: `cargo +nightly fuzz run access_records`.
#![no_main]

#[path = "../../crates/spillway-sys/tests/exercise/access_records.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
