//! Runs on donors and foreign servers by TLS, with programs that check every byte; foreign clients on a
//! donor; and what is said where TLS cannot be.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod hostile_nbd;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use donor_common::{Donor, command, eventually, tool};
use fault_common::{Hold, SOON, Scene};
use hostile_nbd::proxy::Proxy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::child::{PATIENCE, Running, free_port, until};
use support::tools::c_program;

/// Certificates made by the command, for one client.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made");
        let hosts =
            ["--host", "127.0.0.1", "--host", "127.0.0.2", "--host", "127.0.0.3", "--host", "localhost"];
        let made =
            command(&["certificates", path.to_str().unwrap()]).args(hosts).args(["--client", "ada"]).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{made:?}");
        assert_eq!(String::from_utf8(made.stdout).unwrap().lines().count(), 6);
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("made")
    }

    fn text(&self) -> String {
        self.path().display().to_string()
    }

    fn donor(&self, memory: &str, arguments: &[&str]) -> Donor {
        Donor::start(memory, &[&["--tls-certificates", &self.text()], arguments].concat())
    }

    /// The store that such a donor is.
    fn uri(&self, address: &str, parameters: &str) -> String {
        format!("nbds://{address}/?tls-certificates={}{parameters}", self.text())
    }
}

/// `127.0.0.1:PORT`, from the ready line.
fn address(donor: &Donor) -> String {
    let (_, rest) = donor.ready.split_once("nbds://").unwrap_or_else(|| panic!("no TLS in {}", donor.ready));
    rest.split([' ', ';']).next().unwrap().to_owned()
}

/// Sockets of this machine that are connected to this port of its own, by inode.
fn sockets_to(port: u16) -> Vec<String> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let end = format!(":{port:04X}");
    let fields = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|fields| fields[2].ends_with(&end))
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect()
}

/// Numbers of the processes that relay to a donor. Others' relays on this machine do not count.
fn relays_to(donor: &Donor) -> Vec<u32> {
    let port = address(donor).rsplit_once(':').unwrap().1.parse().unwrap();
    let sockets = sockets_to(port);
    let is_relay = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "spillway-tls")
    };
    // A relay shows its descriptors to root alone, and may end at this moment.
    let has_one = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_relay(pid) && has_one(pid)).collect()
}

#[test]
fn a_program_keeps_every_byte_by_tls_whatever_breaks_in_the_middle() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("64M", &[]);
    let proxy = Proxy::start(&address(&donor));
    let way = proxy.uri("").trim_start_matches("nbd://").trim_end_matches('/').to_owned();
    let mut hold = Hold::start(&scene, 24, &[certificates.uri(&way, "")]);
    hold.goes_on(2);
    for _ in 0..3 {
        assert!(proxy.reset() > 0);
        hold.goes_on(1);
    }
    assert!(donor.log().contains("client ada has come"), "{}", donor.log());
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

/// What `donor status` says of it.
fn status_of(donor: &Donor) -> Option<Value> {
    let said = Command::new(env!("CARGO_BIN_EXE_spillway")).args(["donor", "status", "--json"]).output();
    let all: Vec<Value> = serde_json::from_slice(&said.unwrap().stdout).unwrap();
    all.into_iter().find(|status| status["pid"] == donor.pid())
}

fn has_no_run(status: &Value) -> bool {
    status["exports"] == json!([])
}

#[test]
fn forked_processes_have_one_relay_and_every_byte() {
    assert!(rustix::process::geteuid().is_root(), "only root sees a relay's sockets: run this test as root");
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("256M", &[]);
    let uri = certificates.uri(&address(&donor), "&size=128M");
    let mut hold = Hold::start_by(scene.run("16M", &[&uri], c_program("fault_hold")).args(["16", "4"]));
    hold.goes_on(3);
    assert_eq!(relays_to(&donor).len(), 1, "relays: {:?}", relays_to(&donor));
    hold.ends_whole();
    eventually("the donor has nothing of the run", || status_of(&donor).as_ref().is_some_and(has_no_run));
    eventually("the relay has left", || relays_to(&donor).is_empty());
}

/// The relay begins connections and is not on the way of those that there are.
#[test]
fn connections_that_there_are_go_on_without_the_relay() {
    assert!(rustix::process::geteuid().is_root(), "only root sees a relay's sockets: run this test as root");
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("64M", &[]);
    let mut hold = Hold::start(&scene, 24, &[certificates.uri(&address(&donor), "")]);
    hold.goes_on(2);
    for relay in relays_to(&donor) {
        kill_process(Pid::from_raw(relay as i32).unwrap(), Signal::KILL).unwrap();
    }
    eventually("the relay has left", || relays_to(&donor).is_empty());
    hold.goes_on(2);
    hold.ends_whole();
}

/// What it held is given to others once the donor has hung up on its connections: there is not enough for
/// both.
#[test]
fn a_process_that_is_killed_amid_its_writes_leaves_its_place_to_others() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("256M", &[]);
    for turn in 0..4 {
        let marks = ["in-flight", "done"].map(|name| scene.work().join(format!("{name}-{turn}")));
        let uri = certificates.uri(&address(&donor), "&size=72M");
        let mut command = scene.run("8M", &[&uri], c_program("ends_writing"));
        let mut running = Running::start(command.arg("48").args(&marks));
        // All but what is local: it writes what is there anew from now on.
        let is_there = |status: Value| status["memory"]["used_bytes"].as_u64() >= Some(36 << 20);
        until(PATIENCE, "its pages at the donor", || is_there(status_of(&donor)?).then_some(()));
        marks.iter().for_each(|mark| fs::write(mark, "").unwrap());
        assert_eq!(running.finish(PATIENCE).success(), "whole\n");
        until(PATIENCE, "the run's end at the donor", || has_no_run(&status_of(&donor)?).then_some(()));
    }
}

/// The supervisor goes on as a copy of itself then, and its relay as ever.
#[test]
fn a_program_that_is_left_behind_goes_on_by_tls() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("64M", &[]);
    let said = scene.work().join("said");
    let script = format!("'{}' 16 >'{}' 2>&1 & echo $!", c_program("fault_hold").display(), said.display());
    let uri = certificates.uri(&address(&donor), "");
    let mut shell = Running::start(scene.run("8M", &[uri], "/bin/sh").args(["-c", &script]));
    let pid = shell.finish(PATIENCE).success().trim().parse().unwrap();
    let steps = || fs::read_to_string(&said).unwrap_or_default().matches("on\n").count();
    let enough = steps() + 3;
    until(PATIENCE, "the program to go on", || (steps() >= enough).then_some(()));
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let is_whole = || fs::read_to_string(&said).unwrap().ends_with("whole\n").then_some(());
    until(PATIENCE, "the program to find everything right", is_whole);
    eventually("the run ends at the donor", || donor.log().contains("run 1 of client ada has ended"));
}

#[test]
fn a_pool_by_tls_survives_a_donor() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = |number: u32| {
        certificates.donor("64M", &["--listen", &format!("127.0.0.{number}:0"), "--grace", "5"])
    };
    let (one, two, three) = (donor(1), donor(2), donor(3));
    let all = [&one, &two, &three].map(address).join(",");
    let uri = format!("pool:{all}?copies=2&tls-certificates={}", certificates.text());
    let mut hold = Hold::start(&scene, 16, &[uri]);
    hold.goes_on(2);
    one.signal(Signal::KILL);
    hold.goes_on(2);
    until(PATIENCE, "the repair", || {
        hold.running.complaint().contains("all pages are on 2 donors again").then_some(())
    });
    two.signal(Signal::KILL);
    hold.goes_on(2);
    let complaint = hold.ends_whole().complaint();
    assert!(!complaint.contains("SIGBUS"), "{complaint}");
}

#[test]
fn a_donor_that_is_killed_ends_the_program_as_without_tls() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("64M", &[]);
    let uri = certificates.uri(&address(&donor), "&reconnect=1");
    let hold = Hold::start(&scene, 24, &[&uri]);
    drop(donor);
    hold.ends_by_sigbus("nbds://", "Connection refused");
}

/// The run's line, and no program.
fn refused(scene: &Scene, uri: &str) -> String {
    let finished = Running::start(scene.run("8M", &[uri], "/bin/echo").arg("started")).finish(SOON);
    let complaint = finished.complaint();
    assert_eq!((finished.text().as_str(), finished.code()), ("", 125), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    complaint
}

#[test]
fn a_run_that_cannot_start_safely_does_not_start() {
    let (certificates, others, scene) = (Certificates::make(), Certificates::make(), Scene::new());
    let donor = certificates.donor("16M", &[]);
    let text = refused(&scene, &others.uri(&address(&donor), ""));
    assert!(text.contains("the server's certificate is of another CA"), "{text}");
    let text = refused(&scene, &certificates.uri(&address(&donor), "&tls-hostname=elsewhere"));
    assert!(text.contains("is not for elsewhere"), "{text}");
    let text = refused(&scene, &format!("nbd://{}/", address(&donor)));
    assert!(text.contains("the server takes TLS only: write nbds://"), "{text}");
    let text = refused(&scene, "nbd://192.0.2.1:1/");
    assert!(text.contains("is not this machine") && text.contains("?plain"), "{text}");
    let listening = |arguments: &[&str]| {
        let output =
            command(&[&["--memory", "1M", "--listen", "0.0.0.0:0"], arguments].concat()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.lines().count() == 1, "{text}");
        text
    };
    let text = listening(&[]);
    assert!(text.contains("--tls-certificates DIR") && text.contains("--plain"), "{text}");
    let text = listening(&["--tls-certificates", "/nonexistent"]);
    assert!(text.contains("ca-cert.pem, server-cert.pem and server-key.pem"), "{text}");
    fs::copy(others.path().join("server-key.pem"), certificates.path().join("server-key.pem")).unwrap();
    let text = listening(&["--tls-certificates", &certificates.text()]);
    assert!(text.contains("the key in server-key.pem is not this certificate's"), "{text}");
}

/// The authority takes certificates back, by the commands in docs/operate/security.md.
fn revoke(certificates: &Certificates, names: &[&str], days: &str) {
    let place = |name: &str| certificates.0.path().join(name).display().to_string();
    let config = "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\n\
                  crl_extensions=list\n[list]\nauthorityKeyIdentifier=keyid\n";
    // As it stands in the documentation, where it is to be run beside these files.
    let config = config.replace("=index.txt", &format!("={}", place("index.txt")));
    let config = config.replace("=crlnumber", &format!("={}", place("crlnumber")));
    fs::write(place("ca.cnf"), config).unwrap();
    if !Path::new(&place("index.txt")).exists() {
        fs::write(place("index.txt"), "").unwrap();
        fs::write(place("crlnumber"), "01\n").unwrap();
    }
    let made = |name: &str| certificates.path().join(name).display().to_string();
    let (config, certificate, key) = (place("ca.cnf"), made("ca-cert.pem"), made("ca-key.pem"));
    let ca = ["ca", "-config", &config, "-cert", &certificate, "-keyfile", &key];
    for name in names {
        tool("openssl", "openssl", &[&ca[..], &["-revoke", &made(name)]].concat());
    }
    tool("openssl", "openssl", &[&ca[..], &["-gencrl", "-crldays", days, "-out", &place("new")]].concat());
    fs::rename(place("new"), made("ca-crl.pem")).unwrap();
}

#[test]
fn a_client_whose_certificate_is_revoked_is_turned_away_by_a_donor_that_runs() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("64M", &[]);
    let uri = certificates.uri(&address(&donor), "&size=24M");
    // The client's own files, without a list.
    let client = tempfile::tempdir().unwrap();
    for name in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
        fs::copy(certificates.path().join(name), client.path().join(name)).unwrap();
    }
    let uri = uri.replace(&certificates.text(), &client.path().display().to_string());
    let mut hold = Hold::start(&scene, 16, &[&uri]);
    hold.goes_on(1);
    revoke(&certificates, &["client-cert.pem"], "30");
    let text = refused(&scene, &uri);
    assert!(text.contains("does not take this client's certificate (it was revoked)"), "{text}");
    eventually("the log says why", || donor.log().contains("was revoked, says ca-crl.pem"));
    // libnbd is turned away as well.
    let strange = format!("nbds://{}/?tls-certificates={}", address(&donor), client.path().display());
    assert!(!Command::new("nbdinfo").arg(&strange).output().unwrap().status.success());
    hold.goes_on(1);
    hold.ends_whole();
}

/// Another client's certificate of the same CA, and what it needs beside that, in a directory of its own.
fn another_client(certificates: &Certificates, name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let own = |name: &str| directory.path().join(name).display().to_string();
    let of_ca = |name: &str| certificates.path().join(name).display().to_string();
    fs::copy(of_ca("ca-cert.pem"), own("ca-cert.pem")).unwrap();
    fs::write(own("a.cnf"), "[req]\ndistinguished_name=name\n[name]\n").unwrap();
    let (config, certificate, key) = (own("a.cnf"), own("client-cert.pem"), own("client-key.pem"));
    let (authority, authority_key) = (of_ca("ca-cert.pem"), of_ca("ca-key.pem"));
    let subject = format!("/CN={name}");
    let made = ["req", "-x509", "-config", &config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let files =
        ["-nodes", "-keyout", &key, "-out", &certificate, "-CA", &authority, "-CAkey", &authority_key];
    let extensions = ["basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth"];
    let what = ["-days", "2", "-subj", &subject, "-addext", extensions[0], "-addext", extensions[1]];
    tool("openssl", "openssl", &[&made[..], &files, &what].concat());
    directory
}

#[test]
fn a_client_that_is_taken_back_by_the_command_is_turned_away_and_others_are_not() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    let donor = certificates.donor("64M", &[]);
    let client = |directory: &Path| {
        certificates
            .uri(&address(&donor), "&size=16M")
            .replace(&certificates.text(), &directory.display().to_string())
    };
    let (bob, eve) = (another_client(&certificates, "bob"), another_client(&certificates, "eve"));
    let own = tempfile::tempdir().unwrap();
    for name in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
        fs::copy(certificates.path().join(name), own.path().join(name)).unwrap();
    }
    let (ada, bob, file_of_eve) =
        (client(own.path()), client(bob.path()), eve.path().join("client-cert.pem"));
    let eve = client(eve.path());
    let mut hold = Hold::start(&scene, 12, &[&bob]);
    for uri in [&ada, &eve] {
        Hold::start(&scene, 12, &[uri]).ends_whole();
    }
    let revoke =
        |which: &[&str]| command(&[&["revoke", &certificates.text()], which].concat()).output().unwrap();
    let said = |which: &[&str]| {
        let output = revoke(which);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let line = said(&["ada", "--days", "3"]);
    assert!(
        line.contains("ca-crl.pem: 1 certificate is revoked; list 1 of this CA, good for 3 days"),
        "{line}"
    );
    assert!(refused(&scene, &ada).contains("does not take this client's certificate (it was revoked)"));
    Hold::start(&scene, 12, &[&eve]).ends_whole();
    // Renewed with all that was on it, and with one more.
    assert!(said(&[]).contains("1 certificate is revoked; list 2"));
    assert!(said(&[file_of_eve.to_str().unwrap()]).contains("2 certificates are revoked; list 3"));
    for uri in [&ada, &eve] {
        assert!(refused(&scene, uri).contains("(it was revoked)"));
    }
    hold.goes_on(1);
    hold.ends_whole();
    Hold::start(&scene, 12, &[&bob]).ends_whole();
    let output = revoke(&["nobody"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("no certificate of the CA's in it is for 'nobody'"), "{text}");
}

#[test]
fn neither_donor_nor_run_starts_with_a_list_of_revoked_certificates_that_is_of_no_use() {
    let (certificates, scene) = (Certificates::make(), Scene::new());
    revoke(&certificates, &[], "30");
    let donor = certificates.donor("64M", &[]);
    let uri = certificates.uri(&address(&donor), "&size=8M");
    let mut hold = Hold::start(&scene, 8, &[&uri]);
    hold.goes_on(1);
    hold.ends_whole();
    // The donor's certificate was revoked, says the run's list.
    revoke(&certificates, &["server-cert.pem"], "30");
    let text = refused(&scene, &uri);
    assert!(text.contains("the server's certificate was revoked"), "{text}");
    let listening = |text: &str| {
        fs::write(certificates.path().join("ca-crl.pem"), text).unwrap();
        let arguments = ["--memory", "1M", "--listen", "127.0.0.1:0", "--tls-certificates"];
        let output = command(&[&arguments[..], &[&certificates.text()]].concat()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.lines().count() == 1, "{said}");
        assert!(said.contains("ca-crl.pem: ") && said.contains("make a new one"), "{said}");
        let of_run = refused(&scene, &uri);
        assert!(of_run.contains("ca-crl.pem: ") && of_run.contains("make a new one"), "{of_run}");
        said
    };
    let text = listening("nothing");
    assert!(text.contains("it holds no list of revoked certificates"), "{text}");
    let others = Certificates::make();
    revoke(&others, &[], "30");
    let text = listening(&fs::read_to_string(others.path().join("ca-crl.pem")).unwrap());
    assert!(text.contains("it has no list of the authority in ca-cert.pem"), "{text}");
}

#[test]
fn libnbd_and_qemu_use_a_donor_by_tls() {
    let certificates = Certificates::make();
    let donor = certificates.donor("64M", &[]);
    let directory = tempfile::tempdir().unwrap();
    let [image, back] = ["image", "back"].map(|name| directory.path().join(name));
    let bytes: Vec<u8> =
        (0..8_u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&image, &bytes).unwrap();
    let uri = format!("nbds://{}/disk?tls-certificates={}", address(&donor), certificates.text());
    tool("libnbd-bin", "nbdcopy", &[image.to_str().unwrap(), &uri]);
    tool("libnbd-bin", "nbdcopy", &[&uri, back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap().starts_with(&bytes));
    let info = tool("libnbd-bin", "nbdinfo", &["--json", &uri]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["TLS"], true, "{info}");
    let (host, port) = address(&donor).rsplit_once(':').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let credentials = format!("tls-creds-x509,id=tls,endpoint=client,dir={}", certificates.text());
    let options = format!("driver=nbd,host={host},port={port},export=qemu,tls-creds=tls");
    let steps = ["-c", "write -P 7 1M 3M", "-c", "flush", "-c", "read -P 7 1M 3M", "-c", "read -P 0 0 1M"];
    let said = tool(
        "qemu-utils",
        "qemu-io",
        &[&["--object", &credentials, "--image-opts"], &steps[..], &[&options]].concat(),
    );
    assert!(!said.contains("failed"), "{said}");
    // Nor does either come in without a certificate of this CA.
    let stranger = Certificates::make();
    let strange = uri.replace(&certificates.text(), &stranger.text());
    assert!(!Command::new("nbdinfo").arg(&strange).output().unwrap().status.success());
}

/// A server that was not written here; ends with the value.
struct Server(Child);

impl Server {
    fn start(package: &str, program: &str, arguments: &[&str]) -> Self {
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Self(
            child.unwrap_or_else(|error| panic!("{program}: {error}; install it: apt-get install {package}")),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn await_port(port: u16) {
    eventually("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
}

/// A program on a foreign server, and that the server refuses whoever speaks no TLS.
fn holds_on(certificates: &Certificates, port: u16) {
    await_port(port);
    let scene = Scene::new();
    let mut hold = Hold::start(&scene, 16, &[certificates.uri(&format!("127.0.0.1:{port}"), "")]);
    hold.goes_on(2);
    hold.ends_whole();
    refused(&scene, &format!("nbd://127.0.0.1:{port}/"));
}

#[test]
fn a_program_on_nbdkit_by_tls() {
    let (certificates, port) = (Certificates::make(), free_port());
    let directory = format!("--tls-certificates={}", certificates.text());
    let _server = Server::start(
        "nbdkit",
        "nbdkit",
        &[
            "--foreground",
            "--tls=require",
            "--tls-verify-peer",
            &directory,
            "--ipaddr",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "memory",
            "64M",
        ],
    );
    holds_on(&certificates, port);
}

#[test]
fn a_program_on_qemu_nbd_by_tls() {
    let (certificates, port) = (Certificates::make(), free_port());
    let work = tempfile::tempdir().unwrap();
    let image = work.path().join("image");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let credentials =
        format!("tls-creds-x509,id=tls,endpoint=server,verify-peer=yes,dir={}", certificates.text());
    let _server = Server::start(
        "qemu-utils",
        "qemu-nbd",
        &[
            "--object",
            &credentials,
            "--tls-creds",
            "tls",
            "--shared=16",
            "--persistent",
            "--format=raw",
            "--export-name=",
            "--bind=127.0.0.1",
            "--port",
            &port.to_string(),
            image.to_str().unwrap(),
        ],
    );
    holds_on(&certificates, port);
}

/// Key and certificates stay with the relay, and so do handshakes: what enters programs seals and opens
/// records by keys that it is given, and cannot make any.
#[test]
fn no_program_gets_any_tls() {
    let library = Path::new(env!("CARGO_BIN_EXE_spillway")).with_file_name("libspillway_preload.so");
    let has =
        |file: &Path, text: &[u8]| fs::read(file).unwrap().windows(text.len()).any(|window| window == text);
    // What every TLS 1.3 derives its keys with.
    let label = b"tls13 ";
    assert!(has(Path::new(env!("CARGO_BIN_EXE_spillway")), label), "the search finds what is there");
    assert!(!has(&library, label));
    assert!(!has(&library, b"client-key.pem"));
}
