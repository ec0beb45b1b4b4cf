//! Fuzzes the messages of a run's processes and their supervisor: `cargo +nightly fuzz run rendezvous`.
#![no_main]

#[path = "../../crates/spillway-pager/tests/exercise/rendezvous.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
