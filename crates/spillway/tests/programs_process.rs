//! A program under `spillway run` lives and ends as it does without: statuses, signals, terminals,
//! descriptors, filters, and every way to make a process.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use support::MIB;
use support::child::{PATIENCE, Stray, until};
use support::launch::{Launch, open_directory};
use support::mix;
use support::tools::{c_program, c_program_with, musl_program, python, source, tool};
use support::watch::{child_of, expect_state};

/// Runs a C program that must write `whole` on less memory than it wants; returns its launch.
fn whole(local_mib: u64, program: &str, arguments: &[&str]) -> Launch {
    let launch = Launch::local_mib(local_mib);
    let finished = launch.run_with(c_program(program), arguments);
    assert_eq!(finished.success(), "whole\n");
    assert_eq!(finished.complaint(), "");
    launch
}

fn assert_was_far(launch: &Launch) {
    let stats = launch.stats();
    assert!(stats.count("pages_written_back") > 0, "nothing was far: {}", stats.0);
}

#[test]
fn what_was_mapped_before_main_is_managed_and_forked() {
    assert_was_far(&whole(8, "early", &["2", "fork"]));
}

#[test]
fn what_was_locked_or_reserved_before_main_is_left_alone() {
    for mode in ["locked", "reserved"] {
        let stats = whole(8, "early", &["0", mode]).stats();
        assert_eq!(stats.count("pages_written_back"), 0, "{mode}: {}", stats.0);
        assert!(stats.count("managed_bytes") < 8 * MIB, "{mode}: {}", stats.0);
    }
}

#[test]
fn exit_statuses_are_the_programs_own() {
    for status in [0, 1, 3, 125, 255] {
        let launch = Launch::local_mib(4);
        let finished = launch.run_with(c_program("ends"), &["exit", &status.to_string()]);
        assert_eq!((finished.status.code(), finished.complaint().as_str()), (Some(status), ""));
        assert_eq!(launch.stats().count("exit_status"), status as u64);
    }
}

#[test]
fn a_program_killed_by_a_signal_ends_the_command_by_the_same() {
    let raised =
        [Signal::TERM, Signal::KILL, Signal::ABORT, Signal::HUP, Signal::USR2, Signal::SEGV, Signal::BUS];
    for signal in raised {
        let launch = Launch::local_mib(4);
        let finished = launch.run_with(c_program("ends"), &["signal", &signal.as_raw().to_string()]);
        assert_eq!(finished.status.signal(), Some(signal.as_raw()), "{}", finished.status);
        assert_eq!(launch.stats().count("exit_status"), 128 + signal.as_raw() as u64);
    }
    let finished = Launch::local_mib(4).run_with(c_program("ends"), &["null"]);
    assert_eq!(finished.status.signal(), Some(Signal::SEGV.as_raw()));
}

const SAYS_SIGNALS: &str = "
    for name in HUP INT QUIT USR1 USR2 WINCH ALRM TERM; do trap \"echo got $name\" $name; done
    trap 'echo got CONT' CONT
    echo ready
    while [ ! -e end ]; do sleep 0.02; done
    exit 9";

#[test]
fn signals_to_the_command_reach_the_program() {
    let launch = Launch::local_mib(8);
    let mut command = launch.command(tool("bash", "bash"));
    let mut program = launch.start(command.args(["-c", SAYS_SIGNALS]).current_dir(launch.work()));
    program.running.expect("ready\n");
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::ALARM, "ALRM"),
        (Signal::TERM, "TERM"),
    ] {
        program.running.signal(signal);
        program.running.expect(&format!("got {name}\n"));
    }
    File::create(launch.work().join("end")).unwrap();
    assert_eq!(program.finish().code(), 9);
}

#[test]
fn a_signal_to_the_command_ends_a_program_that_does_not_expect_it() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let launch = Launch::local_mib(8);
        let mut program = launch.start(launch.command(c_program("hold")).args(["16", "100"]));
        program.running.expect("ready\n");
        let finished = program.stop(signal);
        assert_eq!(finished.status.signal(), Some(signal.as_raw()), "{}", finished.status);
        assert_eq!(launch.stats().count("exit_status"), 128 + signal.as_raw() as u64);
    }
}

#[test]
fn the_command_stops_and_continues_with_its_group() {
    let launch = Launch::local_mib(8);
    let mut program = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    program.running.expect("ready\n");
    let child = child_of(program.running.pid());
    for _ in 0..3 {
        program.running.signal_group(Signal::STOP);
        expect_state(program.running.pid(), "T");
        expect_state(child, "T");
        program.running.signal_group(Signal::CONT);
        expect_state(child, "RSD");
    }
    program.running.signal(Signal::USR1);
    assert_eq!(program.finish().success(), "ready\nwhole\n");
}

#[test]
fn a_stop_of_the_command_alone_stops_the_program() {
    let launch = Launch::local_mib(8);
    let mut program = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    program.running.expect("ready\n");
    let child = child_of(program.running.pid());
    program.running.signal(Signal::TSTP);
    expect_state(child, "T");
    program.running.signal(Signal::CONT);
    expect_state(child, "RSD");
    program.running.signal(Signal::USR1);
    assert_eq!(program.finish().success(), "ready\nwhole\n");
}

#[test]
fn the_program_dies_with_a_command_that_is_killed() {
    let launch = Launch::local_mib(8);
    let mut program = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    program.running.expect("ready\n");
    let child = child_of(program.running.pid());
    program.running.signal(Signal::KILL);
    until(PATIENCE, "the program to end", || {
        support::watch::state(child).is_none_or(|state| state == 'Z').then_some(())
    });
}

#[test]
fn keys_typed_at_a_terminal_reach_the_program_once() {
    let launch = Launch::local_mib(8);
    let installed = support::launch::Installation::new();
    let mut command = std::process::Command::new(python());
    tool("bash", "bash");
    command.arg(source("terminal.py")).arg(installed.command()).current_dir(launch.work());
    let finished = support::child::Running::start(&mut command).finish(PATIENCE);
    assert_eq!(finished.success(), "whole\n");
}

#[test]
fn standard_streams_are_untouched() {
    let bytes: Vec<u8> = (0..400_000).flat_map(|word| mix(word).to_le_bytes()).collect();
    let launch = Launch::local_mib(4);
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(&bytes).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let mut command = launch.command(tool("sh", "dash"));
    let copied = launch.start_with(command.args(["-c", "tee /dev/stderr"]), input).finish();
    copied.success();
    assert!(copied.stdout == bytes && copied.stderr == bytes);
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on() {
    let launch = Launch::local_mib(8);
    let finished = launch.run_with(c_program("no_files"), &["32"]);
    assert_eq!((finished.code(), finished.complaint().as_str()), (42, ""));
    assert_was_far(&launch);
}

#[test]
fn a_filter_that_forbids_what_the_pager_needs_does_no_harm() {
    for arguments in [&["32"][..], &["32", "tsync"]] {
        assert_was_far(&whole(8, "seccomp", arguments));
    }
}

#[test]
fn a_program_without_environment_is_managed_all_the_same() {
    let launch = Launch::local_mib(8);
    let program = c_program("families");
    let mut command = launch.command(tool("env", "coreutils"));
    launch.run(command.arg("-i").arg(&program).args(["check", "32"])).success();
    assert_was_far(&launch);
    let launch = Launch::local_mib(8);
    let script =
        format!("env -i {} check 32 && exec env -i {} check 32", program.display(), program.display());
    launch.run_with(tool("sh", "dash"), &["-c", &script]).success();
    assert!(launch.stats().count("processes") >= 4, "{}", launch.stats().0);
    assert_was_far(&launch);
}

/// Runs `program` directly and from a shell: it must work, and a warning must name it and the reason.
fn runs_unmanaged(program: &Path, reason: &str) {
    let warning = format!("spillway: {} runs unmanaged: {reason}\n", program.display());
    let finished = Launch::local_mib(8).run_with(program, &["exit", "5"]);
    assert_eq!((finished.code(), finished.complaint()), (5, warning.clone()));
    let script = format!("{0} exit 5; {0} exit 6; exec {0} exit 7", program.display());
    let finished = Launch::local_mib(8).run_with(tool("sh", "dash"), &["-c", &script]);
    assert_eq!(finished.code(), 7);
    assert!(finished.complaint().contains(&warning), "{}", finished.complaint());
}

#[test]
fn a_static_program_runs_unmanaged_and_is_named() {
    runs_unmanaged(&c_program_with("ends", &["-static"]), "it is statically linked");
}

/// Its loader cannot load the library, and ends a program for which it is named.
#[test]
fn a_program_of_musl_runs_unmanaged_and_is_named() {
    let (program, reason) =
        (musl_program("ends"), "it is linked with musl, and Spillway's library needs glibc");
    runs_unmanaged(&program, reason);
    // What else is named stays so. The loader passes over what is not there.
    let script = format!("{0}; LD_PRELOAD=/a.so:$LD_PRELOAD:/b.so {0}", musl_program("preloaded").display());
    let finished = Launch::local_mib(8).run_with(tool("sh", "dash"), &["-c", &script]);
    assert_eq!(finished.success(), "nothing\n/a.so:/b.so\n");
}

#[test]
fn a_program_that_a_sanitizer_watches_runs_unmanaged() {
    let program = c_program_with("ends", &["-fsanitize=thread"]);
    let finished = Launch::local_mib(8).run_with(program, &["exit", "5"]);
    let warning = "spillway: this program runs unmanaged: it is built with ThreadSanitizer\n";
    // It may start itself anew, with other addresses.
    assert_eq!((finished.code(), finished.complaint().replace(warning, "")), (5, String::new()));
    assert!(finished.complaint().contains(warning), "{}", finished.complaint());
}

/// As OpenBLAS' constructor makes them, in a program that is linked with it.
#[test]
fn threads_that_a_library_began_before_are_served_too() {
    let program = c_program("early_threads");
    for mode in ["inline", "thread"] {
        for _ in 0..4 {
            let launch = Launch::local_mib(12).with_option(&format!("--fault-mode={mode}"));
            launch.run_with(&program, &["32"]).success();
            let stats = launch.stats();
            assert!(stats.count("pages_fetched") > 0, "{mode}: {}", stats.0);
            assert_eq!(stats.count("inline_left"), u64::from(mode == "inline"), "{mode}: {}", stats.0);
            assert_eq!(stats.count("patched_call_sites"), 0, "{mode}: {}", stats.0);
        }
    }
}

#[test]
fn a_setuid_program_runs_unmanaged_and_is_named() {
    assert!(
        rustix::process::getuid().is_root(),
        "only root can make a setuid program: run the tests as root"
    );
    let directory = open_directory();
    let program: PathBuf = directory.path().join("ends");
    fs::copy(c_program("ends"), &program).unwrap();
    chown(&program, Some(65534), Some(65534)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    runs_unmanaged(&program, "it is setuid");
}

#[test]
fn generations_of_forks_keep_their_memory_apart() {
    assert_was_far(&whole(8, "families", &["deep", "4"]));
    assert_was_far(&whole(16, "families", &["wide", "16"]));
}

#[test]
fn a_program_may_fork_at_any_moment() {
    assert_was_far(&whole(8, "fork_storm", &["24", "120"]));
}

#[test]
fn threads_fork() {
    assert_was_far(&whole(16, "families", &["thread", "24"]));
}

#[test]
fn vfork_spawn_and_clone_make_processes() {
    for way in ["vfork", "spawn", "clone"] {
        assert_was_far(&whole(16, "families", &[way, "32"]));
    }
}

#[test]
fn a_daemon_stays_managed_when_its_parent_has_ended() {
    let launch = Launch::local_mib(8);
    let said = launch.work().join("said");
    let mut command = launch.command(c_program("families"));
    let mut parent = launch.start(command.args(["daemon", "32", said.to_str().unwrap()]));
    // Kept for now: it ends its group with it, which the daemon may not have left yet.
    parent.running.finish(PATIENCE).success();
    let pid = until(PATIENCE, "the daemon's file", || {
        fs::read_to_string(&said).ok()?.strip_prefix("whole ")?.trim().parse().ok()
    });
    let _daemon = Stray(Pid::from_raw(pid).unwrap());
}

#[test]
fn far_more_threads_than_cpus() {
    assert_was_far(&whole(16, "many_threads", &["200", "256"]));
}

#[test]
fn locked_memory_is_left_alone_and_counted() {
    let launch = whole(16, "locked", &["32", "32"]);
    assert_was_far(&launch);
    assert!(launch.stats().count("unmanaged_bytes") >= 32 << 20, "{}", launch.stats().0);
}

#[test]
fn memory_may_be_locked_while_threads_write_to_it() {
    assert_was_far(&whole(8, "lock_amid", &["32", "4"]));
}

#[test]
fn a_program_may_lock_everything() {
    let launch = whole(16, "locked", &["8", "32", "all"]);
    assert_was_far(&launch);
}
