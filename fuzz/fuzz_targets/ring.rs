//! Fuzzes both sides of shared-memory rings, and how they meet: `cargo +nightly fuzz run ring`.
#![no_main]

#[path = "../../crates/spillway-donor/tests/exercise/ring.rs"]
mod donor;
#[path = "../../crates/spillway-store/tests/exercise/ring.rs"]
mod lane;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lane::exercise(data);
    donor::exercise(data);
});
