//! What the kernel says to a program under `spillway run` is what it says without: calls that make processes,
//! execute programs, close descriptors and lock memory, with all that can be wrong about them, in either
//! fault mode.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;

use support::launch::{Launch, Stats};
use support::tools::{c_program, tool};

const MODES: [&str; 2] = ["thread", "inline"];

/// Runs a C program as it is, and in each mode on less memory than it wants: it must write the same, and
/// complain of nothing. An argument `DIRECTORY` is an empty one. Returns the statistics of each mode.
fn answers_are_the_same(program: &str, arguments: &[&str]) -> [Stats; 2] {
    let program = c_program(program);
    let started = |launch: &Launch, mode: Option<&str>| {
        let directory = launch.work().join("empty");
        fs::create_dir(&directory).unwrap();
        let mut command = launch.command(&program);
        let in_directory = |text: &&str| text.replace("DIRECTORY", directory.to_str().unwrap());
        command.args(arguments.iter().map(in_directory).collect::<Vec<_>>());
        if let Some(mode) = mode {
            command.env("SPILLWAY_FAULT_MODE", mode);
        }
        let finished = launch.run(&mut command);
        (finished.success(), finished.complaint())
    };
    let (native, _) = started(&Launch::unlimited(), None);
    assert!(native.ends_with("whole\n"), "{native}");
    MODES.map(|mode| {
        let launch = Launch::local_mib(4);
        let (answers, complaint) = started(&launch, Some(mode));
        assert_eq!(complaint, "", "{mode}");
        for (expected, answer) in native.lines().zip(answers.lines()) {
            assert_eq!(answer, expected, "{mode}");
        }
        assert_eq!(answers.lines().count(), native.lines().count(), "{mode}");
        launch.stats()
    })
}

/// munmap(2) can fail for want of mappings. Its pages are dropped before, whether far or left to the kernel:
/// no read may find zeros there.
#[test]
fn a_program_whose_unmapping_is_refused_is_stopped() {
    let program = c_program("unmap_refused");
    assert_eq!(Launch::unlimited().run_with(&program, &["16"]).success(), "whole\n");
    for mode in MODES {
        for mib in ["1", "16"] {
            let launch = Launch::local_mib(4);
            let mut command = launch.command(&program);
            let finished = launch.run(command.arg(mib).env("SPILLWAY_FAULT_MODE", mode));
            let complaint = finished.complaint();
            assert!(complaint.contains("munmap failed (errno 12)"), "{mode} {mib}: {complaint}");
            assert_eq!((finished.code(), finished.text().as_str()), (128 + 9, ""), "{mode} {mib}");
        }
    }
}

/// Several processes fork at a time, and kill some of their children at once: each child that comes is the
/// one that was announced, whatever number it has.
#[test]
fn children_are_forked_one_after_the_other_by_many() {
    let [thread, inline] = answers_are_the_same("fork_many", &["500", "wide"]);
    assert!(thread.count("forks") >= 2000 && inline.count("forks") >= 2000, "{} {}", thread.0, inline.0);
}

/// The pager of a child takes no copy of what its parent has open.
#[test]
fn a_program_with_every_descriptor_open_forks() {
    let launch = Launch::local_mib(4);
    let mut command = launch.command(c_program("fork_many"));
    let finished = launch.run(command.args(["300", "files"]).env("SPILLWAY_FAULT_MODE", "thread"));
    assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""));
}

fn assert_was_far(stats: &[Stats]) {
    for stats in stats {
        assert!(stats.count("pages_written_back") > 0, "nothing was far: {}", stats.0);
    }
}

#[test]
fn processes_are_made_with_every_flag() {
    assert_was_far(&answers_are_the_same("raw_clone", &["6"]));
}

/// What a call holds cannot make room: where that was all of its vectors, or all that lies between them, it
/// waited for ever.
#[test]
fn one_call_may_use_more_memory_than_may_be_local() {
    let stats = answers_are_the_same("large_calls", &["24"]);
    assert_was_far(&stats);
    assert_eq!(stats.each_ref().map(|stats| stats.count("inline_left")), [0, 0]);
    let stats = answers_are_the_same("large_calls", &["8", "with-a-descriptor"]);
    assert_eq!(stats.each_ref().map(|stats| stats.count("inline_left")), [0, 1]);
}

/// Where pthread_join(3) waits the kernel writes as the thread ends, when it has no fault served any more.
#[test]
fn threads_on_stacks_of_the_programs_own_end() {
    for (mode, inline_left) in [("thread", 0), ("inline", 0)] {
        let launch = Launch::local_mib(8);
        let mut command = launch.command(c_program("own_stacks"));
        let finished = launch.run(command.args(["24", "4"]).env("SPILLWAY_FAULT_MODE", mode));
        assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""), "{mode}");
        let stats = launch.stats();
        assert_eq!(stats.count("inline_left"), inline_left, "{mode}");
        let kept_bytes = 2 * 4 * 4096;
        assert!(stats.count("unmanaged_bytes") >= kept_bytes, "{mode}: {}", stats.0);
    }
}

#[test]
fn a_robust_mutex_is_released_by_its_owners_death() {
    assert_was_far(&answers_are_the_same("robust", &["6"]));
}

#[test]
fn programs_that_cannot_be_executed_are_refused_as_by_the_kernel() {
    assert_was_far(&answers_are_the_same("exec_errors", &["6", "DIRECTORY"]));
}

#[test]
fn everything_may_be_closed() {
    assert_was_far(&answers_are_the_same("close_all", &["5"]));
}

#[test]
fn memory_is_locked_up_to_the_programs_limit() {
    assert!(rustix::process::getuid().is_root(), "only root can become another user: run the tests as root");
    assert_was_far(&answers_are_the_same("locks", &["6"]));
}

#[test]
fn calls_on_the_process_as_a_whole_do_what_they_do() {
    assert_was_far(&answers_are_the_same("odd_calls", &["6"]));
}

#[test]
fn what_only_a_process_of_one_thread_may_do_is_refused_in_one_line() {
    for mode in MODES {
        let launch = Launch::local_mib(8);
        let mut command = launch.command(tool("unshare", "util-linux"));
        let finished = launch.run(command.args(["-U", "true"]).env("SPILLWAY_FAULT_MODE", mode));
        let complaint = finished.complaint();
        assert_ne!(finished.code(), 0, "{mode}");
        let said = "spillway: unshare(2) is refused, since Spillway's threads are in this process";
        assert_eq!(complaint.matches(said).count(), 1, "{mode}: {complaint}");
    }
}
