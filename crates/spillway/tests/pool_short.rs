//! A donor whose machine, here a control group, runs short of memory while programs have pages there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use donor_common::command;
use fault_common::{Hold, Scene};
use pool_common::small_machine::SmallMachine;
use pool_common::{Donors, await_donors, await_donors_by, pool_command, says};
use serde_json::Value;
use support::child::{PATIENCE, Running, until};

fn donor_at(seen: &Value, address: &str) -> Value {
    let donors = seen["donors"].as_array().unwrap();
    donors.iter().find(|donor| donor["address"] == address).unwrap().clone()
}

/// Two copies of each page on three donors.
#[test]
fn pages_leave_a_donor_whose_machine_is_short_of_memory_and_come_back_once_it_is_not() {
    let (machine, scene) = (SmallMachine::new("short", 240), Scene::new());
    let mut donors = Donors::start(2, "96M");
    let number = donors.add("96M", &["--keep-free", "64M"]);
    machine.take(donors.0[number].as_ref().unwrap().pid());
    let address = donors.address(number);
    let listed = (0..3).map(|number| donors.address(number)).collect::<Vec<_>>().join(",");
    let mut hold = Hold::start(&scene, 32, &[donors.uri("?size=40M")]);
    hold.goes_on(1);
    let held = || donor_at(&await_donors(&scene, &listed, 3, "up"), &address)["held_bytes"].as_u64().unwrap();
    assert!(held() > 4 << 20, "{}", held());
    let hog = machine.hog(170);
    says(&hold.running, &format!("pool: donor {address} is short of memory: its pages are moved to others"));
    // As the pool and the donor itself see it.
    let short = donor_at(&await_donors(&scene, &listed, 1, "short"), &address);
    assert_eq!((short["address"].as_str(), short["free_bytes"].as_u64()), (Some(address.as_str()), Some(0)));
    until(PATIENCE, "all pages to leave", || {
        let seen = donor_at(&await_donors(&scene, &listed, 1, "short"), &address);
        (seen["held_bytes"].as_u64() == Some(0)).then_some(())
    });
    hold.goes_on(2);
    let log = donors.0[number].as_ref().unwrap().log();
    assert!(log.contains("short of memory") && log.contains("64.0 MiB are kept free"), "{log}");
    // Nobody new is let in meanwhile: one line says why.
    let refused = pool_command(&scene, &["status", &address]);
    assert!(refused.text().contains("short"), "{refused:?}");
    drop(hog);
    says(&hold.running, &format!("pool: donor {address} is short of memory no more: it is used again"));
    hold.goes_on(1);
    // One of the others dies: what it had is there twice again, by the donor that was short.
    says(&hold.running, "all pages are on 2 donors again");
    donors.kill(0);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("are lost"), "{complaint}");
}

/// A donor that is to lend more than there is lends what there is, and more once memory idles.
#[test]
fn a_donor_lends_what_idles_and_no_more() {
    let (machine, scene) = (SmallMachine::new("idles", 240), Scene::new());
    let mut donors = Donors::default();
    let number = donors.add("200M", &["--keep-free", "64M"]);
    machine.take(donors.0[number].as_ref().unwrap().pid());
    let address = donors.address(number);
    let offered_mib = || {
        let seen = await_donors_by(&scene, &[&address], 1, "up");
        seen["donors"][0]["offered_bytes"].as_u64().unwrap() >> 20
    };
    let offers = |least: u64, most: u64| {
        until(PATIENCE, &format!("{least} to {most} MiB to be lent"), || {
            (least..=most).contains(&offered_mib()).then_some(())
        });
    };
    offers(130, 176);
    let hog = machine.hog(100);
    offers(40, 76);
    // A run that needs more is told what there is.
    let store = format!("nbd://{address}/?size=100M");
    let mut refused = Running::start(scene.run("8M", &[&store], "/bin/echo").arg("started"));
    let finished = refused.finish(PATIENCE);
    let complaint = finished.complaint();
    assert!(finished.code() != 0 && complaint.contains("are left to promise, and 100.0 MiB"), "{complaint}");
    drop(hog);
    offers(130, 176);
    let mut begun = Running::start(scene.run("8M", &[&store], "/bin/echo").arg("started"));
    assert_eq!(begun.finish(PATIENCE).text(), "started\n");
}

#[test]
fn a_floor_that_leaves_nothing_to_lend_is_refused_in_one_line() {
    let mut donor = command(&["--memory", "4M", "--listen", "127.0.0.1:0", "--keep-free", "64T"]);
    let output = donor.output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && complaint.lines().count() == 1, "{complaint}");
    assert!(complaint.contains("--keep-free") && complaint.contains("keep less free"), "{complaint}");
}
