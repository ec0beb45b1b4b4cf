//! `spillway explain` of a program under `spillway run`: where its pages are and why, what leaves next, what
//! limits it; and that nobody who asks stops or harms it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use support::MIB;
use support::child::{PATIENCE, until};
use support::launch::{Launch, Watched};
use support::tools::c_program;

fn explain(pid: u64, address: Option<u64>, json: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["explain", "--pid", &pid.to_string()]).stdin(Stdio::null());
    command.args(address.map(|address| format!("{address:#x}")));
    if json {
        command.arg("--json");
    }
    command.output().unwrap()
}

fn explained(pid: u64, address: Option<u64>) -> Value {
    let output = explain(pid, address, true);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The program of a run, as the run tells.
fn program_of(watched: &Watched<'_>) -> u64 {
    let supervisor = watched.running.pid().as_raw_nonzero().to_string();
    let output =
        Command::new(env!("CARGO_BIN_EXE_spillway")).args(["status", &supervisor, "--json"]).output();
    let status: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    status["alive"][0]["run"]["program_pid"].as_u64().unwrap()
}

/// The mappings of a process whose line `is_meant`: first address and the one behind.
fn mappings(pid: u64, is_meant: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let lines = maps.lines().filter(|line| is_meant(line));
    lines
        .map(|line| line.split(' ').next().unwrap().split_once('-').unwrap())
        .map(|(a, b)| (address(a), address(b)))
        .collect()
}

#[test]
fn pages_of_a_run_are_explained_while_it_goes_on() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let pid = program_of(&watched);
    let anonymous = mappings(pid, |line| line.contains("rw-p") && line.split_whitespace().count() == 5);
    let (start, end) = anonymous.into_iter().max_by_key(|(start, end)| end - start).unwrap();
    assert!(end - start >= 32 * MIB, "{start:#x}..{end:#x}");
    // A page in each 256 KiB: most are far, some local.
    let mut states: BTreeMap<String, Value> = BTreeMap::new();
    until(PATIENCE, "pages that are far and pages that are local", || {
        for address in (start..end).step_by(256 << 10) {
            let found = explained(pid, Some(address + 5));
            states.insert(found["page"]["state"].as_str().unwrap().to_owned(), found);
        }
        (states.contains_key("far") && (states.contains_key("mapped") || states.contains_key("inactive")))
            .then_some(())
    });
    let far = &states["far"];
    assert_eq!(far["page"]["store"], "compressed:");
    assert_eq!(far["page"]["has_copy"], Value::Null);
    assert_eq!((far["process"].as_u64(), far["local_limit_bytes"].as_u64()), (Some(pid), Some(8 * MIB)));
    assert!(far["far_bytes"].as_u64().unwrap() > 16 * MIB, "{far}");
    assert_eq!(far["limits"][0]["what"], "local", "{far}");
    for found in states.values() {
        for next in found["next"].as_array().unwrap() {
            let address = next["address"].as_u64().unwrap();
            assert_eq!(address % 4096, 0);
            assert_ne!(address, 0, "{found}");
        }
    }
    assert!(states.values().any(|found| !found["next"].as_array().unwrap().is_empty()));
    // What is left alone is called so, with the reason.
    let [(stack, _)] = mappings(pid, |line| line.ends_with("[stack]"))[..] else { panic!("no stack") };
    let [(code, _), ..] = mappings(pid, |line| line.contains("r-xp") && line.contains("hold"))[..] else {
        panic!("no code")
    };
    for (address, reason) in
        [(stack, "it is a stack"), (code, "it is a file's"), (4096, "no memory is there")]
    {
        let page = &explained(pid, Some(address))["page"];
        assert_eq!(
            (page["state"].as_str(), page["unmanaged_because"].as_str()),
            (Some("unmanaged"), Some(reason))
        );
    }
    // In words.
    let words = String::from_utf8(explain(pid, Some(start + (16 << 20)), false).stdout).unwrap();
    for text in ["page 0x", "its run has", "more --local makes it faster", "next to leave"] {
        assert!(words.contains(text), "no {text} in {words}");
    }
    assert!(words.lines().all(|line| line.chars().count() <= 110), "{words}");
    let finished = watched.stop(Signal::USR1);
    assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("ready\nwhole\n", ""));
}

#[test]
fn a_process_that_is_stopped_is_said_not_to_answer_and_goes_on_as_before() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let program = program_of(&watched);
    let pid = Pid::from_raw(program as i32).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let output = explain(program, None, false);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), complaint.lines().count()), (Some(1), 1), "{complaint}");
    assert!(complaint.contains("does not answer"), "{complaint}");
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    let again = until(PATIENCE, "an answer", || {
        let output = explain(program, None, true);
        output.status.success().then(|| serde_json::from_slice::<Value>(&output.stdout).unwrap())
    });
    assert_eq!(again["page"], Value::Null);
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
    let gone = explain(program, None, false);
    let complaint = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert_eq!((gone.status.code(), complaint.lines().count()), (Some(1), 1), "{complaint}");
}

#[test]
fn memory_that_fits_is_left_to_the_kernel_and_said_to_be() {
    let launch = Launch::local_mib(64);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["16", "100"]));
    watched.running.expect("ready");
    let pid = program_of(&watched);
    let anonymous = mappings(pid, |line| line.contains("rw-p") && line.split_whitespace().count() == 5);
    let (start, _) = anonymous.into_iter().max_by_key(|(start, end)| end - start).unwrap();
    let found = explained(pid, Some(start + (8 << 20)));
    assert_eq!(found["page"]["state"], "native", "{found}");
    assert_eq!(found["limits"][0]["what"], "nothing", "{found}");
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
}

#[test]
fn a_run_is_told_how_much_memory_it_would_need() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let pid = program_of(&watched).to_string();
    let advise = |json: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        let output =
            command.args(["advise", "--pid", &pid]).args(json).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let advice: Value = until(PATIENCE, "enough faults", || {
        let advice: Value = serde_json::from_str(&advise(&["--json"])).unwrap();
        (advice["fetch_faults"].as_u64().unwrap() > 20_000).then_some(advice)
    });
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&advice["lost_share"]) > 0.05, "{advice}");
    // It reads and writes 32 MiB at random, so each page that is not local is as likely as any other.
    let curve = advice["curve"].as_array().unwrap();
    assert_eq!(curve[0]["local_bytes"].as_u64(), Some(8 * MIB));
    let (first, last) = (&curve[0], curve.last().unwrap());
    assert!(number(&last["lost_share"]) < number(&first["lost_share"]) * 0.9, "{advice}");
    for pair in curve.windows(2) {
        assert!(number(&pair[0]["local_bytes"]) < number(&pair[1]["local_bytes"]), "{advice}");
        assert!(number(&pair[0]["lost_share"]) >= number(&pair[1]["lost_share"]), "{advice}");
    }
    for need in advice["needs"].as_array().unwrap() {
        if let Some(local_bytes) = need["local_bytes"].as_u64() {
            assert!((8 * MIB..=34 * MIB).contains(&local_bytes), "{advice}");
        }
    }
    let words = advise(&[]);
    for text in ["to lose at most", "fetching faults", "since its start"] {
        assert!(words.contains(text), "no {text} in {words}");
    }
    // The first of the marks by which it knows what came lately is of its beginning.
    let advice: Value = until(PATIENCE, "its last second", || {
        let advice: Value = serde_json::from_str(&advise(&["--json", "--last", "1"])).unwrap();
        advice["last"]["passed_s"].as_f64().filter(|passed_s| *passed_s >= 1.0).map(|_| advice)
    });
    let faults = |of: &Value| of["fetch_faults"].as_u64().unwrap();
    assert!(faults(&advice["last"]) > 0 && faults(&advice["last"]) <= faults(&advice), "{advice}");
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
    let output =
        Command::new(env!("CARGO_BIN_EXE_spillway")).args(["advise", "--pid", &pid]).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), complaint.lines().count()), (Some(1), 1), "{complaint}");
}
