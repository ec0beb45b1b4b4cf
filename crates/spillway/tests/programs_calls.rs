//! What the kernel says to a program under `spillway run` is what it says without: calls that make processes, execute programs,
//! close descriptors and lock memory, with all that can be wrong about them, in either fault mode.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;

use support::launch::{Launch, Stats};
use support::tools::c_program;

const MODES: [&str; 2] = ["thread", "inline"];

/// Runs a C program as it is, and in each mode on less memory than it wants: it must write the same, and complain of nothing.
/// An argument `DIRECTORY` is an empty one. Returns the statistics of each mode.
fn answers_are_the_same(program: &str, arguments: &[&str]) -> [Stats; 2] {
    let program = c_program(program);
    let started = |launch: &Launch, mode: Option<&str>| {
        let directory = launch.work().join("empty");
        fs::create_dir(&directory).unwrap();
        let mut command = launch.command(&program);
        let in_directory = |text: &&str| text.replace("DIRECTORY", directory.to_str().unwrap());
        command.args(arguments.iter().map(in_directory).collect::<Vec<_>>());
        mode.inspect(|mode| drop(command.env("SPILLWAY_FAULT_MODE", mode)));
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

fn assert_was_far(stats: &[Stats]) {
    for stats in stats {
        assert!(stats.count("pages_written_back") > 0, "nothing was far: {}", stats.0);
    }
}

#[test]
fn processes_are_made_with_every_flag() {
    assert_was_far(&answers_are_the_same("raw_clone", &["6"]));
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
