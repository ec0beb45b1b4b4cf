//! Stores that are too small, or fail when they are written to: a full store refuses what is new, and keeps
//! what it has.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod support;

use donor_common::Donor;
use fault_common::disks::{FailingDevice, SmallDisk};
use fault_common::{Hold, SOON, Scene};
use support::MIB;
use support::child::Running;
use support::tools::c_program;

#[test]
fn a_full_ram_store_keeps_what_it_has() {
    let filled = Scene::new().fill(32, &["ram:?size=8M"]);
    filled.expect_nothing_lost("ram:?size=8M");
}

#[test]
fn a_fork_for_which_there_is_no_room_fails_and_says_why() {
    let scene = Scene::new();
    let mut command = scene.run("8M", &["ram:?size=8M"], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["14", "1"]));
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(complaint.contains("fork failed") && complaint.contains("ram:?size=8M"), "{complaint}");
    assert!(complaint.contains("Cannot allocate memory"), "what fork(2) returns: {complaint}");
}

#[test]
fn a_compressed_store_full_of_noise_keeps_what_it_has() {
    let filled = Scene::new().fill(32, &["compressed:?size=8M"]);
    filled.expect_nothing_lost("compressed:?size=8M");
}

#[test]
fn a_full_donor_keeps_what_it_has() {
    let donor = Donor::start("8M", &[]);
    let uri = donor.tcp_uri("");
    Scene::new().fill(32, &[&uri]).expect_nothing_lost(&uri);
}

#[test]
fn a_full_disk_keeps_what_it_has() {
    let (disk, scene) = (SmallDisk::tmpfs(8), Scene::new());
    let uri = format!("file:{}?size=64M", disk.path().display());
    scene.fill(32, &[&uri]).expect_nothing_lost(&uri);
    // A page that comes in makes room for one that leaves: pages are not tried in vain over and over.
    let stats = scene.stats();
    let (failed, fetched) = (stats.count("writebacks_failed"), stats.count("pages_fetched"));
    assert!(failed < 10 * fetched, "{failed} writes failed where {fetched} pages came in");
}

#[test]
fn a_device_that_fails_ends_the_program() {
    let device = FailingDevice::attach(64);
    let uri = format!("file:{}?size=64M", device.path());
    let scene = Scene::new();
    let mut hold = Hold::start(&scene, 24, &[&uri]);
    hold.goes_on(2);
    hold.while_stopped(|| device.fail());
    hold.ends_by_sigbus(&uri, "nput/output error");
}

#[test]
fn stores_are_filled_in_the_order_given() {
    let scene = Scene::new();
    let first = Donor::start("64M", &[]);
    let second = Donor::start("64M", &[]);
    let at_rest = second.resident_bytes();
    let mut hold = Hold::start(&scene, 24, &[first.tcp_uri(""), second.tcp_uri("")]);
    hold.goes_on(2);
    assert!(first.resident_bytes() > at_rest + 14 * MIB && second.resident_bytes() < at_rest + 2 * MIB);
    hold.ends_whole();

    // The first one is too small: the second one takes over.
    let small = Donor::start("4M", &[]);
    let mut hold = Hold::start(&scene, 24, &[small.tcp_uri(""), second.tcp_uri("")]);
    hold.goes_on(2);
    assert!(second.resident_bytes() > at_rest + 10 * MIB, "{} {at_rest}", second.resident_bytes());
    assert_eq!(hold.ends_whole().complaint(), "");
    assert_eq!(scene.stats().count("faults.refused"), 0);
}

/// The donor keeps what is lost for 30 s; what has ended it does not keep.
#[test]
fn a_donor_serves_run_after_run() {
    let (donor, scene) = (Donor::start("64M", &[]), Scene::new());
    for uri in [donor.tcp_uri(""), donor.unix_uri("e"), donor.shm_uri()] {
        let mut hold = Hold::start(&scene, 48, &[&uri]);
        hold.goes_on(1);
        assert_eq!(hold.ends_whole().complaint(), "", "{uri}");
    }
}

#[test]
fn a_run_that_a_donor_cannot_promise_its_memory_does_not_start() {
    let (donor, scene) = (Donor::start("128M", &[]), Scene::new());
    let uri = format!("{}?size=96M", donor.tcp_uri(""));
    let mut first = Hold::start(&scene, 32, &[&uri]);
    first.goes_on(1);
    is_not_started(
        &scene,
        &uri,
        "32.0 MiB of its 128.0 MiB are left to promise, and 96.0 MiB were asked for",
    );
    // With less it starts, and neither is in the other's way.
    let mut second = Hold::start(&scene, 24, &[format!("{}?size=32M", donor.shm_uri())]);
    second.goes_on(1);
    is_not_started(&scene, &donor.shm_uri(), "0 B of the 128.0 MiB that it gives are left to promise");
    for hold in [first, second] {
        assert_eq!(hold.ends_whole().complaint(), "");
    }
}

/// A run that would use this store does not start its program, and says why.
fn is_not_started(scene: &Scene, uri: &str, reason: &str) {
    let mut running = Running::start(scene.run("8M", &[uri], "/bin/echo").arg("started"));
    let finished = running.finish(SOON);
    let complaint = finished.complaint();
    assert_eq!((finished.code(), finished.text().as_str()), (125, ""), "{uri}: {complaint}");
    assert!(complaint.contains(uri) && complaint.contains(reason), "not '{reason}': {complaint}");
}
