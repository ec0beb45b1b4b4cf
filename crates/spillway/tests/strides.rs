//! Pages that are foreseen: they come with others, and are right.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::{Command, Stdio};

use support::MIB;
use support::launch::{Launch, Stats};
use support::tools::c_program;

/// Walks in strides over three times as much as is local.
fn walked(store: &str, mode: &str, strides: &str, options: &[&str]) -> Stats {
    let launch = Launch::limited(16 * MIB, store);
    let path = launch.work().join("run.toml");
    std::fs::write(&path, format!("[fetch]\nstrides = \"{strides}\"\n")).unwrap();
    let launch = launch.with_option("--config").with_option(path.to_str().unwrap());
    let launch = launch.with_option(&format!("--fault-mode={mode}"));
    let launch = options.iter().fold(launch, |launch, option| launch.with_option(option));
    let said = launch.run_with(c_program("strides"), &["48", "6"]).success();
    assert_eq!(said, "whole\n");
    launch.stats()
}

#[test]
fn pages_that_are_foreseen_come_with_others_and_are_right() {
    // With the longer tests `ram:` by itself too.
    let ways =
        [("compressed:", "inline"), ("ram:?fabric=fdr", "thread"), ("ram:", "inline"), ("ram:", "thread")];
    let tried = if cfg!(feature = "full-tests") { ways.len() } else { 2 };
    for (store, mode) in ways.into_iter().take(tried) {
        let off = walked(store, mode, "off", &[]);
        assert_eq!(off.count("pages_foreseen"), 0, "{store} {mode}: {}", off.0);
        for strides in ["trend", "rounds"] {
            let on = walked(store, mode, strides, &[]);
            let (came, used) = (on.count("pages_foreseen"), on.count("pages_foreseen_used"));
            assert!(came > 1_000 && used > came / 2, "{store} {mode} {strides}: {}", on.0);
            assert!(used <= came && came <= on.count("pages_fetched_ahead"), "{}", on.0);
        }
    }
}

#[test]
fn by_default_pages_are_foreseen_where_the_store_answers_later() {
    for (store, is_late) in [("ram:", false), ("compressed:", false), ("ram:?fabric=fdr", true)] {
        let came = walked(store, "thread", "auto", &[]).count("pages_foreseen");
        assert_eq!(came > 1_000, is_late, "{store}: {came}");
        assert!(is_late || came == 0, "{store}: {came}");
    }
}

#[test]
fn a_store_that_answers_later_reads_foreseen_pages_with_the_one_that_is_wanted() {
    let on = walked("ram:?fabric=fdr", "thread", "rounds", &[]);
    assert!(on.count("reads_posted") > 0 && on.count("pages_foreseen") > 1_000, "{}", on.0);
}

#[test]
fn blocks_of_a_size_of_their_own_have_nothing_foreseen() {
    for block in ["4K", "elastic"] {
        let stats = walked("ram:", "thread", "rounds", &["--block", block]);
        assert_eq!(stats.count("pages_foreseen"), 0, "{block}: {}", stats.0);
    }
}

#[test]
fn what_was_foreseen_is_foreseen_again_by_a_replay() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("faults").to_str().unwrap().to_owned();
    let stats = walked("ram:", "inline", "rounds", &["--record", &trace]);
    assert!(stats.count("pages_foreseen") > 1_000, "{}", stats.0);
    let replay = Command::new(env!("CARGO_BIN_EXE_spillway"))
        .args(["lab", "replay", "--json", &trace])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let replayed: serde_json::Value = serde_json::from_slice(&replay.stdout).unwrap();
    assert_eq!(replayed["difference"], serde_json::Value::Null);
}
