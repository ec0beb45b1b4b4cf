//! dcm's queues as `[replacement]` sets them. `inactive_share` gives the inactive queue a length: all that
//! leaves waits in it, and a touch there needs no store. `thread_buffer_pages` and `thread_inactive` give
//! each thread a buffer before the queues and an inactive queue of its own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;

use support::launch::{Launch, Stats};
use support::tools::c_program;

const MODES: [&str; 2] = ["inline", "thread"];

const INACTIVE: &str = "inactive_share = 0.25";

/// Runs a C program that must write `whole`, with a quarter of what is local inactive.
fn whole(mode: &str, local_mib: u64, store: &str, program: &str, arguments: &[&str]) -> Stats {
    whole_with(INACTIVE, mode, local_mib, store, program, arguments)
}

/// The same with other settings of the queues.
fn whole_with(
    settings: &str,
    mode: &str,
    local_mib: u64,
    store: &str,
    program: &str,
    arguments: &[&str],
) -> Stats {
    let launch = Launch::limited(local_mib << 20, store);
    let config = launch.work().join("run.toml");
    fs::write(&config, format!("[replacement]\n{settings}\n")).unwrap();
    let launch = launch.with_option("--config").with_option(config.to_str().unwrap());
    let mut command = launch.command(c_program(program));
    let finished = launch.run(command.args(arguments).env("SPILLWAY_FAULT_MODE", mode));
    let said = (finished.success(), finished.complaint());
    assert_eq!((said.0.as_str(), said.1.as_str()), ("whole\n", ""), "{program}, {mode}, {store}");
    let stats = launch.stats();
    assert!(stats.count("peak_local_bytes") <= local_mib << 20, "{}", stats.0);
    stats
}

#[test]
fn a_touch_of_an_inactive_page_needs_no_store() {
    for (mode, store) in MODES.into_iter().flat_map(|mode| ["ram:", "compressed:"].map(|store| (mode, store)))
    {
        let stats = whole(mode, 8, store, "lone", &["24"]);
        let inactive = stats.0["faults"]["inactive"].as_u64().unwrap();
        assert!(inactive > 1_000, "{mode}: {}", stats.0);
        // A lone thread's pages pass through the queue too.
        assert_eq!(stats.count("pages_evicted_in_place"), 0);
        assert!(stats.count("clean_drops") > 100 && stats.count("pages_written_back") > 1_000, "{}", stats.0);
    }
}

#[test]
fn forked_children_inherit_what_is_inactive() {
    for mode in MODES {
        whole(mode, 8, "ram:", "fork_storm", &["24", "20"]);
        whole(mode, 16, "ram:", "families", &["wide", "24"]);
        whole(mode, 16, "compressed:", "families", &["deep", "24"]);
    }
}

#[test]
fn what_is_inactive_may_be_locked_and_its_mode_left() {
    for mode in MODES {
        whole(mode, 8, "ram:", "lock_amid", &["32", "4"]);
        whole(mode, 8, "ram:", "seccomp", &["32"]);
        whole(mode, 8, "ram:", "zeros", &["24"]);
    }
}

/// Buffers that hold as much as fits in half of the limit, and queues of threads that end.
#[test]
fn threads_have_queues_of_their_own() {
    let own = "thread_buffer_pages = 256\nthread_inactive = true";
    let both = format!("{INACTIVE}\n{own}");
    // With the longer tests each mode has both.
    let ways = [("inline", &*both), ("thread", own), ("inline", own), ("thread", &both)];
    let tried = if cfg!(feature = "full-tests") { ways.len() } else { 2 };
    for (mode, settings) in ways.into_iter().take(tried) {
        whole_with(settings, mode, 8, "ram:", "lone", &["24"]);
        let stats = whole_with(settings, mode, 16, "compressed:", "many_threads", &["8", "16384"]);
        assert!(stats.count("pages_written_back") > 1_000, "{}", stats.0);
        whole_with(settings, mode, 8, "ram:", "fork_storm", &["24", "20"]);
        whole_with(settings, mode, 16, "ram:", "families", &["wide", "24"]);
        whole_with(settings, mode, 8, "ram:", "seccomp", &["32"]);
    }
}
