//! Stores that are away for a while, or for good, and what a run does about it: who waits is told for whom
//! and how long, ways that are silent are left, connections that cannot be had are done without, exports that
//! are another run's are left alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod hostile_nbd;
mod support;

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use donor_common::Donor;
use fault_common::{Hold, SOON, Scene};
use hostile_nbd::scripted::{Scripted, Then};
use hostile_nbd::{Hostile, Manner};
use rustix::process::{Signal, kill_process};
use support::MIB;
use support::child::{PATIENCE, Running, free_port, until};
use support::launch::Launch;
use support::tools::{c_program, tool};
use support::watch::child_of;

fn says(running: &Running, text: &str) {
    until(PATIENCE, text, || running.complaint().contains(text).then_some(()));
}

// ---- Silence.

#[test]
fn a_silent_server_is_named_within_a_second() {
    let (server, scene) = (Hostile::start(128 * MIB), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[server.uri("?timeout=50")]);
    hold.goes_on(1);
    server.behave(Manner::Silent);
    until(PATIENCE, "somebody to wait", || (server.misdeeds() > 0).then_some(()));
    let begin = Instant::now();
    says(&hold.running, "has not answered for");
    // Less than a second by its own clock; the machine may be busy.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let complaint = hold.running.complaint();
    assert!(complaint.contains("who needs its pages waits, and it is given up in "), "{complaint}");
    server.behave(Manner::Honest);
    says(&hold.running, "answers again");
    hold.ends_whole();
}

/// Reads go by another connection where the one that they were sent by says nothing and another does.
#[test]
fn a_silent_connection_is_left_for_one_that_answers() {
    let (server, scene) = (Hostile::start(128 * MIB), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[server.uri("?timeout=600")]);
    hold.goes_on(1);
    server.behave(Manner::SilentOnOldConnections);
    until(PATIENCE, "silence", || (server.misdeeds() > 0).then_some(()));
    hold.goes_on(2);
    server.behave(Manner::Honest);
    hold.ends_whole();
}

/// A store that holds nothing that the program needs now is looked after all the same.
#[test]
fn a_store_that_nobody_needs_is_named_when_it_dies() {
    let (donor, scene) = (Donor::start("64M", &[]), Scene::new());
    let uri = format!("{}?reconnect=1.5", donor.tcp_uri("e"));
    let mut running = Running::start(scene.run("8M", &[&uri], "/bin/sleep").arg("60"));
    until(PATIENCE, "the program", || (child_of(running.pid()).as_raw_nonzero().get() > 0).then_some(()));
    donor.signal(Signal::KILL);
    says(&running, "cannot connect");
    says(&running, "is gone: ");
    let complaint = running.complaint();
    assert!(complaint.lines().all(|line| line.contains(&uri)), "{complaint}");
    assert!(!complaint.contains("for 0 s") && !complaint.contains("nothing stored is lost"), "{complaint}");
    running.signal(Signal::TERM);
    running.finish(SOON);
}

/// What is said where pages cannot be written any more.
#[test]
fn nothing_is_called_safe_on_a_store_that_is_gone() {
    let (donor, scene) = (Donor::start("64M", &[]), Scene::new());
    let hold = Hold::start(&scene, 24, &[format!("{}?reconnect=0.3", donor.tcp_uri("e"))]);
    donor.signal(Signal::KILL);
    let complaint = hold.ends_by_sigbus("nbd://", "is gone: ").complaint();
    assert!(!complaint.contains("nothing stored is lost") && !complaint.contains("for 0 s"), "{complaint}");
}

// ---- What is on its way when a process ends.

/// A server does what it was sent when it comes to it, also after the end of who sent it. Nobody else has the
/// place by then.
#[test]
fn what_an_ended_process_has_sent_overwrites_nobodys_pages() {
    let server = Hostile::start(128 * MIB);
    // As they are, so that the server knows the pages of the process that ends.
    let launch = Launch::limited(8 * MIB, &server.uri("?timeout=100"));
    let launch = launch.with_option("--seal").with_option("none");
    let marks = ["in-flight", "done"].map(|name| launch.work().join(name));
    server.behave(Manner::WritesLate(0xA5));
    let mut command = launch.command(c_program("ends_writing"));
    let running = launch.start(command.arg("64").args(&marks));
    until(PATIENCE, "a write to be on its way", || (server.misdeeds() > 0).then_some(()));
    std::fs::write(&marks[0], "").unwrap();
    until(PATIENCE, "the write to be done", || (server.late_writes() > 0).then_some(()));
    std::fs::write(&marks[1], "").unwrap();
    assert_eq!(running.finish().success(), "whole\n");
}

/// The next run may have the same slots.
#[test]
fn a_run_that_ends_amid_a_write_leaves_nothing_on_its_way() {
    let server = Hostile::start(128 * MIB);
    let launch = Launch::limited(8 * MIB, &server.uri("?timeout=100"));
    let launch = launch.with_option("--seal").with_option("none");
    server.behave(Manner::WritesLate(0xA5));
    let running = launch.start(launch.command(c_program("ends_writing")).arg("64"));
    until(PATIENCE, "a write to be on its way", || (server.misdeeds() > 0).then_some(()));
    let program = child_of(running.running.pid());
    kill_process(program, Signal::KILL).unwrap();
    running.finish();
    assert_eq!(server.late_writes(), 1, "the command has ended before");
}

// ---- Connections.

/// Seven processes on a server of five connections: they take turns, and the server's limit is named.
#[test]
fn processes_share_the_connections_that_there_are() {
    const PROCESSES: &str = "6";
    let (server, scene) = (Hostile::start(256 * MIB), Scene::new());
    server.limit_connections(5);
    let uri = server.uri("?reconnect=60&timeout=120");
    let mut command = scene.run("16M", &[&uri], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["24", PROCESSES]));
    hold.goes_on(8);
    let is_named = |line: &&str| line.contains("takes no further connection") && line.contains("two more");
    // It takes some refusals, however fast they come.
    until(PATIENCE, "the limit to be named", || hold.running.complaint().lines().find(is_named).map(|_| ()));
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("is gone"), "{complaint}");
    assert_eq!(complaint.lines().filter(is_named).count(), 1, "{complaint}");
    assert!(server.peak_connections() <= 5);
}

/// Threads that do not need the store hold no connection to it.
#[test]
fn processes_have_few_connections() {
    let (server, scene) = (Hostile::start(256 * MIB), Scene::new());
    let mut command = scene.run("16M", &[server.uri("")], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["24", "6"]));
    hold.goes_on(8);
    hold.ends_whole();
    // The command's two, and of each process its one thread's, the evictor's and one that looks ahead.
    assert!(server.peak_connections() <= 2 + 7 * 3, "{}", server.peak_connections());
}

// ---- Servers that are refused at once.

fn refused_soon(uri: &str, reason: &str, remedy: &str) {
    let scene = Scene::new();
    let begin = Instant::now();
    let mut running = Running::start(scene.run("8M", &[uri], "/bin/echo").arg("started"));
    let finished = running.finish(SOON);
    let complaint = finished.complaint();
    assert_eq!((finished.code(), finished.text().as_str()), (125, ""), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains(reason) && complaint.contains(remedy), "{complaint}");
    // Five of its own; the machine may be busy.
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn served_by(program: &str, package: &str, arguments: &[&str], port: u16) -> Server {
    let mut command = Command::new(tool(program, package));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(command.spawn().unwrap());
    // Not by connecting: that would be its one client.
    let hex = format!(":{port:04X} ");
    until(PATIENCE, "a server", || {
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let listens = |line: &str| line.contains(&hex) && line.contains(" 0A ");
        tables.iter().any(|table| table.lines().any(listens)).then_some(())
    });
    server
}

/// A server that takes no page in a range of its export, be that where slots are given out first or where
/// they are next: pages go elsewhere, and nothing is refused or lost.
#[test]
fn where_a_server_takes_no_page_pages_go_elsewhere() {
    for range in ["0-16777215", "4194304-16777215"] {
        let (port, scene) = (free_port(), Scene::new());
        let (text, protect) = (port.to_string(), format!("protect={range}"));
        let arguments = ["--foreground", "--ipaddr=127.0.0.1", "--port", &text, "--filter=protect"];
        let _nbdkit =
            served_by("nbdkit", "nbdkit", &[&arguments[..], &["memory", "64M", &protect]].concat(), port);
        let filled = scene.fill(32, &[format!("nbd://127.0.0.1:{port}/")]);
        let of = (filled.written, filled.refused, filled.right, filled.lost);
        assert_eq!(of, (32 << 8, 0, 2 * (32 << 8), 0), "{range}: {filled:?}");
    }
}

#[test]
fn servers_of_one_connection_are_refused_soon() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    let port = free_port();
    let text = port.to_string();
    let arguments = ["--format=raw", "--bind=127.0.0.1", "--port", &text, image.to_str().unwrap()];
    let _qemu = served_by("qemu-nbd", "qemu-utils", &arguments, port);
    refused_soon(&format!("nbd://127.0.0.1:{port}/"), "takes 1 connection at a time", "qemu-nbd --shared=16");

    let port = free_port();
    let text = port.to_string();
    let arguments =
        ["--foreground", "--ipaddr=127.0.0.1", "--port", &text, "--filter=limit", "memory", "16M", "limit=1"];
    let _nbdkit = served_by("nbdkit", "nbdkit", &arguments, port);
    refused_soon(
        &format!("nbd://127.0.0.1:{port}/"),
        "takes 1 connection at a time",
        "nbdkit without 'limit'",
    );
}

#[test]
fn servers_of_another_kind_are_refused_soon() {
    // As an HTTP server waits for its client's request.
    let waits = Scripted::start(Vec::new(), Then::Hang);
    refused_soon(
        &waits.uri(""),
        "an NBD server greets first",
        "check that a donor or NBD server listens there",
    );
    // Nobody takes connections: the kernel answers for a listener that is stuck.
    let stuck = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("nbd://{}/", stuck.local_addr().unwrap());
    refused_soon(&uri, "an NBD server greets first", "check that a donor or NBD server listens there");
}

/// What an NBD server says first, and its answer to an option: each a type and what belongs to it.
fn option_replies(option: u32, replies: &[(u32, &[u8])]) -> Vec<u8> {
    let reply = |(kind, data): &(u32, &[u8])| {
        let head = [option, *kind, data.len() as u32].map(u32::to_be_bytes).concat();
        [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &head, data].concat()
    };
    replies.iter().flat_map(reply).collect()
}

#[test]
fn a_donor_that_takes_no_proof_of_this_version_is_refused_soon() {
    let [structured, set_context, ack, meta] = [8, 10, 1, 4];
    let context = |name: &str| [&[0, 0, 0, 1][..], name.as_bytes()].concat();
    let challenge = context(&format!("spillway:challenge={}", "5a".repeat(16)));
    let words = [
        b"NBDMAGICIHAVEOPT\0\x03".to_vec(),
        option_replies(structured, &[(ack, &[])]),
        option_replies(set_context, &[(meta, &challenge), (ack, &[])]),
        option_replies(set_context, &[(meta, &context("spillway:refused")), (ack, &[])]),
    ];
    let other = Scripted::start(words.concat(), Then::Hang);
    let reason = "the donor does not take this connection for the run's";
    refused_soon(&other.uri(""), reason, "use one version on both sides");
    let address = other.uri("").trim_start_matches("nbd://").trim_end_matches('/').to_owned();
    let pool = format!("pool:{address}?copies=1");
    refused_soon(&pool, reason, &format!("donor {address}"));
}

// ---- Exports that are another's.

#[test]
fn an_export_of_another_run_is_refused_until_that_ends() {
    let (server, scene) = (Hostile::start(64 * MIB), Scene::new());
    let uri = server.uri("");
    let first = Hold::start(&scene, 24, &[&uri]);
    refused_soon(&uri, "another run keeps its pages there (process ", "?claim=take");
    first.ends_whole();
    let second = Hold::start(&scene, 24, &[&uri]);
    assert_eq!(second.ends_whole().complaint(), "");
}

#[test]
fn the_claim_of_a_killed_run_is_taken_over_and_said_so() {
    let (server, scene) = (Hostile::start(64 * MIB), Scene::new());
    let uri = server.uri("");
    let mut first = Hold::start(&scene, 24, &[&uri]);
    first.running.signal(Signal::KILL);
    first.running.finish(SOON);
    let second = Hold::start(&scene, 24, &[&uri]);
    let complaint = second.ends_whole().complaint();
    assert!(complaint.contains("is taken over from a run that is gone (process "), "{complaint}");
}

#[test]
fn a_run_whose_export_is_taken_says_so() {
    let (server, scene) = (Hostile::start(64 * MIB), Scene::new());
    let mut idle = Running::start(scene.run("8M", &[server.uri("")], "/bin/sleep").arg("60"));
    until(PATIENCE, "the claim", || (server.requests() >= 3).then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    let taken = server.uri("?claim=take");
    let mut taker = Running::start(scene.run("8M", &[&taken], "/bin/sleep").arg("60"));
    says(&idle, "another run has taken the export");
    for running in [&mut idle, &mut taker] {
        running.signal(Signal::TERM);
        running.finish(SOON);
    }
}

// ---- Starts.

#[test]
fn a_run_starts_without_a_store_only_where_it_may() {
    let scene = Scene::new();
    let away = format!("nbd://127.0.0.1:{}/", free_port());
    refused_soon(&away, "cannot connect", "check that a donor");
    let run = |with: &[&str], stores: &[&str]| {
        let mut command = Command::new(scene.spillway());
        command.args(["run", "--local", "8M"]).args(with);
        stores.iter().for_each(|store| {
            command.args(["--store", store]);
        });
        let finished = Running::start(command.args(["--", "/bin/echo", "started"])).finish(SOON);
        (finished.code(), finished.text(), finished.complaint())
    };
    let both = [&away[..], "compressed:?size=32M"];
    let (code, text, complaint) = run(&[], &both);
    assert_eq!((code, &text[..], complaint.lines().count()), (125, "", 1), "{complaint}");
    assert!(complaint.contains(&away) && complaint.contains("--allow-missing-stores"), "{complaint}");
    let (code, text, complaint) = run(&["--allow-missing-stores"], &both);
    assert_eq!((code, &text[..], complaint.lines().count()), (0, "started\n", 1), "{complaint}");
    assert!(complaint.contains("starts without a store") && complaint.contains(&away), "{complaint}");
    let (code, _, complaint) = run(&["--allow-missing-stores"], &both[..1]);
    assert_eq!((code, complaint.lines().count()), (125, 1), "{complaint}");
}
