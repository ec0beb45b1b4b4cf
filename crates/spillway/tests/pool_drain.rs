//! A donor that is to be switched off: everything is moved off it while a program checks every byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use fault_common::{Hold, SOON, Scene};
use pool_common::{Donors, await_donors, pool_command, says, start_pool_command};
use rustix::process::Signal;
use support::child::{PATIENCE, Running, until};

#[test]
fn a_donor_that_is_drained_may_be_switched_off() {
    let (mut donors, scene) = (Donors::start(3, "64M"), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[donors.uri("?size=28M")]);
    hold.goes_on(1);
    let leaver = donors.address(0);
    let progress = pool_command(&scene, &["drain", &leaver, "--json"]).success();
    let lines: Vec<serde_json::Value> =
        progress.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!((&first["is_drained"], &first["runs_left"]), (&false.into(), &1.into()), "{progress}");
    assert!(first["pages_left"].as_u64().unwrap() > 0, "{progress}");
    assert_eq!((&last["is_drained"], &last["bytes_left"]), (&true.into(), &0.into()), "{progress}");
    says(&hold.running, &format!("donor {leaver} is being drained"));
    says(&hold.running, &format!("donor {leaver} is drained: nothing of this run is on it"));
    // It serves nobody any more, and no new run begins on it.
    let seen = await_donors(&scene, &leaver, 1, "draining");
    assert_eq!(seen["donors"][0]["runs"], 0, "{seen}");
    let mut other = Running::start(scene.run("8M", &[donors.uri("?size=8M")], "/bin/echo").arg("x"));
    let complaint = other.finish(SOON).complaint();
    assert!(complaint.contains("is being drained") && complaint.contains(&leaver), "{complaint}");
    donors.kill(0);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

/// As where its machine is shut down.
#[test]
fn a_donor_that_is_told_to_end_is_left_first_and_ends_as_soon_as_it_is() {
    let (mut donors, scene) = (Donors::start_with(3, "64M", &["--drain", "100"]), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[donors.uri("?size=28M")]);
    hold.goes_on(1);
    let leaver = donors.address(0);
    donors.signal(0, Signal::TERM);
    says(&hold.running, &format!("donor {leaver} is being drained"));
    says(&hold.running, &format!("donor {leaver} is drained: nothing of this run is on it"));
    let (status, said) = donors.0[0].take().unwrap().end();
    assert!(status.success() && said.contains("0 B were stored"), "{status} {said}");
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    for wrong in ["SIGBUS", "is away", "fewer than", "are lost"] {
        assert!(!complaint.contains(wrong), "{wrong}: {complaint}");
    }
}

#[test]
fn a_drain_that_finds_no_room_waits_and_can_be_called_off() {
    let (donors, scene) = (Donors::start(2, "64M"), Scene::new());
    let mut hold = Hold::start(&scene, 24, &[donors.uri("?size=28M")]);
    let leaver = donors.address(1);
    let mut drain = start_pool_command(&scene, &["drain", &leaver]);
    drain.expect("of 1 runs are left");
    says(&hold.running, &format!("of pages cannot be moved from donor {leaver}"));
    hold.goes_on(1);
    drain.signal(Signal::INT);
    let finished = drain.finish(SOON);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.complaint().contains("called off"), "{}", finished.complaint());
    await_donors(&scene, &leaver, 1, "up");
    says(&hold.running, &format!("donor {leaver} is drained no more"));
    // What it holds counts again, and what was written elsewhere meanwhile comes to it: the other may die.
    until(PATIENCE, "all pages to be on both", || {
        let complaint = hold.running.complaint();
        let (_, after) = complaint.rsplit_once("is drained no more")?;
        after.contains("all pages are on 2 donors again").then_some(())
    });
    donors.signal(0, Signal::KILL);
    hold.goes_on(2);
    hold.ends_whole();
}

#[test]
fn a_donor_that_dies_while_it_is_drained_takes_nothing_with_it() {
    let (mut donors, scene) = (Donors::start(3, "96M"), Scene::new());
    let mut hold = Hold::start(&scene, 32, &[donors.uri("?size=40M&rebuild=8M")]);
    let leaver = donors.address(2);
    let mut drain = start_pool_command(&scene, &["drain", &leaver]);
    drain.expect("are left");
    says(&hold.running, &format!("donor {leaver} is being drained"));
    donors.kill(2);
    hold.goes_on(1);
    let finished = drain.finish(PATIENCE);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.complaint().contains("copy them from their other donors"), "{finished:?}");
    says(&hold.running, "all pages are on 2 donors again");
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn what_cannot_be_drained_is_said_in_one_line() {
    let scene = Scene::new();
    let port = support::child::free_port();
    for (arguments, reasons) in [
        (vec!["drain".to_owned(), format!("127.0.0.1:{port}")], ["cannot connect", "see that it runs"]),
        (vec!["drain".to_owned(), "nbd://a:1/".to_owned()], ["nbd://a:1/", "HOST:PORT"]),
        (vec!["status".to_owned(), "etcd://a:1".to_owned()], ["name is missing", "etcd://HOST:PORT/NAME"]),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let finished = pool_command(&scene, &arguments);
        let complaint = finished.complaint();
        assert!(finished.code() != 0 && complaint.lines().count() == 1, "{finished:?}");
        assert!(reasons.iter().all(|reason| complaint.contains(reason)), "{reasons:?}: {complaint}");
    }
}
