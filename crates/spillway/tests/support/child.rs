//! Child processes that do not outlive their test, and waits that end.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a test waits for a program of a few seconds on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a program left: how it ended and what it wrote.
#[derive(Debug)]
pub struct Finished {
    /// How the program has ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it complained of.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// What it wrote, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What it complained of, as text.
    pub fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Fails the test unless the program ended with status 0; returns what it wrote.
    pub fn success(&self) -> String {
        assert!(
            self.status.success(),
            "{}; stderr: {}; stdout: {}",
            self.status,
            self.complaint(),
            self.text().chars().take(500).collect::<String>()
        );
        self.text()
    }

    /// The exit status, or 128 plus the signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }
}

/// A program in a process group of its own, which is killed when the value is dropped. Its output goes to
/// files, so that no pipe fills up.
pub struct Running {
    name: String,
    child: Child,
    stdout: File,
    stderr: File,
}

impl Running {
    /// Starts a program with empty standard input.
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::null())
    }

    /// Starts a program with this standard input.
    pub fn start_with(command: &mut Command, stdin: impl Into<Stdio>) -> Self {
        let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let name = format!("{command:?}");
        let child = command
            .stdin(stdin)
            .stdout(stdout.try_clone().unwrap())
            .stderr(stderr.try_clone().unwrap())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name, child, stdout, stderr }
    }

    /// The process's number, for signals.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the program alone, not to its group.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sends a signal to the program's group, as a terminal does.
    pub fn signal_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it has written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&contents(&self.stdout)).into_owned()
    }

    /// What it has complained of so far.
    pub fn complaint(&self) -> String {
        String::from_utf8_lossy(&contents(&self.stderr)).into_owned()
    }

    /// Waits until it has written `text`.
    pub fn expect(&mut self, text: &str) {
        let name = self.name.clone();
        until(PATIENCE, &format!("{name} to write '{text}'"), || {
            if self.text().contains(text) {
                return Some(());
            }
            assert!(!self.has_ended(), "{name} ended without '{text}': {} {}", self.text(), self.complaint());
            None
        });
    }

    /// Waits for its end, but not longer than `patience`.
    pub fn finish(&mut self, patience: Duration) -> Finished {
        let name = self.name.clone();
        let end = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > end {
                panic!("{name} still runs after {patience:?}: {} {}", self.text(), self.complaint());
            }
            sleep(Duration::from_millis(2));
        };
        Finished { status, stdout: contents(&self.stdout), stderr: contents(&self.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What the program has left behind is in its group too.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn contents(file: &File) -> Vec<u8> {
    // Not by way of the file's position, which the child shares.
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Asks until there is an answer; the test fails when there is none in time.
pub fn until<T>(patience: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "waited {patience:?} in vain for {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A TCP port of 127.0.0.1 that nobody listens on. It is none of those that the kernel gives to connections
/// and to listeners that name no port (`ip_local_port_range`, from 32,768): one of those could be taken by
/// another test before this one listens on it. No two calls in this process give the same.
pub fn free_port() -> u16 {
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        // Each process begins elsewhere.
        let turn = std::process::id().wrapping_mul(97).wrapping_add(GIVEN.fetch_add(1, Relaxed));
        let port = (PORTS.start + turn % (PORTS.end - PORTS.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Kills a process that is in no group of ours, such as a daemon, when the value is dropped.
pub struct Stray(pub Pid);

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}
