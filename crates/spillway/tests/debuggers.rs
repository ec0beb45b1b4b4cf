//! Who looks at a program's memory from outside - a debugger, a core dump - finds what is there, or is told
//! that it does not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use support::launch::{Launch, Watched};
use support::tools::c_program;
use support::watch::child_of;

/// Memory of the program that is looked at, three times its limit.
const MIB: usize = 24;
const PAGES: usize = MIB << 8;

/// Pages that a look from outside found right, was refused, and found wrong.
fn look(watched: &mut Watched<'_>, how: &str) -> [usize; 3] {
    watched.running.expect("\n");
    let address = watched.running.text().trim().to_owned();
    let program = child_of(watched.running.pid()).as_raw_nonzero().to_string();
    let mut command = Command::new(c_program("peek"));
    command.args([&program, &address, &MIB.to_string(), how]);
    let counts: Vec<usize> =
        output_of(command).split_whitespace().map(|count| count.parse().unwrap()).collect();
    counts.try_into().unwrap()
}

fn output_of(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn who_looks_from_outside_finds_far_memory_or_gets_an_error_and_never_zeros() {
    for (mode, how) in
        [("thread", "proc"), ("thread", "ptrace"), ("inline", "proc"), ("inline", "ptrace"), ("inline", "vm")]
    {
        let [right, refused, wrong] = looked_at(mode, how);
        assert_eq!((right + refused, wrong), (PAGES, 0), "{mode}, {how}");
        assert!(right > 0 && refused > 0, "{mode}, {how}: {right} right, {refused} refused");
    }
    assert_eq!(looked_at("thread", "vm"), [PAGES, 0, 0]);
}

/// What a look at a program in `mode` finds; the program ends well after it.
fn looked_at(mode: &str, how: &str) -> [usize; 3] {
    let launch = Launch::local_mib(8);
    let mut command = launch.command(c_program("debugged"));
    command.args([&MIB.to_string(), "exit"]).env("SPILLWAY_FAULT_MODE", mode);
    let (stdin, end) = std::io::pipe().unwrap();
    let mut watched = launch.start_with(&mut command, stdin);
    // The command holds its standard input, and the program waits for that to end.
    drop(command);
    let found = look(&mut watched, how);
    drop(end);
    let finished = watched.finish();
    finished.success();
    assert_eq!(finished.complaint(), "", "{mode}");
    assert!(launch.stats().count("pages_written_back") > 0, "{mode}: nothing was far");
    found
}

/// Ends a program by abort(3) that may leave a core dump; whether it left one, and what was said.
fn aborted(local_mib: u64, mode: &str) -> (bool, String) {
    let launch = Launch::local_mib(local_mib);
    let mut command = launch.command(c_program("debugged"));
    command.args([&MIB.to_string(), "abort"]).env("SPILLWAY_FAULT_MODE", mode).current_dir(launch.work());
    // Its children inherit it.
    setrlimit(Resource::Core, Rlimit { current: None, maximum: None }).unwrap();
    let finished = launch.start(&mut command).finish();
    assert_eq!(finished.status.signal(), Some(Signal::ABORT.as_raw()), "{mode}");
    let dumped = std::fs::read_dir(launch.work())
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_str().unwrap().starts_with("core"));
    (dumped, finished.complaint())
}

/// As a debugger starts it, by vfork(2): it may be told of no signal that is not the program's own, and the
/// child may not wait for who waits for its exec.
#[test]
fn a_debugger_that_starts_a_program_is_told_of_none_of_our_signals() {
    for mode in ["thread", "inline"] {
        let launch = Launch::local_mib(8);
        let mut command = launch.command(c_program("tracer"));
        command.arg(c_program("fault_full")).arg("24").env("SPILLWAY_FAULT_MODE", mode);
        let finished = launch.start(&mut command).finish();
        let whole = format!("written {PAGES} refused 0\nright {} lost 0\n", 2 * PAGES);
        assert_eq!(
            (finished.success(), finished.complaint()),
            (whole + "execs 1 others 0 status 0\n", String::new()),
            "{mode}"
        );
        assert!(launch.stats().count("pages_written_back") > 0, "{mode}: nothing was far");
    }
}

#[test]
fn a_core_dump_without_far_memory_is_named() {
    for mode in ["thread", "inline"] {
        let (dumped, said) = aborted(8, mode);
        assert!(
            dumped,
            "no core dump in the working directory; write 'core' to /proc/sys/kernel/core_pattern"
        );
        assert!(said.contains("core dump has zeros in place of memory that was far"), "{mode}: {said}");
        assert_eq!(said.lines().count(), 1, "{mode}: {said}");
        let (dumped, said) = aborted(64, mode);
        assert!(dumped);
        assert_eq!(said, "", "{mode}: nothing was far");
    }
}
