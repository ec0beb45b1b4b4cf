//! What runs, donors and the daemon tell as events: names that docs/reference/events.md has, fields that can
//! be counted on, and in text what was always said.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod hostile_nbd;
mod source_check;
mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use donor_common::Donor;
use fault_common::disks::SmallDisk;
use fault_common::{Hold, SOON, Scene};
use hostile_nbd::{Hostile, Manner};
use rustix::process::Signal;
use serde_json::Value;
use source_check::workspace;
use spillway_events::Manner as Told;
use support::MIB;
use support::child::{PATIENCE, Running, until};
use support::tools::{c_program, python, source};

/// The events among the lines of a text: a program's own lines are none.
fn events(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Those of one name.
fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

/// The only one of a name.
fn only<'a>(events: &'a [Value], name: &str) -> &'a Value {
    let [event] = named(events, name)[..] else { panic!("not one {name}: {events:#?}") };
    event
}

/// Each is in the catalogue, with its level and exactly its fields.
fn expect_described(events: &[Value]) {
    for event in events {
        let is_it =
            |known: &&spillway_events::Described| event["of"] == known.of && event["event"] == known.name;
        let known = spillway_events::ALL.iter().find(is_it).unwrap_or_else(|| panic!("unknown: {event}"));
        let common = ["unix_ms", "of", "event", "level", "text", "left_out"];
        let fields: BTreeSet<&str> = known.fields.iter().copied().chain(common).collect();
        let told: BTreeSet<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(told, fields, "{event}");
        assert_eq!(event["level"], known.level_word(), "{event}");
        assert!(!event["text"].as_str().unwrap().is_empty(), "{event}");
    }
}

// ---- Names.

#[test]
fn the_page_has_each_event_as_it_is_and_no_other() {
    let page = std::fs::read_to_string(workspace::root().join("docs/reference/events.md")).unwrap();
    let plain = |cell: &str| cell.replace(['`', ' '], "");
    let mut found = BTreeSet::new();
    let mut of = String::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## Of ") {
            of = title.split(' ').nth(1).unwrap().to_owned();
        }
        let cells: Vec<String> = line.split('|').map(plain).collect();
        if let [_, name, level, said, fields, is, _] = &cells[..]
            && !["event", "---"].contains(&name.as_str())
        {
            assert!(!is.is_empty(), "{line}");
            found.insert(format!("{of} {name} {level} {} {fields}", said == "yes"));
        }
    }
    let known = |event: &spillway_events::Described| {
        let is_said = event.manner != Told::Quiet;
        format!("{} {} {} {is_said} {}", event.of, event.name, event.level_word(), event.fields.join(","))
    };
    let known: BTreeSet<String> = spillway_events::ALL.iter().map(known).collect();
    assert_eq!(found, known, "docs/reference/events.md (left) and the catalogue of events");
}

/// The catalogue has none that nobody tells.
#[test]
fn each_event_is_told_somewhere() {
    let mut sources = String::new();
    let mut look_at = vec![workspace::root().join("crates")];
    while let Some(path) = look_at.pop() {
        if path.is_dir() {
            let is_ours = |path: &Path| !path.ends_with("spillway-events") && !path.ends_with("tests");
            let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            look_at.extend(entries.filter(|path| is_ours(path)));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            sources += &std::fs::read_to_string(&path).unwrap();
        }
    }
    let is_told = |event: &&spillway_events::Described| sources.contains(&format!("told::{}(", event.name));
    let untold: Vec<&str> =
        spillway_events::ALL.iter().filter(|event| !is_told(event)).map(|event| event.name).collect();
    assert!(untold.is_empty(), "{untold:?}");
}

// ---- Runs.

/// A store of 8 MiB under a program that wants 32: the limit, the store's end, and each page that is refused.
#[test]
fn a_full_store_a_limit_and_refused_pages_are_events_with_their_reasons() {
    let scene = Scene::new();
    let log = scene.work().join("events");
    let options = ["--log-format", "json", "--log", log.to_str().unwrap()];
    let mut command = scene.run_with(&options, "8M", &["ram:?size=8M"], c_program("fault_full"));
    let finished = Running::start(command.arg("32")).finish(PATIENCE);
    finished.success();
    let told = events(&std::fs::read_to_string(&log).unwrap());
    expect_described(&told);

    let began = only(&told, "began");
    assert_eq!(began["local_limit_bytes"], 8 * MIB);
    assert_eq!(only(&told, "limit_reached")["local_limit_bytes"], 8 * MIB);
    assert_eq!(only(&told, "store_full")["store"], "ram:?size=8M");
    assert_eq!(only(&told, "store_nearly_full")["store"], "ram:?size=8M");
    let refused = named(&told, "page_refused");
    let first = refused.first().unwrap_or_else(|| panic!("{told:#?}"));
    assert_eq!((&first["pid"], &first["of"]), (&began["pid"], &"run".into()));
    let (address, text) = (first["address"].as_u64().unwrap(), first["text"].as_str().unwrap());
    assert!(text.starts_with(&format!("page at {address:#x} cannot be had")), "{text}");
    assert!(text.ends_with(first["reason"].as_str().unwrap()) && text.contains("ram:?size=8M"), "{first}");
    let ended = told.last().unwrap();
    assert_eq!((&ended["event"], &ended["exit_status"]), (&"ended".into(), &0.into()));

    // The program's own lines stay where they were, and nothing of the supervisor's is among them.
    let complaint = finished.complaint();
    assert!(complaint.contains("90% full") && complaint.contains(text), "{complaint}");
    assert!(events(&complaint).is_empty(), "{complaint}");
}

/// What a disk that is full has turned away is told with its store, and in the end all of it.
#[test]
fn what_a_store_turned_away_is_told_in_sums() {
    let (disk, scene) = (SmallDisk::tmpfs(8), Scene::new());
    let log = scene.work().join("events");
    let options = ["--log-format", "json", "--log", log.to_str().unwrap()];
    let uri = format!("file:{}?size=64M", disk.path().display());
    let mut command = scene.run_with(&options, "8M", &[&uri], c_program("fault_full"));
    Running::start(command.arg("32")).finish(PATIENCE).success();
    let told = events(&std::fs::read_to_string(&log).unwrap());
    expect_described(&told);
    let refusals = named(&told, "store_refusals");
    let last = refusals.last().unwrap_or_else(|| panic!("{told:#?}"));
    let counted = &scene.stats().0["stores"][0];
    assert!(last["full_refusals"].as_u64() > Some(0) && last["store"] == uri.as_str(), "{last}");
    for key in ["full_refusals", "failed_writes", "failed_reads"] {
        assert_eq!(last[key], counted[key], "{last} {counted}");
    }
}

#[test]
fn a_store_that_is_away_and_comes_back_is_two_events() {
    let (server, scene) = (Hostile::start(128 * MIB), Scene::new());
    let log = scene.work().join("events");
    let options = ["--log-format", "json", "--log", log.to_str().unwrap()];
    let uri = server.uri("?timeout=600");
    let mut command = scene.run_with(&options, "8M", &[&uri], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.arg("24"));
    hold.goes_on(1);
    server.behave(Manner::Silent);
    let told = || events(&std::fs::read_to_string(&log).unwrap());
    let wait_for = |name: &str| until(PATIENCE, name, || (!named(&told(), name).is_empty()).then_some(()));
    wait_for("store_away");
    server.behave(Manner::Honest);
    wait_for("store_back");
    hold.ends_whole();
    let told = told();
    expect_described(&told);
    let away = named(&told, "store_away")[0];
    assert_eq!(away["store"], uri.as_str());
    assert!(away["reason"].as_str().unwrap().contains("has not answered for"), "{away}");
    assert!((1..=600).contains(&away["left_s"].as_u64().unwrap()), "{away}");
    assert_eq!(named(&told, "store_back")[0]["store"], uri.as_str());
}

#[test]
fn what_keeps_a_run_from_starting_is_an_event_too() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_spillway"))
            .args(["run", "--local", "64M"])
            .args(arguments)
            .args(["--", "true"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = refused(&["--log-format", "json", "--store", "file:/nonexistent/x?size=8M"]);
    let told = events(&text);
    expect_described(&told);
    let event = only(&told, "cannot_start");
    assert_eq!((code, &event["exit_status"], told.len()), (125, &125.into(), 1), "{text}");
    let (code, line) = refused(&["--store", "file:/nonexistent/x?size=8M"]);
    assert_eq!((code, line), (125, format!("spillway: {}\n", event["text"].as_str().unwrap())));

    let (code, line) = refused(&["--log", "/nonexistent/log"]);
    assert!(code == 125 && line.starts_with("spillway: run: --log /nonexistent/log: "), "{code} {line}");
    assert!(line.ends_with("name a file that can be written\n") && line.lines().count() == 1, "{line}");
}

/// A log on a full disk, or one that nobody reads, changes nothing for the program.
#[test]
fn a_log_that_cannot_be_written_costs_the_program_nothing() {
    let scene = Scene::new();
    let options = ["--log-format", "json", "--log", "/dev/full"];
    let mut command = scene.run_with(&options, "8M", &["compressed:"], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.arg("24"));
    hold.goes_on(2);
    assert_eq!(hold.ends_whole().complaint(), "");
}

// ---- Donors.

#[test]
fn a_run_and_a_client_that_a_donor_refuses_are_events() {
    let donor = Donor::start("64M", &["--log-format", "json", "--max-connections-per-client", "2"]);
    let scene = Scene::new();
    let uri = format!("{}?size=1G", donor.tcp_uri(""));
    let mut running = Running::start(&mut scene.run("8M", &[&uri], "/bin/true"));
    assert_eq!(running.finish(SOON).code(), 125);
    let told = || events(&donor.log());
    until(PATIENCE, "the refusal", || (!named(&told(), "refused").is_empty()).then_some(()));
    let refused = named(&told(), "refused")[0].clone();
    assert_eq!(refused["client"], "127.0.0.1", "{refused}");
    let (reason, text) = (refused["reason"].as_str().unwrap(), refused["text"].as_str().unwrap());
    assert!(reason.contains("1.0 GiB") && text == format!("127.0.0.1 was refused: {reason}"), "{refused}");

    let connect = || std::net::TcpStream::connect(donor.tcp()).unwrap();
    let _connections: Vec<_> = (0..4).map(|_| connect()).collect();
    until(PATIENCE, "a connection to be refused", || {
        (!named(&told(), "connection_refused").is_empty()).then_some(())
    });
    let told = told();
    expect_described(&told);
    assert!(!named(&told, "client_came").is_empty(), "{told:#?}");
    donor.signal(Signal::TERM);
}

/// With `--json` alone events are JSON too; without either they are the lines that they always were.
#[test]
fn a_donors_events_are_text_unless_json_is_asked_for() {
    let came = |arguments: &[&str]| {
        let donor = Donor::start("4M", arguments);
        let _connection = std::net::TcpStream::connect(donor.tcp()).unwrap();
        until(PATIENCE, "the client", || donor.log().contains("has come").then(|| donor.log()))
    };
    let text = came(&[]);
    assert!(text.lines().any(|line| line == "spillway donor: 127.0.0.1 has come"), "{text}");
    assert!(text.lines().all(|line| line.starts_with("spillway donor: ")), "{text}");
    assert_eq!(came(&["--json", "--log-format", "text"]).lines().count(), text.lines().count());
    let told = events(&came(&["--json"]));
    expect_described(&told);
    assert_eq!(only(&told, "client_came")["client"], "127.0.0.1");
}

/// `pool status`, `top --pool` and the dashboard ask a donor how it stands, the last two every few seconds.
#[test]
fn who_only_asks_how_a_donor_stands_is_no_client() {
    let donor = Donor::start("4M", &[]);
    for _ in 0..2 {
        let status = Command::new(env!("CARGO_BIN_EXE_spillway"))
            .args(["pool", "status", &donor.tcp()])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    }
    let _connection = std::net::TcpStream::connect(donor.tcp()).unwrap();
    let log = until(PATIENCE, "the client", || donor.log().contains("has come").then(|| donor.log()));
    let of_clients: Vec<&str> = log.lines().filter(|line| line.contains(" 127.0.0.1 ")).collect();
    assert_eq!(of_clients, ["spillway donor: 127.0.0.1 has come"]);
}

// ---- The journal.

/// Where stderr is the stream that systemd names, lines begin with their priority; else they do not.
#[test]
fn lines_for_the_journal_have_priorities() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stderr");
    let refused = |is_named: bool, format: &str| {
        let stderr = File::create(&path).unwrap();
        let stat = rustix::fs::fstat(stderr.as_fd()).unwrap();
        let inode = if is_named { stat.st_ino } else { stat.st_ino + 1 };
        let status = donor_common::command(&["--memory", "1K", "--shm", "x", "--log-format", format])
            .env("JOURNAL_STREAM", format!("{}:{inode}", stat.st_dev))
            .stderr(stderr)
            .stdout(Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(1));
        std::fs::read_to_string(&path).unwrap()
    };
    let plain = refused(false, "text");
    assert!(plain.starts_with("spillway: ") && plain.lines().count() == 1, "{plain}");
    assert_eq!(refused(true, "text"), format!("<3>{plain}"));
    let json = refused(true, "json");
    expect_described(&events(json.strip_prefix("<3>").unwrap_or_else(|| panic!("{json}"))));
}

/// In a place of its own for what is alive, where a journal listens or does not.
#[test]
fn the_journal_is_told_of_events_with_their_names_and_fields() {
    let told_by = |listens: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs none /run && exec \"$0\" \"$@\""]).arg(python());
        command.arg(source("journal_told.py")).arg(listens).arg(env!("CARGO_BIN_EXE_spillway"));
        let finished = Running::start(command.args(arguments)).finish(PATIENCE);
        let told: Value = serde_json::from_str(&finished.success()).unwrap();
        (told["told"].as_array().unwrap().clone(), told["lines"].as_str().unwrap().to_owned())
    };
    let no_store = ["run", "--local", "64M", "--store", "file:/nonexistent/x?size=8M", "--", "true"];
    let no_donor = ["donor", "--memory", "1K", "--shm", "x"];
    for (arguments, of, field) in [
        (&no_store[..], "run", ("SPILLWAY_EXIT_STATUS", "125")),
        (&no_donor, "donor", ("SPILLWAY_EVENT", "cannot_start")),
    ] {
        let (told, lines) = told_by("yes", arguments);
        let [event] = &told[..] else { panic!("{told:?} {lines}") };
        assert_eq!(lines, "", "{event}");
        assert_eq!(
            (&event["SPILLWAY_EVENT"], &event["SPILLWAY_OF"], &event["PRIORITY"], &event[field.0]),
            (&"cannot_start".into(), &of.into(), &"3".into(), &field.1.into()),
            "{event}"
        );
        // Where nobody listens, the same sentence is a line with its priority; JSON is always a line.
        let (told, lines) = told_by("no", arguments);
        let text = event["MESSAGE"].as_str().unwrap();
        assert_eq!((told.len(), lines), (0, format!("<3>spillway: {text}\n")));
    }
    let (told, lines) = told_by("yes", &[&no_donor[..], &["--log-format", "json"]].concat());
    assert!(told.is_empty() && lines.starts_with("<3>{\"unix_ms\":"), "{told:?} {lines}");
    // What is quiet in text is in the journal, fields and all.
    let (told, lines) = told_by("yes", &["run", "--local", "64M", "--", "true"]);
    let name = |name: &str| told.iter().find(|event| event["SPILLWAY_EVENT"] == name).cloned();
    let ended = name("ended").unwrap_or_else(|| panic!("{told:?} {lines}"));
    assert_eq!((&ended["SPILLWAY_EXIT_STATUS"], &ended["PRIORITY"]), (&"0".into(), &"6".into()));
    let wall_s: f64 = ended["SPILLWAY_WALL_S"].as_str().unwrap().parse().unwrap();
    assert!(wall_s > 0.0 && lines.is_empty(), "{ended} {lines}");
}
