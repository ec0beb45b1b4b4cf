//! The client stores against a donor in this process: what every store must do, privacy, the grace time, a
//! full donor, a lost one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::raw::Raw;
use common::{Running, config, eventually};
use spillway_nbd::errno;
use spillway_store::fabric::Fabric;
use spillway_store::testing::{check_store, expect_pages, open_again, open_store, pages, read, write};
use spillway_store::{SharedParts, StoreError, StoreSpec};

const MIB: u64 = 1 << 20;

#[test]
fn stores_over_tcp_do_what_every_store_must() {
    check_store(&Running::start(16 * MIB).tcp_uri("swap"));
}

#[test]
fn stores_over_a_unix_socket_do_what_every_store_must() {
    check_store(&Running::start(16 * MIB).unix_uri(""));
}

#[test]
fn stores_over_a_ring_do_what_every_store_must() {
    check_store(&Running::start(16 * MIB).shm_uri());
}

/// The model of a network changes how long it takes, and nothing else; the link is the run's.
#[test]
fn a_store_over_a_modelled_network_does_what_every_store_must() {
    let donor = Running::start(16 * MIB);
    check_store(&format!("{}?fabric=fdr&size=8M", donor.shm_uri()));
    let uri = format!("{}?fabric=fdr", donor.shm_uri());
    let (_parts, store) = open_store(&uri);
    let mut lane = store.open_lane().unwrap();
    let content = pages(256, 3);
    let slots: Vec<u32> = (0..256).collect();
    assert!(write(&mut *lane, &slots, &content).iter().all(Result::is_ok));
    let begun = Instant::now();
    expect_pages(&mut *lane, &slots, &content);
    assert!(begun.elapsed() >= Duration::from_nanos(16 * Fabric::Fdr.occupancy_ns(16)));
}

/// Batches far larger than a ring, a socket's buffer or a run, with slots in all orders.
#[test]
fn large_batches_go_through() {
    let donor = Running::start(64 * MIB);
    for uri in donor.uris("16M") {
        let (_parts, store) = open_store(&uri);
        let mut lane = store.open_lane().unwrap();
        let pages = pages(3000, 7);
        for stride in [1, 7, 1999] {
            let slots: Vec<u32> = (0..3000).map(|n| n * stride % 3000).collect();
            let outcomes = write(&mut *lane, &slots, &pages);
            assert!(outcomes.iter().all(Result::is_ok), "{uri}: {:?}", outcomes.iter().find(|o| o.is_err()));
            expect_pages(&mut *lane, &slots, &pages);
        }
        lane.discard(&(0..3000).collect::<Vec<_>>());
    }
}

#[test]
fn runs_with_the_same_export_do_not_see_each_other() {
    let donor = Running::start(16 * MIB);
    for uri in donor.uris("1M") {
        let spec: StoreSpec = uri.parse().unwrap();
        let stores: Vec<_> = ["one", "two"]
            .map(|token| {
                let parts = spec.prepare(token).unwrap();
                let fd = parts.fd.as_ref().map(|fd| fd.try_clone().unwrap());
                let again = spillway_store::SharedParts {
                    capacity_slots: parts.capacity_slots,
                    fd,
                    held: Vec::new(),
                    spill: None,
                    notice: None,
                };
                (parts, spec.open(again, token).unwrap())
            })
            .into();
        let mut lanes: Vec<_> = stores.iter().map(|(_, store)| store.open_lane().unwrap()).collect();
        let contents = [pages(8, 1), pages(8, 2)];
        let slots: Vec<u32> = (0..8).collect();
        for (lane, pages) in lanes.iter_mut().zip(&contents) {
            assert!(write(&mut **lane, &slots, pages).iter().all(Result::is_ok));
        }
        for (lane, pages) in lanes.iter_mut().zip(&contents) {
            expect_pages(&mut **lane, &slots, pages);
        }
    }
}

/// The kept connection holds the export; without it and all lanes, the export goes after the grace time, and
/// a lane that comes later is told so, rather than given an empty export.
#[test]
fn a_runs_export_lives_as_long_as_the_run_and_then_goes() {
    let donor = Running::start_with(spillway_donor::Config { grace: Duration::ZERO, ..config(MIB) });
    for uri in [donor.tcp_uri("e"), donor.unix_uri("e"), donor.shm_uri()] {
        let spec: StoreSpec = uri.parse().unwrap();
        let (parts, store) = open_store(&uri);
        let content = pages(256, 3);
        let slots: Vec<u32> = (0..256).collect();
        assert!(write(&mut *store.open_lane().unwrap(), &slots, &content).iter().all(Result::is_ok));
        // No lane is open now.
        donor.keeps_house();
        let mut lane = open_again(&spec, &parts).open_lane().unwrap();
        expect_pages(&mut *lane, &slots, &content);
        drop((lane, parts, store));
        // Asked rarely, because a connection keeps the export.
        donor.keeps_house();
        let late = SharedParts { capacity_slots: 256, fd: None, held: Vec::new(), spill: None, notice: None };
        eventually("the export goes", || match open_again(&spec, &late).open_lane() {
            Ok(lane) => {
                drop(lane);
                donor.keeps_house();
                false
            }
            Err(StoreError::Gone { reason, store }) => {
                assert_eq!((store.as_str(), reason.contains("holds no memory of this run")), (&*uri, true));
                true
            }
            Err(other) => panic!("{other}"),
        });
        // All of its memory is free again: the next round fills the donor anew.
    }
}

#[test]
fn within_the_grace_time_a_run_finds_its_export_again() {
    let donor = Running::start(MIB);
    for uri in donor.uris("64K") {
        let (parts, store) = open_store(&uri);
        let content = pages(4, 3);
        let mut lane = store.open_lane().unwrap();
        assert!(write(&mut *lane, &[0, 1, 2, 3], &content).iter().all(Result::is_ok));
        drop((lane, parts));
        donor.keeps_house();
        expect_pages(&mut *store.open_lane().unwrap(), &[0, 1, 2, 3], &content);
    }
}

/// One run is promised what another client has left, is told so before it writes, and can rely on it.
#[test]
fn a_run_is_promised_what_is_left_and_no_other_client_can_take_it() {
    for way in 0..3 {
        let donor = Running::start(MIB);
        let uri = [donor.tcp_uri("a"), donor.unix_uri("a"), donor.shm_uri()][way].clone();
        let mut other = Raw::opened(donor.tcp, "b", false);
        assert_eq!(other.write(0, &[9; 56 * 4096]), 0);
        let (parts, store) = open_store(&uri);
        assert_eq!((parts.capacity_slots, store.capacity_slots()), (200, 200), "{uri}");
        assert_eq!(other.write(56 * 4096, &[9]), errno::ENOSPC);

        let mut lane = store.open_lane().unwrap();
        let (mine, slots) = (pages(200, 1), (0..200).collect::<Vec<u32>>());
        for _ in 0..2 {
            assert!(write(&mut *lane, &slots, &mine).iter().all(Result::is_ok));
            expect_pages(&mut *lane, &slots, &mine);
            lane.discard(&slots[..100]);
            // What a run does not use now is its own all the same.
            assert_eq!(other.write(56 * 4096, &[9]), errno::ENOSPC);
        }
        assert_eq!(other.read(0, 56 * 4096), Ok(vec![9; 56 * 4096]));
        let memory = donor.status().memory;
        assert_eq!((memory.promised_bytes, memory.free_bytes), (200 * 4096, 0));
    }
}

#[test]
fn two_runs_are_never_promised_the_same_memory() {
    let donor = Running::start(MIB);
    for uri in donor.uris("600K") {
        let spec: StoreSpec = uri.parse().unwrap();
        let first = spec.prepare("one").unwrap();
        assert_eq!(first.capacity_slots, 150);
        let text = spec.prepare("two").unwrap_err().to_string();
        assert!(text.contains("424.0 KiB of") && text.contains("600.0 KiB were asked for"), "{text}");
        assert!(text.contains("?size=SIZE") && text.contains("until another run ends"), "{text}");
        spec.end(&first.fd.unwrap());
        // Once the end has returned the next run finds the memory.
        spec.end(&spec.prepare("two").unwrap().fd.unwrap());
    }
    let counts = donor.status().counts;
    assert_eq!((counts.granted_runs, counts.refusals, counts.ended_runs, counts.lost_runs), (6, 3, 6, 0));
}

/// Many runs ask at once, over all ways: those that are let in never have more than there is, and none of
/// them is refused a write.
#[test]
fn runs_that_ask_at_once_can_rely_on_what_they_are_promised() {
    const RUN_SLOTS: u32 = 60;
    let donor = Running::start(MIB);
    let granted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 0..12_u32 {
            let uri = donor.uris("240K")[number as usize % 3].clone();
            let granted = &granted;
            scope.spawn(move || {
                let (spec, token) = (uri.parse::<StoreSpec>().unwrap(), format!("run-{number}"));
                let Ok(parts) = spec.prepare(&token) else { return };
                granted.fetch_add(1, Ordering::Relaxed);
                let fd = parts.fd.as_ref().unwrap().try_clone().unwrap();
                let store = spec.open(parts, &token).unwrap();
                let mut lane = store.open_lane().unwrap();
                let content = pages(RUN_SLOTS as usize, number.into());
                let slots: Vec<u32> = (0..RUN_SLOTS).collect();
                for _ in 0..20 {
                    assert!(write(&mut *lane, &slots, &content).iter().all(Result::is_ok));
                    expect_pages(&mut *lane, &slots, &content);
                }
                spec.end(&fd);
            });
        }
    });
    // 256 slots hold four of them at a time.
    assert!(granted.load(Ordering::Relaxed) >= 4);
    assert_eq!(donor.status().memory.free_bytes, MIB);
}

#[test]
fn a_run_that_ends_gives_its_memory_back_at_once() {
    let donor = Running::start(MIB);
    for round in 0..3 {
        for uri in donor.uris("1M") {
            let (parts, store) = open_store(&uri);
            let (content, slots) = (pages(256, round), (0..256).collect::<Vec<u32>>());
            let mut lane = store.open_lane().unwrap();
            assert!(write(&mut *lane, &slots, &content).iter().all(Result::is_ok), "{uri}");
            // The supervisor ends the run while lanes may still be open.
            uri.parse::<StoreSpec>().unwrap().end(&parts.fd.unwrap());
            assert!(matches!(read(&mut *lane, &[0])[0], Err(StoreError::Gone { .. })));
        }
    }
    assert_eq!(donor.stop().stored_bytes, 0);
}

#[test]
fn a_donor_that_ended_is_gone_and_one_that_came_back_has_lost_everything() {
    let donor = Running::start(MIB);
    let (tcp, port) = (format!("{}?size=64K&reconnect=0.2", donor.tcp_uri("e")), donor.tcp);
    let shm = format!("{}?size=64K", donor.shm_uri());
    let opened = [open_store(&tcp), open_store(&shm)];
    let mut lanes: Vec<_> = opened.iter().map(|(_, store)| store.open_lane().unwrap()).collect();
    for lane in &mut lanes {
        assert!(write(&mut **lane, &[0], &pages(1, 1))[0].is_ok());
    }
    donor.stop();
    for (lane, uri) in lanes.iter_mut().zip([&tcp, &shm]) {
        for _ in 0..2 {
            match &read(&mut **lane, &[0])[0] {
                Err(StoreError::Gone { store, .. }) => assert_eq!(store, uri),
                other => panic!("{uri}: {:?}", other.as_ref().map(|_| "a page")),
            }
            assert!(matches!(write(&mut **lane, &[0], &pages(1, 1))[0], Err(StoreError::Gone { .. })));
            lane.discard(&[0]);
        }
    }
    let again = Running::start_with(spillway_donor::Config { listen: vec![port], ..config(MIB) });
    assert_eq!(again.tcp, port);
    // A further process of the run: the first one has given the store up.
    match open_again(&tcp.parse().unwrap(), &opened[0].0).open_lane().map(|_| ()) {
        Err(StoreError::Gone { reason, .. }) => assert!(reason.contains("it was restarted"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn stores_that_are_not_there_are_named_with_a_remedy() {
    let nowhere = tempfile::tempdir().unwrap();
    let socket = nowhere.path().join("none");
    for (uri, remedy) in [
        // Port 1 of the loopback network's last address: nobody listens there.
        ("nbd://127.255.255.254:1/e".to_owned(), "--listen 127.255.255.254:1"),
        (format!("nbd+unix:///e?socket={}", socket.display()), "--unix "),
        ("shm:nobody-has-this-name".to_owned(), "--shm nobody-has-this-name"),
    ] {
        let error = uri.parse::<StoreSpec>().unwrap().prepare("t").unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, StoreError::Unusable { .. }) && text.contains(&uri) && text.contains(remedy),
            "{text}"
        );
    }
}

#[test]
fn named_exports_are_dropped_on_request() {
    let donor = Running::start(MIB);
    let spec: StoreSpec = donor.tcp_uri("disk").parse().unwrap();
    let absent = spillway_store::nbd::drop_export(&spec).unwrap_err().to_string();
    assert!(absent.contains("no export of that name"), "{absent}");
    // A run's private export of the same name is not what is dropped.
    let (_parts, store) = open_store(&donor.tcp_uri("disk"));
    assert!(write(&mut *store.open_lane().unwrap(), &[0], &pages(1, 1))[0].is_ok());
    spillway_store::nbd::drop_export(&spec).unwrap_err();
    expect_pages(&mut *store.open_lane().unwrap(), &[0], &pages(1, 1));
}
