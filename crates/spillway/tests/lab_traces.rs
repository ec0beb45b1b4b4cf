//! Traces on the command line: imported, recorded, repeated, and refused when they are broken.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn lab<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.arg("lab").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// An access to each of 512 pages, eight times.
fn plain_text() -> String {
    (0..4096)
        .map(|access| format!("{:#x},{}\n", access % 512 * 4096, if access % 3 == 0 { "w" } else { "r" }))
        .collect()
}

fn import(folder: &Path) -> String {
    let (text, trace) = (folder.join("accesses.txt"), folder.join("accesses.trace"));
    fs::write(&text, plain_text()).unwrap();
    let (text, trace) = (text.to_str().unwrap(), trace.to_str().unwrap());
    let output = lab(&["import", "--format", "plain", "--output", trace, text]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("4096 records of 1 tasks, which touch 2.0 MiB"), "{}", stderr(&output));
    trace.to_owned()
}

#[test]
fn help_fits_80_columns_and_has_an_example() {
    for command in ["record", "import", "replay", "misses"] {
        let help = String::from_utf8(lab(&[command, "--help"]).stdout).unwrap();
        assert!(help.contains(&format!("spillway lab {command} ")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}

#[test]
fn a_large_file_is_read_with_how_much_is_left_on_a_terminal_and_in_silence_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("accesses.txt");
    fs::write(&text, "0x1000,r\n0x2000,w\n".repeat(1 << 20)).unwrap();
    let line = |out: &str| {
        format!(
            "exec {} lab import --format plain --output {} {}",
            env!("CARGO_BIN_EXE_spillway"),
            folder.path().join(out).display(),
            text.display()
        )
    };
    let seen = Command::new("script")
        .args(["--quiet", "--command", &line("seen.trace"), "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(shown.contains("of 18.00 MiB read"), "{shown:?}");
    let unseen = Command::new("sh").args(["-c", &line("unseen.trace")]).output().unwrap();
    assert!(unseen.status.success() && stderr(&unseen).lines().count() == 1, "{}", stderr(&unseen));
    let [seen, unseen] =
        ["seen", "unseen"].map(|name| fs::read(folder.path().join(format!("{name}.trace"))).unwrap());
    assert!(seen == unseen);
}

#[test]
fn an_imported_trace_runs_under_a_policy() {
    let folder = tempfile::tempdir().unwrap();
    let trace = import(folder.path());
    let output = lab(&["run", "--trace", &trace, "--policy", "hotbox", "--local", "25%", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["accesses"], 4096);
    assert_eq!(report["pages"], 512);
    assert_eq!(report["local_pages"], 128);
}

#[test]
fn what_was_imported_or_recorded_is_told_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let (text, trace) = (folder.path().join("accesses.txt"), folder.path().join("one.trace"));
    fs::write(&text, plain_text()).unwrap();
    let trace = trace.to_str().unwrap();
    let output = lab(&["import", "--json", "-f", "plain", "-o", trace, text.to_str().unwrap()]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({
        "file": trace, "records": 4096, "tasks": 1, "touched_bytes": 2 << 20, "most_held_bytes": 2 << 20
    });
    assert_eq!((told, stderr(&output).as_str()), (expected, ""));
    // Its standard output is the program's, so that what was written is told on the other.
    let output = lab(&["record", "--json", "-o", trace, "--", "seq", "1", "3"]);
    assert_eq!(output.stdout, b"1\n2\n3\n", "{}", stderr(&output));
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(told["file"] == trace && told["tasks"] == 1 && told["records"].as_u64() > Some(1000), "{told}");
    let bytes = |key: &str| told[key].as_u64().unwrap();
    assert!(0 < bytes("most_held_bytes") && bytes("most_held_bytes") <= bytes("touched_bytes"), "{told}");
}

#[test]
fn a_trace_is_replayed_under_the_policies_of_the_caching_field() {
    let folder = tempfile::tempdir().unwrap();
    let trace = import(folder.path());
    let output = lab(&["misses", &trace, "--local", "50%,2M", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let misses = |policy: &str, local_pages: u64| {
        let rows = found.as_array().unwrap().iter();
        let mut row = rows.filter(|row| row["policy"] == policy && row["local_pages"] == local_pages);
        row.next().unwrap()["misses"].as_u64().unwrap()
    };
    // Eight rounds over 512 pages: of half of them LRU finds none again, the optimum 255 a round.
    assert_eq!([misses("lru", 256), misses("lru", 512)], [4096, 512]);
    assert!(misses("belady", 256) < misses("sieve", 256).min(misses("clock", 256)));
    let output = lab(&["misses", &trace, "--policy", "sieve,fifo"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 2 + 6, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let output = lab(&["misses", &trace, "--policy", "mru"]);
    assert!(!output.status.success() && stderr(&output).contains("belady"), "{}", stderr(&output));
}

#[test]
fn hashes_are_imported_with_their_pages_numbered_anew_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let (text, trace) = (folder.path().join("hashes.txt"), folder.path().join("hashes.trace"));
    let hash = |id: u64| id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
    let lines: String = (1..=1000).flat_map(|id| [id, id]).map(|id| format!("{},r\n", hash(id))).collect();
    fs::write(&text, lines).unwrap();
    let (text, written) = (text.to_str().unwrap(), trace.to_str().unwrap());
    let output = lab(&["import", "-f", "plain", "-o", written, text]);
    assert!(!output.status.success() && stderr(&output).contains("--renumber"), "{}", stderr(&output));
    assert!(!trace.exists());
    let output = lab(&["import", "-f", "plain", "--renumber", "-o", written, text]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = lab(&["run", "--trace", written, "--policy", "tpp", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["accesses"], &report["working_set_pages"]), (&2000.into(), &1000.into()));
}

#[test]
fn broken_traces_and_text_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let trace = import(folder.path());
    let bytes = fs::read(&trace).unwrap();
    fs::write(&trace, &bytes[..bytes.len() - 5]).unwrap();
    let output = lab(&["run", "--trace", &trace, "--policy", "hotbox"]);
    assert!(!output.status.success() && stderr(&output).contains("cut off"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);

    let text = folder.path().join("wrong.txt");
    fs::write(&text, "0x1000,r\n0x1000;r\n").unwrap();
    let written = folder.path().join("wrong.trace");
    let arguments = ["import", "-f", "plain", "-o", written.to_str().unwrap(), text.to_str().unwrap()];
    let output = lab(&arguments);
    assert!(!output.status.success() && stderr(&output).contains("line 2"), "{}", stderr(&output));
    assert!(!written.exists());
}

#[test]
fn a_program_is_recorded_and_runs_as_it_would_alone() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("seq.trace");
    let output = lab(&["record", "-o", trace.to_str().unwrap(), "--", "seq", "1", "3"]);
    // Where QEMU is missing: scripts/install-test-tools.
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(output.stdout, b"1\n2\n3\n");
    let output = lab(&["run", "--trace", trace.to_str().unwrap(), "--policy", "tpp", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["accesses"].as_u64().unwrap() > 1000);
}

#[test]
fn what_a_recording_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("none.trace");
    let arguments =
        [OsStr::new("record"), OsStr::new("-o"), trace.as_os_str(), OsStr::new("--"), OsStr::new("true")];
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    let output = command.arg("lab").args(arguments).env("PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("install the package qemu-user"), "{}", stderr(&output));
    assert!(!trace.exists());
}

#[test]
fn a_recorded_programs_exit_status_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("exit.trace");
    let output = lab(&["record", "-o", trace.to_str().unwrap(), "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let missing = lab(&["record", "-o", trace.to_str().unwrap(), "--", "/nonexistent/program"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(!stderr(&missing).is_empty());
}
