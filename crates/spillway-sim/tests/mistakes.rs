//! Each mistake that is planted in the pager is found (with feature `planted-bugs`).
#![cfg(feature = "planted-bugs")]
#![allow(clippy::expect_used)]

use std::process::Command;

use spillway_sim::mistakes::MISTAKES;

/// Every mistake must be found within so many seeds.
const SEEDS: &str = "20000";

#[test]
fn every_planted_mistake_is_found() {
    let mut missed = Vec::new();
    for mistake in MISTAKES {
        let output = Command::new(env!("CARGO_BIN_EXE_spillway-sim"))
            .args(["--plant", mistake.name, "--seeds", SEEDS])
            .output()
            .expect("the simulator runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{}: {}", mistake.name, text.lines().next().unwrap_or_default());
        if output.status.code() != Some(1) {
            missed.push(mistake.name);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn mistakes_have_names_of_their_own() {
    let mut names: Vec<&str> = MISTAKES.iter().map(|mistake| mistake.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MISTAKES.len());
    assert!(names.len() >= 20);
}
