//! A pool whose donors are registered in etcd: they come and go while a program checks every byte, and so
//! does etcd.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use fault_common::{Hold, SOON, Scene};
use pool_common::{Donors, Etcd, await_donors, pool_command, says};
use serde_json::Value;
use support::child::{PATIENCE, Running, free_port, until};

#[test]
fn a_donor_that_comes_makes_up_for_one_that_dies() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    let mut donors = Donors::start_with(2, "64M", &["--pool", &pool]);
    await_donors(&scene, &pool, 2, "up");
    let mut hold = Hold::start(&scene, 24, &[format!("pool:{pool}?size=28M")]);
    hold.goes_on(1);
    let newcomer = donors.add("64M", &["--pool", &pool]);
    says(&hold.running, &format!("pool: donor {} has come", donors.address(newcomer)));
    donors.kill(0);
    hold.goes_on(1);
    says(&hold.running, "all pages are on 2 donors again");
    // What was on it is on the one that came, and only there.
    donors.kill(1);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn a_run_goes_on_while_etcd_is_away_and_when_it_has_lost_its_data() {
    let (mut etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    let mut donors = Donors::start_with(3, "64M", &["--pool", &pool]);
    await_donors(&scene, &pool, 3, "up");
    let mut hold = Hold::start(&scene, 24, &[format!("pool:{pool}?size=28M")]);
    etcd.stop();
    says(&hold.running, "the run goes on with the donors that it knows");
    // A donor may die meanwhile.
    donors.kill(0);
    hold.goes_on(1);
    says(&hold.running, "all pages are on 2 donors again");
    let log_of_last = |donors: &Donors| donors.0[2].as_ref().unwrap().log();
    until(PATIENCE, "a donor to notice that etcd is away", || {
        log_of_last(&donors).contains("not registered in").then_some(())
    });
    etcd.restart();
    says(&hold.running, "answers again");
    etcd.stop();
    etcd.restart_empty();
    // The donors that are left register by themselves; one that comes is used.
    await_donors(&scene, &pool, 2, "up");
    let newcomer = donors.add("64M", &["--pool", &pool]);
    says(&hold.running, &format!("pool: donor {} has come", donors.address(newcomer)));
    // One is told to go, and goes.
    let leaver = donors.address(1);
    let drained = pool_command(&scene, &["drain", &leaver]).success();
    assert!(drained.contains(&format!("donor {leaver} may be switched off")), "{drained}");
    donors.kill(1);
    hold.goes_on(2);
    says(&hold.running, &format!("donor {leaver} is drained"));
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
    let log = log_of_last(&donors);
    assert!(log.contains("again: etcd no longer knew of it"), "{log}");
}

fn refused(scene: &Scene, uri: &str, reasons: &[&str]) {
    let mut running = Running::start(scene.run("8M", &[uri], "/bin/echo").arg("started"));
    let finished = running.finish(SOON);
    let complaint = finished.complaint();
    assert_eq!(finished.text(), "", "{complaint}");
    assert_eq!(finished.code(), 125, "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(reasons.iter().all(|reason| complaint.contains(reason)), "{reasons:?}: {complaint}");
}

#[test]
fn a_pool_in_etcd_with_too_few_donors_is_refused_in_one_line() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    let start = "spillway donor --memory SIZE --listen ADDR:PORT --pool";
    refused(&scene, &format!("pool:{pool}"), &["2 copies", "0 can be used", start]);
    // Two in one failure domain are as good as one, and one that is dead counts for nothing.
    let mut donors = Donors::start_with(3, "16M", &["--pool", &pool, "--domain", "rack 1"]);
    await_donors(&scene, &pool, 3, "up");
    donors.kill(0);
    let reasons = ["2 copies", "2 can be used now, in 1 failure domains", "cannot connect", start];
    refused(&scene, &format!("pool:{pool}"), &reasons);
    let nobody = format!("etcd://127.0.0.1:{}/test", free_port());
    refused(&scene, &format!("pool:{nobody}"), &["etcd does not answer", "refused", "name the donors"]);
    // Nothing stayed promised.
    let seen = await_donors(&scene, &pool, 2, "up");
    assert!(
        seen["donors"].as_array().unwrap().iter().all(|donor| donor["promised_bytes"] != 16 << 20),
        "{seen}"
    );
}

#[test]
fn the_status_of_a_pool_says_how_each_donor_stands() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    let nothing = pool_command(&scene, &["status", &pool]);
    assert_eq!((nothing.code(), nothing.complaint().lines().count()), (1, 1), "{}", nothing.complaint());
    assert!(nothing.complaint().contains("has no donor; start one"), "{}", nothing.complaint());
    let mut donors = Donors::start_with(2, "16M", &["--pool", &pool]);
    donors.add("8M", &["--pool", &pool, "--domain", "rack 7"]);
    await_donors(&scene, &pool, 3, "up");
    let gone = donors.address(1);
    donors.kill(1);
    let seen = await_donors(&scene, &pool, 1, "away");
    let of = |address: &str| {
        let all = seen["donors"].as_array().unwrap();
        all.iter()
            .find(|donor| donor["address"] == address)
            .unwrap_or_else(|| panic!("{address}: {seen}"))
            .clone()
    };
    let last = of(&donors.address(2));
    assert_eq!((&last["domain"], &last["offered_bytes"]), (&"rack 7".into(), &(8 << 20).into()), "{last}");
    assert_eq!((&last["runs"], &last["held_bytes"]), (&0.into(), &0.into()), "{last}");
    assert!(of(&gone)["reason"].as_str().unwrap().contains("cannot connect"), "{seen}");
    let table = pool_command(&scene, &["status", &pool]).success();
    for words in [["STATE", "DOMAIN"], ["rack 7", "8.0M"], [&gone, "away"]] {
        assert!(table.lines().any(|line| words.iter().all(|word| line.contains(word))), "{words:?}: {table}");
    }
    // One that is gone is forgotten when its lease runs out, one that ends in order at once.
    drop(donors.0[0].take().map(donor_common::Donor::stop));
    until(PATIENCE, "one donor alone to be left", || {
        let seen = pool_command(&scene, &["status", &pool, "--json"]).text();
        let seen: serde_json::Value = serde_json::from_str(&seen).ok()?;
        (seen["donors"].as_array()?.len() == 1).then_some(())
    });
}

/// What `pool status --json` says, once it is as wanted.
fn status_that(scene: &Scene, pool: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    until(PATIENCE, what, || {
        let seen: Value =
            serde_json::from_str(&pool_command(scene, &["status", pool, "--json"]).text()).ok()?;
        is_so(&seen).then_some(seen)
    })
}

#[test]
fn the_status_of_a_pool_shows_its_runs_and_their_repairs() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    // As many as there are copies, so that danger lasts until another one comes.
    let mut donors = Donors::start_with(2, "64M", &["--pool", &pool]);
    await_donors(&scene, &pool, 2, "up");
    let mut hold = Hold::start(&scene, 24, &[format!("pool:{pool}?size=28M")]);
    let run = |seen: &Value, key: &str| seen["runs"][0][key].as_u64();
    let is_well =
        |seen: &Value| run(seen, "stored_bytes") > Some(8 << 20) && run(seen, "endangered_bytes") == Some(0);
    let seen = status_that(&scene, &pool, "a run that is well", is_well);
    assert_eq!(run(&seen, "pid"), Some(hold.running.pid().as_raw_nonzero().get() as u64), "{seen}");
    assert_eq!((run(&seen, "copies"), seen["runs"].as_array().map(Vec::len)), (Some(2), Some(1)), "{seen}");
    assert!(seen["runs"][0]["host"].as_str().is_some_and(|host| !host.is_empty()), "{seen}");
    let table = until(PATIENCE, "a table that says so", || {
        let table = pool_command(&scene, &["status", &pool]).success();
        table.trim_end().ends_with("well").then_some(table)
    });
    assert!(table.contains("COPIED/S"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    // What each donor has for its runs, where nobody registers: by a list.
    let listed = donors.uri("");
    let seen = status_that(&scene, &listed, "donors with a run", |seen| {
        seen["donors"][0]["each_run"][0]["held_bytes"].as_u64() > Some(0)
    });
    assert_eq!((&seen["runs"], &seen["donors"][0]["each_run"][0]["number"]), (&Value::Null, &1.into()));
    let table = pool_command(&scene, &["status", &listed]).success();
    assert!(table.lines().any(|line| line.contains("PROMISED  HOLDS")), "{table}");
    donors.kill(0);
    let is_in_danger = |seen: &Value| run(seen, "endangered_bytes") > Some(0);
    status_that(&scene, &pool, "a run whose pages are in danger", is_in_danger);
    hold.goes_on(1);
    donors.add("64M", &["--pool", &pool]);
    status_that(&scene, &pool, "a run that is well again", is_well);
    hold.ends_whole();
    let is_gone = |seen: &Value| seen["runs"].as_array().is_some_and(Vec::is_empty);
    status_that(&scene, &pool, "a run that is gone", is_gone);
}
