//! Every command as somebody meets it who is not careful: options that are not there, a full disk, a reader
//! that goes away, a narrow terminal, files that are something else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;
mod support;

use std::fs::{self, OpenOptions};
use std::process::{Command, Output, Stdio};

use pages_common::root;
use rustix::process::Signal;
use support::child::Running;
use support::launch::Launch;
use support::tools::c_program;

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(line.split(' ')).stdin(Stdio::null());
    command
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Commands that print and end, each without a run.
const PRINTERS: [&str; 9] = [
    "--help",
    "--version",
    "run --help",
    "doctor --all",
    "status --json",
    "top --once --json",
    "generate reference",
    "lab list",
    "bench ablation --list",
];

#[test]
fn every_command_names_an_option_that_is_not_there_in_one_line_and_where_to_read_on() {
    let reference = fs::read_to_string(root().join("docs/reference/commands.md")).unwrap();
    let names: Vec<&str> = reference.lines().filter_map(|line| line.strip_prefix("## spillway ")).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let output = command(&format!("{name} --no-such-option")).output().unwrap();
        let said = complaint(&output);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{name}: {said}");
        assert!(said.starts_with("spillway: ") && said.lines().count() == 1, "{name}: {said}");
        assert!(said.ends_with(&format!("; see 'spillway {name} --help'\n")), "{name}: {said}");
        assert!(!said.contains("as a value"), "{name}: {said}");
    }
}

#[test]
fn a_program_without_a_limit_is_told_with_one() {
    for (line, expected) in [
        ("run ls -l", "tip: say how much may be local: spillway run --local 512M ls ...;"),
        ("bench command ls", "tip: say how much may be local: spillway bench command --local 512M ls ...;"),
        ("run --local 64M", "tip: options of Spillway's go before the program;"),
    ] {
        let output = command(line).output().unwrap();
        let said = complaint(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{line}: {said}");
        assert!(said.contains(expected), "{line}: {said}");
    }
    let output = command("run --no-such-option ls").output().unwrap();
    assert!(!complaint(&output).contains("512M"), "{}", complaint(&output));
}

#[test]
fn where_the_disk_is_full_whatever_prints_says_so_and_fails() {
    for line in PRINTERS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(line).stdout(full).output().unwrap();
        let said = complaint(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{line}: {said}");
        assert!(said.starts_with("spillway: ") && said.contains("No space left"), "{line}: {said}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_nothing_to_talk_about() {
    for line in PRINTERS {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let output = command(line).stdout(writer).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code <= 1), "{line}: {:?}", output.status);
        assert_eq!(complaint(&output), "", "{line}");
    }
}

/// What a command prints on a terminal of so many columns.
fn on_a_terminal(line: &str, columns: usize) -> String {
    let typed = format!("stty cols {columns} rows 24; exec {} {line}", env!("CARGO_BIN_EXE_spillway"));
    let output = Command::new("script")
        .args(["--quiet", "--command", &typed, "/dev/null"])
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n")
}

#[test]
fn what_is_printed_on_a_terminal_fits_it() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["16", "100"]));
    watched.running.expect("ready");
    let pid = watched.running.pid().as_raw_nonzero();
    let donor = Running::start(command("donor --memory 64M --shm bad-input-test").env("NO_COLOR", "1"));
    support::child::until(support::child::PATIENCE, "a donor", || {
        donor.text().contains("listening").then_some(())
    });
    let lines = [
        "doctor".to_owned(),
        "doctor --all".to_owned(),
        "status".to_owned(),
        format!("status {pid}"),
        format!("advise --pid {pid}"),
        format!("explain --pid {pid}"),
        "donor status".to_owned(),
    ];
    for line in &lines {
        for columns in [40, 59, 80] {
            let text = on_a_terminal(line, columns);
            assert!(!text.is_empty());
            // What is to be typed stands in one line, that it can be copied.
            let is_typed =
                |line: &str| ["mend: ", "or:   "].iter().any(|label| line.trim().starts_with(label));
            // So does a path, whatever its length.
            let is_copied = |line: &str| is_typed(line) || !line.trim().contains(' ');
            for printed in text.lines().filter(|line| !is_copied(line)) {
                assert!(printed.chars().count() <= columns, "{line}, {columns}: {printed:?}");
            }
        }
    }
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
}

#[test]
fn a_file_that_is_something_else_is_refused_in_few_lines() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("other.toml");
    fs::write(&file, "root:x:0:0:root:/root:/bin/bash\n".repeat(500)).unwrap();
    let name = file.to_str().unwrap();
    let output = command(&format!("check {name}")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && (2..=12).contains(&said.lines().count()), "{said}");
    let output = command(&format!("report {name}")).output().unwrap();
    assert_eq!(
        complaint(&output),
        format!("spillway: report: {name}: it is no history; 'spillway record' writes one\n")
    );
    let output = command("report /no/such/history").output().unwrap();
    assert!(complaint(&output).ends_with("name a file that 'spillway record' has written\n"), "{output:?}");
    let output = command("lab figure Z9").output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.len(), complaint(&output).lines().count()),
        (Some(1), 0, 1)
    );
}

#[test]
fn a_recorder_whose_disk_gets_full_says_what_it_has_and_leaves_it_readable() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["16", "100"]));
    watched.running.expect("ready");
    let place = tempfile::tempdir().unwrap();
    let ours = env!("CARGO_BIN_EXE_spillway");
    // A disk of 64 KiB, which goes with the shell that sees it.
    let script = format!(
        "mount -t tmpfs -o size=64k none {place} && cd {place} && {{ \
         {ours} record --every 0.1 --for 60 a.history {pid}; echo \"status $?\"; \
         {ours} report --json a.history | head --bytes 200; \
         {ours} report a.history; echo \"status $?\"; ls; }}",
        place = place.path().display(),
        pid = watched.running.pid().as_raw_nonzero(),
    );
    let mut shell = Command::new("unshare");
    let finished =
        Running::start(shell.args(["--mount", "sh", "-c", &script])).finish(support::child::PATIENCE);
    let (said, complaint) = (finished.text(), finished.complaint());
    assert!(said.starts_with("status 1\n{"), "{said}{complaint}");
    assert!(complaint.contains("what was recorded so far is in it: make room"), "{complaint}");
    // There is no room for its page either: of that nothing stays.
    assert!(said.ends_with("status 1\na.history\n"), "{said}{complaint}");
    assert!(
        complaint.contains("a.html: No space left") && complaint.contains("name another with --out"),
        "{complaint}"
    );
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
}
