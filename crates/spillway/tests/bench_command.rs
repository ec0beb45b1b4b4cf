//! `spillway bench command`: a user's own command under Spillway and beside zram.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bench_common::{complaint, finish, set_up};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// The tests set swap devices up.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bench(flags: &[&str], command: &[&str]) -> Command {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_spillway"));
    bench.args(["bench", "command"]).args(flags).arg("--").args(command);
    bench.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    bench
}

fn measured(flags: &[&str], command: &[&str]) -> Output {
    finish(bench(flags, command).spawn().unwrap(), PATIENCE)
}

/// A file of lines in no order, 40 MiB of them.
fn make_lines(path: &Path) {
    let mut key = 1_u64;
    let mut text = String::new();
    for _ in 0..40_000 {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{key:020} {}\n", "a word or two ".repeat(72)));
    }
    fs::write(path, text).unwrap();
}

#[test]
fn a_command_is_measured_with_all_memory_under_spillway_and_beside_zram() {
    let _guard = alone();
    let before = set_up();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    make_lines(Path::new(&at("lines")));
    let (lines, sorted) = (at("lines"), at("sorted"));
    let written = format!("--output={sorted}");
    let sort = ["sort", "--buffer-size=96M", "--parallel=1", &written, &lines];
    let output = measured(&["--json", "--local", "24M", "--output", &sorted], &sort);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(set_up(), before);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let conditions: Vec<&Value> = rows.iter().map(|row| &row["condition"]).collect();
    assert_eq!(conditions, ["unlimited", "spillway", "zram"], "{report}");
    assert_eq!(rows[1]["outcome"], "ok", "{report}");
    assert!(rows[1]["pages_in"].as_u64() > Some(0), "nothing was ever far: {report}");
    // Under swap the kernel may kill what it should wait for, and that is said.
    assert!(rows[2]["outcome"] == "ok" || rows[2]["reason"].is_string(), "{report}");
}

#[test]
fn a_command_that_writes_something_else_each_time_is_told_from_a_wrong_one() {
    let _guard = alone();
    let output = measured(&["--local", "16M"], &["date", "+%N"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("--any-output"), "{}", complaint(&output));
    let output = measured(&["--local", "16M", "--any-output"], &["date", "+%N"]);
    assert!(output.status.success(), "{}", complaint(&output));
}

#[test]
fn without_root_spillway_is_measured_alone() {
    let _guard = alone();
    // Where nobody may go, such as below a home directory, the command is not to be had.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let command = place.path().join("spillway");
    for name in ["spillway", "libspillway_preload.so"] {
        let from = Path::new(env!("CARGO_BIN_EXE_spillway")).with_file_name(name);
        fs::copy(from, place.path().join(name)).unwrap();
    }
    let with = |local: &str| {
        let mut bench = Command::new("setpriv");
        bench.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        // What `spillway run` needs, and no more.
        bench.args(["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]).arg(&command);
        bench.args(["bench", "command", "--local", local, "--", "seq", "100000"]);
        bench.current_dir("/").stdin(Stdio::null()).output().unwrap()
    };
    let refused = complaint(&with("50%"));
    assert!(refused.lines().count() == 1 && refused.contains("give a size, such as"), "{refused}");
    let output = with("16M");
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{said} {}", complaint(&output));
    assert!(said.contains("Spillway") && said.contains("Not measured: zram: cannot"), "{said}");
}

#[test]
fn a_command_that_cannot_be_measured_is_named() {
    let _guard = alone();
    for (command, reason) in [(&["false"][..], "exit status: 1"), (&["no-such-program"], "not found")] {
        let output = measured(&["--local", "50%"], command);
        assert_eq!(output.status.code(), Some(1));
        let said = complaint(&output);
        assert!(said.lines().count() == 1 && said.contains(reason), "{said}");
    }
    for local in ["0%", "much", "101%"] {
        assert_eq!(measured(&["--local", local], &["true"]).status.code(), Some(2), "{local}");
    }
}

#[test]
fn an_interrupt_ends_the_command_and_leaves_nothing_behind() {
    let _guard = alone();
    let before = set_up();
    let place = tempfile::tempdir().unwrap();
    let begun = place.path().join("begun");
    let script = format!("echo $$ > {}; exec sleep 1000", begun.display());
    let child = bench(&["--local", "16M"], &["/bin/sh", "-c", &script]).spawn().unwrap();
    let pid = loop {
        let text = fs::read_to_string(&begun).unwrap_or_default();
        if text.ends_with('\n') {
            break text.trim().to_owned();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(finish(child, PATIENCE).status.code(), Some(1));
    assert!(!Path::new("/proc").join(pid).exists(), "the command still runs");
    assert_eq!(set_up(), before);
}
