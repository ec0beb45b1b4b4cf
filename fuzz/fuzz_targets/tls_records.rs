//! Fuzzes what opens records of a TLS session that is over: `cargo +nightly fuzz run tls_records`.
#![no_main]

#[path = "../../crates/spillway-tls/tests/exercise/records.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
