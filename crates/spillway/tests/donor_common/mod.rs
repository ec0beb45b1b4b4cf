//! `spillway donor` as a process.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A donor that is killed with the value.
pub struct Donor {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// The first line that it wrote.
    pub ready: String,
    pub socket: PathBuf,
    pub shm: String,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.arg("donor").args(arguments).stdin(Stdio::null());
    command
}

impl Donor {
    /// A donor on TCP, a Unix socket and shared-memory rings.
    pub fn start(memory: &str, arguments: &[&str]) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("donor.sock");
        let shm = format!("process-test-{}-{number}", std::process::id());
        let places = ["--memory", memory, "--unix", socket.to_str().unwrap(), "--shm", &shm];
        let listen = if arguments.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] };
        let all = [&places[..], listen, arguments].concat();
        let log = directory.path().join("log");
        let stderr = std::fs::File::create(&log).unwrap();
        let mut child = command(&all).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        assert!(ready.contains("listening"), "no ready line but '{ready}{}'", said());
        Self { child, stdout, ready, socket, shm, log, _directory: directory }
    }

    /// `127.0.0.1:PORT`, from the ready line.
    pub fn tcp(&self) -> String {
        let said = self.ready.split_once("nbds://").or_else(|| self.ready.split_once("nbd://"));
        let (_, rest) = said.unwrap();
        rest.split([' ', ';', '"']).next().unwrap().to_owned()
    }

    pub fn tcp_uri(&self, export: &str) -> String {
        format!("nbd://{}/{export}", self.tcp())
    }

    pub fn unix_uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    pub fn shm_uri(&self) -> String {
        format!("shm:{}", self.shm)
    }

    /// What it has written to stderr.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Memory that it takes from the machine, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Waits for its end; what it said after its first line.
    pub fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    /// SIGTERM, and what it says to that.
    pub fn stop(self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        self.end()
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits, for a bounded time, until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not in 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a tool to its end; its output. Panics, with the way to install it, where it is missing or fails.
pub fn tool(package: &str, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}; install it: apt-get install {package}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}
