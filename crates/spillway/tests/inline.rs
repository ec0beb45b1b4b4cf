//! Inline mode: the faulting thread serves its own faults, and the kernel finds far memory all the same.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::process::Command;

use support::child::Finished;
use support::launch::{Launch, Stats};
use support::tools::{c_program, tool};

const MODE: &str = "SPILLWAY_FAULT_MODE";

fn run_in(mode: &str, launch: &Launch, program: &Path, arguments: &[&str]) -> Finished {
    launch.run(launch.command(program).args(arguments).env(MODE, mode))
}

/// Runs a C program in inline mode that must write `whole` on less memory than it wants.
fn whole_inline(local_mib: u64, program: &Path, arguments: &[&str]) {
    let launch = Launch::local_mib(local_mib);
    let finished = run_in("inline", &launch, program, arguments);
    assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""));
    let stats = launch.stats();
    assert!(stats.count("pages_written_back") > 0, "nothing was far: {}", stats.0);
    assert_eq!(stats.0["settings"]["fault_mode"], "inline");
}

#[test]
fn the_kernel_finds_far_memory_in_either_mode() {
    let program = c_program("kernel");
    for mode in ["inline", "thread"] {
        let launch = Launch::local_mib(8);
        let finished = run_in(mode, &launch, &program, &["12"]);
        assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""), "{mode}");
        assert_eq!(launch.stats().0["settings"]["fault_mode"], mode);
        assert!(launch.stats().count("pages_written_back") > 0);
    }
}

#[test]
fn a_lone_threads_pages_leave_from_where_they_lie() {
    let program = c_program("lone");
    // What compressed: keeps is mostly taken out by the evictor, which is another thread.
    for (store, in_place_least) in [("ram:", 10_000), ("compressed:", 1)] {
        let launch = Launch::limited(8 << 20, store);
        let finished = run_in("inline", &launch, &program, &["24"]);
        assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""), "{store}");
        let stats = launch.stats();
        assert!(stats.count("pages_evicted_in_place") >= in_place_least, "{store}: {}", stats.0);
    }
    let launch = Launch::local_mib(8);
    assert_eq!(run_in("thread", &launch, &program, &["24"]).success(), "whole\n");
    assert_eq!(launch.stats().count("pages_evicted_in_place"), 0);
}

/// Whether the machine lets pages leave by reference: it neither swaps nor merges pages.
fn frames_stay() -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1;
    let merges = std::fs::read_to_string("/sys/kernel/mm/ksm/run").is_ok_and(|run| run.trim() != "0");
    !swaps && !merges
}

#[test]
fn scattered_pages_of_several_threads_leave_by_reference() {
    let program = c_program("scattered");
    let run = |mode: &str, store: &str, by_reference: &str| {
        let launch = Launch::limited(8 << 20, store);
        let configuration = launch.work().join("run.toml");
        std::fs::write(&configuration, format!("[pool.local]\nby_reference = {by_reference}")).unwrap();
        let work = launch.work().display().to_string();
        let launch = launch.with_option("--config").with_option(configuration.to_str().unwrap());
        let finished = run_in(mode, &launch, &program, &["32", "4", "9", &work]);
        assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""), "{store}");
        launch.stats()
    };
    let count = |stats: &Stats| stats.count("pages_unmapped_by_reference");
    for store in ["ram:", "compressed:"] {
        let before = frames_stay();
        let stats = run("inline", store, "true");
        // Another program may switch swap on or off meanwhile.
        if before && frames_stay() {
            assert!(count(&stats) > 1_000, "{store}: {}", stats.0);
        }
        assert_eq!(count(&run("inline", store, "false")), 0, "{store}");
    }
    // A device may write there in a system call of which nobody knows.
    assert_eq!(count(&run("thread", "ram:", "true")), 0);
}

#[test]
fn threads_that_fork_serve_their_own_faults() {
    whole_inline(8, &c_program("fork_storm"), &["24", "20"]);
    whole_inline(16, &c_program("families"), &["thread", "24"]);
}

#[test]
fn what_was_read_first_is_written_by_the_kernel_too() {
    whole_inline(8, &c_program("zeros"), &["24"]);
}

#[test]
fn threads_may_keep_their_stacks_in_far_memory() {
    whole_inline(8, &c_program("own_stacks"), &["24", "4"]);
}

#[test]
fn memory_may_be_locked_while_threads_write_to_it() {
    whole_inline(8, &c_program("lock_amid"), &["32", "4"]);
}

#[test]
fn a_program_that_forbids_system_calls_leaves_inline_mode() {
    whole_inline(8, &c_program("seccomp"), &["32"]);
}

/// Where threads are stopped by a signal and their stacks are read, they must be on these.
#[test]
fn a_program_that_reads_the_stacks_of_stopped_threads_leaves_inline_mode() {
    let launch = Launch::local_mib(8);
    let finished = run_in("auto", &launch, &c_program("stack_reader"), &["24", "5"]);
    assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""));
    let stats = launch.stats();
    assert!(stats.count("pages_written_back") > 0, "nothing was far: {}", stats.0);
    assert_eq!(stats.count("inline_left"), 1, "{}", stats.0);
}

#[test]
fn inline_mode_is_left_while_threads_use_far_memory() {
    const CHILDREN: u64 = 12;
    let launch = Launch::local_mib(8);
    let program = c_program("leave_amid");
    let finished = run_in("auto", &launch, &program, &["48", "8", &CHILDREN.to_string()]);
    assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""));
    let stats = launch.stats();
    assert!(stats.count("pages_written_back") > 0, "nothing was far: {}", stats.0);
    assert_eq!(stats.count("inline_left"), CHILDREN, "{}", stats.0);
}

#[test]
fn the_statistics_say_who_serves_faults_and_why() {
    let echo = tool("echo", "coreutils");
    for (asked, mode, reason) in
        [("auto", "inline", "auto"), ("thread", "thread", "asked for"), ("inline", "inline", "asked for")]
    {
        let launch = Launch::local_mib(8);
        run_in(asked, &launch, &echo, &[]).success();
        let settings = &launch.stats().0["settings"];
        assert_eq!(settings["fault_mode"], mode, "{asked}");
        assert!(settings["fault_mode_reason"].as_str().unwrap().starts_with(reason), "{settings}");
    }
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}/store?size=8M", directory.path().display());
    let stats = directory.path().join("stats.json");
    let command = || Command::new(env!("CARGO_BIN_EXE_spillway"));
    let mut slow = command();
    slow.args(["run", "--local", "8M", "--store", &store, "--fault-mode", "inline", "--stats"]).arg(&stats);
    let output = slow.args(["--", "true"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("makes a fault wait"), "{said}");
    let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
    assert_eq!(stats["settings"]["fault_mode"], "thread");
    let wrong = command().args(["run", "--local", "8M", "--", "true"]).env(MODE, "fast").output().unwrap();
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(125));
    assert!(said.contains("SPILLWAY_FAULT_MODE is 'fast'; set it to auto, thread or inline"), "{said}");
}
