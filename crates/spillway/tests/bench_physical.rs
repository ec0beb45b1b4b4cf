//! `spillway bench physical` with little memory: it measures, and the machine is set afterwards as it was
//! before, whatever ends it. What costs more is in `full_physical.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;
mod physical_common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use bench_common::{complaint, finish};
use physical_common::{SLEEP, alone, distribution, is_root, physical, report, rows, settings};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const PATIENCE: Duration = Duration::from_secs(120);
const LITTLE: [&str; 3] = ["--quick", "--memory", "8M"];

#[test]
fn each_size_of_page_has_its_distribution_and_2_mib_cost_more_than_4_kib() {
    let _guard = alone();
    let before = settings();
    let report = report(physical(&["alloc", "free", "threads", "locality"]).args(LITTLE), PATIENCE);
    assert_eq!(settings(), before);
    let alloc = rows(&report, "alloc", "First touch of a page, node 0");
    for row in &alloc {
        distribution(row);
    }
    let median = |point: &str, series: &str| {
        let row = alloc.iter().find(|row| row["point"] == point && row["series"] == series);
        row.unwrap_or_else(|| panic!("no {point}, {series} in {report}"))["value"].as_f64().unwrap()
    };
    for series in ["alone", "on all CPUs"] {
        assert!(median("4 KiB", series) > 0.0, "{report}");
        if is_root() {
            assert!(median("2 MiB", series) > 2.0 * median("4 KiB", series), "{report}");
        }
    }
    let freed = rows(&report, "free", "Freeing a page, node 0");
    assert!(freed.iter().any(|row| row["series"] == "nothing there"), "{report}");
    freed.iter().for_each(distribution);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let threads = rows(&report, "threads", "First touch by threads");
    for count in [1, cpus, 2 * cpus] {
        let is =
            |row: &&serde_json::Value| row["case"]["threads"] == count && row["case"]["page_bytes"] == 4096;
        assert!(threads.iter().any(|row| is(&row)), "no {count} threads in {report}");
    }
    // One node: a remote one is said to be missing; two: measured.
    let remote = rows(&report, "locality", "First touch, from node to node");
    let is_remote = remote.iter().any(|row| row["series"].as_str().unwrap().ends_with("remote"));
    let left_out = report["experiments"][3]["left_out"].to_string();
    assert!(is_remote || left_out.contains("the machine has one node"), "{report}");
}

#[test]
fn zeroing_grows_with_the_page_and_exceeds_the_rest() {
    let _guard = alone();
    if !is_root() {
        return;
    }
    let report = report(physical(&["breakdown"]).args(["--quick", "--memory", "32M"]), PATIENCE);
    let parts = rows(&report, "breakdown", "A first touch, alone");
    let part = |part: &str, point: &str| {
        let row = parts.iter().find(|row| row["series"] == part && row["point"] == point);
        row.unwrap_or_else(|| panic!("no {part} of {point} in {report}"))["value"].as_f64().unwrap()
    };
    // Finding takes longer only where memory is fragmented and must be compacted first.
    assert!(part("zeroing", "2 MiB") > part("the rest", "2 MiB"), "{report}");
    assert!(part("zeroing", "2 MiB") > 10.0 * part("zeroing", "4 KiB"), "{report}");
    assert!(report["experiments"][0]["method"].as_str().unwrap().starts_with("sampled"), "{report}");
}

#[test]
fn faults_cost_no_less_cpu_beside_writers() {
    let _guard = alone();
    let report = report(physical(&["interference"]).args(LITTLE), PATIENCE);
    let latency = rows(&report, "interference", "First touch of 4 KiB beside writers");
    for writers in 0..=4 {
        let row = latency.iter().find(|row| row["case"]["writers"] == writers && row["case"]["threads"] == 1);
        distribution(row.unwrap_or_else(|| panic!("no {writers} writers in {report}")));
    }
}

#[test]
fn what_was_measured_makes_a_configuration_that_run_takes() {
    let _guard = alone();
    let directory = tempfile::tempdir().unwrap();
    let pool = directory.path().join("run.toml");
    let output =
        physical(&["threads", "interference"]).args(LITTLE).arg("--pool").arg(&pool).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let text = fs::read_to_string(&pool).unwrap();
    for name in ["reserve_bytes", "background.bytes_per_s"] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} = "))), "{text}");
    }
    // 'thp' and 'capacity' were not measured.
    assert!(!text.contains("huge_pages = "), "{text}");
    let mut run = Command::new(env!("CARGO_BIN_EXE_spillway"));
    let run = run.args(["run", "--local", "16M", "--json", "--config"]).arg(&pool).args(["--", "true"]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let stats: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    let rate = stats["settings"]["pool"]["background"]["bytes_per_s"].as_u64().unwrap();
    assert!(text.contains(&format!("background.bytes_per_s = \"{}M\"", rate >> 20)), "{stats} {text}");
}

/// Starts experiments, the last of which changes settings, and stops the process once it has: it stands there
/// until it is told to go on, however busy the machine is.
fn changed(experiments: &[&str], more: &[&str]) -> std::process::Child {
    let before = fs::read_to_string(SLEEP).unwrap();
    let mut child = physical(experiments).args(LITTLE).args(more).spawn().unwrap();
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "nothing is set");
        if fs::read_to_string(SLEEP).unwrap() != before {
            kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
            let stopped = waitpid(Some(Pid::from_child(&child)), WaitOptions::UNTRACED).unwrap();
            assert!(stopped.is_some_and(|(_, status)| status.stopped()), "{stopped:?}");
            if fs::read_to_string(SLEEP).unwrap() != before {
                return child;
            }
            kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Interrupts a process that stands, and lets it go on.
fn interrupt(child: &std::process::Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
    kill_process(Pid::from_child(child), Signal::CONT).unwrap();
}

#[test]
fn an_interrupt_sets_everything_back() {
    let _guard = alone();
    if !is_root() {
        return;
    }
    let before = settings();
    let child = changed(&["khugepaged"], &[]);
    interrupt(&child);
    let output = finish(child, PATIENCE);
    assert!(!output.status.success() && complaint(&output).contains("interrupted"), "{}", complaint(&output));
    assert_eq!(settings(), before);
}

#[test]
fn an_interrupt_leaves_what_had_been_measured() {
    let _guard = alone();
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pool = directory.path().join("pool.toml");
    let child = changed(&["locality", "khugepaged"], &["--pool", pool.to_str().unwrap()]);
    interrupt(&child);
    let output = finish(child, PATIENCE);
    assert!(!output.status.success() && complaint(&output).contains("interrupted"), "{}", complaint(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let experiments = report["experiments"].as_array().unwrap();
    assert_eq!(experiments.iter().map(|one| &one["name"]).collect::<Vec<_>>(), ["locality"]);
    assert!(!experiments[0]["panels"].as_array().unwrap().is_empty());
    let left_out = &report["left_out"][0];
    assert_eq!(left_out["what"], "khugepaged");
    assert!(left_out["reason"].as_str().unwrap().contains("interrupted"), "{left_out}");
    assert!(!pool.exists(), "no settings from half of the measurements");
}

#[test]
fn what_a_killed_run_has_left_the_next_one_sets_back() {
    let _guard = alone();
    if !is_root() {
        return;
    }
    let before = settings();
    let mut child = changed(&["khugepaged"], &[]);
    // Two runs would set each other's settings back.
    let refused = physical(&["free"]).args(LITTLE).output().unwrap();
    assert!(
        !refused.status.success() && complaint(&refused).contains("is measuring"),
        "{}",
        complaint(&refused)
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(settings(), before);
    let output = physical(&["locality"]).args(LITTLE).output().unwrap();
    assert!(output.status.success() && complaint(&output).contains("set back"), "{}", complaint(&output));
    assert_eq!(settings(), before);
}

#[test]
fn an_ordinary_user_hears_what_is_left_out_and_why() {
    let _guard = alone();
    if !is_root() {
        return;
    }
    // Where anybody may run it.
    let directory =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let program = directory.path().join("spillway");
    fs::copy(env!("CARGO_BIN_EXE_spillway"), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["bench", "physical", "alloc", "breakdown", "khugepaged", "--json"]).args(LITTLE);
    let report = report(command.uid(65534).gid(65534), PATIENCE);
    assert!(!rows(&report, "alloc", "First touch of a page, node 0").is_empty(), "{report}");
    let left_out = report["experiments"][0]["left_out"].to_string();
    assert!(left_out.contains("hugetlb 2 MiB") && left_out.contains("run it as root"), "{report}");
    assert!(report["experiments"][1]["method"].as_str().unwrap().starts_with("by difference"), "{report}");
    assert_eq!(report["left_out"][0]["what"], "khugepaged", "{report}");
}

#[test]
fn a_mount_is_measured_beside_the_node_and_each_experiment_says_what_it_does() {
    let _guard = alone();
    let output = physical(&["alloc", "threads", "interference", "breakdown", "--path", "/dev/shm"])
        .args(LITTLE)
        .output()
        .unwrap();
    let said = complaint(&output);
    assert!(output.status.success() && said.contains("alloc takes up to"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (experiment, title) in [
        ("alloc", "First touch of a page, /dev/shm"),
        ("threads", "First touch by threads, /dev/shm"),
        ("interference", "First touch of 4 KiB beside writers, /dev/shm"),
    ] {
        let rows = rows(&report, experiment, title);
        assert!(!rows.is_empty(), "{experiment}: {report}");
        rows.iter().for_each(distribution);
    }
    let parts = rows(&report, "breakdown", "A first touch, alone, /dev/shm");
    assert_eq!(parts.len(), 3, "{report}");
    assert!(parts.iter().any(|part| part["value"].as_f64() > Some(0.0)), "{parts:?}");
}

#[test]
fn tables_and_help_fit_80_columns() {
    let _guard = alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    let output = command.args(["bench", "physical", "alloc"]).args(LITTLE).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && table.contains("p99.9") && table.contains("4 KiB, alone"), "{table}");
    let help =
        Command::new(env!("CARGO_BIN_EXE_spillway")).args(["bench", "physical", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("khugepaged") && help.contains("spillway bench physical alloc"), "{help}");
    for line in table.lines().chain(help.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn what_is_not_there_is_refused_in_one_line() {
    let _guard = alone();
    for (wrong, status, word) in [
        (&["no-such-experiment"][..], 2, "no-such-experiment"),
        (&["alloc", "--node", "999"], 1, "node 999"),
        (&["alloc", "--path", "/proc"], 1, "/proc"),
    ] {
        let output = physical(wrong).args(LITTLE).output().unwrap();
        let said = complaint(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(status), 1), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
