//! Every command as somebody meets it who is not careful: options that are not there, a full disk, a reader
//! that goes away, a narrow terminal, files that are something else.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;
mod support;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pages_common::root;
use rustix::process::Signal;
use support::child::{Running, free_port};
use support::launch::Launch;
use support::tools::{c_program, source};

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

/// All commands, and commands of commands.
fn all_commands() -> Vec<String> {
    let reference = fs::read_to_string(root().join("docs/reference/commands.md")).unwrap();
    let names = reference.lines().filter_map(|line| line.strip_prefix("## spillway "));
    let names: Vec<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 40, "{names:?}");
    names
}

/// A full disk as standard output.
fn full_disk() -> fs::File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A pipe as standard output whose reader has gone.
fn closed_pipe() -> OwnedFd {
    rustix::pipe::pipe().unwrap().1
}

/// It says in a line that the disk is full, and fails.
fn expect_full(line: &str, output: &Output) {
    let said = complaint(output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{line}: {said}");
    assert!(said.starts_with("spillway: ") && said.contains("No space left"), "{line}: {said}");
}

#[test]
fn every_command_names_an_option_that_is_not_there_in_one_line_and_where_to_read_on() {
    for name in all_commands() {
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

/// Under every name the help is read by somebody who has seen enough, lands on a full disk, and is asked for
/// where stderr is closed or full.
#[test]
fn the_help_of_every_command_ends_as_well_whoever_reads_it() {
    for name in all_commands() {
        let line = format!("{name} --help");
        expect_full(&line, &command(&line).stdout(full_disk()).output().unwrap());
        let mut reader = command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(reader.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let output = reader.wait_with_output().unwrap();
        assert_eq!((output.status.code(), complaint(&output)), (Some(0), String::new()), "{line}");
        assert!(first.len() > 1, "{line}: {first:?}");
        for stderr in [Stdio::from(full_disk()), closed_pipe().into()] {
            let status = command(&format!("{name} --no-such-option")).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(2), "{name}");
        }
    }
}

/// What is not there, cannot be written, or does not answer: each command that needs it says in a line that
/// it has not got it, before it begins, and never panics.
#[test]
fn what_a_command_needs_and_has_not_got_is_said_in_a_line() {
    let port = free_port();
    let nobody = format!("127.0.0.1:{port}");
    for (line, status) in [
        ("status 999999999", 1),
        ("explain --pid 999999999", 1),
        ("advise --pid 999999999", 1),
        ("record /no/such/place/history 999999999", 1),
        ("report /no/such/file", 1),
        ("check /no/such/file", 1),
        ("top", 1),
        ("dashboard --listen 192.0.2.1:80", 1),
        ("tier --policy no-such -- true", 125),
        ("tier status --state /no/such/directory", 1),
        (&*format!("donor drop nbd://{nobody}/e"), 1),
        ("donor certificates /proc/no-such/place --host a", 1),
        ("donor --memory 1K --shm bad-input", 1),
        (&*format!("pool status etcd://{nobody}/lab"), 1),
        (&*format!("pool drain {nobody}"), 1),
        ("lab run --workload no-such --policy tpp", 1),
        ("lab figure Z9", 1),
        ("lab sensitivity Z9", 1),
        ("lab sweep /no/such/file -o /no/such/place", 1),
        ("lab train --out /no/such/place/agent", 1),
        ("lab report /no/such/place", 1),
        ("lab advise --workload no-such", 1),
        ("lab record -o /no/such/place/trace -- true", 1),
        ("lab import --format lackey -o /no/such/place/trace /no/such/file", 1),
        ("lab replay /no/such/file", 1),
        ("lab misses /no/such/file", 1),
        ("lab calibrate -o /no/such/place/fetches.json", 1),
        ("bench command --local 64M -- /no/such/program", 1),
        ("bench physical --html /no/such/place/page.html", 1),
        ("bench rig --kernel /no/such --to /proc/no-such/place", 1),
        ("bench report --to /no/such/place /no/such/file", 1),
        ("generate man --to /proc/no-such/place", 1),
        ("run --local 64M -- /no/such/program", 127),
    ] {
        let output = command(line).output().unwrap();
        let said = complaint(&output);
        assert!(!said.contains("panicked"), "{line}: {said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(status), 1), "{line}: {said}");
        assert!(said.starts_with("spillway: "), "{line}: {said}");
        // Nobody hears it, which changes nothing.
        for stderr in [Stdio::from(full_disk()), closed_pipe().into()] {
            let unheard = command(line).stderr(stderr).status().unwrap();
            assert_eq!(unheard.code(), Some(status), "{line}");
        }
    }
}

#[test]
fn where_the_disk_is_full_whatever_prints_says_so_and_fails() {
    for line in PRINTERS {
        expect_full(line, &command(line).stdout(full_disk()).output().unwrap());
    }
    let place = tempfile::tempdir().unwrap();
    let certificates = |name: &str| {
        let line = format!("donor certificates {}/{name} --host localhost", place.path().display());
        (command(&line), place.path().join(name).join("ca-cert.pem"))
    };
    let (mut making, made) = certificates("full");
    expect_full("donor certificates", &making.stdout(full_disk()).output().unwrap());
    assert!(made.exists(), "what was made is there all the same");
    let (mut making, made) = certificates("closed");
    let output = making.stdout(closed_pipe()).output().unwrap();
    assert_eq!((output.status.code(), complaint(&output)), (Some(0), String::new()));
    assert!(made.exists());
}

/// A daemon in a directory that answers each request so, until it is dropped with the test's process.
fn daemon(directory: &Path) {
    let listener = UnixListener::bind(directory.join("tier.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            let _ = BufReader::new(&stream).read_line(&mut request);
            let status = fs::read_to_string(source("tier_status.json")).unwrap().replace('\n', "");
            let _ = writeln!(stream, "{{\"ok\":{status}}}");
        }
    });
}

#[test]
fn what_asks_others_ends_as_well_where_the_disk_is_full_or_the_reader_goes_away() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["16", "100"]));
    watched.running.expect("ready");
    let pid = watched.running.pid().as_raw_nonzero();
    let state = tempfile::tempdir().unwrap();
    daemon(state.path());
    let port = free_port();
    let donor = Running::start(&mut command(&format!("donor --memory 64M --listen 127.0.0.1:{port}")));
    support::child::until(support::child::PATIENCE, "a donor", || {
        donor.text().contains("listening").then_some(())
    });
    let tier_status = format!("tier status --state {}", state.path().display());
    let pool_status = format!("pool status 127.0.0.1:{port}");
    let top = format!("top --once --pool 127.0.0.1:{port}");
    for line in [
        &tier_status,
        &pool_status,
        &format!("{pool_status} --json"),
        &format!("explain --pid {pid}"),
        &format!("advise --pid {pid}"),
        "donor status",
        "donor status --json",
        &format!("status {pid}"),
        &top,
        &format!("{top} --json"),
    ] {
        expect_full(line, &command(line).stdout(full_disk()).output().unwrap());
        let output = command(line).stdout(closed_pipe()).output().unwrap();
        assert_eq!((output.status.code(), complaint(&output)), (Some(0), String::new()), "{line}");
    }
    let place = tempfile::tempdir().unwrap();
    let checked = place.path().join("run.toml");
    fs::write(&checked, "[fetch]\noverlaps = false\nstrides = 'leap'\n").unwrap();
    let check = format!("check {}", checked.display());
    for line in [tier_status.as_str(), &pool_status, "lab list", "run --local 8M -- true", &check] {
        for columns in [40, 80] {
            let text = on_a_terminal(line, columns);
            assert!(text.lines().count() > 1, "{line}: {text:?}");
            for printed in text.lines().filter(|line| line.trim().contains(' ')) {
                assert!(printed.chars().count() <= columns, "{line}, {columns}: {printed:?}");
            }
        }
    }
    assert!(
        on_a_terminal(&pool_status, 40).contains("lends 64M, promised 0"),
        "{}",
        on_a_terminal(&pool_status, 40)
    );
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_nothing_to_talk_about() {
    for line in PRINTERS {
        let output = command(line).stdout(closed_pipe()).output().unwrap();
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
