//! What runs is shown in a browser, by `spillway dashboard`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use donor_common::Donor;
use rustix::process::Signal;
use serde_json::Value;
use support::MIB;
use support::child::{PATIENCE, Running, free_port, until};
use support::launch::Launch;
use support::tools::{c_program, python, source, tool};

/// A dashboard on a port of its own, and that port.
fn dashboard() -> (Running, u16) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    let mut running = Running::start(command.args(["dashboard", "--listen", "127.0.0.1:0"]));
    running.expect("http://127.0.0.1:");
    let port = port_of(&running);
    (running, port)
}

/// The port of the address that it has written.
fn port_of(running: &Running) -> u16 {
    let text = until(PATIENCE, "its address", || Some(running.text()).filter(|text| text.ends_with('\n')));
    text.trim().trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
}

/// The answer to a request: its status line with its headers, and its body.
fn ask(port: u16, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn get(port: u16, path: &str) -> (String, String) {
    ask(port, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"))
}

/// The map of the memory of a run, which its pager may be too busy to tell at once.
fn map_of(port: u16, supervisor: u64) -> Value {
    until(PATIENCE, "a map", || {
        let maps: Value = serde_json::from_str(&get(port, "/heat.json").1).unwrap();
        maps.as_array().unwrap().iter().find(|map| map["supervisor_pid"] == supervisor).cloned()
    })
}

/// A browser without a window that may reach this machine alone, and has eight seconds of its own time.
fn chromium(profile: &Path) -> Command {
    let mut command = Command::new(tool("chromium", "chromium"));
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--virtual-time-budget=8000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .stdin(Stdio::null());
    command
}

/// What a browser that may reach this machine alone makes of the page once it has asked for rows, and what
/// it says of errors on its way.
fn shown(port: u16) -> (String, String) {
    shown_at(port, "")
}

/// The same of what its address says is chosen.
fn shown_at(port: u16, chosen: &str) -> (String, String) {
    let profile = tempfile::tempdir().unwrap();
    let output = chromium(profile.path())
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("http://127.0.0.1:{port}/{chosen}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Has a browser, which prefers this colour scheme (Chromium: 0 is dark, 1 light), draw the page into a file.
fn picture(port: u16, scheme: u8, file: &Path) {
    let profile = tempfile::tempdir().unwrap();
    let output = chromium(profile.path())
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .args(["--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1200,900"])
        .arg(format!("--screenshot={}", file.display()))
        .arg(format!("http://127.0.0.1:{port}/"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The size of a picture, its colours and how light it is.
fn shown_by(file: &Path) -> Value {
    let output = Command::new(python()).arg(source("picture.py")).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_browser_shows_what_runs_with_its_stores_and_nothing_from_outside() {
    let launch = Launch::local_mib(8);
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let (board, port) = dashboard();
    let (head, body) = get(port, "/rows.json");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/json"), "{head}");
    let rows: Value = serde_json::from_str(&body).unwrap();
    let supervisor = u64::from(watched.running.pid().as_raw_nonzero().get().unsigned_abs());
    let row =
        rows["rows"].as_array().unwrap().iter().find(|row| row["supervisor_pid"] == supervisor).unwrap();
    assert!(row["rates"]["faults_per_s"].as_f64().unwrap() > 0.0, "the first who asks has rates: {row}");
    let pid = row["pid"].as_u64().unwrap();
    let map = map_of(port, supervisor);
    let far_bytes = map["kinds"].as_array().unwrap().iter().find(|kind| kind[0] == "far").unwrap();
    // The map is taken a moment later, while pages come and go.
    let difference = far_bytes[1].as_u64().unwrap().abs_diff(row["far_bytes"].as_u64().unwrap());
    assert!(difference < 3 * MIB, "{row}: {map}");
    let (dom, log) = shown(port);
    for text in [&format!("<td>{pid}</td>"), "time lost", "compressed:", "class=\"local\"", "inline mode"] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    for text in ["of them ahead", "evicted: ", "kept in use ", ":1</td>", "traffic a second"] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    // Of each fault that was counted how long it took is known, by powers of two.
    let latency = &row["fault_latency"];
    let octaves: Vec<(u64, u64)> = serde_json::from_value(latency["octaves"].clone()).unwrap();
    assert_eq!(octaves.iter().map(|(_, faults)| faults).sum::<u64>(), latency["count"].as_u64().unwrap());
    assert!(octaves.windows(2).all(|pair| pair[1].0 == 2 * pair[0].0), "{latency}");
    let key = format!("#show={}/{supervisor}/", row["uid"]);
    let (chosen, log_of_chosen) = shown_at(port, &key);
    for text in ["show all", "faults took since the start", "class=\"chart latency\"", "aria-current"] {
        assert!(chosen.contains(text), "no {text:?} in {chosen}");
    }
    assert_eq!(chosen.matches("class=\"card\"").count(), 1, "{chosen}");
    assert!(!log_of_chosen.contains(":CONSOLE"), "{log_of_chosen}");
    let [light, dark] = [("light", 1), ("dark", 0)].map(|(name, scheme)| {
        let file = launch.work().join(format!("{name}.png"));
        picture(port, scheme, &file);
        shown_by(&file)
    });
    for seen in [&light, &dark] {
        assert_eq!((seen["width"].as_u64(), seen["height"].as_u64()), (Some(1200), Some(900)), "{seen}");
        // A blank page has one; letters are drawn with shades of their colour.
        assert!(seen["colours"].as_u64() > Some(50), "{seen}");
    }
    let lightness = |seen: &Value| seen["light"].as_f64().unwrap();
    assert!(lightness(&light) > 200.0 && lightness(&dark) < 90.0, "{light} {dark}");
    let address = map["rows"][0].as_str().unwrap();
    for text in ["Address space of hold", &format!("<span>{address}</span>"), "class=\"heat-far\"", "now"] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    for complaint in [":CONSOLE", "Failed to load", "ERR_", "Refused to"] {
        assert!(!log.contains(complaint), "{log}");
    }
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
    end(board);
}

/// A pool of two donors, of which one dies while somebody looks.
#[test]
fn a_pool_has_a_card_with_its_donors_and_what_runs_have_there() {
    let donors = [(); 2].map(|()| Donor::start("64M", &[]));
    let names = donors.each_ref().map(Donor::tcp).join(",");
    let launch = Launch::limited(8 * MIB, &format!("pool:{names}?size=48M&domain=a,b"));
    let mut watched = launch.start(launch.command(c_program("hold")).args(["32", "100"]));
    watched.running.expect("ready");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["dashboard", "--listen", "127.0.0.1:0", "--pool", &names]);
    let mut board = Running::start(&mut command);
    board.expect("http://127.0.0.1:");
    let port = port_of(&board);
    let pool = || {
        let told: Value = serde_json::from_str(&get(port, "/pool.json").1).unwrap();
        assert_eq!((told.as_array().unwrap().len(), &told[0]["pool"]), (1, &names.as_str().into()), "{told}");
        told[0].clone()
    };
    let states = || {
        let pool = pool();
        pool["donors"].as_array().unwrap().iter().map(|donor| donor["state"].clone()).collect::<Vec<_>>()
    };
    until(PATIENCE, "the donors", || (states() == ["up", "up"]).then_some(()));
    let pool_seen = pool();
    for donor in pool_seen["donors"].as_array().unwrap() {
        let run = &donor["each_run"][0];
        assert!(run["held_bytes"].as_u64() > Some(16 * MIB) && run["is_lost"] == false, "{pool_seen}");
    }
    let (dom, log) = shown(port);
    let sum = "2 of 2 donors are up; 128M lent: ";
    for text in [
        &format!("Pool {names}"),
        sum,
        "<td>up</td>",
        "<td>connected</td>",
        &format!("<td>{}</td>", donors[0].tcp()),
    ] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    assert!(!log.contains(":CONSOLE"), "{log}");
    for (name, scheme) in [("light", 1), ("dark", 0)] {
        let file = launch.work().join(format!("pool-{name}.png"));
        picture(port, scheme, &file);
        assert!(shown_by(&file)["colours"].as_u64() > Some(50), "{name}");
    }
    donors[0].signal(Signal::KILL);
    until(PATIENCE, "one to be away", || (states() == ["away", "up"]).then_some(()));
    let (dom, _) = shown(port);
    for text in ["1 of 2 donors are up", "class=\"unwell\">away</td>", "colspan=\"9\""] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    assert_eq!(watched.stop(Signal::USR1).success(), "ready\nwhole\n");
    end(board);
}

/// A pool that nobody answers for says why, and a name that is none is refused.
#[test]
fn a_pool_without_etcd_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    let pool = format!("etcd://127.0.0.1:{}/lab", free_port());
    let mut board = Running::start(command.args(["dashboard", "--listen", "127.0.0.1:0", "--pool", &pool]));
    board.expect("http://127.0.0.1:");
    let port = port_of(&board);
    until(PATIENCE, "the failure", || {
        get(port, "/pool.json").1.contains("see that etcd runs there").then_some(())
    });
    let (dom, _) = shown(port);
    assert!(dom.contains("see that etcd runs there"), "{dom}");
    end(board);
    let refused = Command::new(env!("CARGO_BIN_EXE_spillway")).args(["dashboard", "--pool", "a:1,"]).output();
    let refused = refused.unwrap();
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && complaint.contains("no HOST:PORT"), "{complaint}");
}

#[test]
fn the_tier_daemon_has_a_card() {
    // In a place of its own for what is alive: another daemon of this machine is none of this test's.
    let script = "mount -t tmpfs none /run && mkdir -m 755 /run/spillway || exit 1; \
                  \"$0\" \"$1\" /run/spillway/tier.sock \"$2\" >&2 & \
                  exec \"$3\" dashboard --listen 127.0.0.1:0";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(python());
    command.args([source("tier_told.py"), source("tier_status.json")]).arg(env!("CARGO_BIN_EXE_spillway"));
    let mut board = Running::start(&mut command);
    board.expect("http://127.0.0.1:");
    let port = port_of(&board);
    until(PATIENCE, "the daemon", || get(port, "/rows.json").1.contains("database").then_some(()));
    let (dom, log) = shown(port);
    for text in
        ["tier (7), from nodes 0 to 1 and back", "1 tier daemon", "<td>3.0k</td>", "not used for three"]
    {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    assert!(!log.contains(":CONSOLE"), "{log}");
    board.signal(Signal::INT);
    assert!(board.finish(PATIENCE).status.success());
}

#[test]
fn only_its_paths_are_told_to_who_calls_this_machine_by_its_name_and_nothing_can_be_changed() {
    let (board, port) = dashboard();
    for (path, kind) in
        [("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css")]
    {
        let (head, body) = get(port, path);
        assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains(kind), "{head}");
        assert!(head.contains("Content-Security-Policy: default-src 'none'"), "{head}");
        assert!(!body.contains("https:") && !body.contains("innerHTML"), "{path}");
    }
    let status = |request: &str| ask(port, request).0.lines().next().unwrap().to_owned();
    for (request, expected) in [
        ("GET /rows.json HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET /pool.json HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("POST /pool.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("POST /rows.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "405"),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("\u{1}\r\n\r\n", "400"),
    ] {
        assert!(status(request).contains(expected), "{request:?}: {}", status(request));
    }
    // A reader that says nothing holds up nobody.
    let _silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert!(get(port, "/").0.starts_with("HTTP/1.1 200 OK"));
    let again = Command::new(env!("CARGO_BIN_EXE_spillway"))
        .args(["dashboard", "--listen", &format!("127.0.0.1:{port}")])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(1) && complaint.contains("name another"), "{complaint}");
    end(board);
}

/// A signal ends it as it should.
fn end(mut board: Running) {
    board.signal(Signal::INT);
    let finished = board.finish(PATIENCE);
    assert!(finished.status.success(), "{}", finished.complaint());
    assert_eq!(finished.complaint(), "");
}
