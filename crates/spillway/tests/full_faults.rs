//! The faults of `faults.rs` for longer, at many moments, and with the patience that is usual.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod hostile_nbd;
mod support;

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use donor_common::Donor;
use fault_common::disks::SmallDisk;
use fault_common::{BY_SIGBUS, BY_SIGKILL, Catch, Hold, SOON, Scene, alive_in_group};
use hostile_nbd::proxy::Proxy;
use hostile_nbd::{Hostile, Manner, errno};
use rustix::process::Signal;
use support::child::{PATIENCE, Running, until};
use support::tools::c_program;
use support::watch::child_of;
use support::{MIB, mix};

/// How long a soak takes.
const SOAK: Duration = Duration::from_secs(60);

/// `fault_hold` on 24 MiB with two children, so that pages are shared between processes.
fn family(scene: &Scene, local: &str, store: &str) -> Command {
    let mut command = scene.run(local, &[store], c_program("fault_hold"));
    command.args(["24", "2"]);
    command
}

/// A moment up to two seconds from now, the same in each run of the test.
fn moment(seed: u64) -> Duration {
    Duration::from_millis(mix(seed) % 2000)
}

fn ways_to(donor: &Donor, patience: &str) -> [String; 3] {
    [
        format!("{}?size=64M&{patience}", donor.tcp_uri("e")),
        format!("{}&size=64M&{patience}", donor.unix_uri("e")),
        format!("{}?size=64M&{patience}", donor.shm_uri()),
    ]
}

// ---- Moments.

#[test]
fn a_donor_may_be_killed_at_any_moment() {
    let scene = Scene::new();
    for seed in 0..30 {
        let donor = Donor::start("256M", &[]);
        let uri = &ways_to(&donor, "reconnect=0.3")[seed as usize % 3];
        let mut running = Running::start(&mut family(&scene, "6M", uri));
        // Also before it begins.
        sleep(moment(seed));
        donor.signal(Signal::KILL);
        let finished = running.finish(PATIENCE);
        let complaint = finished.complaint();
        assert!(!complaint.contains("wrong"), "seed {seed}: {complaint}");
        assert!([BY_SIGBUS, 125].contains(&finished.code()), "seed {seed}: {} {complaint}", finished.code());
        assert!(complaint.contains(uri.as_str()), "seed {seed}: {complaint}");
        until(SOON, "its processes to end", || alive_in_group(running.pid()).is_empty().then_some(()));
    }
}

#[test]
fn a_run_may_be_killed_at_any_moment() {
    let (donor, scene) = (Donor::start("512M", &["--grace", "1"]), Scene::new());
    let at_rest = donor.resident_bytes();
    for seed in 0..20 {
        let uri = &ways_to(&donor, "reconnect=10")[seed as usize % 3];
        let mut running = Running::start(&mut family(&scene, "6M", uri));
        sleep(moment(seed));
        running.signal(Signal::KILL);
        assert_eq!(running.finish(SOON).code(), BY_SIGKILL);
        until(SOON, "its processes to end", || alive_in_group(running.pid()).is_empty().then_some(()));
    }
    until(PATIENCE, "all to be given back", || (donor.resident_bytes() < at_rest + 16 * MIB).then_some(()));
}

#[test]
fn a_program_may_be_killed_at_any_moment() {
    let (donor, scene) = (Donor::start("512M", &["--grace", "1"]), Scene::new());
    let at_rest = donor.resident_bytes();
    for seed in 0..20 {
        let uri = &ways_to(&donor, "reconnect=10")[seed as usize % 3];
        let mut hold = Hold::start(&scene, 24, &[uri]);
        sleep(moment(seed) / 4);
        rustix::process::kill_process(child_of(hold.running.pid()), Signal::KILL).unwrap();
        let finished = hold.running.finish(SOON);
        assert_eq!((finished.code(), finished.complaint().as_str()), (BY_SIGKILL, ""), "seed {seed}");
        assert!(alive_in_group(hold.running.pid()).is_empty());
    }
    until(PATIENCE, "all to be given back", || (donor.resident_bytes() < at_rest + 16 * MIB).then_some(()));
}

// ---- The usual patience.

#[test]
fn a_donor_that_is_gone_for_good_is_given_up_after_ten_seconds() {
    let (donor, scene) = (Donor::start("256M", &[]), Scene::new());
    let uris = ways_to(&donor, "timeout=50");
    let holds: Vec<Hold> = uris.iter().map(|uri| Hold::start(&scene, 24, &[uri])).collect();
    donor.signal(Signal::KILL);
    let begin = Instant::now();
    for (hold, uri) in holds.into_iter().zip(&uris) {
        hold.ends_by_sigbus(uri, "is gone: ");
    }
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
}

#[test]
fn a_donor_that_stays_stopped_is_given_up() {
    let (donor, scene) = (Donor::start("256M", &[]), Scene::new());
    let uris = ways_to(&donor, "timeout=15");
    let mut holds: Vec<Hold> = uris.iter().map(|uri| Hold::start(&scene, 24, &[uri])).collect();
    holds.iter_mut().for_each(|hold| hold.goes_on(1));
    donor.signal(Signal::STOP);
    sleep(Duration::from_secs(12));
    assert!(holds.iter_mut().all(|hold| !hold.running.has_ended()));
    for (hold, uri) in holds.into_iter().zip(&uris) {
        hold.ends_by_sigbus(uri, "has not answered for 15 s");
    }
}

// ---- Soaks.

#[test]
fn resets_without_end_change_nothing() {
    let (donor, scene) = (Donor::start("256M", &[]), Scene::new());
    let proxy = Proxy::start(&donor.tcp());
    let mut hold = Hold::start_by(&mut family(&scene, "6M", &proxy.uri("e")));
    let end = Instant::now() + SOAK;
    let mut resets = 0;
    while Instant::now() < end {
        resets += proxy.reset();
        sleep(moment(resets as u64) / 10);
    }
    assert!(resets > 200, "{resets}");
    hold.goes_on(4);
    // On a busy machine a connection may be away for long enough to be told of.
    let complaint = hold.ends_whole().complaint();
    let is_of_connection = |line: &str| line.contains("connection lost") || line.contains("answers again");
    assert!(complaint.lines().all(is_of_connection), "{complaint}");
}

#[test]
fn a_server_of_many_moods_changes_nothing() {
    let (mut server, scene) = (Hostile::start(256 * MIB), Scene::new());
    let mut hold = Hold::start_by(&mut family(&scene, "6M", &server.uri("")));
    let moods = [
        Manner::CutsAnswers,
        Manner::CutsWrites,
        Manner::RefusesWrites(errno::EIO),
        Manner::RefusesWrites(errno::ENOSPC),
        Manner::Silent,
    ];
    let end = Instant::now() + SOAK;
    for seed in 0.. {
        if Instant::now() > end {
            break;
        }
        server.behave_every(10 + mix(seed) % 90, moods[seed as usize % moods.len()]);
        sleep(moment(seed) / 2);
        server.behave(Manner::Honest);
        if seed % 4 == 0 {
            server.close();
            sleep(moment(seed));
            server.reopen();
        }
        hold.goes_on(1);
    }
    assert!(server.misdeeds() > 50, "{}", server.misdeeds());
    hold.ends_whole();
}

#[test]
fn wrong_contents_never_get_through() {
    let lies = [Manner::FlipsABit, Manner::Outdated, Manner::NextDoor, Manner::Zeros];
    let scene = Scene::new();
    for seed in 0..24 {
        let server = Hostile::start(256 * MIB);
        let catch = Catch::start(&scene, 24, &server.uri("?reconnect=1"));
        server.behave_every(5 + mix(seed) % 60, lies[seed as usize % lies.len()]);
        let caught = catch.looks();
        assert_eq!(caught.right + caught.lost, 24 * MIB / 4096);
        assert!(caught.right > 0, "seed {seed}: {caught:?}");
    }
}

fn families_share(store: &str) {
    let scene = Scene::new();
    let mut command = scene.run("4M", &[store], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["32", "3"]));
    sleep(SOAK);
    hold.goes_on(4);
    assert_eq!(hold.ends_whole().complaint(), "");
    assert!(scene.stats().count("peak_local_bytes") <= 4 * MIB);
}

#[test]
fn processes_share_the_least_local_memory_on_compressed_ram() {
    families_share("compressed:");
}

#[test]
fn processes_share_the_least_local_memory_on_plain_ram() {
    families_share("ram:");
}

#[test]
fn processes_share_the_least_local_memory_on_a_donor() {
    families_share(&Donor::start("512M", &[]).shm_uri());
}

// ---- Disks, and stores that fill up one after the other.

#[test]
fn a_full_disk_with_direct_access_keeps_what_it_has() {
    let disk = SmallDisk::ext4(12);
    let uri = format!("file:{}?size=64M", disk.path().display());
    Scene::new().fill(48, &[&uri]).expect_nothing_lost(&uri);
}

#[test]
fn stores_that_are_all_full_keep_what_they_have() {
    let (donor, disk) = (Donor::start("4M", &[]), SmallDisk::tmpfs(4));
    let file = format!("file:{}?size=16M", disk.path().display());
    let stores = ["ram:?size=4M".to_owned(), donor.tcp_uri(""), "compressed:?size=4M".to_owned(), file];
    let filled = Scene::new().fill(64, &stores);
    assert_eq!((filled.right, filled.lost), (2 * filled.written, 0), "{filled:?}");
    // 8 MiB local and 16 far, less a little.
    assert!(filled.written > 20 * MIB / 4096 && filled.refused > 0, "{filled:?}");
}

#[test]
fn direct_reads_arrive_under_eviction_to_a_donor() {
    let (donor, scene) = (Donor::start("512M", &[]), Scene::new());
    let mut command = scene.run("8M", &[donor.tcp_uri("")], c_program("fault_direct"));
    command.arg("direct").arg(scene.work()).args(["32", "48"]);
    assert_eq!(Running::start(&mut command).finish(PATIENCE * 2).success(), "right\n");
}
