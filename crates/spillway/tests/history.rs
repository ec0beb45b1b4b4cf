//! What runs is recorded while it goes on, by `spillway record`, and shown by `spillway report`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod browser_common;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use browser_common::shown_without_network;
use rustix::process::Signal;
use serde_json::Value;
use support::MIB;
use support::child::{PATIENCE, Running, until};
use support::launch::Launch;
use support::tools::{c_program, c_program_with};

/// Nothing that runs is called so.
const NOBODY: &str = "nobody-is-called-so";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn spillway(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Its one line on stderr, of a command that ended with status 1.
fn refusal(arguments: &[&str]) -> String {
    let output = spillway(arguments);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(output.stdout.is_empty());
    complaint
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|&&byte| byte == b'\n').count())
}

/// The looks of a history that are whole.
fn looks(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().skip(1).filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Bytes of each kind in the map of a run's first process, as docs/operate/history.md names them; none where
/// it was not told.
fn mapped(look: &Value) -> Option<BTreeMap<&'static str, u64>> {
    const KINDS: [&str; 9] =
        ["hot", "warm", "untold", "cold", "pinned", "native", "far", "lost", "untouched"];
    let blocks = look["seen"][0]["run"]["processes"][0]["heat"]["blocks"].as_array()?;
    let mut kinds: BTreeMap<&'static str, u64> = KINDS.map(|kind| (kind, 0)).into();
    let mut last = None;
    for block in blocks {
        let numbers: Vec<u64> = block.as_array()?.iter().map(|number| number.as_u64().unwrap()).collect();
        assert!(last < Some(numbers[0]), "addresses ascend");
        last = Some(numbers[0]);
        for (kind, pages) in KINDS.iter().zip(&numbers[1..]) {
            *kinds.get_mut(kind).unwrap() += pages * 4096;
        }
    }
    Some(kinds)
}

#[test]
fn each_look_says_where_the_memory_is_and_how_much_it_is_used() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("map.history");
    let pid = watched.running.pid().as_raw_nonzero().to_string();
    let arguments = ["record", "--every", "0.1", "--for", "1", file.to_str().unwrap(), &pid];
    assert!(spillway(&arguments).status.success());
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
    let looks = looks(&file);
    let maps: Vec<_> = looks.iter().filter_map(|look| Some((look, mapped(look)?))).collect();
    assert!(maps.len() * 2 > looks.len(), "{} of {} looks have a map", maps.len(), looks.len());
    for (look, map) in maps {
        let far_bytes = look["seen"][0]["run"]["far_bytes"].as_u64().unwrap();
        // The map is taken a moment later, while pages come and go.
        assert!(map["far"].abs_diff(far_bytes) < 3 * MIB, "{map:?}, and {far_bytes} far");
        let local: u64 = ["hot", "warm", "untold", "cold"].iter().map(|kind| map[kind]).sum();
        assert!((3 * MIB..=9 * MIB).contains(&local), "{map:?}");
        assert_eq!((map["pinned"], map["lost"]), (0, 0), "{map:?}");
    }
}

#[test]
fn memory_that_cannot_leave_is_told_to_be_pinned() {
    let launch = Launch::local_mib(8);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("pinned.history");
    let mut command = launch.command(c_program("fault_direct"));
    command.arg("idle").arg(place.path()).args(["4", "24"]);
    let watched = launch.start(&mut command);
    let pid = watched.running.pid().as_raw_nonzero().to_string();
    let arguments = ["record", "--wait", "--every", "0.1", file.to_str().unwrap(), &pid];
    let mut recorder = Running::start(&mut self::command(&arguments));
    assert_eq!(watched.finish().success(), "right\n");
    assert_eq!(recorder.finish(PATIENCE).success(), "");
    let most = looks(&file).iter().filter_map(mapped).map(|map| map["pinned"]).max();
    assert!(most.is_some_and(|most| (MIB..=4 * MIB).contains(&most)), "{most:?}");
}

#[test]
fn functions_that_wait_for_pages_are_named_in_both_fault_modes() {
    for mode in ["inline", "thread"] {
        let launch = Launch::local_mib(8).with_option("--fault-mode").with_option(mode);
        let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
        watched.running.expect("ready");
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("sites.history");
        let (name, pid) = (file.to_str().unwrap(), watched.running.pid().as_raw_nonzero().to_string());
        assert!(spillway(&["record", "--every", "0.2", "--for", "1.5", name, &pid]).status.success());
        assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
        let figures: Value = serde_json::from_slice(&spillway(&["report", name, "--json"]).stdout).unwrap();
        let sites = &figures["runs"][0]["sites"];
        let waited = |site: &Value| site["waited_us"].as_u64().unwrap();
        let told = sites["sites"].as_array().unwrap();
        let all: u64 = told.iter().map(waited).sum::<u64>() + sites["others_us"].as_u64().unwrap();
        assert!(all > 50_000, "{mode}: {sites}");
        // It reads and writes memory in functions of its own.
        let is_named = |site: &&Value| {
            let file = site["file"].as_str().unwrap_or_default();
            Path::new(file).file_name().is_some_and(|name| name.to_string_lossy().starts_with("hold"))
                && site["function"].is_string()
        };
        let named: u64 = told.iter().filter(is_named).map(waited).sum();
        assert!(named * 2 > all, "{mode}: {sites}");
    }
}

#[test]
fn calls_in_which_a_program_waits_are_named_from_the_inside_out_in_both_fault_modes() {
    for mode in ["inline", "thread"] {
        let launch = Launch::local_mib(8).with_option("--fault-mode").with_option(mode);
        // As compilers of C++ and Rust would name its functions, in one of the modes.
        let is_mangled = mode == "inline";
        let program = c_program_with("callers", if is_mangled { &["-DMANGLED"] } else { &[] });
        let names = match is_mangled {
            true => ["book::pages::read", "book::often", "book::seldom"],
            false => ["reads_a_page", "calls_often", "calls_seldom"],
        };
        let mut watched = launch.start(launch.command(program).arg("32"));
        watched.running.expect("ready");
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("calls.history");
        let (name, pid) = (file.to_str().unwrap(), watched.running.pid().as_raw_nonzero().to_string());
        assert!(spillway(&["record", "--every", "0.2", "--for", "2", name, &pid]).status.success());
        assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
        let figures: Value = serde_json::from_slice(&spillway(&["report", name, "--json"]).stdout).unwrap();
        let stacks = figures["runs"][0]["sites"]["stacks"].as_array().unwrap();
        let waited_us = |caller: &str| -> u64 {
            let is_meant = |stack: &&Value| {
                let frames =
                    stack["frames"].as_array().unwrap().iter().map(|frame| frame["function"].as_str());
                frames.take(3).eq([names[0], caller, "main"].map(Some))
            };
            stacks.iter().filter(is_meant).map(|stack| stack["waited_us"].as_u64().unwrap()).sum()
        };
        let (often, seldom) = (waited_us(names[1]), waited_us(names[2]));
        assert!(often > 50_000 && often > 2 * seldom, "{mode}: {often}, {seldom} us: {stacks:?}");
        // Where threads are looked at from outside, few looks may have met none of the seldom ones.
        assert!(seldom > 0 || mode == "thread", "{stacks:?}");
    }
}

#[test]
fn a_run_is_recorded_until_its_end_and_shown_in_figures_and_as_a_page() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("one.history");
    let name = file.to_str().unwrap();
    let pid = watched.running.pid().as_raw_nonzero().to_string();
    let mut recorder = Running::start(&mut command(&["record", "--every", "0.1", name, &pid]));
    let short = place.path().join("short.history");
    let told = spillway(&["record", "--json", "--every", "0.1", "--for", "1", short.to_str().unwrap(), &pid]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(
        (told["file"].as_str(), told["looks"].as_u64()),
        (short.to_str(), Some(looks(&short).len() as u64))
    );
    assert_eq!(told["file_bytes"].as_u64(), Some(fs::metadata(&short).unwrap().len()), "{told}");
    let seconds = told["recorded_s"].as_f64().unwrap();
    assert!((seconds - looks(&short).last().unwrap()["at_s"].as_f64().unwrap()).abs() < 0.01, "{told}");
    fs::remove_file(&short).unwrap();
    until(PATIENCE, "ten looks", || (lines(&file) > 10).then_some(()));
    let finished = watched.stop(Signal::USR1);
    assert_eq!(finished.success(), "ready\nwhole\n");
    let recorded = recorder.finish(PATIENCE);
    assert_eq!((recorded.success().as_str(), recorded.complaint().as_str()), ("", ""), "quiet when piped");

    let figures: Value = serde_json::from_slice(&spillway(&["report", name, "--json"]).stdout).unwrap();
    let [run] = &figures["runs"].as_array().unwrap()[..] else { panic!("{figures}") };
    assert!(run["name"].as_str().unwrap().starts_with("hold"), "{run}");
    assert_eq!(run["local_limit_bytes"], 8 * MIB);
    let far_bytes = run["peak_far_bytes"].as_u64().unwrap();
    assert!((20 * MIB..=33 * MIB).contains(&far_bytes), "{far_bytes}");
    assert!(run["looks"].as_u64().unwrap() >= 10 && run["recorded_s"].as_f64().unwrap() > 0.5, "{run}");
    assert!(
        run["lost_share"].as_f64().unwrap() > 0.0 && run["fault_p50_us"].as_f64().unwrap() > 0.0,
        "{run}"
    );
    // No more than the run itself counted.
    let stats = launch.stats();
    let fetched_bytes = run["fetched_bytes"].as_u64().unwrap();
    assert!(fetched_bytes > 0 && fetched_bytes <= 4096 * stats.count("pages_fetched"), "{run}");

    let made = spillway(&["report", name]);
    let page = place.path().join("one.html");
    assert_eq!(String::from_utf8(made.stdout).unwrap().trim(), page.to_str().unwrap());
    let shown = shown_without_network(&page);
    for text in
        ["of at most 8.0M", "Time lost to paging", "Faults by what they needed", "Address space of hold"]
    {
        assert!(shown.contains(text), "no {text:?}");
    }
    assert!(fs::read_dir(place.path()).unwrap().count() == 2, "nothing else is left");
}

/// The history with all that its faults took multiplied.
fn with_faults_that_cost(text: &str, factor: f64) -> String {
    let mut lines: Vec<String> = text.lines().take(1).map(str::to_owned).collect();
    for line in text.lines().skip(1) {
        let mut look: Value = serde_json::from_str(line).unwrap();
        let run = &mut look["seen"][0]["run"];
        let multiply = |value: &mut Value| *value = (value.as_f64().unwrap() * factor).into();
        multiply(&mut run["fault_latency"]["total_us"]);
        run["returns"].as_array_mut().unwrap().iter_mut().for_each(|one| multiply(&mut one["total_us"]));
        lines.push(look.to_string());
    }
    lines.join("\n") + "\n"
}

#[test]
fn how_much_memory_a_history_tells_to_take_follows_from_what_its_faults_cost() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let place = tempfile::tempdir().unwrap();
    let [file, other] = ["one.history", "other.history"].map(|name| place.path().join(name));
    let pid = watched.running.pid().as_raw_nonzero().to_string();
    let name = file.to_str().unwrap();
    let mut recorder = Running::start(&mut command(&["record", "--every", "0.1", name, &pid]));
    until(PATIENCE, "ten looks", || (lines(&file) > 10).then_some(()));
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
    recorder.finish(PATIENCE).success();
    let text = fs::read_to_string(&file).unwrap();
    let told = |factor: f64| -> Value {
        fs::write(&other, with_faults_that_cost(&text, factor)).unwrap();
        let figures = spillway(&["report", other.to_str().unwrap(), "--json"]);
        serde_json::from_slice::<Value>(&figures.stdout).unwrap()["runs"][0].clone()
    };
    let number = |run: &Value, key: &str| run[key].as_f64().unwrap_or_else(|| panic!("no {key} in {run}"));
    let measured = told(1.0);
    // What one fetch took is what the pager counted, and the loss is all of them.
    let seen = looks(&file);
    let sum = |look: &Value, key: &str| -> f64 {
        let returns = look["seen"][0]["run"]["returns"].as_array().unwrap();
        returns.iter().map(|one| one[key].as_f64().unwrap()).sum()
    };
    let of_all = |key: &str| sum(&seen[seen.len() - 1], key) - sum(&seen[0], key);
    let fetch_us = of_all("total_us") / of_all("faults");
    assert!((number(&measured, "fetch_us") / fetch_us - 1.0).abs() < 1e-6, "{fetch_us}: {measured}");
    // As dear that 15% is lost, and that 60% is.
    let [cheap, dear] = [0.15, 0.6].map(|share| {
        let factor = share / number(&measured, "lost_share");
        let run = told(factor);
        assert!((number(&run, "lost_share") - share).abs() < 1e-6, "{run}");
        assert!((number(&run, "fetch_us") / (fetch_us * factor) - 1.0).abs() < 1e-6, "{run}");
        run
    });
    let need = |run: &Value, at: usize| run["needs"][at]["local_bytes"].as_u64().unwrap_or(u64::MAX);
    assert_eq!(need(&cheap, 2), 8 * MIB, "15% is no more than 20%: {cheap}");
    assert!(need(&dear, 2) > 8 * MIB, "{dear}");
    for at in 0..3 {
        assert!(need(&cheap, at) <= need(&dear, at), "{cheap}, {dear}");
    }
}

#[test]
fn a_recorder_that_finds_nothing_leaves_nothing_and_one_that_waits_can_be_ended() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("none.history");
    let name = file.to_str().unwrap();
    let complaint = refusal(&["record", name, NOBODY]);
    assert!(complaint.contains(NOBODY) && complaint.contains("--wait"), "{complaint}");
    let mut waiting = Running::start(&mut command(&["record", "--wait", name, NOBODY]));
    // It takes the signal once it has begun to look out for it.
    let ended = until(PATIENCE, "its end", || {
        let _ = rustix::process::kill_process(waiting.pid(), Signal::INT);
        std::thread::sleep(std::time::Duration::from_millis(50));
        waiting.has_ended().then(|| waiting.finish(PATIENCE))
    });
    // Before that a signal ends it as any program.
    assert!([1, 130].contains(&ended.code()), "{}: {}", ended.code(), ended.complaint());
    let short = spillway(&["record", "--wait", "--for", "0.2", name, NOBODY]);
    assert_eq!(short.status.code(), Some(1));
    assert!(!file.exists());
}

#[test]
fn files_that_are_there_foreign_damaged_or_out_of_reach_are_named_with_a_remedy() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("text"), "a text\n").unwrap();
    assert!(refusal(&["report", &path("text")]).contains("spillway record"));
    assert!(refusal(&["report", &path("away")]).contains("away: No such file"));
    let header = "{\"form\":\"spillway-history\",\"version\":1,\"spillway_version\":\"0\",\
                  \"began_unix_s\":1.0,\"interval_s\":1.0}\n";
    fs::write(path("empty"), header).unwrap();
    assert!(refusal(&["report", &path("empty")]).contains("no run is in it"));
    fs::write(path("damaged"), format!("{header}{{\"at_s\":\n{{}}\n")).unwrap();
    assert!(refusal(&["report", &path("damaged")]).contains("line 2 is damaged"));
    fs::write(path("later"), header.replace("\"version\":1", "\"version\":99")).unwrap();
    assert!(refusal(&["report", &path("later")]).contains("version 99"));

    // Something runs, and its history goes nowhere.
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let pid = watched.running.pid().as_raw_nonzero().to_string();
    assert!(refusal(&["record", &path("text"), &pid]).contains("is there already"));
    assert_eq!(fs::read_to_string(path("text")).unwrap(), "a text\n");
    assert!(refusal(&["record", &path("away/file"), &pid]).contains("name a file that can be written"));
    let recorded = spillway(&["record", "--every", "0.1", "--for", "0.3", &path("some"), &pid]);
    assert!(recorded.status.success() && recorded.stderr.is_empty());
    let complaint = refusal(&["report", &path("some"), "--out", &path("away/page")]);
    assert!(complaint.contains("name another with --out"), "{complaint}");
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
}
