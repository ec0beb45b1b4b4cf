//! What the tests of faults share: programs under `spillway run` that know what their memory must hold, what
//! their end must look like, and disks that fail.
#![allow(dead_code, reason = "each test target uses its own part")]

pub mod disks;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::child::{Finished, PATIENCE, Running, until};
use crate::support::launch::{Installation, Stats, open_directory};
use crate::support::tools::c_program;
use crate::support::watch::child_of;

/// How long a program may take to end once its memory is lost.
pub const SOON: Duration = Duration::from_secs(30);
/// The exit status of a program that SIGBUS ended: 128 and its number.
pub const BY_SIGBUS: i32 = 135;
/// The exit status of a program that SIGKILL ended: 128 and its number.
pub const BY_SIGKILL: i32 = 137;

/// An installed Spillway, and a place for files.
pub struct Scene {
    installation: Installation,
    work: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        Self { installation: Installation::new(), work: open_directory() }
    }

    /// Where the command under test lies.
    pub fn spillway(&self) -> PathBuf {
        self.installation.command()
    }

    /// A directory for files, which goes with this value.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    /// What runs `program` with so much local memory and these stores; its arguments are to be added.
    pub fn run<S: AsRef<str>>(&self, local: &str, stores: &[S], program: impl AsRef<OsStr>) -> Command {
        self.run_with(&[], local, stores, program)
    }

    /// The same with further options.
    pub fn run_with<S: AsRef<str>>(
        &self,
        options: &[&str],
        local: &str,
        stores: &[S],
        program: impl AsRef<OsStr>,
    ) -> Command {
        let mut command = Command::new(self.spillway());
        command.args(["run", "--local", local, "--stats"]).arg(self.stats_path());
        for store in stores {
            command.args(["--store", store.as_ref()]);
        }
        command.args(options).arg("--").arg(program);
        command
    }

    fn stats_path(&self) -> PathBuf {
        self.work().join("stats.json")
    }

    /// The statistics of the program that ended last.
    pub fn stats(&self) -> Stats {
        let text = fs::read_to_string(self.stats_path()).unwrap();
        Stats(serde_json::from_str(&text).unwrap_or_else(|error| panic!("statistics {text:?}: {error}")))
    }

    /// Runs `fault_full` on `mib` with 8 MiB of local memory.
    pub fn fill<S: AsRef<str>>(&self, mib: u64, stores: &[S]) -> Filled {
        let mut command = self.run("8M", stores, c_program("fault_full"));
        Filled::read(&Running::start(command.arg(mib.to_string())).finish(PATIENCE))
    }
}

/// What became of a program that wrote until memory was refused, and then read everything twice.
#[derive(Debug)]
pub struct Filled {
    /// Pages written before the first refusal.
    pub written: u64,
    /// Pages that could not be written.
    pub refused: u64,
    /// Pages that were read and right.
    pub right: u64,
    /// Pages that were written and could not be read.
    pub lost: u64,
    /// What was said on stderr.
    pub complaint: String,
}

impl Filled {
    /// What `fault_full` has said; fails the test if it did not end well.
    pub fn read(finished: &Finished) -> Self {
        let text = finished.success();
        let number = |key| number_after(&text, key);
        Self {
            written: number("written"),
            refused: number("refused"),
            right: number("right"),
            lost: number("lost"),
            complaint: finished.complaint(),
        }
    }

    /// Nothing that was written is lost, the store's end was announced, and only then was memory refused.
    pub fn expect_nothing_lost(&self, store: &str) {
        assert_eq!((self.right, self.lost), (2 * self.written, 0), "{self:?}");
        assert!(self.refused > 0, "{self:?}");
        let first = self.complaint.lines().next().unwrap_or("");
        assert!(first.contains(store) && first.contains("90% full"), "{self:?}");
    }
}

fn number_after(text: &str, key: &str) -> u64 {
    let mut words = text.split_whitespace().skip_while(|word| *word != key).skip(1);
    words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no '{key}' in {text:?}"))
}

/// The program `fault_hold`: verifies its memory until it is told to end.
pub struct Hold {
    /// The program, under way.
    pub running: Running,
    base: u64,
    bytes: u64,
}

impl Hold {
    /// Starts it on `mib` with 8 MiB of local memory and waits until its memory is full.
    pub fn start<S: AsRef<str>>(scene: &Scene, mib: u64, stores: &[S]) -> Self {
        Self::start_by(scene.run("8M", stores, c_program("fault_hold")).arg(mib.to_string()))
    }

    /// Starts it by this command, and waits until its memory is full.
    pub fn start_by(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        running.expect("ready");
        running.expect("\n");
        let text = running.text();
        let mut words = text.split_whitespace().skip(1);
        let base = words.next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        let bytes = words.next().and_then(|word| word.parse().ok());
        Self { running, base: base.unwrap(), bytes: bytes.unwrap() }
    }

    /// How far it is.
    pub fn steps(&mut self) -> usize {
        self.running.text().matches("on\n").count()
    }

    /// Waits until it has gone so many steps more.
    pub fn goes_on(&mut self, steps: usize) {
        let enough = self.steps() + steps;
        until(PATIENCE, "the program to go on", || {
            assert!(!self.running.has_ended(), "it has ended: {}", self.running.complaint());
            (self.steps() >= enough).then_some(())
        });
    }

    /// Does something while no thread of the program runs, so that it sees all of it or nothing.
    pub fn while_stopped(&self, action: impl FnOnce()) {
        while_stopped(child_of(self.running.pid()), action);
    }

    /// Tells it to end: everything must be right.
    pub fn ends_whole(mut self) -> Finished {
        self.running.signal(Signal::TERM);
        let finished = self.running.finish(PATIENCE);
        assert!(finished.success().ends_with("whole\n"), "{finished:?}");
        finished
    }

    /// It ends by SIGBUS, soon, and says once why: the store, the reason and where.
    pub fn ends_by_sigbus(mut self, store: &str, reason: &str) -> Finished {
        let finished = self.running.finish(SOON);
        let complaint = finished.complaint();
        assert_eq!(finished.code(), BY_SIGBUS, "{complaint}");
        assert!(!finished.text().contains("whole"), "{}", finished.text());
        assert!(complaint.lines().all(|line| line.starts_with("spillway: ")), "{complaint}");
        let lines: Vec<&str> = complaint.lines().filter(|line| line.contains("SIGBUS")).collect();
        let [line] = lines[..] else { panic!("not one line: {complaint}") };
        assert!(
            line.contains(store) && line.contains(reason),
            "neither '{store}' nor '{reason}': {complaint}"
        );
        let address = address_in(line);
        let within = self.base..self.base + self.bytes;
        assert!(within.contains(&address), "{address:#x} is not in {within:x?}: {complaint}");
        // The evictor and who looks after the store may have found out too, and somebody was told to wait.
        assert!(complaint.lines().count() <= 6, "{complaint}");
        finished
    }
}

fn while_stopped(program: Pid, action: impl FnOnce()) {
    kill_process(program, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", program.as_raw_nonzero());
    until(SOON, "the program to stop", || {
        let mut threads = fs::read_dir(&tasks).unwrap().flatten();
        let stopped = threads.all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('T'))
        });
        stopped.then_some(())
    });
    action();
    kill_process(program, Signal::CONT).unwrap();
}

fn address_in(line: &str) -> u64 {
    let digits = line.split("0x").nth(1).unwrap_or_else(|| panic!("no address: {line}"));
    let end = digits.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], 16).unwrap()
}

/// The program `fault_catch`: looks at its memory when it is told to, prepared for the worst.
pub struct Catch {
    running: Running,
    tell: fs::File,
}

/// What became of a program that catches SIGBUS.
#[derive(Debug)]
pub struct Caught {
    /// Pages that are right.
    pub right: u64,
    /// Pages that raised SIGBUS.
    pub lost: u64,
    /// What was said on stderr.
    pub complaint: String,
}

impl Catch {
    /// Starts it on `mib` with 8 MiB of local memory and waits until its memory is full.
    pub fn start(scene: &Scene, mib: u64, store: &str) -> Self {
        Self::start_with(scene, &[], mib, store)
    }

    /// The same with further options of `spillway run`.
    pub fn start_with(scene: &Scene, options: &[&str], mib: u64, store: &str) -> Self {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let mut command = scene.run_with(options, "8M", &[store], c_program("fault_catch"));
        let mut running = Running::start_with(command.arg(mib.to_string()), Stdio::from(reader));
        running.expect("ready");
        Self { running, tell: writer.into() }
    }

    /// The process `spillway run` of it.
    pub fn run(&self) -> i32 {
        self.running.pid().as_raw_nonzero().get()
    }

    /// Does something while no thread of the program runs.
    pub fn while_stopped(&self, action: impl FnOnce()) {
        while_stopped(child_of(self.running.pid()), action);
    }

    /// Tells it to look at its memory; fails the test if any page is wrong.
    pub fn looks(mut self) -> Caught {
        use std::io::Write;
        writeln!(self.tell, "look").unwrap();
        let finished = self.running.finish(PATIENCE);
        let text = finished.success();
        let number = |key| number_after(&text, key);
        Caught { right: number("right"), lost: number("lost"), complaint: finished.complaint() }
    }
}

/// Processes of a program's group that have not ended.
pub fn alive_in_group(group: Pid) -> Vec<i32> {
    let group = group.as_raw_nonzero().get();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
        // State, parent, group.
        let fields: Vec<&str> = rest.split_whitespace().take(3).collect();
        !matches!(fields[0], "Z" | "X") && fields[2] == group.to_string()
    })
    .collect()
}
