//! A pool of donors of which some die, are silent, or come back empty, and programs that check every byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use std::process::Command;

use fault_common::{Catch, Hold, SOON, Scene};
use pool_common::{Donors, donor, refused, says};
use rustix::process::Signal;
use support::child::{PATIENCE, Running, free_port, until};
use support::tools::c_program;

#[test]
fn a_program_survives_a_donor_and_after_the_repair_another() {
    let (mut donors, scene) = (Donors::start(3, "64M"), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[donors.uri("?copies=2")]);
    hold.goes_on(2);
    let first = donors.address(0);
    donors.kill(0);
    hold.goes_on(2);
    says(&hold.running, &format!("pool: donor {first} is away"));
    says(&hold.running, "all pages are on 2 donors again");
    donors.kill(1);
    hold.goes_on(3);
    says(&hold.running, "stay on fewer than 2 donors");
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn processes_of_a_run_agree_on_which_copies_are_whole() {
    let (mut donors, scene) = (Donors::start(3, "256M"), Scene::new());
    let mut command = scene.run("16M", &[donors.uri("")], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["16", "4"]));
    hold.goes_on(3);
    donors.kill(2);
    hold.goes_on(5);
    says(&hold.running, "all pages are on 2 donors again");
    donors.kill(0);
    hold.goes_on(5);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

/// The five that are left had 70 MiB each when donors were asked for what makes up for one: too little for
/// three copies of 120 MiB.
#[test]
fn after_two_donors_have_died_at_once_the_others_make_up_for_both() {
    let (mut donors, scene) = (Donors::start(7, "96M"), Scene::new());
    let mut hold = Hold::start(&scene, 128, &[donors.uri("?copies=3&size=128M")]);
    hold.goes_on(1);
    donors.kill(0);
    donors.kill(1);
    hold.goes_on(1);
    says(&hold.running, "all pages are on 3 donors again");
    hold.goes_on(2);
    hold.ends_whole();
}

#[test]
fn a_donor_that_is_stopped_is_read_around_and_used_again() {
    let (donors, scene) = (Donors::start(3, "64M"), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[donors.uri("?timeout=0.5")]);
    hold.goes_on(1);
    donors.signal(1, Signal::STOP);
    hold.goes_on(3);
    says(&hold.running, &format!("pool: donor {} is away", donors.address(1)));
    donors.signal(1, Signal::CONT);
    says(&hold.running, &format!("pool: donor {} answers again", donors.address(1)));
    until(PATIENCE, "all to be well after that", || {
        let complaint = hold.running.complaint();
        let (_, after) = complaint.rsplit_once("pool: donor 127.0.0.3")?;
        (after.contains(" answers again") && after.contains("all pages are on 2 donors again")).then_some(())
    });
    // What it had when it was stopped is not read as what was written meanwhile.
    donors.signal(0, Signal::KILL);
    hold.goes_on(3);
    hold.ends_whole();
}

#[test]
fn a_donor_that_comes_back_empty_is_filled_again() {
    let (mut donors, scene) = (Donors::start(2, "64M"), Scene::new());
    let port = free_port();
    donors.0[0] = Some(donor(0, "64M", port, &[]));
    let mut hold = Hold::start(&scene, 24, &[donors.uri("")]);
    hold.goes_on(1);
    donors.kill(0);
    donors.0[0] = Some(donor(0, "64M", port, &[]));
    hold.goes_on(2);
    says(&hold.running, "has lost what it held");
    says(&hold.running, "all pages are on 2 donors again");
    donors.kill(1);
    hold.goes_on(3);
    hold.ends_whole();
}

#[test]
fn pages_whose_donors_are_all_gone_give_sigbus_with_their_names() {
    let (mut donors, scene) = (Donors::start(2, "64M"), Scene::new());
    let uri = donors.uri("?reconnect=1");
    let hold = Hold::start(&scene, 24, &[&uri]);
    let names = [donors.address(0), donors.address(1)];
    donors.kill(0);
    donors.kill(1);
    let mut running = hold.running;
    let finished = running.finish(PATIENCE);
    let complaint = finished.complaint();
    assert_eq!(finished.code(), fault_common::BY_SIGBUS, "{complaint}");
    let line = complaint.lines().find(|line| line.contains("SIGBUS") && line.contains("0x"));
    let line = line.unwrap_or_else(|| panic!("no line says where: {complaint}"));
    assert!(names.iter().all(|name| line.contains(name)), "{complaint}");
    assert!(complaint.lines().all(|line| line.starts_with("spillway: ")), "{complaint}");
}

#[test]
fn exactly_the_pages_on_two_dead_donors_are_lost() {
    let (mut donors, scene) = (Donors::start(3, "64M"), Scene::new());
    let catch = Catch::start(&scene, 32, &donors.uri("?reconnect=0.5"));
    donors.signal(0, Signal::STOP);
    donors.kill(1);
    donors.kill(0);
    let caught = catch.looks();
    assert_eq!(caught.right + caught.lost, 32 << 8, "{caught:?}");
    // With three donors and two copies each pair has a third of the pages, more or less.
    assert!(caught.lost > 0 && caught.right > 1024, "{caught:?}");
    // What is local has room on the third.
    assert!(!caught.complaint.contains("no page can be evicted"), "{caught:?}");
}

#[test]
fn a_pool_that_cannot_be_is_refused_in_one_line() {
    for (uri, reasons) in [
        ("pool:10.0.0.1:1?copies=2", ["2 copies", "1 donor", "name more donors"]),
        ("pool:10.0.0.1:1,10.0.0.2:1?copies=3", ["3 copies", "too few donors", "name more donors"]),
        ("pool:10.0.0.1:1,10.0.0.1:2", ["fail together", "other machines", "domain=each"]),
        ("pool:10.0.0.1:1,10.0.0.1:1", ["10.0.0.1:1", "twice", "once"]),
        ("pool:10.0.0.1:1,10.0.0.2:1?copies=0", ["copies", "'0'", "from 1 to 3"]),
        ("pool:10.0.0.1:1,10.0.0.2:1?colour=red", ["no parameter 'colour'", "it takes copies", "rebuild"]),
        ("pool:", ["a donor is missing", "write pool:", "copies=N"]),
        ("pool:nbd://a/,b", ["no HOST:PORT", "no scheme", "write pool:"]),
        ("pool:a,b?domain=x", ["domain", "2 donors", "host, each"]),
        ("pool:a,b?least=3", ["least", "'3'", "from 1 to 2"]),
        ("pool:a,b?timeout=0", ["timeout", "too short", "0.1"]),
    ] {
        refused(uri, &reasons);
    }
}

#[test]
fn donors_that_are_away_or_have_too_little_are_refused_in_one_line() {
    let donors = Donors::start(2, "16M");
    let (one, other) = (donors.address(0), donors.address(1));
    let port = free_port();
    refused(
        &format!("pool:{one},127.0.0.9:{port}"),
        &[&format!("donor 127.0.0.9:{port}"), "cannot connect", "leave it out"],
    );
    refused(
        &format!("pool:{one},{other}?size=64M"),
        &["16.0 MiB of its 16.0 MiB are left", "64.0 MiB were asked for", &one, "leave it out"],
    );
    let poor = donor(7, "1M", 0, &[]);
    refused(&format!("pool:{one},{}", poor.tcp()), &[&poor.tcp(), "no extent of 2M", "more memory"]);
    // Nothing was promised to runs that did not begin.
    let scene = Scene::new();
    let mut command: Command = scene.run("8M", &[format!("pool:{one},{other}?size=12M")], "/bin/echo");
    assert_eq!(Running::start(command.arg("started")).finish(SOON).success(), "started\n");
}
