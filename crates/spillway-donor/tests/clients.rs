//! Clients of a donor that come and go, are greedy, slow or strangers: what one of them gets, and what others
//! keep.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Write;
use std::time::{Duration, Instant};

use spillway_donor::limits::Limits;
use spillway_nbd::errno;
use spillway_nbd::handshake::ClientOption;
use spillway_nbd::private::{Claim, PrivateQuery};
use spillway_nbd::proof::{Purpose, RunKey};
use spillway_nbd::transmission::Command;

use common::raw::{Raw, error_of};
use common::{Running, config, eventually};

const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;

#[test]
fn a_lane_of_an_unknown_run_is_told_so() {
    let donor = Running::start(MIB);
    let key = RunKey::derive("nobody", "");
    let (mut client, answer) = Raw::claimed(donor.tcp, "e", Purpose::Lane, &key);
    assert_eq!(answer, "spillway:lost");
    assert!(error_of(&client.go("e"), 1 << 31 | 6), "never an empty export instead of the lost one");
}

/// Who listens on the network while a run is at work gets hold of everything that travels; none of it opens
/// the run's export.
#[test]
fn what_travels_opens_no_further_connection() {
    let donor = Running::start(MIB);
    let (key, run) = (RunKey::derive("run", "uri"), Purpose::Run { size_bytes: 65536 });
    let (mut first, answer) = Raw::claimed(donor.tcp, "e", run, &key);
    assert_eq!(answer, "yes");
    assert!(first.go("e")[0].contains("size_bytes: 65536"));
    assert_eq!(first.write(0, b"secret"), 0);

    let mut lane = Raw::greeted(donor.tcp);
    lane.option(&ClientOption::StructuredReply);
    let nonce = lane.challenge("e");
    let heard = PrivateQuery::Claim(Claim::new(&key, nonce, Purpose::Lane, "e")).text();
    assert_eq!(lane.context("e", &heard), heard);

    let refused = |client: &mut Raw| {
        let replies = client.go("e");
        assert!(error_of(&replies, 1 << 31 | 2), "{replies:?}");
    };
    // Said again, on another connection and on this one.
    let mut sniffer = Raw::greeted(donor.tcp);
    sniffer.option(&ClientOption::StructuredReply);
    assert_eq!(sniffer.context("e", &heard), "spillway:refused");
    refused(&mut sniffer);
    assert_ne!(sniffer.challenge("e"), nonce);
    assert_eq!(sniffer.context("e", &heard), "spillway:refused");
    refused(&mut sniffer);
    assert_eq!(lane.context("e", &heard), "spillway:refused");
    refused(&mut lane);
    // The run's name with another's signature; a signature for another export; the form of other versions.
    let nonce = sniffer.challenge("e");
    let theirs = Claim::new(&RunKey::derive("sniffer", "uri"), nonce, Purpose::Lane, "e");
    let forged = PrivateQuery::Claim(Claim { key: key.public(), ..theirs }).text();
    assert_eq!(sniffer.context("e", &forged), "spillway:refused");
    let nonce = sniffer.challenge("e");
    let elsewhere = PrivateQuery::Claim(Claim::new(&key, nonce, Purpose::Lane, "f")).text();
    assert_eq!(sniffer.context("e", &elsewhere), "spillway:refused");
    assert_eq!(sniffer.context("e", "spillway:lane=0123456789abcdef0123456789abcdef"), "spillway:refused");
    refused(&mut sniffer);
    // Nobody else can end the run either.
    assert_eq!(first.read(0, 6), Ok(b"secret".to_vec()));
    assert!(donor.status().counts.refusals >= 4);
}

#[test]
fn a_disconnect_ends_a_run_on_the_connection_that_began_it_only() {
    let donor = Running::start(MIB);
    let key = RunKey::derive("run", "uri");
    let (mut first, _) = Raw::claimed(donor.tcp, "e", Purpose::Run { size_bytes: 0 }, &key);
    first.go("e");
    let open_lane = || {
        let (mut lane, answer) = Raw::claimed(donor.tcp, "e", Purpose::Lane, &key);
        (answer == "yes").then(|| {
            lane.go("e");
            lane
        })
    };
    let mut lane = open_lane().unwrap();
    assert_eq!(lane.write(0, &[1; PAGE]), 0);
    lane.request(Command::Disconnect, 0, 0, &[]);
    assert!(lane.is_hung_up_on());
    let mut lane = open_lane().unwrap();
    assert_eq!(lane.read(0, 1), Ok(vec![1]));
    first.request(Command::Disconnect, 0, 0, &[]);
    assert!(first.is_hung_up_on());
    assert_eq!(donor.status().memory.free_bytes, MIB);
    assert_eq!(lane.read(0, 1), Err(errno::ESHUTDOWN));
    assert!(open_lane().is_none());
}

/// A process of a run may end at any moment. Of others it is told that they broke off.
#[test]
fn a_lane_that_ends_amid_a_request_has_not_failed() {
    let donor = Running::start(MIB);
    let key = RunKey::derive("run", "uri");
    let (mut first, _) = Raw::claimed(donor.tcp, "e", Purpose::Run { size_bytes: 0 }, &key);
    first.go("e");
    let open = || donor.status().clients.iter().map(|client| client.connections).sum::<u64>();
    let is_alone = || eventually("the other has left", || open() == 1);
    let half_a_write = |client: &mut Raw| {
        client.request(Command::Write, 0, PAGE as u32, &[1; PAGE / 2]);
    };
    // An answer that nobody has read when the connection is closed makes a reset of the end.
    let leaves_an_answer = |client: &mut Raw| {
        client.request(Command::Read, 0, PAGE as u32, &[]);
        client.head();
    };
    let ways: [&dyn Fn(&mut Raw); 2] = [&half_a_write, &leaves_an_answer];
    for ends in ways {
        let (mut lane, _) = Raw::claimed(donor.tcp, "e", Purpose::Lane, &key);
        lane.go("e");
        ends(&mut lane);
        drop(lane);
        is_alone();
        assert_eq!(donor.status().counts.failed_connections, 0);
    }
    let mut other = Raw::opened(donor.tcp, "named", false);
    half_a_write(&mut other);
    drop(other);
    is_alone();
    assert_eq!(donor.status().counts.failed_connections, 1);
    let mut other = Raw::opened(donor.tcp, "named", false);
    leaves_an_answer(&mut other);
    drop(other);
    is_alone();
    assert_eq!(donor.status().counts.failed_connections, 2);
}

/// A client that only says that it will write much takes nothing from others, and not for long.
#[test]
fn writes_that_do_not_come_hold_no_memory() {
    let limits = Limits { request: Duration::from_secs(2), request_bytes_per_s: u64::MAX, ..Limits::of(64) };
    let donor = Running::start_with(spillway_donor::Config { limits, ..config(MIB) });
    let mut slow: Vec<_> = (0..16)
        .map(|number| {
            let mut client = Raw::opened(donor.tcp, &format!("slow-{number}"), false);
            client.request(Command::Write, 0, MIB as u32, &[1; 1000]);
            client
        })
        .collect();
    let mut good = Raw::opened(donor.tcp, "good", false);
    let almost_all = vec![7; MIB as usize - PAGE];
    assert_eq!(good.write(0, &almost_all), 0);
    // A byte now and then does not buy time.
    let begin = Instant::now();
    let mut left = slow.len();
    while left > 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{left} are still connected");
        std::thread::sleep(Duration::from_millis(100));
        left = slow.iter_mut().filter_map(|client| client.0.write_all(b"x").ok()).count();
    }
    assert_eq!(good.read(0, PAGE as u32), Ok(vec![7; PAGE]));
    assert_eq!(donor.stop().failed_connections, 16);
}

/// What came of a write that breaks off is given back.
#[test]
fn half_a_write_leaves_nothing_behind() {
    let donor = Running::start(MIB);
    let mut client = Raw::opened(donor.tcp, "e", false);
    client.request(Command::Write, 0, MIB as u32, &vec![1; MIB as usize / 2]);
    eventually("some of it is there", || donor.status().memory.used_bytes > 0);
    drop(client);
    eventually("it is given back", || donor.status().memory.used_bytes == 0);
    assert_eq!(Raw::opened(donor.tcp, "e", false).read(0, 1), Ok(vec![0]));
}

/// A client that knows that it is in does not have to go for one that comes at the very next moment.
#[test]
fn who_was_told_that_it_is_in_stays() {
    let limits = Limits { connections_per_client: 1, ..Limits::of(4) };
    let donor = Running::start_with(spillway_donor::Config { limits, ..config(MIB) });
    for turn in 0..200 {
        let mut first = Raw::opened(donor.tcp, "e", false);
        assert!(Raw::connect(donor.tcp).is_hung_up_on(), "turn {turn}: the second was let in");
        assert_eq!(first.read(0, 1), Ok(vec![0]), "turn {turn}");
        drop(first);
        eventually("the first has left", || donor.status().clients.iter().all(|of| of.connections == 0));
    }
}

/// Handshakes that hang make room for others, and end by themselves.
#[test]
fn hanging_handshakes_do_not_keep_others_out() {
    let limits = Limits { connections_per_client: 4, ..Limits::of(4) };
    let donor = Running::start_with(spillway_donor::Config { limits, ..config(MIB) });
    let begin = Instant::now();
    let mut hanging: Vec<_> = (0..4).map(|_| Raw::connect(donor.tcp)).collect();
    for client in &mut hanging {
        client.array::<18>();
    }
    let mut good: Vec<_> = (0..3).map(|_| Raw::opened(donor.tcp, "e", false)).collect();
    for client in &mut good {
        assert_eq!(client.write(0, b"x"), 0);
    }
    // Three made room; the last is told to go when its time is over, even if it says a little now and then.
    let mut last = hanging.pop().unwrap();
    assert!(hanging.iter_mut().all(Raw::is_hung_up_on));
    while last.0.write_all(b"\0").is_ok() && begin.elapsed() < Duration::from_secs(25) {
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(last.is_hung_up_on());
    // Clients that are through their handshake stay: the fifth is turned away.
    good.push(Raw::opened(donor.tcp, "e", false));
    assert!(Raw::connect(donor.tcp).is_hung_up_on());
    for client in &mut good {
        assert_eq!(client.read(0, 1), Ok(b"x".to_vec()));
    }
    drop(good);
    eventually("there is room again", || {
        let mut client = Raw::connect(donor.tcp);
        client.0.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        std::io::Read::read(&mut client.0, &mut [0; 18]).is_ok_and(|bytes| bytes == 18)
    });
}

/// A client that takes connection after connection and says nothing on them shuts nobody out.
#[test]
fn idle_connections_shut_nobody_out() {
    let limits = Limits { idle: Duration::from_secs(1), connections_per_client: 8, ..Limits::of(8) };
    let donor = Running::start_with(spillway_donor::Config { limits, ..config(MIB) });
    let mut idle: Vec<_> = (0..7).map(|_| Raw::opened(donor.tcp, "idle", false)).collect();
    let (mut first, answer) =
        Raw::claimed(donor.tcp, "e", Purpose::Run { size_bytes: 65536 }, &RunKey::derive("run", "uri"));
    first.go("e");
    assert_eq!(answer, "yes");
    // Another client: a user of this machine.
    let spec: spillway_store::StoreSpec = format!("{}&size=64K", donor.unix_uri("e")).parse().unwrap();
    let mut parts = None;
    eventually("one that rests makes room", || {
        parts = spec.prepare("newcomer").ok();
        parts.is_some()
    });
    assert_eq!(first.write(0, b"x"), 0, "the connection that holds a run stays");
    let store = spec.open(parts.unwrap(), "newcomer").unwrap();
    drop(store.open_lane().unwrap());
    let hung_up = idle.iter_mut().filter_map(|client| {
        client.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        client.is_hung_up_on().then_some(())
    });
    assert!((1..7).contains(&hung_up.count()));
}

/// A signal lets nobody new in, and lets runs that are there go on, with further connections too.
#[test]
fn a_donor_that_is_told_to_end_waits_for_its_runs() {
    let drain = Duration::from_secs(20);
    let donor = Running::start_with(spillway_donor::Config { drain, ..config(MIB) });
    let spec: spillway_store::StoreSpec = format!("{}?size=64K", donor.tcp_uri("e")).parse().unwrap();
    let parts = spec.prepare("run").unwrap();
    let fd = parts.fd.as_ref().unwrap().try_clone().unwrap();
    let store = spec.open(parts, "run").unwrap();
    donor.signal();
    eventually("it lets nobody new in", || donor.status().is_ending);
    let text = spec.prepare("another").unwrap_err().to_string();
    assert!(text.contains("this donor is ending"), "{text}");
    let replies = Raw::greeted(donor.tcp).go("disk");
    assert!(error_of(&replies, 1 << 31 | 7), "{replies:?}");
    let mut lane = store.open_lane().unwrap();
    let content = spillway_store::testing::pages(8, 1);
    let slots: Vec<u32> = (0..8).collect();
    assert!(spillway_store::testing::write(&mut *lane, &slots, &content).iter().all(Result::is_ok));
    spillway_store::testing::expect_pages(&mut *lane, &slots, &content);
    let begin = Instant::now();
    drop(lane);
    spec.end(&fd);
    drop((store, fd));
    donor.end();
    assert!(begin.elapsed() < drain / 2, "it ends when its runs have");
}

#[test]
fn a_second_signal_ends_a_donor_at_once() {
    let donor =
        Running::start_with(spillway_donor::Config { drain: Duration::from_secs(600), ..config(MIB) });
    let mut client = Raw::opened(donor.tcp, "e", false);
    assert_eq!(client.write(0, b"x"), 0);
    donor.signal();
    eventually("it lets nobody new in", || donor.status().is_ending);
    assert_eq!(client.read(0, 1), Ok(b"x".to_vec()));
    donor.signal();
    assert_eq!(donor.end().stored_bytes, PAGE as u64);
    assert!(client.is_hung_up_on());
}

#[test]
fn the_status_tells_who_holds_what() {
    let donor = Running::start(MIB);
    let mut named = Raw::opened(donor.tcp, "disk", false);
    assert_eq!(named.write(0, &[1; 3 * PAGE]), 0);
    let (mut run, _) =
        Raw::claimed(donor.tcp, "e", Purpose::Run { size_bytes: 65536 }, &RunKey::derive("run", "uri"));
    run.go("e");
    assert_eq!(run.write(0, &[1; 2 * PAGE]), 0);
    assert_eq!(run.read(0, PAGE as u32), Ok(vec![1; PAGE]));
    let status = donor.status();
    let page = PAGE as u64;
    let memory = status.memory;
    assert_eq!((memory.offered_bytes, memory.used_bytes), (MIB, 5 * page));
    assert_eq!((memory.promised_bytes, memory.free_bytes), (65536, MIB - 65536 - 3 * page));
    let [client] = &status.clients[..] else { panic!("{status:?}") };
    assert_eq!((&*client.client, client.connections, client.exports), ("127.0.0.1", 2, 2));
    assert_eq!((client.promised_bytes, client.held_bytes), (65536, 5 * page));
    let [disk, private] = &status.exports[..] else { panic!("{status:?}") };
    assert_eq!((&*disk.name, disk.run, disk.promised_bytes, disk.held_bytes), ("disk", None, None, 3 * page));
    assert_eq!((private.run, private.promised_bytes, private.held_bytes), (Some(1), Some(65536), 2 * page));
    let counts = status.counts;
    assert_eq!((counts.connections, counts.granted_runs, counts.requests), (2, 1, 3));
    assert_eq!((counts.written_bytes, counts.read_bytes), (5 * page, page));
    drop(run);
    eventually("the run is lost", || donor.status().exports[1].grace_left_s.is_some());
    let text = donor.status().to_string();
    assert!(
        text.contains("run 1 of 127.0.0.1: 8.0 KiB held of 64.0 KiB promised, 0 connections, lost"),
        "{text}"
    );
}
