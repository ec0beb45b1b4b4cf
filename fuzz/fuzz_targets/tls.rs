//! Fuzzes what reads a peer's bytes for TLS: `cargo +nightly fuzz run tls`.
#![no_main]

#[path = "../../crates/spillway-tls/tests/exercise/tls.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
