//! Fuzzes the readers of etcd's answers, and of what donors and runs register there:
//! `cargo +nightly fuzz run etcd`.
#![no_main]

#[path = "../../crates/spillway-etcd/tests/exercise/etcd.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));
