//! Fault traces: what a live pager did, and the same once more in the lab.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

fn spillway<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn replayed(trace: &Path) -> Value {
    let output = spillway(&[OsStr::new("lab"), "replay".as_ref(), "--json".as_ref(), trace.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let replayed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(replayed["difference"], Value::Null);
    replayed
}

/// So many lines in no order, of 51 bytes each.
fn lines(folder: &Path, count: u64) -> String {
    let path = folder.join("lines");
    let line = |i: u64| format!("{:050}\n", i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    fs::write(&path, (0..count).map(line).collect::<String>()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// In both fault modes, with an inactive queue and without, and with what each thread has of its own.
#[test]
fn a_replay_gives_each_answer_that_the_live_pager_had() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (lines, trace, config) = (lines(folder.path(), 165_000), path("faults"), path("run.toml"));
    let of_threads = "0.2\nthread_buffer_pages = 16\nthread_inactive = true";
    let shares = ["0.0", "0.2", of_threads];
    for (mode, share) in ["thread", "inline"].into_iter().flat_map(|mode| shares.map(|share| (mode, share))) {
        fs::write(&config, format!("[replacement]\ninactive_share = {share}\n")).unwrap();
        let options = ["run", "--local", "5M", "--store", "ram:", "--fault-mode", mode];
        let files = ["--config", &config, "--record", &trace];
        let program = ["--", "sort", "--parallel=2", "-S", "32M", "-o", "/dev/null", &lines];
        let output = spillway(&[&options[..], &files, &program].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let replayed = replayed(Path::new(&trace));
        let number = |part: &str, of: &str| replayed[part][of].as_u64().unwrap();
        assert!(number("came", "fetched") > 100 && number("left", "stored") > 100, "{replayed}");
        assert_eq!(replayed["is_whole"], true);
        assert!(replayed["calls"].as_u64().unwrap() > 1000, "{replayed}");
        if share != "0.0" {
            assert!(number("faults", "inactive") > 100, "{replayed}");
        }
    }
}

/// The same blocks, and the same pages leave: in both fault modes, however blocks come to their sizes.
#[test]
fn a_replay_gives_each_block_that_the_live_pager_had() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("faults").to_str().unwrap().to_owned();
    let lines = lines(folder.path(), 95_000);
    let blocks = ["streams", "elastic", "elastic:256K", "64K"];
    // From the first store reads are posted, and room is made meanwhile.
    let ways = [("thread", "ram:?fabric=fdr"), ("inline", "ram:")];
    for (way, block) in ways.into_iter().flat_map(|way| blocks.map(|block| (way, block))) {
        let (mode, store) = way;
        let options = ["run", "--local", "5M", "--store", store, "--fault-mode", mode, "--block", block];
        let program =
            ["--record", &trace, "--", "sort", "--parallel=2", "-S", "32M", "-o", "/dev/null", &lines];
        let output = spillway(&[&options[..], &program].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let replayed = replayed(Path::new(&trace));
        let number = |part: &str, of: &str| replayed[part][of].as_u64().unwrap();
        let blocks = number("came", "fetch_blocks");
        // At least what each fault asked for, and what came of it.
        assert!(blocks > 100 && replayed["block_calls"].as_u64().unwrap() > blocks, "{replayed}");
        assert!(number("came", "fetched") > blocks && number("left", "stored") > 100, "{replayed}");
        assert_eq!(replayed["is_whole"], true);
    }
}

#[test]
fn programs_of_a_run_have_a_trace_each_and_forked_children_none() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("faults");
    let record = trace.to_str().unwrap();
    let script = "(:); exec sh -c 'echo two'";
    let output = spillway(&["run", "--local", "8M", "--record", record, "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("forked children are not recorded"), "{}", stderr(&output));
    assert!(replayed(&trace)["children_left_out"].as_u64().unwrap() >= 1);
    assert!(replayed(&folder.path().join("faults.2"))["calls"].is_u64());
}

/// Lines in no order, of which 4 MiB of 12 are local.
#[test]
fn an_estimate_takes_settings_and_refuses_wrong_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let line = |i: u64| format!("{:050}\n", i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    fs::write(path("lines"), (0..120_000).map(line).collect::<String>()).unwrap();
    let lines = path("lines");
    let program = ["--", "sort", "--parallel=1", "-S", "32M", "-o", "/dev/null", &lines];
    let (faults, memory) = (path("faults"), path("memory"));
    for arguments in [
        &["lab", "record", "-o", &memory][..],
        &["run", "--local", "4M", "--block", "4K", "--record", &faults],
    ] {
        let output = spillway(&[arguments, &program].concat());
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let estimate = |setting: &str| {
        spillway(&["lab", "replay", &faults, "--memory", &memory, "--json", "--set", setting])
    };
    for setting in ["newcomer_rank=21", "scan_share=0.05"] {
        let output = estimate(setting);
        assert!(output.status.success(), "{}", stderr(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let estimated = told["estimate"]["scanned_when_due"]["fetched_pages"].as_u64().unwrap();
        assert!(estimated > 1000, "{told}");
    }
    fetches_take_what_was_measured(&faults, &memory, &path("calibration"));
    for (setting, remedy) in [
        ("newcomer_rank=22", "set it to 0 to 21"),
        ("newcomer_rank=0.5", "expected u8"),
        ("scan_share=1.5", "set it to 0 to 1"),
        ("speed=1", "a key of [replacement]"),
        ("scan_share=nan", "write KEY=NUMBER"),
    ] {
        let output = estimate(setting);
        assert!(
            !output.status.success() && stderr(&output).contains(remedy),
            "{setting}: {}",
            stderr(&output)
        );
    }
}

/// Or the time is not known: there is no constant to take its place.
fn fetches_take_what_was_measured(faults: &str, memory: &str, calibration: &str) {
    let replay = |arguments: &[&str]| {
        let output = spillway(&[&["lab", "replay", faults, "--memory", memory], arguments].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = replay(&[]);
    assert!(text.contains("time              not measured"), "{text}");
    let written = |store: &str, mode: &str| {
        let fetch =
            format!(r#""store": "{store}", "fault_mode": "{mode}", "clean_ns": 1e6, "written_ns": 1e6"#);
        fs::write(calibration, format!(r#"{{"machine": "one", "fetches": [{{{fetch}}}]}}"#)).unwrap();
    };
    let estimate = || {
        let told: Value = serde_json::from_str(&replay(&["--calibration", calibration, "--json"])).unwrap();
        told["estimate"].clone()
    };
    let told: Value = serde_json::from_str(&replay(&["--json"])).unwrap();
    let mode = told["header"]["settings"]["fault_mode"].as_str().unwrap();
    written("compressed:", mode);
    let with = estimate();
    let fetched = with["scanned_as_live"]["fetched_pages"].as_f64().unwrap();
    assert!((with["fetches_s"].as_f64().unwrap() - fetched / 1000.0).abs() < 1e-6 * fetched, "{with}");
    let [belady, lru] = ["belady_pages", "lru_pages"].map(|key| with["bounds"][key].as_f64().unwrap());
    assert!(belady > 0.0 && belady <= lru && belady <= fetched, "{with}");
    written("ram:", mode);
    assert_eq!(estimate()["fetches_s"], Value::Null);
    fs::write(calibration, "{}").unwrap();
    let output = spillway(&["lab", "replay", faults, "--memory", memory, "--calibration", calibration]);
    let said = stderr(&output);
    assert!(
        !output.status.success() && said.lines().count() == 1 && said.contains("lab calibrate"),
        "{said}"
    );
}

/// In both modes, over the stores that are named.
#[test]
fn a_machine_is_calibrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("this.json").to_str().unwrap().to_owned();
    let sizes = ["--memory", "32M", "--repeat", "1", "--store", "ram:"];
    let output = spillway(&[&["lab", "calibrate", "--json", "-o", &path][..], &sizes].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kept: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(told, kept);
    let fetches = told["fetches"].as_array().unwrap();
    let has = |mode: &str| {
        let of_mode = |time: &&Value| time["fault_mode"] == mode && time["store"] == "ram:";
        fetches.iter().find(of_mode).is_some_and(|time| time["clean_ns"].as_f64() > Some(0.0))
    };
    assert!(has("thread"), "{told}");
    let output = spillway(&["lab", "calibrate", "--store", "nowhere:", "--memory", "32M"]);
    assert!(!output.status.success() && stderr(&output).contains("nowhere:"), "{}", stderr(&output));
}

#[test]
fn what_a_killed_recorder_wrote_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("faults");
    let mut run = Command::new(env!("CARGO_BIN_EXE_spillway"));
    run.args(["run", "--local", "8M", "--record"]).arg(&trace).args(["--", "sleep", "60"]);
    let mut run = run.stdin(Stdio::null()).spawn().unwrap();
    while fs::metadata(&trace).map_or(0, |trace| trace.len()) <= 8 {
        sleep(Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(replayed(&trace)["is_whole"], false);
}

#[test]
fn a_trace_that_cannot_be_written_or_read_is_refused_in_one_line() {
    for record in ["/dev/full", "/nonexistent/faults"] {
        let output = spillway(&["run", "--local", "8M", "--record", record, "--", "true"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("name a file that can be written"), "{}", stderr(&output));
    }
    let output = spillway(&["lab", "replay", "/dev/null"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("run --record"), "{}", stderr(&output));
}
