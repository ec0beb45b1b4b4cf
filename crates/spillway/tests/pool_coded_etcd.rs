//! Coded pages on donors that come and go by etcd, and by TLS, while a program checks every byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use fault_common::{Hold, Scene};
use pool_common::{
    Donors, Etcd, await_donors, await_donors_by, certificates, pool_command, refused, says, tls,
};
use serde_json::Value;
use support::child::{PATIENCE, until};

const CODE: &str = "data=4&parity=2";

#[test]
fn a_donor_that_comes_to_a_code_makes_up_for_one_that_dies() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    let mut donors = Donors::start_with(6, "64M", &["--pool", &pool]);
    await_donors(&scene, &pool, 6, "up");
    let mut hold = Hold::start(&scene, 24, &[format!("pool:{pool}?{CODE}&size=32M")]);
    hold.goes_on(1);
    // As many as there are parts: what one had cannot be made anew before another comes.
    donors.kill(0);
    hold.goes_on(1);
    says(&hold.running, "stay with fewer than 6 parts");
    let of_run = |key: &str| {
        let seen = pool_command(&scene, &["status", &pool, "--json"]).text();
        let seen: Value = serde_json::from_str(&seen).unwrap_or_default();
        seen["runs"][0][key].as_u64()
    };
    until(PATIENCE, "the pool's status to tell of danger", || {
        (of_run("endangered_bytes")? > 8 << 20 && of_run("stored_bytes")? > 8 << 20).then_some(())
    });
    let newcomer = donors.add("64M", &["--pool", &pool]);
    says(&hold.running, &format!("pool: donor {} has come", donors.address(newcomer)));
    says(&hold.running, "all pages have 6 parts again");
    until(PATIENCE, "the pool's status to tell of none", || (of_run("endangered_bytes")? == 0).then_some(()));
    // Four are left, and without what the one has that came they would be too few.
    donors.kill(1);
    donors.kill(2);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("are lost"), "{complaint}");
}

/// Nobody says how pages are to outlive donors: six that are registered, then five of them.
#[test]
fn registered_donors_are_coded_by_default_where_they_are_six() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    let mut donors = Donors::start_with(6, "64M", &["--pool", &pool]);
    await_donors(&scene, &pool, 6, "up");
    let has_run_with = |parts: u64| {
        let seen = pool_command(&scene, &["status", &pool, "--json"]).text();
        let seen: Value = serde_json::from_str(&seen).unwrap_or_default();
        let is_it = |run: &Value| run["copies"].as_u64() == Some(parts);
        seen["runs"].as_array()?.iter().any(is_it).then_some(())
    };
    let mut hold = Hold::start(&scene, 24, &[format!("pool:{pool}?size=32M")]);
    until(PATIENCE, "the run to be seen with six parts", || has_run_with(6));
    hold.goes_on(1);
    donors.kill(1);
    donors.kill(2);
    hold.goes_on(2);
    hold.ends_whole();
    // Two of the six are dead, whether they are registered still or not.
    let mut hold = Hold::start(&scene, 24, &[format!("pool:{pool}?size=32M")]);
    until(PATIENCE, "a run to be seen with two copies", || has_run_with(2));
    hold.goes_on(1);
    hold.ends_whole();
}

#[test]
fn a_donor_of_a_code_in_etcd_is_drained_by_tls() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let directory = certificates((2..9).map(|last| format!("127.0.0.{last}")));
    let (pool, certificates) = (etcd.pool(), tls(&directory));
    let by_tls = ["--tls-certificates", certificates.as_str()];
    let options = [&["--pool", pool.as_str()], &by_tls[..]].concat();
    let mut donors = Donors::start_with(6, "64M", &options);
    await_donors_by(&scene, &[&[pool.as_str()], &by_tls[..]].concat(), 6, "up");
    let store = format!("pool:{pool}?{CODE}&size=32M&tls-certificates={certificates}");
    let mut hold = Hold::start(&scene, 24, &[store]);
    hold.goes_on(1);
    let newcomer = donors.add("64M", &options);
    says(&hold.running, &format!("pool: donor {} has come", donors.address(newcomer)));
    let leaver = donors.address(0);
    let drained = pool_command(&scene, &[&["drain", leaver.as_str()], &by_tls[..]].concat()).success();
    assert!(drained.contains(&format!("donor {leaver} may be switched off")), "{drained}");
    says(&hold.running, &format!("donor {leaver} is drained: nothing of this run is on it"));
    // Four are left, the newcomer among them.
    (0..3).for_each(|number| donors.kill(number));
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("are lost"), "{complaint}");
}

#[test]
fn a_code_by_tls_survives_two_donors() {
    let scene = Scene::new();
    let directory = certificates((2..8).map(|last| format!("127.0.0.{last}")));
    let certificates = tls(&directory);
    let mut donors = Donors::start_with(6, "48M", &["--tls-certificates", &certificates]);
    let mut hold =
        Hold::start(&scene, 24, &[donors.uri(&format!("?{CODE}&tls-certificates={certificates}"))]);
    hold.goes_on(2);
    donors.kill(1);
    donors.kill(4);
    hold.goes_on(3);
    says(&hold.running, "stay with fewer than 6 parts");
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS") && !complaint.contains("are lost"), "{complaint}");
}

#[test]
fn a_code_in_etcd_with_too_few_donors_is_refused_in_one_line() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let pool = etcd.pool();
    let _donors = Donors::start_with(5, "16M", &["--pool", &pool]);
    await_donors(&scene, &pool, 5, "up");
    let uri = format!("pool:{pool}?{CODE}");
    refused(&uri, &["4 parts of data and 2 of parity", "need 6 donors", "5 can be used", "spillway donor"]);
}
