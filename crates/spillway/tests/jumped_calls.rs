//! System calls of libc that are made by a jump in inline mode: a program sees of them what it sees without
//! Spillway, and few come as a signal.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use support::launch::{Launch, Stats};
use support::tools::{c_program, c_program_with};

fn stats_of(mode: &str, local_mib: u64, arguments: &[&str]) -> Stats {
    // As C++ programs are compiled, whose destructors run when a thread is cancelled.
    let program = c_program_with("jumped_calls", &["-fexceptions"]);
    let launch = Launch::local_mib(local_mib);
    let command = &mut launch.command(program);
    let finished = launch.run(command.args(arguments).env("SPILLWAY_FAULT_MODE", mode));
    assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""), "{mode}");
    launch.stats()
}

#[test]
fn a_call_made_by_a_jump_is_what_it_is_without_spillway() {
    for (mode, local_mib) in [("inline", 8), ("inline", 64), ("thread", 8)] {
        let stats = stats_of(mode, local_mib, &["24"]);
        let has_sites = stats.count("patched_call_sites") > 0;
        assert_eq!(has_sites, mode == "inline", "{}", stats.0);
        if local_mib == 8 {
            assert!(stats.count("pages_fetched") > 0, "nothing was far: {}", stats.0);
        }
    }
}

#[test]
fn few_calls_of_libc_come_as_a_signal() {
    let launch = Launch::local_mib(64);
    let mut command = launch.command(c_program("many_calls"));
    assert_eq!(launch.run(command.env("SPILLWAY_FAULT_MODE", "inline")).success(), "whole\n");
    let stats = launch.stats();
    assert!(stats.count("patched_call_sites") >= 100, "{}", stats.0);
    // Of half a million.
    assert!(stats.count("calls_by_signal") < 1000, "{}", stats.0);
}

#[test]
fn a_runs_later_programs_have_as_many_jumps_as_its_first() {
    let sites = |script: &str| {
        let launch = Launch::local_mib(64);
        let mut command = launch.command("sh");
        launch.run(command.args(["-c", script]).env("SPILLWAY_FAULT_MODE", "inline")).success();
        launch.stats().count("patched_call_sites")
    };
    let first = sites(":");
    assert!(first >= 100, "{first}");
    assert_eq!(sites("/bin/true; /bin/true; exec /bin/true"), 4 * first);
}
