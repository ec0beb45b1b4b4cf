//! A pool in etcd whose donors take nothing but TLS: a run, the donors that come to it, and the commands that
//! look after it, all by certificates.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use donor_common::command;
use fault_common::{Hold, Scene};
use pool_common::{Donors, Etcd, pool_command, says};
use support::child::{PATIENCE, until};

#[test]
fn donors_come_and_are_drained_by_tls_and_never_plainly() {
    let (etcd, scene, directory) = (Etcd::start(), Scene::new(), tempfile::tempdir().unwrap());
    let (pool, certificates) = (etcd.pool(), directory.path().join("tls").display().to_string());
    let hosts = (2..6).flat_map(|last| ["--host".to_owned(), format!("127.0.0.{last}")]);
    let made = command(&["certificates", &certificates]).args(hosts).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let options = ["--pool", &pool, "--tls-certificates", &certificates];
    let mut donors = Donors::start_with(2, "64M", &options);
    let up = |count: usize| {
        until(PATIENCE, &format!("{count} donors that are up"), || {
            let asked =
                pool_command(&scene, &["status", &pool, "--json", "--tls-certificates", &certificates]);
            let seen: serde_json::Value = serde_json::from_str(&asked.text()).ok()?;
            let is_up = |donor: &&serde_json::Value| donor["state"] == "up";
            (seen["donors"].as_array()?.iter().filter(is_up).count() == count).then_some(())
        });
    };
    up(2);
    let mut hold =
        Hold::start(&scene, 24, &[format!("pool:{pool}?size=28M&tls-certificates={certificates}")]);
    hold.goes_on(1);
    let newcomer = donors.add("64M", &options);
    says(&hold.running, &format!("pool: donor {} has come", donors.address(newcomer)));
    let leaver = donors.address(0);
    let plainly = pool_command(&scene, &["drain", &leaver]);
    assert_eq!(plainly.code(), 1);
    assert!(plainly.complaint().contains("TLS"), "{}", plainly.complaint());
    let drained = pool_command(&scene, &["drain", &leaver, "--tls-certificates", &certificates]).success();
    assert!(drained.contains(&format!("donor {leaver} may be switched off")), "{drained}");
    donors.kill(0);
    hold.goes_on(1);
    // What was on it is on the one that came, and only there.
    donors.kill(1);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}
