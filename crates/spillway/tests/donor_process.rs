//! `spillway donor` as a process: its lines, its end, its memory, and what its clients see when it is killed
//! or stopped.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use donor_common::{Donor, command, eventually};
use rustix::process::Signal;
use spillway_store::StoreError;
use spillway_store::testing::{expect_pages, open_store, pages, read, write};

const MIB: u64 = 1 << 20;

fn fails(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// A store of a run that asks for so much, by each of the three ways.
fn uris(donor: &Donor, size: &str) -> [String; 3] {
    [
        format!("{}?size={size}", donor.tcp_uri("e")),
        format!("{}&size={size}", donor.unix_uri("e")),
        format!("{}?size={size}", donor.shm_uri()),
    ]
}

#[test]
fn ends_cleanly_on_sigterm_and_sigint() {
    for signal in [Signal::TERM, Signal::INT] {
        let donor = Donor::start("16M", &["--drain", "0.1"]);
        let socket = donor.socket.clone();
        assert!(donor.ready.starts_with("listening on nbd://127.0.0.1:"), "{}", donor.ready);
        assert!(
            donor.ready.contains(&donor.shm_uri()) && donor.ready.contains("16.0 MiB"),
            "{}",
            donor.ready
        );
        // One export by three ways would still be three: each store of a run has its own.
        let stores = uris(&donor, "4M").map(|uri| open_store(&uri));
        let mut lanes: Vec<_> = stores.iter().map(|(_, store)| store.open_lane().unwrap()).collect();
        for lane in &mut lanes {
            assert!(write(&mut **lane, &[1], &pages(1, 1))[0].is_ok());
        }
        donor.signal(signal);
        let (status, rest) = donor.end();
        assert!(status.success(), "{status}");
        let (connections, outcome) =
            rest.strip_prefix("ended: ").unwrap().split_once(" connections").unwrap();
        // Each store has one that begins its run and a lane, and may have tried whether it gets more.
        assert!(connections.parse::<u32>().unwrap() >= 6, "{rest}");
        assert_eq!(outcome, ", of which 0 failed; 0 refused; 12.0 KiB were stored\n");
        assert!(!socket.exists());
    }
}

#[test]
fn prints_json_on_request() {
    let donor = Donor::start("1M", &["--json"]);
    let ready: serde_json::Value = serde_json::from_str(&donor.ready).unwrap();
    assert_eq!(ready["memory_bytes"], MIB);
    assert_eq!(ready["listening_on"][0], donor.tcp_uri("").trim_end_matches('/'));
    assert_eq!(ready["listening_on"].as_array().unwrap().len(), 3);
    let ended: serde_json::Value = serde_json::from_str(&donor.stop().1).unwrap();
    assert_eq!((&ended["connections"], &ended["stored_bytes"]), (&0.into(), &0.into()));
}

#[test]
fn refuses_to_start_with_thing_reason_and_remedy() {
    let donor = Donor::start("1M", &[]);
    let tcp = donor.tcp();
    let text = fails(&["--memory", "1M", "--listen", &tcp]);
    assert!(
        text.contains(&format!("cannot listen on nbd://{tcp}")) && text.contains("choose another port"),
        "{text}"
    );
    let text = fails(&["--memory", "1M", "--unix", donor.socket.to_str().unwrap()]);
    assert!(text.contains("another program listens there"), "{text}");
    let text = fails(&["--memory", "1M", "--shm", &donor.shm]);
    assert!(text.contains("another donor has that name"), "{text}");
    let text = fails(&["--memory", "1000G", "--shm", "x"]);
    assert!(text.contains("1000.0 GiB is more than the ") && text.contains("--force"), "{text}");
    let text = fails(&["--memory", "1K", "--shm", "x"]);
    assert!(text.contains("between 4 KiB and 16 TiB"), "{text}");
    let text = fails(&["--memory", "1M", "--unix", "/nonexistent/directory/socket"]);
    assert!(text.contains("in a directory that you may write to"), "{text}");
    let text = fails(&["--memory", "1M"]);
    assert!(text.contains("--listen") && text.contains("--unix") && text.contains("--shm"), "{text}");
    for arguments in [
        ["--shm", "x", "--memory", "many"],
        ["--memory", "1M", "--listen", "nowhere"],
        ["--memory", "1M", "--shm", "a/b"],
        ["drop", "compressed:", "--shm", "x"],
    ] {
        fails(&arguments);
    }
    fails(&["drop", "compressed:"]);
    fails(&["drop", "shm:x"]);
    let text = fails(&["drop", &donor.tcp_uri("none")]);
    assert!(text.contains("no export of that name"), "{text}");
}

#[test]
fn takes_over_a_socket_that_nobody_listens_on_but_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("stale");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let donor = command(&["--memory", "1M", "--unix", socket.to_str().unwrap()])
        .stdout(std::process::Stdio::null())
        .spawn();
    let mut donor = donor.unwrap();
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    eventually("the donor listens", || {
        uri.parse::<spillway_store::StoreSpec>().unwrap().prepare("t").is_ok()
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&donor), Signal::TERM).unwrap();
    assert!(donor.wait().unwrap().success() && !socket.exists());

    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let text = fails(&["--memory", "1M", "--unix", file.to_str().unwrap()]);
    assert!(text.contains("no socket"), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

/// Seen from outside, by the donor's resident set.
#[test]
fn memory_is_taken_when_written_and_given_back_when_trimmed() {
    let donor = Donor::start("256M", &["--grace", "0"]);
    let at_rest = donor.resident_bytes();
    assert!(at_rest < 24 * MIB, "{at_rest}");
    for uri in [donor.tcp_uri("e"), donor.unix_uri("e"), donor.shm_uri()] {
        let (parts, store) = open_store(&uri);
        let mut lane = store.open_lane().unwrap();
        let content = pages(1024, 1);
        for chunk in 0..32u32 {
            let slots: Vec<u32> = (0..1024).map(|slot| chunk * 1024 + slot).collect();
            assert!(write(&mut *lane, &slots, &content).iter().all(Result::is_ok));
        }
        let full = donor.resident_bytes();
        assert!(full >= at_rest + 126 * MIB && full <= at_rest + 140 * MIB, "{uri}: {full}");
        // Zeros need no memory.
        let zeros = vec![[0; 4096]; 8192];
        let slots: Vec<u32> = (0..8192).collect();
        assert!(write(&mut *lane, &slots, &zeros).iter().all(Result::is_ok));
        eventually("a quarter is given back", || donor.resident_bytes() < full - 31 * MIB);
        expect_pages(&mut *lane, &slots[..100], &zeros[..100]);
        lane.discard(&(8192..16384).collect::<Vec<_>>());
        eventually("half is given back", || donor.resident_bytes() < full - 62 * MIB);
        expect_pages(&mut *lane, &[16384, 32767], &[content[0], content[1023]]);
        // The run leaves, and its export goes.
        drop((lane, parts, store));
        eventually("all is given back", || donor.resident_bytes() < at_rest + 8 * MIB);
    }
}

#[test]
fn a_killed_donor_is_reported_and_nobody_hangs() {
    let donor = Donor::start("16M", &[]);
    let uris = [
        format!("{}?size=4M&reconnect=0.3", donor.tcp_uri("e")),
        format!("{}&size=4M&reconnect=0.3", donor.unix_uri("e")),
        format!("{}?size=4M", donor.shm_uri()),
    ];
    let stores = uris.clone().map(|uri| open_store(&uri));
    let mut lanes: Vec<_> = stores.iter().map(|(_, store)| store.open_lane().unwrap()).collect();
    let slots: Vec<u32> = (0..256).collect();
    let content = pages(256, 1);
    for lane in &mut lanes {
        assert!(write(&mut **lane, &slots, &content).iter().all(Result::is_ok));
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (lane, uri) in lanes.iter_mut().zip(&uris) {
            let (slots, content) = (&slots, &content);
            scope.spawn(move || {
                // Until the donor is killed, and every page is right until then.
                loop {
                    for (back, page) in read(&mut **lane, slots).into_iter().zip(content) {
                        match back {
                            Ok(back) => assert!(back == *page),
                            Err(StoreError::Gone { store, .. }) => {
                                assert_eq!(store, *uri);
                                return;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        donor.signal(Signal::KILL);
    });
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_stopped_donor_is_waited_for() {
    const STOPPED: Duration = Duration::from_secs(10);
    let donor = Donor::start("16M", &[]);
    let stores = uris(&donor, "4M").map(|uri| open_store(&uri));
    let mut lanes: Vec<_> = stores.iter().map(|(_, store)| store.open_lane().unwrap()).collect();
    let content = pages(1024, 1);
    let slots: Vec<u32> = (0..1024).collect();
    donor.signal(Signal::STOP);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for lane in &mut lanes {
            scope.spawn(|| {
                // 4 MiB fill every buffer on the way.
                assert!(write(&mut **lane, &slots, &content).iter().all(Result::is_ok));
                expect_pages(&mut **lane, &slots, &content);
                assert!(begin.elapsed() >= STOPPED);
            });
        }
        // A lane that opens meanwhile waits too.
        let store = &stores[0].1;
        scope.spawn(|| expect_zero_length(&mut *store.open_lane().unwrap()));
        std::thread::sleep(STOPPED);
        donor.signal(Signal::CONT);
    });
}

fn expect_zero_length(lane: &mut dyn spillway_store::Lane) {
    lane.read(&mut []);
}

#[test]
fn a_restarted_donor_has_lost_what_it_held_and_clients_are_told() {
    let donor = Donor::start("16M", &[]);
    let (uri, tcp) = (donor.tcp_uri("e"), donor.tcp());
    let (_parts, store) = open_store(&uri);
    let mut lane = store.open_lane().unwrap();
    assert!(write(&mut *lane, &[0], &pages(1, 1))[0].is_ok());
    donor.signal(Signal::KILL);
    donor.end();
    let _again = Donor::start("16M", &["--listen", &tcp]);
    match &read(&mut *lane, &[0])[0] {
        Err(StoreError::Gone { reason, .. }) => assert!(reason.contains("it was restarted"), "{reason}"),
        other => panic!("{:?}", other.is_ok()),
    }
}

#[test]
fn a_hangup_changes_nothing_and_is_told() {
    let donor = Donor::start("1M", &[]);
    let (_parts, store) = open_store(&donor.tcp_uri("e"));
    let mut lane = store.open_lane().unwrap();
    assert!(write(&mut *lane, &[0], &pages(1, 1))[0].is_ok());
    donor.signal(Signal::HUP);
    eventually("it is told", || donor.log().contains("SIGHUP: there is nothing to read again"));
    expect_pages(&mut *lane, &[0], &pages(1, 1));
    assert!(open_store_now(&donor.tcp_uri("e")).is_ok());
}

/// Whether an export of that URI can be opened for the run that has it open already.
fn open_store_now(uri: &str) -> Result<(), StoreError> {
    uri.parse::<spillway_store::StoreSpec>().unwrap().prepare("test").map(|_| ())
}

#[test]
fn the_first_signal_waits_for_runs_with_a_line_and_the_second_ends_at_once() {
    let donor = Donor::start("1M", &["--drain", "600"]);
    let (_parts, store) = open_store(&format!("{}?size=64K", donor.tcp_uri("e")));
    let mut lane = store.open_lane().unwrap();
    donor.signal(Signal::TERM);
    eventually("it says for whom it waits", || {
        let log = donor.log();
        log.contains("waits up to 600 s for 1 runs and ") && log.contains("a second signal ends it at once")
    });
    assert!(write(&mut *lane, &[0], &pages(1, 1))[0].is_ok());
    let spec: spillway_store::StoreSpec = donor.tcp_uri("other").parse().unwrap();
    let text = spec.prepare("other").unwrap_err().to_string();
    assert!(text.contains("this donor is ending"), "{text}");
    let begin = Instant::now();
    donor.signal(Signal::TERM);
    assert!(donor.end().0.success() && begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_happens_is_written_down_and_the_status_can_be_asked_for() {
    let donor = Donor::start("16M", &["--per-run", "8M"]);
    let spec: spillway_store::StoreSpec = donor.tcp_uri("e").parse().unwrap();
    let (parts, store) = open_store(&donor.tcp_uri("e"));
    assert_eq!(store.capacity_slots(), 2048);
    assert!(write(&mut *store.open_lane().unwrap(), &[0, 1, 2], &pages(3, 1)).iter().all(Result::is_ok));
    let too_much: spillway_store::StoreSpec = format!("{}&size=9M", donor.unix_uri("e")).parse().unwrap();
    assert!(too_much.prepare("two").is_err());

    let output = command(&["status", "--json"]).output().unwrap();
    assert!(output.status.success());
    // Other tests' donors are on this machine too.
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = all.as_array().unwrap().iter().find(|status| status["pid"] == donor.pid()).unwrap();
    assert_eq!(status["listening_on"].as_array().unwrap().len(), 3);
    assert_eq!(status["memory"]["offered_bytes"], 16 * MIB);
    assert_eq!(status["memory"]["promised_bytes"], 8 * MIB);
    assert_eq!(status["memory"]["used_bytes"], 3 * 4096);
    assert_eq!(status["memory"]["free_bytes"], 8 * MIB);
    assert_eq!(status["exports"][0]["run"], 1);
    assert_eq!(status["exports"][0]["held_bytes"], 3 * 4096);
    assert_eq!(status["clients"][0]["client"], "127.0.0.1");
    assert_eq!((&status["counts"]["granted_runs"], &status["counts"]["refusals"]), (&1.into(), &1.into()));
    let output = command(&["status"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = format!("donor {} (version", donor.pid());
    let own = text.split("\n\n").find(|one| one.starts_with(&wanted)).unwrap();
    let memory = "memory: 16.0 MiB offered, 12.0 KiB used, 8.0 MiB promised, 8.0 MiB free";
    assert!(
        own.contains(memory) && own.contains("run 1 of 127.0.0.1: 12.0 KiB held of 8.0 MiB promised"),
        "{own}"
    );

    spec.end(&parts.fd.unwrap());
    let log = donor.log();
    for line in [
        "spillway donor: 127.0.0.1 has come\n",
        "spillway donor: run 1 of 127.0.0.1 begins: 8.0 MiB promised, 8.0 MiB left to promise\n",
        "was refused: 9.0 MiB were asked for, and this donor promises a run 8.0 MiB at most",
        "spillway donor: run 1 of 127.0.0.1 has ended: 12.0 KiB given back\n",
    ] {
        assert!(log.contains(line), "'{line}' is not in:\n{log}");
    }
}

/// Memory is kept from being swapped, and the donor from being ended for others' sake, or it says why not.
#[test]
fn what_protects_the_memory_is_done_or_told() {
    let donor = Donor::start("64M", &[]);
    let log = donor.log();
    let status = std::fs::read_to_string(format!("/proc/{}/status", donor.pid())).unwrap();
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    let locked_kib: u64 = locked.trim().trim_end_matches(" kB").parse().unwrap();
    if log.contains("its memory is locked: pages that it holds are never swapped") {
        assert!(locked_kib >= 64 << 10, "{locked}");
    } else {
        assert!(log.contains("its memory is not locked") && log.contains("raise 'ulimit -l'"), "{log}");
    }
    let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", donor.pid())).unwrap();
    if log.contains("the kernel ends other processes first") {
        assert!(score.trim().parse::<i32>().unwrap() <= -500, "{score}");
    } else {
        assert!(log.contains("the kernel may end this donor") && log.contains("CAP_SYS_RESOURCE"), "{log}");
    }
}

/// The donor's own memory, searched for what a run stored.
#[test]
fn nothing_of_a_run_is_left_when_it_has_ended() {
    const MARK: &[u8; 16] = b"only-of-this-run";
    let donor = Donor::start("16M", &[]);
    let mut page = [0; 4096];
    page.as_chunks_mut::<16>().0.fill(*MARK);
    let (content, slots) = (vec![page; 512], (0..512).collect::<Vec<u32>>());
    let stores: Vec<_> = uris(&donor, "2M").map(|uri| (open_store(&uri), uri)).into();
    for ((_, store), _) in &stores {
        let mut lane = store.open_lane().unwrap();
        assert!(write(&mut *lane, &slots, &content).iter().all(Result::is_ok));
        expect_pages(&mut *lane, &slots, &content);
    }
    assert!(marks(donor.pid(), MARK) >= 3 * 512 * 256);
    for ((parts, store), uri) in stores {
        drop(store);
        uri.parse::<spillway_store::StoreSpec>().unwrap().end(&parts.fd.unwrap());
    }
    eventually("nothing is left", || marks(donor.pid(), MARK) == 0);
}

/// How often a process has these bytes in its memory.
fn marks(pid: u32, mark: &[u8; 16]) -> usize {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut found = 0;
    for line in
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw")))
    {
        let (begin, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; (end - begin) as usize];
        // Not all mappings can be read.
        if memory.read_exact_at(&mut bytes, begin).is_ok() {
            let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == mark[0]);
            found += starts.filter(|(at, _)| bytes[*at..].starts_with(mark)).count();
        }
    }
    found
}

/// Buffers are there while a connection works.
#[test]
fn connections_that_rest_take_little_memory() {
    const LANES: u64 = 150;
    let donor = Donor::start("16M", &[]);
    let (_parts, store) = open_store(&donor.tcp_uri("e"));
    let at_rest = donor.resident_bytes();
    let content = pages(256, 1);
    let slots: Vec<u32> = (0..256).collect();
    let mut lanes: Vec<_> = (0..LANES).map(|_| store.open_lane().unwrap()).collect();
    for lane in &mut lanes {
        assert!(write(&mut **lane, &slots, &content).iter().all(Result::is_ok));
        expect_pages(&mut **lane, &slots, &content);
    }
    let most = at_rest + MIB + LANES * (40 << 10);
    eventually("buffers are given back", || donor.resident_bytes() < most);
    expect_pages(&mut *lanes[0], &slots, &content);
}
