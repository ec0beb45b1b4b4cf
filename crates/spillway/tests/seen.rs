//! Runs and donors are seen while they go on: by `spillway status` and `top --once`, by programs that read
//! their sockets, by Prometheus; and nobody who looks can harm them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use donor_common::Donor;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, geteuid, test_kill_process_group};
use serde_json::Value;
use support::MIB;
use support::child::{PATIENCE, Running, Stray, free_port, until};
use support::launch::{Launch, Watched};
use support::tools::{c_program, python, source, tool};

/// At one look a second 0.5% of a core is 5 ms a look. It takes 0.4 to 1.1 ms in a build for tests, which
/// leaves room for the runs of tests beside this one, since they are on the list as well.
const LOOK_CPU_S: f64 = 0.005;
/// Of a first screen that is to be there within a second most is waiting for answers.
const FIRST_SCREEN_CPU_S: f64 = 0.2;

fn spillway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillway")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `status PID --json` says; none where nothing of that number runs.
fn snapshot(pid: Pid) -> Option<Value> {
    let output = spillway(&["status", &pid.as_raw_nonzero().to_string(), "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    assert_eq!(status["version"], 1);
    let alive = status["alive"].as_array().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(alive.is_empty())));
    assert!(alive.len() <= 1, "{status}");
    alive.first().cloned()
}

/// A program of 32 MiB on 8 MiB, at work until it gets SIGUSR1.
fn at_work(launch: &Launch) -> Watched<'_> {
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    watched
}

fn end(watched: Watched<'_>) {
    let finished = watched.stop(Signal::USR1);
    assert_eq!(finished.success(), "ready\nwhole\n");
    assert_eq!(finished.complaint(), "");
}

/// Where a run's socket lies.
fn socket_of(pid: Pid) -> PathBuf {
    let uid = geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|_| uid != 0);
    let first = runtime.map_or("/run/spillway".into(), |path| path.join("spillway"));
    let places = [first, format!("/tmp/spillway-{uid}").into()];
    let name = format!("run-{}.sock", pid.as_raw_nonzero());
    places.iter().map(|place| place.join(&name)).find(|path| path.exists()).expect("no socket")
}

fn number(value: &Value, path: &str) -> u64 {
    let found = value.pointer(path).unwrap_or_else(|| panic!("no {path} in {value}"));
    found.as_u64().unwrap_or_else(|| panic!("{path} is no number: {found}"))
}

#[test]
fn a_run_tells_of_itself_while_it_goes_on() {
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let pid = watched.running.pid();
    let (first, second) = (
        snapshot(pid).unwrap(),
        until(PATIENCE, "more faults", || {
            snapshot(pid).filter(|seen| number(seen, "/run/faults/fetch") > 1_000)
        }),
    );
    assert_eq!(
        (first["kind"].as_str(), first["name"].as_str().map(|name| &name[..4])),
        (Some("run"), Some("hold"))
    );
    assert!(number(&first, "/run/fetched_pages") <= number(&second, "/run/fetched_pages"));
    assert_eq!(number(&second, "/run/local_limit_bytes"), 8 * MIB);
    assert!(number(&second, "/run/local_bytes") <= 8 * MIB);
    let far_bytes = number(&second, "/run/far_bytes");
    assert!((20 * MIB..=33 * MIB).contains(&far_bytes), "{far_bytes}");
    // One process, one store: their figures are the run's, but for what came while they were read.
    for key in ["fetched_pages", "written_pages"] {
        let of = |place: &str| number(&second, &format!("/run{place}/{key}"));
        for place in ["/stores/0", "/processes/0"] {
            assert!(of(place) > 0 && of("").abs_diff(of(place)) <= of("") / 5, "{key} of {place}: {second}");
        }
    }
    assert_eq!(second["run"]["processes"].as_array().unwrap().len(), 1);
    assert_eq!(number(&second, "/run/processes/0/far_bytes"), far_bytes);
    assert_eq!(second["run"]["processes"][0]["fault_mode"], second["run"]["fault_mode"]);
    let latency = &second["run"]["fault_latency"];
    let counted: u64 = latency["buckets"].as_array().unwrap().iter().map(|bucket| number(bucket, "/1")).sum();
    assert_eq!(number(latency, "/count"), counted);
    assert!(latency["p50_us"].as_f64() <= latency["p99_us"].as_f64());
    assert!(latency["total_us"].as_f64().unwrap() > 0.0);
    let store = &second["run"]["stores"][0];
    assert_eq!((store["uri"].as_str(), store["health"].as_str()), (Some("compressed:"), Some("ok")));
    assert!(number(store, "/stored_bytes") > 0 && store["compression_ratio"].as_f64().unwrap() > 0.5);
    end(watched);
    // What it said last fits what it says at its end.
    let stats = launch.stats();
    assert!(number(&second, "/run/faults/fetch") <= stats.count("faults.fetch"));
    let at_end = &stats.0["stores"][0];
    assert_eq!((&at_end["uri"], &at_end["health"]), (&store["uri"], &store["health"]));
    for key in ["fetched_pages", "written_pages"] {
        assert!(number(store, &format!("/{key}")) <= number(at_end, &format!("/{key}")), "{key}: {at_end}");
    }
    // What it held at most, although all has been given back.
    assert!((20 * MIB..=33 * MIB).contains(&number(at_end, "/used_bytes")), "{at_end}");
    assert!(at_end["compression_ratio"].as_f64().unwrap() > 0.5, "{at_end}");
    assert!(snapshot(pid).is_none(), "it has ended");
}

#[test]
fn the_table_and_top_show_a_run_and_end_by_what_they_found() {
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let pid = watched.running.pid().as_raw_nonzero().to_string();
    let status = spillway(&["status", &pid]);
    let table = text(&status.stdout);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status.stderr));
    assert!(table.contains("hold") && table.contains("compressed:  ok"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let once = spillway(&["top", "--once"]);
    let shown = text(&once.stdout);
    assert_eq!(once.status.code(), Some(0), "{}", text(&once.stderr));
    assert!(shown.contains("hold") && shown.contains("FLT/s"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let rows: Value = serde_json::from_slice(&spillway(&["top", "--once", "--json"]).stdout).unwrap();
    let supervisor: u64 = pid.parse().unwrap();
    let row =
        rows["rows"].as_array().unwrap().iter().find(|row| row["supervisor_pid"] == supervisor).unwrap();
    assert!(row["rates"]["faults_per_s"].as_f64().unwrap() > 0.0, "{row}");
    assert!(row["rates"]["lost_share"].as_f64().unwrap() > 0.0, "{row}");
    assert!(row["stores"][0]["fetched_bytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
    end(watched);
    for arguments in [["status", &pid], ["status", "no-such-name"]] {
        let nothing = spillway(&arguments);
        assert_eq!((nothing.status.code(), text(&nothing.stdout)), (Some(1), String::new()));
        assert_eq!(text(&nothing.stderr).lines().count(), 1, "{}", text(&nothing.stderr));
    }
    let unseen = spillway(&["top"]);
    assert_eq!(unseen.status.code(), Some(1));
    assert!(text(&unseen.stderr).contains("--once"), "{}", text(&unseen.stderr));
}

#[test]
fn a_donor_is_seen_beside_the_runs_that_use_it() {
    let donor = Donor::start("64M", &["--drain", "0.1"]);
    let launch = Launch::limited(8 * MIB, &format!("{}?size=48M", donor.tcp_uri("")));
    let watched = at_work(&launch);
    let pid = Pid::from_raw(donor.pid() as i32).unwrap();
    let seen = until(PATIENCE, "pages to lie there", || {
        snapshot(pid).filter(|seen| number(seen, "/donor/memory/used_bytes") > 20 * MIB)
    });
    assert_eq!((seen["kind"].as_str(), seen["name"].as_str()), (Some("donor"), Some("donor")));
    assert_eq!(number(&seen, "/donor/memory/offered_bytes"), 64 * MIB);
    assert_eq!(number(&seen, "/donor/memory/promised_bytes"), 48 * MIB);
    assert_eq!(number(&seen, "/donor/counts/granted_runs"), 1);
    assert!(number(&seen, "/donor/pressure/available_bytes") > MIB, "{seen}");
    // One source: what 'donor status' says of it is this, but for what came meanwhile.
    let statuses: Value = serde_json::from_slice(&spillway(&["donor", "status", "--json"]).stdout).unwrap();
    let is_it = |status: &&Value| status["pid"] == donor.pid();
    let status = statuses.as_array().unwrap().iter().find(is_it).unwrap();
    assert_eq!(status["memory"]["promised_bytes"], seen["donor"]["memory"]["promised_bytes"]);
    assert_eq!(status["listening_on"], seen["donor"]["listening_on"]);
    assert!(number(status, "/counts/written_bytes") >= number(&seen, "/donor/counts/written_bytes"));
    let table = text(&spillway(&["status"]).stdout);
    assert!(table.contains("48M promised, 16M free; 1 client;"), "{table}");
    let rows: Value = serde_json::from_slice(&spillway(&["top", "--once", "--json"]).stdout).unwrap();
    let of_donor = |row: &&Value| row["supervisor_pid"] == donor.pid() && row["kind"] == "donor";
    let row = rows["rows"].as_array().unwrap().iter().find(of_donor).unwrap();
    assert!(row["donor"]["rates"]["written_bytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
    let history = launch.work().join("history");
    let name = donor.pid().to_string();
    let recorded = spillway(&["record", history.to_str().unwrap(), &name, "--every", "0.1", "--for", "0.5"]);
    assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    let report = spillway(&["report", history.to_str().unwrap(), "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(number(&report, "/donors/0/peak_promised_bytes"), 48 * MIB, "{report}");
    end(watched);
    assert!(donor.stop().0.success());
    assert!(snapshot(pid).is_none(), "it has ended");
}

#[test]
fn a_store_that_is_waited_for_is_told_to_be_silent_until_it_answers() {
    let donor = Donor::start("64M", &["--drain", "0.1"]);
    let launch = Launch::limited(8 * MIB, &format!("{}?size=48M", donor.tcp_uri("")));
    let watched = at_work(&launch);
    let pid = watched.running.pid();
    let health = || snapshot(pid).map(|seen| seen["run"]["stores"][0]["health"].clone());
    assert_eq!(health().unwrap(), "ok");
    donor.signal(Signal::STOP);
    until(PATIENCE, "the store to be silent", || (health()? == "silent").then_some(()));
    donor.signal(Signal::CONT);
    until(PATIENCE, "the store to be well", || (health()? == "ok").then_some(()));
    let finished = watched.stop(Signal::USR1);
    assert_eq!(finished.success(), "ready\nwhole\n");
    assert!(finished.complaint().contains("answers again"), "{}", finished.complaint());
    assert!(donor.stop().0.success());
}

#[test]
fn what_is_closed_early_or_full_is_told_as_everywhere() {
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let closed = Command::new(env!("CARGO_BIN_EXE_spillway")).arg("status").stdout(writer).status().unwrap();
    assert_eq!(closed.code(), Some(0));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let full = Command::new(env!("CARGO_BIN_EXE_spillway")).arg("status").stdout(full).output().unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full.stderr).contains("standard output"), "{}", text(&full.stderr));
    end(watched);
}

#[test]
fn readers_that_are_slow_many_or_hostile_harm_neither_the_run_nor_each_other() {
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let pid = watched.running.pid();
    let socket = socket_of(pid);
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its user's alone");
    let silent: Vec<UnixStream> = (0..40).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    for nonsense in [&b"\n"[..], b"{\"snapshot\":\n", &[0xff; 100], &[b'['; 100_000], b"\"explain\"\n"] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(nonsense);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("{\"error\""), "{answer}");
    }
    let before = snapshot(pid).expect("who asks rightly is answered");
    let after = until(PATIENCE, "the program to go on", || {
        snapshot(pid).filter(|seen| number(seen, "/run/faults/fetch") > number(&before, "/run/faults/fetch"))
    });
    assert_eq!(after["run"]["stores"][0]["health"], "ok");
    drop(silent);
    end(watched);
    assert!(!socket.exists());
}

#[test]
fn a_killed_runs_socket_is_removed_by_who_looks_next() {
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let pid = watched.running.pid();
    let socket = socket_of(pid);
    watched.running.signal(Signal::KILL);
    watched.finish();
    // Whoever looks, another test too, removes it.
    assert!(snapshot(pid).is_none());
    assert!(!socket.exists());
}

#[test]
fn another_user_sees_nothing_of_a_run_and_root_sees_all() {
    if !geteuid().is_root() {
        return;
    }
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let pid = watched.running.pid().as_raw_nonzero().to_string();
    let runtime = support::launch::open_directory();
    chown(runtime.path(), Some(65_534), None).unwrap();
    let installed = support::launch::Installation::new();
    let mut as_nobody = Command::new(installed.command());
    as_nobody.args(["status", &pid]).env("XDG_RUNTIME_DIR", runtime.path()).uid(65_534).stdin(Stdio::null());
    let other = as_nobody.output().unwrap();
    assert_eq!(other.status.code(), Some(1), "{}", text(&other.stdout));
    end(watched);
}

#[test]
fn a_daemon_that_outlives_its_program_is_still_seen() {
    let launch = Launch::local_mib(8);
    let said = launch.work().join("pid");
    // In a session of its own, or it would be killed with what the test has started.
    let script = format!(
        "setsid {} 32 100 >out & echo $! >{}; until grep -q ready out; do sleep 0.02; done",
        c_program("hold").display(),
        said.display()
    );
    let mut command = launch.command(tool("sh", "dash"));
    let mut watched = launch.start(command.args(["-c", &script]).current_dir(launch.work()));
    watched.running.finish(PATIENCE).success();
    // Who waited for it may end its group next: nothing that serves the daemon is in that any more.
    assert_eq!(test_kill_process_group(watched.running.pid()), Err(Errno::SRCH));
    drop(watched);
    let pid = until(PATIENCE, "the daemon's file", || {
        fs::read_to_string(&said).ok().and_then(|text| text.trim().parse().ok()).and_then(Pid::from_raw)
    });
    let _daemon = Stray(pid);
    let seen = until(PATIENCE, "the daemon to be seen", || snapshot(pid));
    let supervisor = Pid::from_raw(number(&seen, "/pid") as i32).unwrap();
    assert_ne!(supervisor, pid);
    let socket = socket_of(supervisor);
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    until(PATIENCE, "the socket to go", || (!socket.exists()).then_some(()));
}

#[test]
fn top_on_a_terminal_shows_runs_and_gives_the_terminal_back() {
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let mut command = Command::new(python());
    command.arg(source("top_terminal.py")).arg(env!("CARGO_BIN_EXE_spillway")).arg("hold");
    let finished = Running::start(&mut command).finish(PATIENCE);
    assert_eq!(finished.success(), "whole\n");
    end(watched);
}

/// A pool of two donors, of which one dies while somebody looks.
#[test]
fn top_shows_the_pools_that_were_named() {
    let donors = [(); 2].map(|()| Donor::start("64M", &[]));
    let names = donors.each_ref().map(Donor::tcp).join(",");
    let launch = Launch::limited(8 * MIB, &format!("pool:{names}?size=48M&domain=a,b"));
    let watched = at_work(&launch);
    let once = |more: &[&str]| spillway(&[&["top", "--once", "--pool", &names], more].concat());
    let pools = || {
        let told: Value = serde_json::from_slice(&once(&["--json"]).stdout).unwrap();
        assert!(told["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{told}");
        assert_eq!(told["pools"].as_array().map(Vec::len), Some(1), "{told}");
        told["pools"][0].clone()
    };
    // The same as 'pool status' prints, but for what happened in between.
    let shape = |pool: &Value| {
        let donor = |donor: &Value| {
            let keys: Vec<&String> = donor.as_object().unwrap().keys().collect();
            format!("{keys:?} {} {} {}", donor["address"], donor["state"], donor["offered_bytes"])
        };
        let keys: Vec<&String> = pool.as_object().unwrap().keys().collect();
        let all: Vec<String> = pool["donors"].as_array().unwrap().iter().map(donor).collect();
        format!("{keys:?} {} {} {all:?}", pool["kind"], pool["pool"])
    };
    let status: Value =
        serde_json::from_slice(&spillway(&["pool", "status", &names, "--json"]).stdout).unwrap();
    let seen = pools();
    assert_eq!(shape(&seen), shape(&status));
    for donor in seen["donors"].as_array().unwrap() {
        assert!(donor["each_run"][0]["held_bytes"].as_u64() > Some(16 * MIB), "{seen}");
    }
    let shown = text(&once(&[]).stdout);
    assert!(shown.contains("hold") && shown.contains(&format!("\n{names}\nDONOR ")), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");

    let mut command = Command::new(python());
    command.arg(source("top_terminal.py")).args([env!("CARGO_BIN_EXE_spillway"), "hold", &names]);
    assert_eq!(Running::start(&mut command).finish(PATIENCE).success(), "whole\n");

    donors[0].signal(Signal::KILL);
    until(PATIENCE, "one to be away", || (pools()["donors"][0]["state"] == "away").then_some(()));
    let shown = text(&once(&[]).stdout);
    assert!(shown.contains(" away ") && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let finished = watched.stop(Signal::USR1);
    assert_eq!(finished.success(), "ready\nwhole\n");
}

#[test]
fn top_costs_little_by_the_look_and_for_its_first_screen() {
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let mut command = Command::new(python());
    command.arg(source("top_cost.py")).args([env!("CARGO_BIN_EXE_spillway"), "hold", "12"]);
    let cost: Value = serde_json::from_str(&Running::start(&mut command).finish(PATIENCE).success()).unwrap();
    println!("{cost}");
    let cpu_s = |key: &str| cost[key].as_f64().unwrap();
    assert!(cpu_s("look_cpu_s") < LOOK_CPU_S, "{cost}");
    assert!(cpu_s("first_screen_cpu_s") < FIRST_SCREEN_CPU_S, "{cost}");
    end(watched);
}

/// Of several starts the quickest counts: the machine may have other things to do.
#[test]
fn tops_first_screen_is_there_within_a_second() {
    const STARTS: usize = 5;
    let launch = Launch::local_mib(8);
    let watched = at_work(&launch);
    let quickest = |seconds: &mut dyn FnMut() -> f64| (0..STARTS).map(|_| seconds()).fold(f64::MAX, f64::min);
    let once_s = quickest(&mut || {
        let began = Instant::now();
        let shown = text(&spillway(&["top", "--once"]).stdout);
        assert!(shown.contains("hold"), "{shown}");
        began.elapsed().as_secs_f64()
    });
    let screen_s = quickest(&mut || {
        let mut command = Command::new(python());
        command.arg(source("top_cost.py")).args([env!("CARGO_BIN_EXE_spillway"), "hold", "1"]);
        let cost = Running::start(&mut command).finish(PATIENCE).success();
        serde_json::from_str::<Value>(&cost).unwrap()["first_screen_s"].as_f64().unwrap()
    });
    assert!(once_s < 1.0 && screen_s < 1.0, "--once {once_s} s, a screen {screen_s} s");
    end(watched);
}

/// Asks for something by HTTP; returns the head and the body.
fn get(stream: &mut (impl Read + Write), host: &str, path: &str) -> (String, String) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The words between marks in a text that begin with `spillway_`.
fn names_in(text: &str) -> BTreeSet<String> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("spillway_"))
        .map(str::to_owned)
        .collect()
}

/// The names of metrics, without what a histogram adds.
fn names_of_metrics(metrics: &str) -> BTreeSet<String> {
    let names = metrics.lines().filter(|line| !line.starts_with('#'));
    let names = names.filter_map(|line| line.split(['{', ' ']).next());
    let bare = |name: &str| {
        ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
    };
    names.map(bare).filter(|name| !name.is_empty()).collect()
}

fn page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

#[test]
fn metrics_are_those_that_are_documented_and_the_dashboard_and_alerts_use_no_others() {
    let port = free_port();
    let launch = Launch::local_mib(8).with_option("--metrics").with_option(&format!(":{port}"));
    let watched = at_work(&launch);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (head, metrics) = get(&mut connect(), &format!("127.0.0.1:{port}"), "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("application/openmetrics-text"), "{head}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let donor_port = free_port();
    let donor = Donor::start("16M", &["--metrics", &format!(":{donor_port}")]);
    let mut to_donor = TcpStream::connect(("127.0.0.1", donor_port)).unwrap();
    let (head, of_donor) = get(&mut to_donor, "localhost", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && of_donor.ends_with("# EOF\n"), "{head}");
    assert!(of_donor.contains("spillway_donor_offered_bytes 16777216.0\n"), "{of_donor}");
    let mut emitted = names_of_metrics(&metrics);
    emitted.extend(names_of_metrics(&of_donor));
    let rows = page("docs/reference/metrics.md");
    let rows = rows.lines().filter(|line| line.starts_with("| `spillway_"));
    // What the tier daemon tells is held against its rows beside the code: it needs a slow node to run.
    let (of_tier, rows): (Vec<&str>, Vec<&str>) = rows.partition(|row| row.contains("`spillway_tier_"));
    assert_eq!(names_in(&rows.join("\n")), emitted, "docs/reference/metrics.md and what is told");
    emitted.extend(names_in(&of_tier.join("\n")));
    for path in ["packaging/grafana/spillway.json", "packaging/prometheus/alerts.yml"] {
        let used = names_of_metrics(&names_in(&page(path)).into_iter().collect::<Vec<_>>().join("\n"));
        let unknown: Vec<_> = used.difference(&emitted).collect();
        assert!(unknown.is_empty() && !used.is_empty(), "{path} uses {unknown:?}");
    }
    let dashboard: Value = serde_json::from_str(&page("packaging/grafana/spillway.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 5);
    for (host, path, status) in [
        ("evil.example", "/metrics", "421"),
        ("localhost", "/", "404"),
        ("localhost", "/metrics/../x", "404"),
    ] {
        let (head, body) = get(&mut connect(), host, path);
        assert!(head.contains(status) && !body.contains("spillway_"), "{head}");
    }
    let mut long = connect();
    let _ = long.write_all(format!("GET /metrics HTTP/1.1\r\nA: {}", "x".repeat(10_000)).as_bytes());
    let mut answer = Vec::new();
    let _ = long.read_to_end(&mut answer);
    assert!(answer.is_empty() || text(&answer).contains("431"), "{}", text(&answer));
    for told in [&metrics, &of_donor] {
        check_by_prometheus(told);
    }
    assert!(donor.stop().0.success());
    end(watched);
}

/// Prometheus takes the metrics, once each has a time, and the rules.
fn check_by_prometheus(metrics: &str) {
    let promtool = tool("promtool", "prometheus");
    let directory = tempfile::tempdir().unwrap();
    let timed =
        |line: &str| if line.starts_with('#') { line.to_owned() } else { format!("{line} 1700000000") };
    let timed: Vec<String> = metrics.lines().map(timed).collect();
    let [file, blocks] = ["metrics", "blocks"].map(|name| directory.path().join(name));
    fs::write(&file, timed.join("\n") + "\n").unwrap();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus/alerts.yml");
    let mut of_metrics = Command::new(&promtool);
    of_metrics.args(["tsdb", "create-blocks-from", "openmetrics"]).args([&file, &blocks]);
    let mut of_rules = Command::new(&promtool);
    of_rules.args(["check", "rules"]).arg(rules);
    for mut check in [of_metrics, of_rules] {
        let output = check.stdin(Stdio::null()).output().unwrap();
        let said = crate::text(&output.stdout) + &crate::text(&output.stderr);
        assert!(output.status.success(), "{check:?}: {said}");
    }
}

#[test]
fn metrics_go_to_a_unix_socket_and_a_place_that_is_taken_is_refused() {
    let directory = support::launch::open_directory();
    let path = directory.path().join("metrics");
    let place = format!("unix:{}", path.display());
    let launch = Launch::local_mib(8).with_option("--metrics").with_option(&place);
    let watched = at_work(&launch);
    let (head, metrics) = get(&mut UnixStream::connect(&path).unwrap(), "localhost", "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && metrics.contains("spillway_run_info{"), "{head}");
    let began = Instant::now();
    for place in [place.as_str(), "nowhere", "203.0.113.1:80"] {
        let refused = spillway(&[
            "run",
            "--local",
            "8M",
            "--metrics",
            place,
            "--",
            tool("true", "coreutils").to_str().unwrap(),
        ]);
        assert!(matches!(refused.status.code(), Some(2 | 125)), "{place}: {:?}", refused.status);
        assert_eq!(text(&refused.stderr).lines().count(), 1, "{}", text(&refused.stderr));
    }
    assert!(began.elapsed() < Duration::from_secs(60));
    end(watched);
    assert!(!path.exists());
}
