//! The pager's own code holds in 2,000 simulated worlds, and equal seeds give equal worlds.
#![allow(clippy::expect_used)]

use std::collections::BTreeMap;
use std::process::Command;

fn simulator(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_spillway-sim")).args(arguments).output().expect("the simulator runs")
}

fn digests(arguments: &[&str]) -> BTreeMap<u64, u64> {
    let output = simulator(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8(output.stdout).expect("text");
    let report = |line: &str| -> (u64, u64) {
        let report: serde_json::Value = serde_json::from_str(line).expect(line);
        (report["seed"].as_u64().expect("a seed"), report["digest"].as_u64().expect("a digest"))
    };
    text.lines().map(report).collect()
}

#[test]
fn two_thousand_seeds_hold() {
    let output = simulator(&["--seeds", "2000"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.lines().last(), Some("2000 seeds, 0 failed"));
}

#[test]
fn equal_seeds_give_equal_worlds_in_whatever_process() {
    let once = digests(&["--seeds", "40", "--json", "--jobs", "1"]);
    let again = digests(&["--seeds", "40", "--json", "--jobs", "4"]);
    assert_eq!((once.len(), &once), (40, &again));
    assert!(once.values().collect::<std::collections::BTreeSet<_>>().len() == 40, "no two are alike");
}

#[test]
fn one_seed_is_traced() {
    let output = simulator(&["--seed", "5", "--trace"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("limit_pages") && text.contains("fault at 0x"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("seed 5: ")), "{text}");
}

/// A tape of what a program does, and one of what it does not.
#[test]
fn tapes_bring_pages() {
    for seed in ["27", "77"] {
        let output = simulator(&["--seed", seed]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("pages by tape"), "{text}");
    }
}

#[test]
fn a_wrong_command_line_is_refused() {
    assert_eq!(simulator(&["--seed", "x"]).status.code(), Some(2));
    assert_eq!(simulator(&["--trace"]).status.code(), Some(2));
}

/// Each showed a mistake of the pager's that is mended: see "What it found in the pager" in
/// `docs/concepts/simulator.md`.
#[test]
fn seeds_that_found_a_mistake_hold() {
    for seed in [
        "34", "197", "338", "340", "385", "444", "455", "637", "727", "937", "1142", "1154", "1245", "1497",
        "2497", "2866", "3443", "45894",
    ] {
        let output = simulator(&["--seed", seed]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
