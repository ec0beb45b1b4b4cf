//! A pool in etcd whose donors take nothing but TLS: a run, the donors that come to it, and the commands that
//! look after it, all by certificates.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod support;

use std::io::Write;
use std::time::Duration;

use fault_common::{Hold, Scene};
use pool_common::{Donors, Etcd, await_donors_by, certificates, donor, pool_command, refused, says, tls};
use support::child::{PATIENCE, Running, free_port, until};
use support::tools::c_program;

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

/// None of the run's processes has a connection to it meanwhile.
#[test]
fn a_donor_that_was_left_by_tls_is_used_again_when_it_is_back() {
    let scene = Scene::new();
    let directory = certificates((2..5).map(|last| format!("127.0.0.{last}")));
    let certificates = tls(&directory);
    let options = ["--tls-certificates", certificates.as_str()];
    let mut donors = Donors::start_with(3, "64M", &options);
    let port = free_port();
    donors.0[0] = Some(donor(0, "64M", port, &options));
    let uri = donors.uri(&format!("?size=28M&tls-certificates={certificates}"));
    // Nothing is far yet.
    let script = "echo here && read -r line && exec \"$0\" 24 0";
    let mut command = scene.run("8M", &[uri], "/bin/sh");
    command.args(["-c", script]).arg(c_program("hold"));
    let (stdin, mut line) = std::io::pipe().unwrap();
    let mut running = Running::start_with(&mut command, stdin);
    running.expect("here");
    let leaver = donors.address(0);
    pool_command(&scene, &["drain", &leaver, "--tls-certificates", &certificates]).success();
    says(&running, &format!("donor {leaver} is drained: nothing of this run is on it"));
    // Whoever ends for want of connections does so now.
    std::thread::sleep(Duration::from_secs(2));
    donors.kill(0);
    donors.0[0] = Some(donor(0, "64M", port, &options));
    says(&running, &format!("pool: donor {leaver} is drained no more: it is used again"));
    writeln!(line).unwrap();
    assert!(running.finish(PATIENCE).success().ends_with("whole\n"));
}

#[test]
fn donors_and_runs_meet_in_an_etcd_that_takes_nothing_but_tls() {
    let scene = Scene::new();
    let directory = certificates((2..6).map(|last| format!("127.0.0.{last}")));
    let certificates = tls(&directory);
    let mut etcd = Etcd::start_by_tls(&certificates);
    let pool = etcd.pool();
    let options = ["--pool", &pool, "--tls-certificates", &certificates];
    let mut donors = Donors::start_with(2, "64M", &options);
    await_donors_by(&scene, &[&pool, "--tls-certificates", &certificates], 2, "up");
    let mut hold =
        Hold::start(&scene, 24, &[format!("pool:{pool}?size=28M&tls-certificates={certificates}")]);
    hold.goes_on(1);
    // The run is told of it by etcd, and registers there itself.
    let newcomer = donors.add("64M", &options);
    says(&hold.running, &format!("pool: donor {} has come", donors.address(newcomer)));
    until(PATIENCE, "the run to be registered", || {
        let arguments = ["status", "--json", &pool, "--tls-certificates", &certificates];
        let seen: serde_json::Value = serde_json::from_str(&pool_command(&scene, &arguments).text()).ok()?;
        (seen["runs"].as_array()?.len() == 1).then_some(())
    });
    etcd.stop();
    says(&hold.running, "the run goes on with the donors that it knows");
    donors.kill(0);
    hold.goes_on(1);
    says(&hold.running, "all pages are on 2 donors again");
    etcd.restart();
    says(&hold.running, "answers again");
    hold.goes_on(1);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn an_etcd_that_is_not_to_be_believed_is_refused_in_one_line() {
    let scene = Scene::new();
    let directory = certificates(["127.0.0.2".to_owned()].into_iter());
    let others = pool_common::certificates(["127.0.0.2".to_owned()].into_iter());
    let (ours, theirs) = (tls(&directory), tls(&others));
    let etcd = Etcd::start_by_tls(&ours);
    let pool = etcd.pool();
    let store = |certificates: &str| format!("pool:{pool}?tls-certificates={certificates}");
    refused(&store(&theirs), &["etcd does not answer", "the server's certificate is of another CA"]);
    // Who takes its certificate for right, and has none that it takes.
    std::fs::copy(format!("{ours}/ca-cert.pem"), format!("{theirs}/ca-cert.pem")).unwrap();
    refused(&store(&theirs), &["etcd does not answer", "does not take this client's certificate"]);
    let plainly = pool.replace("etcds:", "etcd:");
    refused(
        &format!("pool:{plainly}?tls-certificates={ours}"),
        &["etcd does not answer", "takes nothing but TLS", "etcds://", "etcd-certificates=DIR"],
    );
    let asked = pool_command(&scene, &["status", &plainly]);
    assert_eq!((asked.code(), asked.complaint().lines().count()), (1, 1), "{}", asked.complaint());
    assert!(asked.complaint().contains("write etcds:// in place of etcd://"), "{}", asked.complaint());
    refused(&format!("pool:{pool}"), &["etcds: speaks TLS", "tls-certificates=DIR", "etcd-certificates=DIR"]);
    refused(&store("/nonexistent"), &["etcd's certificates", "/nonexistent/ca-cert.pem"]);
    // Its certificate is for its address, and for no name.
    let port = pool.rsplit(':').next().unwrap().to_owned();
    refused(
        &format!("pool:etcds://localhost:{port}?tls-certificates={ours}"),
        &["is not for localhost but for"],
    );
    // So are a donor, which does not begin to serve, and the command that asks for them.
    let beginning = |options: &[&str]| {
        let all = [&["--memory", "8M", "--listen", "127.0.0.2:0", "--pool", &pool], options].concat();
        let output = donor_common::command(&all).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.lines().count() == 1, "{said}");
        said
    };
    let said = beginning(&[]);
    assert!(said.contains("--tls-certificates DIR") && said.contains("--etcd-certificates DIR"), "{said}");
    let said = beginning(&["--etcd-certificates", "/nonexistent"]);
    assert!(said.contains("/nonexistent/ca-cert.pem") && said.contains("client-cert.pem"), "{said}");
    let asked = pool_command(&scene, &["status", &pool]);
    assert_eq!((asked.code(), asked.complaint().lines().count()), (1, 1), "{}", asked.complaint());
    assert!(asked.complaint().contains("add --tls-certificates DIR"), "{}", asked.complaint());
    // One that speaks no TLS.
    let plain = Etcd::start();
    let by_tls = plain.pool().replace("etcd:", "etcds:");
    refused(
        &format!("pool:{by_tls}?tls-certificates={ours}"),
        &["etcd does not answer", "speaks none: write etcd:// in place of etcds://"],
    );
    // Certificates for etcd alone: donors that are plain, on this machine.
    let options = ["--pool", &pool, "--etcd-certificates", &ours];
    let _donors = [donor(0, "16M", free_port(), &options), donor(1, "16M", free_port(), &options)];
    await_donors_by(&scene, &[&pool, "--etcd-certificates", &ours], 2, "up");
    let mut hold = Hold::start(&scene, 8, &[format!("pool:{pool}?etcd-certificates={ours}&size=12M")]);
    hold.goes_on(1);
    hold.ends_whole();
}
