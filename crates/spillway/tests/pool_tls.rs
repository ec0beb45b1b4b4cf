//! A pool in etcd whose donors take nothing but TLS: a run, the donors that come to it, and the commands that
//! look after it, all by certificates.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use fault_common::{Hold, Scene};
use pool_common::{Donors, Etcd, await_donors_by, certificates, pool_command, says, tls};

#[test]
fn donors_come_and_are_drained_by_tls_and_never_plainly() {
    let (etcd, scene) = (Etcd::start(), Scene::new());
    let directory = certificates((2..6).map(|last| format!("127.0.0.{last}")));
    let (pool, certificates) = (etcd.pool(), tls(&directory));
    let options = ["--pool", &pool, "--tls-certificates", &certificates];
    let mut donors = Donors::start_with(2, "64M", &options);
    await_donors_by(&scene, &[&pool, "--tls-certificates", &certificates], 2, "up");
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
