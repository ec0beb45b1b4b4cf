//! Fuzzes the readers of traces and of text: `cargo +nightly fuzz run trace`.
#![no_main]

#[path = "../../crates/spillway-lab/tests/exercise/trace.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
