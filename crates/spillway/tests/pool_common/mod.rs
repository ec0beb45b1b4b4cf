//! Donors on different addresses of this machine, and an etcd for them.
#![allow(dead_code, reason = "each test target uses its own part")]

pub mod slow;
pub mod small_machine;

use std::fmt::Display;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::donor_common::{Donor, command, tool};
use crate::fault_common::{SOON, Scene};
use crate::support::child::{Finished, PATIENCE, Running, free_port, until};

/// A run on this pool does not start: one line says why, with all of these reasons.
pub fn refused(uri: &str, reasons: &[&str]) {
    let scene = Scene::new();
    let begin = Instant::now();
    let mut running = Running::start(scene.run("8M", &[uri], "/bin/echo").arg("started"));
    let finished = running.finish(SOON);
    let complaint = finished.complaint();
    assert_eq!(finished.text(), "", "{complaint}");
    assert_ne!(finished.code(), 0, "{complaint}");
    assert_eq!(complaint.lines().filter(|line| line.contains("pool:")).count(), 1, "{complaint}");
    assert!(reasons.iter().all(|reason| complaint.contains(reason)), "{reasons:?}: {complaint}");
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

/// Donors, each with an address of its own, so that they count as hosts of their own.
#[derive(Default)]
pub struct Donors(pub Vec<Option<Donor>>);

/// The donor of this number, with further options.
pub fn donor(number: usize, memory: &str, port: u16, options: &[&str]) -> Donor {
    let listen = format!("127.0.0.{}:{port}", number + 2);
    let all = [&["--listen", listen.as_str(), "--grace", "5"][..], options].concat();
    Donor::start(memory, &all)
}

impl Donors {
    /// So many, of which nobody knows but who lists them.
    pub fn start(count: usize, memory: &str) -> Self {
        Self::start_with(count, memory, &[])
    }

    /// The same with further options.
    pub fn start_with(count: usize, memory: &str, options: &[&str]) -> Self {
        Self((0..count).map(|number| Some(donor(number, memory, 0, options))).collect())
    }

    /// One more; its number.
    pub fn add(&mut self, memory: &str, options: &[&str]) -> usize {
        self.0.push(Some(donor(self.0.len(), memory, 0, options)));
        self.0.len() - 1
    }

    pub fn address(&self, number: usize) -> String {
        self.0[number].as_ref().unwrap().tcp()
    }

    pub fn uri(&self, query: &str) -> String {
        let all: Vec<String> = (0..self.0.len()).map(|number| self.address(number)).collect();
        format!("pool:{}{query}", all.join(","))
    }

    pub fn signal(&self, number: usize, signal: Signal) {
        self.0[number].as_ref().unwrap().signal(signal);
    }

    /// Kills one, at once and without a word.
    pub fn kill(&mut self, number: usize) {
        drop(self.0[number].take());
    }
}

/// Certificates for the donors on these hosts, in `tls` of a directory.
pub fn certificates(hosts: impl Iterator<Item = String>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let hosts = hosts.flat_map(|host| ["--host".to_owned(), host]);
    let made = command(&["certificates", &tls(&directory)]).args(hosts).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    directory
}

/// Where what [`certificates`] makes lies.
pub fn tls(directory: &TempDir) -> String {
    directory.path().join("tls").display().to_string()
}

/// Waits until a run has said this.
pub fn says(running: &Running, text: &str) {
    until(PATIENCE, &format!("'{text}' in: {}", running.complaint()), || {
        running.complaint().contains(text).then_some(())
    });
}

/// What `status` says of the stores of a run, by the number of the process `spillway run`.
pub fn stores_of(scene: &Scene, run: &impl Display) -> Vec<Value> {
    let output =
        Command::new(scene.spillway()).args(["status", &run.to_string(), "--json"]).output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stores = seen.pointer("/alive/0/run/stores").and_then(Value::as_array);
    stores.unwrap_or_else(|| panic!("no stores in {seen}")).clone()
}

/// `spillway pool` with these arguments, to its end.
pub fn pool_command(scene: &Scene, arguments: &[&str]) -> Finished {
    start_pool_command(scene, arguments).finish(PATIENCE)
}

/// The same, under way.
pub fn start_pool_command(scene: &Scene, arguments: &[&str]) -> Running {
    Running::start(Command::new(scene.spillway()).arg("pool").args(arguments))
}

/// Debian's etcd, ended with the value.
pub struct Etcd {
    child: Option<Child>,
    directory: TempDir,
    host: String,
    ports: (u16, u16),
    /// Where its certificate, its key and the CA's certificate are, if it takes nothing but TLS.
    tls: Option<String>,
}

impl Etcd {
    /// A new one without data, on loopback.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1")
    }

    /// The same on an address that others reach.
    pub fn start_at(host: &str) -> Self {
        Self::start_with(host, None)
    }

    /// One that speaks TLS, and only with clients of the CA whose files are in this directory.
    pub fn start_by_tls(certificates: &str) -> Self {
        Self::start_with("127.0.0.1", Some(certificates.to_owned()))
    }

    fn start_with(host: &str, tls: Option<String>) -> Self {
        let ports = (free_port(), free_port());
        let directory = tempfile::tempdir().unwrap();
        if let Some(certificates) = &tls {
            make_certificate_of_etcd(host, certificates);
        }
        let mut etcd = Self { child: None, directory, host: host.to_owned(), ports, tls };
        etcd.begin();
        etcd
    }

    /// The pool that the tests use.
    pub fn pool(&self) -> String {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        format!("{scheme}://{}:{}/test", self.host, self.ports.0)
    }

    fn begin(&mut self) {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let client = format!("{scheme}://{}:{}", self.host, self.ports.0);
        let peer = format!("http://127.0.0.1:{}", self.ports.1);
        let cluster = format!("one={peer}");
        let mut command = Command::new("etcd");
        command.args(["--name", "one", "--log-level", "error", "--logger", "zap"]);
        command.arg("--data-dir").arg(self.directory.path().join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &cluster]);
        if let Some(certificates) = &self.tls {
            let file = |name: &str| format!("{certificates}/{name}");
            command.arg("--cert-file").arg(file("etcd-cert.pem"));
            command.arg("--key-file").arg(file("etcd-key.pem"));
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(file("ca-cert.pem"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn();
        let child =
            child.unwrap_or_else(|error| panic!("etcd: {error}; install it: apt-get install etcd-server"));
        let child = self.child.insert(child);
        let address = (self.host.as_str(), self.ports.0);
        until(PATIENCE, "etcd to listen", || {
            assert_eq!(child.try_wait().unwrap(), None, "etcd has ended");
            TcpStream::connect(address).ok().map(drop)
        });
    }

    /// Kills it at once, without a word.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Its port is free once nothing listens there.
        let address = (self.host.as_str(), self.ports.0);
        until(PATIENCE, "etcd's port", || TcpListener::bind(address).ok().map(drop));
    }

    /// Starts it again with what it had.
    pub fn restart(&mut self) {
        self.begin();
    }

    /// Starts it again with nothing.
    pub fn restart_empty(&mut self) {
        std::fs::remove_dir_all(self.directory.path().join("data")).unwrap();
        self.begin();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A certificate of the CA in this directory for an etcd. Its gateway connects to itself, so it is a client's
/// certificate too.
fn make_certificate_of_etcd(host: &str, certificates: &str) {
    let file = |name: &str| format!("{certificates}/{name}");
    std::fs::write(file("etcd.cnf"), "[req]\ndistinguished_name=name\n[name]\n").unwrap();
    let (config, certificate, key) = (file("etcd.cnf"), file("etcd-cert.pem"), file("etcd-key.pem"));
    let (authority, authority_key) = (file("ca-cert.pem"), file("ca-key.pem"));
    let own = format!("subjectAltName=IP:{host}");
    let made = ["req", "-x509", "-config", &config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let files =
        ["-nodes", "-keyout", &key, "-out", &certificate, "-CA", &authority, "-CAkey", &authority_key];
    let what = [
        "-days",
        "2",
        "-subj",
        "/CN=etcd",
        "-addext",
        &own,
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        "keyUsage=digitalSignature",
        "-addext",
        "extendedKeyUsage=serverAuth,clientAuth",
    ];
    tool("openssl", "openssl", &[&made[..], &files, &what].concat());
}

/// What `pool status --json` says of each donor: address, state and runs. Waits until so many are `state`.
pub fn await_donors(scene: &Scene, pool: &str, count: usize, state: &str) -> Value {
    await_donors_by(scene, &[pool], count, state)
}

/// What was said last, which is shown where the test fails.
#[derive(Default)]
struct Last(String);

impl Drop for Last {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("said last: {}", self.0);
        }
    }
}

/// The same with further arguments behind the pool.
pub fn await_donors_by(scene: &Scene, pool: &[&str], count: usize, state: &str) -> Value {
    let mut last = Last::default();
    until(PATIENCE, &format!("{count} donors that are {state}"), || {
        let finished = pool_command(scene, &[&["status", "--json"], pool].concat());
        last.0 = format!("{}{}", finished.text(), finished.complaint());
        let seen: Value = serde_json::from_str(&finished.text()).ok()?;
        let donors = seen["donors"].as_array()?;
        (donors.iter().filter(|donor| donor["state"] == state).count() == count).then(|| seen.clone())
    })
}
