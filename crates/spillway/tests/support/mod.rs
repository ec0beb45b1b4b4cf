//! What the tests share that run real programs.
#![allow(dead_code, unused_imports, reason = "each test target uses its own part")]

pub mod child;
pub mod guest;
pub mod launch;
pub mod tools;
pub mod watch;
pub mod workloads;

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;

/// Words that are the same in each run and differ between seeds (splitmix64).
pub fn mix(seed: u64) -> u64 {
    let word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
