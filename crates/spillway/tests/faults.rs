//! What goes wrong around a program, and what becomes of it: it waits and goes on, or it ends by SIGBUS with
//! one clear line; it never reads what it has not written. `full_faults.rs` has what takes longer.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod hostile_nbd;
mod support;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use donor_common::Donor;
use fault_common::{BY_SIGBUS, BY_SIGKILL, Catch, Hold, SOON, Scene, alive_in_group};
use hostile_nbd::proxy::Proxy;
use hostile_nbd::scripted::{Scripted, Then};
use hostile_nbd::wire::Export;
use hostile_nbd::{Hostile, Manner, errno};
use rustix::process::Signal;
use support::MIB;
use support::child::{PATIENCE, Running, until};
use support::tools::{c_program, tool};
use support::watch::child_of;

const NOBODY: &str = "65534";

// ---- The donor goes.

fn donor_is_killed(uri_of: impl Fn(&Donor) -> String) {
    let donor = Donor::start("256M", &[]);
    let uri = uri_of(&donor);
    let scene = Scene::new();
    let mut hold = Hold::start(&scene, 32, &[&uri]);
    hold.goes_on(2);
    donor.signal(Signal::KILL);
    hold.ends_by_sigbus(&uri, "is gone: ");
}

#[test]
fn a_killed_donor_by_tcp_ends_the_program() {
    donor_is_killed(|donor| format!("{}?reconnect=0.3", donor.tcp_uri("e")));
}

#[test]
fn a_killed_donor_by_unix_socket_ends_the_program() {
    donor_is_killed(|donor| format!("{}&reconnect=0.3", donor.unix_uri("e")));
}

#[test]
fn a_killed_donor_by_rings_ends_the_program() {
    donor_is_killed(|donor| format!("{}?reconnect=0.3", donor.shm_uri()));
}

#[test]
fn the_shell_sees_the_status_of_sigbus() {
    let (donor, scene) = (Donor::start("64M", &[]), Scene::new());
    let uri = format!("{}?reconnect=0.3", donor.tcp_uri(""));
    let mut shell = Command::new("/bin/sh");
    let script = "\"$@\"; echo status $?";
    shell
        .args(["-c", script, "sh"])
        .arg(scene.spillway())
        .args(["run", "--local", "8M", "--store", &uri, "--"]);
    let mut running = Running::start(shell.arg(c_program("fault_hold")).arg("32"));
    running.expect("on\n");
    donor.signal(Signal::KILL);
    let text = running.finish(SOON).success();
    assert!(text.ends_with(&format!("status {BY_SIGBUS}\n")), "{text}");
}

/// Lost pages raise SIGBUS at the address that was read and nothing else, the kernel gives EFAULT for them,
/// and all others are right: `fault_catch.c` verifies it.
#[test]
fn a_program_that_catches_sigbus_keeps_what_is_local() {
    let (donor, scene) = (Donor::start("256M", &[]), Scene::new());
    let catch = Catch::start(&scene, 24, &format!("{}?reconnect=0.3", donor.tcp_uri("")));
    donor.signal(Signal::KILL);
    let caught = catch.looks();
    assert_eq!(caught.right + caught.lost, 24 * MIB / 4096, "{caught:?}");
    // 8 MiB are local, less what the program itself needs.
    assert!(caught.right > 1024 && caught.lost >= 16 * MIB / 4096, "{} {}", caught.right, caught.lost);
}

/// Nothing was said but that a store is waited for, and that it answers again.
fn only_waited(complaint: &str) {
    let is_wait = |line: &str| line.contains("is given up in") || line.ends_with("answers again");
    assert!(complaint.lines().all(is_wait), "{complaint}");
}

#[test]
fn a_stopped_donor_is_waited_for() {
    const STOPPED: Duration = Duration::from_secs(10);
    let (donor, scene) = (Donor::start("256M", &[]), Scene::new());
    let uris = [
        format!("{}?size=64M", donor.tcp_uri("e")),
        format!("{}&size=64M", donor.unix_uri("e")),
        format!("{}?size=64M", donor.shm_uri()),
    ];
    let mut holds: Vec<Hold> = uris.iter().map(|uri| Hold::start(&scene, 24, &[uri])).collect();
    holds.iter_mut().for_each(|hold| hold.goes_on(1));
    donor.signal(Signal::STOP);
    // What was under way may have had its answer.
    holds.iter().for_each(|hold| stands_still(&hold.running, || true));
    let steps: Vec<usize> = holds.iter_mut().map(Hold::steps).collect();
    sleep(STOPPED);
    assert_eq!(steps, holds.iter_mut().map(Hold::steps).collect::<Vec<_>>(), "they go on without a donor");
    donor.signal(Signal::CONT);
    for mut hold in holds {
        hold.goes_on(2);
        only_waited(&hold.ends_whole().complaint());
    }
}

#[test]
fn reset_connections_are_made_again() {
    let (donor, scene) = (Donor::start("256M", &[]), Scene::new());
    let proxy = Proxy::start(&donor.tcp());
    let mut hold = Hold::start(&scene, 24, &[proxy.uri("e")]);
    let mut resets = 0;
    while resets < 20 {
        hold.goes_on(1);
        resets += proxy.reset();
    }
    hold.goes_on(2);
    assert_eq!(hold.ends_whole().complaint(), "");
}

#[test]
fn a_restarted_donor_has_lost_what_it_held() {
    let (donor, scene) = (Donor::start("256M", &[]), Scene::new());
    let (uri, tcp) = (donor.tcp_uri("e"), donor.tcp());
    let hold = Hold::start(&scene, 32, &[&uri]);
    donor.signal(Signal::KILL);
    donor.end();
    let _again = Donor::start("256M", &["--listen", &tcp]);
    hold.ends_by_sigbus(&uri, "restarted");
}

// ---- A server that is not ours misbehaves.

fn hostile_server(scene: &Scene, manner: Manner) -> (Hostile, Hold, String) {
    let server = Hostile::start(128 * MIB);
    let uri = server.uri("?timeout=20&reconnect=2");
    let mut hold = Hold::start(scene, 24, &[&uri]);
    hold.goes_on(2);
    server.behave(manner);
    (server, hold, uri)
}

fn wrong_contents_are_noticed(manner: Manner) {
    let scene = Scene::new();
    let (server, hold, uri) = hostile_server(&scene, manner);
    hold.ends_by_sigbus(&uri, "seal is wrong");
    assert!(server.misdeeds() > 0);
}

#[test]
fn a_wrong_bit_is_noticed() {
    wrong_contents_are_noticed(Manner::FlipsABit);
}

#[test]
fn outdated_pages_are_noticed() {
    wrong_contents_are_noticed(Manner::Outdated);
}

#[test]
fn swapped_pages_are_noticed() {
    wrong_contents_are_noticed(Manner::NextDoor);
}

#[test]
fn zeros_are_noticed() {
    wrong_contents_are_noticed(Manner::Zeros);
}

#[test]
fn a_server_that_restarts_empty_is_noticed() {
    let scene = Scene::new();
    let (mut server, hold, uri) = hostile_server(&scene, Manner::Honest);
    server.close();
    server.forget();
    server.reopen();
    hold.ends_by_sigbus(&uri, "seal is wrong");
}

/// One page in 32 always comes back wrong: those are lost, each with its line, and the others are right.
#[test]
fn only_the_pages_that_come_back_wrong_are_lost() {
    let (server, scene) = (Hostile::start(128 * MIB), Scene::new());
    let catch = Catch::start(&scene, 24, &server.uri(""));
    server.behave(Manner::FlipsABitOfSome);
    let caught = catch.looks();
    assert_eq!(caught.right + caught.lost, 24 * MIB / 4096);
    assert!(caught.lost >= 50 && caught.right > 12 * caught.lost, "{} {}", caught.right, caught.lost);
    let is_end = |line: &&str| line.contains("seal is wrong") && line.contains("SIGBUS");
    let lines = caught.complaint.lines().filter(is_end).count() as u64;
    assert_eq!(lines, caught.lost, "{}", caught.complaint);
}

/// A read that fails or comes wrong once is made again, of single pages, of blocks and ahead of need.
#[test]
fn reads_that_fail_now_and_then_lose_nothing() {
    for manner in [Manner::RefusesReads(errno::EIO), Manner::FlipsABit, Manner::NextDoor] {
        let scene = Scene::new();
        let (server, mut hold, uri) = hostile_server(&scene, Manner::Honest);
        server.behave_every(23, manner);
        until(PATIENCE, "misdeeds", || (server.misdeeds() >= 40).then_some(()));
        hold.goes_on(2);
        let complaint = hold.ends_whole().complaint();
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.contains(&uri) && complaint.contains("is asked again"), "{complaint}");
        assert!(scene.stats().count("pages_read_again") > 0);
    }
}

#[test]
fn an_error_of_the_server_is_told() {
    let scene = Scene::new();
    let (_server, hold, uri) = hostile_server(&scene, Manner::RefusesReads(errno::EIO));
    hold.ends_by_sigbus(&uri, "EIO");
}

#[test]
fn answers_that_are_no_nbd_are_told() {
    for manner in [Manner::Babbles, Manner::Confused] {
        let scene = Scene::new();
        let (_server, hold, uri) = hostile_server(&scene, manner);
        hold.ends_by_sigbus(&uri, "broke the protocol");
    }
}

#[test]
fn a_server_that_stays_silent_is_given_up() {
    let (server, scene) = (Hostile::start(128 * MIB), Scene::new());
    let uri = server.uri("?timeout=1");
    let hold = Hold::start(&scene, 24, &[&uri]);
    server.behave(Manner::Silent);
    hold.ends_by_sigbus(&uri, "has not answered for 1 s");
}

#[test]
fn a_server_that_is_silent_for_a_while_is_waited_for() {
    let scene = Scene::new();
    let (server, mut hold, _) = hostile_server(&scene, Manner::Silent);
    stands_still(&hold.running, || server.misdeeds() > 0);
    let steps = hold.steps();
    sleep(Duration::from_secs(3));
    assert_eq!(hold.steps(), steps, "it goes on without the server");
    server.behave(Manner::Honest);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    let [waited, answers] = complaint.lines().collect::<Vec<_>>()[..] else { panic!("{complaint}") };
    assert!(waited.contains("has not answered for") && waited.contains("is given up in"), "{waited}");
    assert!(answers.ends_with("answers again"), "{answers}");
}

/// Waits until a program, after `event`, sleeps and has neither used the CPU nor had a page from one look to
/// the next.
fn stands_still(running: &Running, event: impl Fn() -> bool) {
    let child = child_of(running.pid());
    let mut before = String::new();
    until(PATIENCE, "the program to wait for its page", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())).unwrap();
        let is_still = event() && stat == before && !stat.contains(") R ");
        before = stat;
        sleep(Duration::from_millis(50));
        is_still.then_some(())
    });
}

/// A program that notes SIGTERM and goes on until it can heed it, with memory on a server that says nothing
/// any more and is waited for longer than this test.
fn ends_when_told(way: &str) {
    let (server, scene) = (Hostile::start(128 * MIB), Scene::new());
    let uri = server.uri("?timeout=900&reconnect=900");
    let program = c_program("fault_told");
    let mut running = Running::start(scene.run("8M", &[&uri], program).args(["24", way]));
    running.expect("on\n");
    server.behave(Manner::Silent);
    stands_still(&running, || server.misdeeds() > 0);
    running.signal(Signal::TERM);
    let finished = running.finish(PATIENCE);
    let complaint = finished.complaint();
    assert_eq!(finished.code(), BY_SIGKILL, "{complaint}");
    assert!(complaint.contains("was told to end and hangs"), "{complaint}");
}

#[test]
fn a_program_that_waits_for_a_page_ends_when_told() {
    ends_when_told("touch");
}

#[test]
fn a_program_whose_system_call_waits_for_a_page_ends_when_told() {
    ends_when_told("copy");
}

#[test]
fn a_program_that_waits_amid_a_fork_ends_when_told() {
    ends_when_told("fork");
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let (mut server, scene) = (Hostile::start(128 * MIB), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[server.uri("")]);
    for _ in 0..3 {
        hold.goes_on(1);
        server.close();
        stands_still(&hold.running, || true);
        server.reopen();
    }
    hold.goes_on(2);
    only_waited(&hold.ends_whole().complaint());
}

#[test]
fn connections_that_are_cut_in_a_message_are_made_again() {
    let scene = Scene::new();
    let (server, mut hold, _) = hostile_server(&scene, Manner::Honest);
    for manner in [Manner::CutsAnswers, Manner::CutsWrites] {
        server.behave_every(100, manner);
        let before = server.misdeeds();
        until(PATIENCE, "ten cuts", || (server.misdeeds() >= before + 10).then_some(()));
        hold.goes_on(1);
    }
    assert_eq!(hold.ends_whole().complaint(), "");
}

/// Writes that fail now and then leave the page local, and it is written later.
#[test]
fn writes_that_fail_for_a_while_lose_nothing() {
    for error in [errno::EIO, errno::ENOSPC] {
        let scene = Scene::new();
        let (server, mut hold, _) = hostile_server(&scene, Manner::Honest);
        server.behave_every(7, Manner::RefusesWrites(error));
        until(PATIENCE, "refusals", || (server.misdeeds() >= 20).then_some(()));
        hold.goes_on(2);
        server.behave(Manner::Honest);
        hold.goes_on(2);
        hold.ends_whole();
    }
}

// ---- The handshake.

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";

fn refused_at_the_start(uri: &str, reason: &str) {
    let scene = Scene::new();
    let mut running = Running::start(scene.run("8M", &[uri], "/bin/echo").arg("started"));
    let finished = running.finish(SOON);
    let complaint = finished.complaint();
    assert_eq!((finished.code(), finished.text().as_str()), (125, ""), "{uri}: {complaint}");
    assert_eq!(complaint.lines().count(), 1, "{uri}: {complaint}");
    assert!(
        complaint.starts_with("spillway: run: cannot use store ") && complaint.contains(uri),
        "{complaint}"
    );
    assert!(complaint.contains(reason), "not '{reason}': {complaint}");
}

#[test]
fn servers_that_do_not_speak_nbd_are_refused() {
    let endless = [GREETING, &[0x55; 1 << 20]].concat();
    let old = b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53".to_vec();
    let long_reply =
        [GREETING, b"\x00\x03\xe8\x89\x04\x55\x65\xa9", &[0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]];
    let cases = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Then::Close, ""),
        (vec![0xff; 4096], Then::Hang, "magic"),
        (old, Then::Hang, ""),
        (Vec::new(), Then::Close, ""),
        (GREETING[..9].to_vec(), Then::Close, ""),
        (GREETING.to_vec(), Then::Close, ""),
        (endless, Then::Hang, "magic"),
        (long_reply.concat(), Then::Hang, "beyond the limit"),
        (GREETING.to_vec(), Then::Hang, "has not answered for 1 s"),
        (Vec::new(), Then::Hang, "has not answered for 1 s"),
    ];
    for (words, then, reason) in cases {
        let server = Scripted::start(words, then);
        refused_at_the_start(&server.uri("e?timeout=1"), reason);
    }
}

#[test]
fn exports_that_cannot_hold_pages_are_refused() {
    let cases = [
        (Export::default().read_only(), "read-only"),
        (Export { bytes: 0, ..Export::default() }, "does not hold a page"),
        (Export { bytes: 4095, ..Export::default() }, "does not hold a page"),
        (Export { blocks: Some([8192, 8192, 1 << 20]), ..Export::default() }, "no pages of 4096"),
        (Export { blocks: Some([3, 5, 7]), ..Export::default() }, "no pages of 4096"),
        (Export { blocks: Some([0, 0, 0]), ..Export::default() }, "no pages of 4096"),
    ];
    for (offer, reason) in cases {
        refused_at_the_start(&Hostile::offering(offer).uri("?timeout=1"), reason);
    }
}

#[test]
fn nobody_listens() {
    let port = support::child::free_port();
    refused_at_the_start(&format!("nbd://127.0.0.1:{port}/"), "cannot connect");
    refused_at_the_start("shm:no-such-donor", "");
}

// ---- Little local memory.

#[test]
fn too_little_local_memory_is_refused() {
    let scene = Scene::new();
    for local in ["1", "4095K"] {
        let finished = Running::start(&mut scene.run(local, &["ram:"], "/bin/true")).finish(SOON);
        let complaint = finished.complaint();
        assert_eq!((finished.code(), complaint.lines().count()), (125, 1), "{complaint}");
        assert!(complaint.contains("--local") && complaint.contains("at least 4.0 MiB"), "{complaint}");
    }
}

#[test]
fn the_least_local_memory_is_enough_to_go_on() {
    let scene = Scene::new();
    let mut command = scene.run("4M", &["compressed:"], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["32", "2"]));
    hold.goes_on(4);
    hold.ends_whole();
    assert!(scene.stats().count("peak_local_bytes") <= 4 * MIB);
}

// ---- Permissions.

#[test]
fn without_permission_it_refuses_with_the_words_of_doctor() {
    let setting = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap();
    if !rustix::process::getuid().is_root() || setting.trim() != "0" {
        eprintln!("not root, or a machine that lets everybody use userfaultfd: nothing to see here");
        return;
    }
    let scene = Scene::new();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(tool("setpriv", "util-linux"));
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
        Running::start(command.arg(scene.spillway()).args(arguments)).finish(SOON)
    };
    let checks: serde_json::Value = serde_json::from_slice(&as_nobody(&["doctor", "--json"]).stdout).unwrap();
    let permission =
        checks.as_array().unwrap().iter().find(|check| check["check"] == "uffd-permission").unwrap();
    let refused = as_nobody(&["run", "--local", "64M", "--", "/bin/echo", "started"]);
    let complaint = refused.complaint();
    assert_eq!((refused.code(), refused.text().as_str()), (125, ""), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    for key in ["found", "meaning", "remedy"] {
        assert!(complaint.contains(permission[key].as_str().unwrap()), "{key}: {complaint}");
    }
}

// ---- Spillway or the program is killed.

/// A donor that forgets a run one second after its last connection.
fn forgetful_donor() -> (Donor, u64) {
    let donor = Donor::start("256M", &["--grace", "1"]);
    let at_rest = donor.resident_bytes();
    (donor, at_rest)
}

fn expect_given_back(donor: &Donor, at_rest: u64) {
    until(PATIENCE, "the donor's memory to be given back", || {
        (donor.resident_bytes() < at_rest + 8 * MIB).then_some(())
    });
}

#[test]
fn nothing_is_left_of_a_killed_run() {
    let (donor, at_rest) = forgetful_donor();
    let scene = Scene::new();
    let mut command = scene.run("8M", &[donor.tcp_uri("")], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["32", "2"]));
    hold.goes_on(2);
    let run = hold.running.pid();
    assert_eq!(alive_in_group(run).len(), 4);
    assert!(donor.resident_bytes() > at_rest + 16 * MIB);
    hold.running.signal(Signal::KILL);
    assert_eq!(hold.running.finish(SOON).code(), BY_SIGKILL);
    until(SOON, "its processes to end", || alive_in_group(run).is_empty().then_some(()));
    expect_given_back(&donor, at_rest);
}

#[test]
fn a_killed_program_ends_the_run() {
    let (donor, at_rest) = forgetful_donor();
    let scene = Scene::new();
    let mut hold = Hold::start(&scene, 32, &[donor.tcp_uri("")]);
    hold.goes_on(2);
    let run = hold.running.pid();
    rustix::process::kill_process(child_of(run), Signal::KILL).unwrap();
    let finished = hold.running.finish(SOON);
    assert_eq!((finished.code(), finished.complaint().as_str()), (BY_SIGKILL, ""));
    assert_eq!(scene.stats().count("exit_status"), BY_SIGKILL as u64);
    assert!(alive_in_group(run).is_empty());
    expect_given_back(&donor, at_rest);
}

#[test]
fn an_interrupt_from_the_terminal_ends_the_run() {
    let (donor, at_rest) = forgetful_donor();
    let scene = Scene::new();
    let line = format!(
        "{} run --local 8M --store {} -- {} 32",
        scene.spillway().display(),
        donor.tcp_uri(""),
        c_program("fault_hold").display()
    );
    let (keys, mut keyboard) = std::io::pipe().unwrap();
    let mut script = Command::new(tool("script", "bsdutils"));
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut running = Running::start_with(&mut script, OwnedFd::from(keys));
    // The terminal makes two characters of a line's end.
    running.expect("on\r\n");
    keyboard.write_all(b"\x03").unwrap();
    let finished = running.finish(SOON);
    assert_eq!(finished.code(), 130, "{}", finished.text());
    assert!(!finished.text().contains("whole") && !finished.text().contains("wrong"));
    expect_given_back(&donor, at_rest);
}

// ---- Nobody listens to what Spillway says.

#[test]
fn statistics_on_a_full_disk_change_nothing_for_the_program() {
    let scene = Scene::new();
    let mut command = Command::new(scene.spillway());
    command.args([
        "run",
        "--local",
        "8M",
        "--stats",
        "/dev/full",
        "--",
        "/bin/sh",
        "-c",
        "echo works; exit 3",
    ]);
    let finished = Running::start(&mut command).finish(SOON);
    let complaint = finished.complaint();
    assert_eq!((finished.code(), finished.text().as_str()), (3, "works\n"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("--stats /dev/full") && complaint.contains("No space left"), "{complaint}");
}

/// The donor is killed while the program's standard error is `stderr`: it ends as it would otherwise.
fn ends_with_stderr(stderr: impl Into<Stdio>) {
    let (donor, scene) = (Donor::start("64M", &[]), Scene::new());
    let mut command =
        scene.run("8M", &[format!("{}?reconnect=1", donor.tcp_uri(""))], c_program("fault_hold"));
    let progress = scene.work().join("progress");
    let stdout = OpenOptions::new().create(true).append(true).open(&progress).unwrap();
    let mut child = command.arg("32").stdout(stdout).stderr(stderr).spawn().unwrap();
    until(PATIENCE, "the program to go on", || {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before its donor did");
        fs::read_to_string(&progress).unwrap().contains("on\n").then_some(())
    });
    donor.signal(Signal::KILL);
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if begin.elapsed() > SOON => break None,
            None => sleep(Duration::from_millis(5)),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let code = status.expect("it hangs");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&code), Some(BY_SIGBUS - 128), "{code}");
}

#[test]
fn a_full_pipe_for_complaints_hangs_nobody() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    ends_with_stderr(OwnedFd::from(writer));
}

#[test]
fn a_closed_pipe_for_complaints_changes_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    ends_with_stderr(OwnedFd::from(writer));
}
