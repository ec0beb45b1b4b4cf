//! What someone meets who uses the lab for the first time: wrong words, wrong numbers, interruptions.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.arg("lab").args(arguments).stdin(Stdio::null());
    command
}

fn lab<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    command(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// `lab run` of a small scan under swap, with more arguments.
fn run(more: &[&str]) -> Output {
    let size: &[&str] = if more.contains(&"--size") { &[] } else { &["--size", "2M"] };
    lab(&[&["run", "--workload", "scan", "--policy", "swap"][..], size, more].concat())
}

#[test]
fn help_fits_80_columns_and_has_an_example() {
    for command in ["run", "sweep", "advise", "list"] {
        let help = stdout(&lab(&[command, "--help"]));
        assert!(help.contains(&format!("spillway lab {command} ")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}

#[test]
fn what_is_printed_fits_80_columns() {
    let bound = lab(&["run", "--workload", "scan", "--policy", "clairvoyant", "--size", "4M"]);
    for output in [lab(&["list"]), run(&[]), bound] {
        assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.lines().count() > 5 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn a_run_shows_how_far_it_is_on_a_terminal_and_is_silent_elsewhere() {
    let arguments = ["run", "--workload", "memcached-etc", "--policy", "hotbox", "--size", "256M"];
    let unseen = lab(&arguments);
    assert!(unseen.status.success() && stderr(&unseen).is_empty(), "{}", stderr(&unseen));
    let line = format!("exec {} lab {}", env!("CARGO_BIN_EXE_spillway"), arguments.join(" "));
    let seen = Command::new("script")
        .args(["--quiet", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = stdout(&seen);
    assert!(shown.contains(" s simulated, ") && shown.contains(" left"), "{shown:?}");
    let result = shown.replace('\r', "");
    assert!(stdout(&unseen).lines().all(|line| result.contains(line)), "{shown:?}");
}

#[test]
fn what_no_policy_could_beat_is_told_with_how_near_a_choice_comes() {
    let arguments = ["run", "--workload", "memcached-etc", "--size", "4M", "--json", "--policy"];
    let result = |policy: &str| -> Value {
        let output = lab(&[arguments.as_slice(), &[policy]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (bound, hotbox) = (result("clairvoyant"), result("hotbox"));
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&bound["run_s"]) < number(&hotbox["run_s"]));
    assert!(number(&bound["all_local_s"]) < number(&bound["run_s"]));
    assert!(number(&bound["least_cost_s"]) <= number(&bound["schedule_cost_s"]));
    assert!((0.0..0.1).contains(&number(&bound["gap"])), "{bound}");
}

/// One line that names what is wrong; 2 where the command line itself is, 1 where what it asks for is.
#[test]
fn what_makes_no_sense_is_refused_in_one_line_that_names_it() {
    let wrong: [(&[&str], i32, &str); 16] = [
        (&["--latency", "750"], 2, "750ns"),
        (&["--local", "20"], 1, "local memory"),
        (&["--local", "0%"], 1, "local memory"),
        (&["--local", "120%"], 2, "percentage"),
        (&["--contention", "100%"], 1, "contention"),
        (&["--size", "100T"], 1, "128.0 GiB"),
        (&["--size", "0"], 1, "too small"),
        (&["--scale", "nan"], 1, "scale"),
        (&["--platform", "abacus"], 2, "hotbox"),
        (&["--set", "speed=1"], 2, "policy.KEY"),
        (&["--set", "policy.speed=1"], 1, "read_ahead_pages"),
        (&["--set", "policy.low_share=7"], 1, "low_share"),
        (&["--set", "workload.speed=1"], 1, "passes"),
        (&["--set", "platform.link_bytes_per_s=0"], 1, "link_bytes_per_s"),
        (&["--set", "platform.far_ns=-1"], 1, "far_ns"),
        (&["--trace", "no.trace"], 2, "--workload"),
    ];
    for (arguments, code, named) in wrong {
        let output = run(arguments);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(named) && told.lines().count() == 1, "{arguments:?}: {told}");
        assert!(output.stdout.is_empty());
    }
    for arguments in [["figure", "Z9"], ["report", "/nonexistent"]] {
        let output = lab(&arguments);
        assert_eq!(
            (output.status.code(), stderr(&output).lines().count()),
            (Some(1), 1),
            "{}",
            stderr(&output)
        );
    }
}

const GRID: &str = r#"
workloads = ["memcached-etc"]
policies = ["hotbox", "swap"]
local = [0.1, 0.2, 0.4, 0.6]
bytes = 2097152
"#;

fn sweep(grid: &Path, out: &Path) -> Command {
    command(&[OsStr::new("sweep"), grid.as_os_str(), OsStr::new("-o"), out.as_os_str()])
}

/// Ctrl-C in the middle, if it comes before the end; then the same command again.
#[test]
fn an_interrupted_sweep_comes_to_the_table_of_one_that_was_not() {
    let folder = tempfile::tempdir().unwrap();
    let grid = folder.path().join("grid.toml");
    fs::write(&grid, GRID).unwrap();
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    let output = sweep(&grid, &whole).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
    assert!(stderr(&output).contains("runs.parquet: 8 runs"), "{}", stderr(&output));
    let mut child = sweep(&grid, &cut).stderr(Stdio::null()).spawn().unwrap();
    while !fs::read_to_string(cut.join("runs.jsonl")).is_ok_and(|lines| lines.contains('\n')) {
        thread::sleep(Duration::from_millis(1));
    }
    // It may have ended by itself.
    let _ = kill_process(Pid::from_child(&child), Signal::INT);
    child.wait().unwrap();
    let output = sweep(&grid, &cut).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let table = |out: &Path| fs::read(out.join("runs.parquet")).unwrap();
    assert!(table(&whole) == table(&cut));
}

/// 512 pages, of which a fifth is asked for most of the time.
fn trace(folder: &Path) -> String {
    let (text, trace) = (folder.join("accesses.txt"), folder.join("accesses.trace"));
    let pages =
        (0..20_000_u64).map(|access| if access % 5 > 0 { access * 7 % 100 } else { access * 13 % 512 });
    // A page in every other huge page is touched, so that the working set is much less than the regions.
    let lines =
        pages.map(|page| format!("{},r\n", (page / 64) * (4 << 20) + page % 64 * 4096 + page * 64 % 4096));
    fs::write(&text, lines.collect::<String>()).unwrap();
    let (text, trace) = (text.to_str().unwrap(), trace.to_str().unwrap());
    let output = lab(&["import", "--format", "plain", "--output", trace, text]);
    assert!(output.status.success(), "{}", stderr(&output));
    trace.to_owned()
}

/// Shares of local memory are shares of what a trace touches, not of the huge pages around it.
#[test]
fn a_traces_working_set_is_what_it_touches() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let output = lab(&["run", "--trace", &trace, "--policy", "swap", "--local", "25%", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["working_set_pages"], &report["local_pages"]), (&512.into(), &128.into()));
    assert!(report["missing_faults"].as_u64().unwrap() > 100, "a quarter does not hold all");
}

#[test]
fn advice_is_given_for_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let output = lab(&["advise", "--trace", &trace, "--local", "25%", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    let policies = advice["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 18);
    for policy in policies {
        assert_eq!(policy["least_local"].as_array().unwrap().len(), 3, "{policy}");
    }
    for more in ["slowdown_more_local", "slowdown_half_latency", "slowdown_double_bandwidth"] {
        assert!(advice[more].as_f64().unwrap() > 0.0, "{more}");
    }
    let output = lab(&["advise", "--trace", &trace, "--local", "25%"]);
    let text = stdout(&output);
    assert!(text.contains("5%    10%    20%") && text.contains("is best"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}
