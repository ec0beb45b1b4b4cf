//! Programs under `spillway run`, or as they are, for comparison.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::MIB;
use super::child::{Finished, PATIENCE, Running};
use super::tools::tool;
use super::watch::Watch;

/// The statistics of one run.
#[derive(Clone, Debug)]
pub struct Stats(pub Value);

impl Stats {
    /// A number, by its key or by `outer.inner`.
    pub fn number(&self, key: &str) -> f64 {
        let value = key.split('.').fold(&self.0, |value, part| &value[part]);
        value.as_f64().unwrap_or_else(|| panic!("no number '{key}' in {}", self.0))
    }

    /// A count, by its key or by `outer.inner`.
    pub fn count(&self, key: &str) -> u64 {
        self.number(key) as u64
    }
}

/// A directory that every user can enter, as PostgreSQL's must.
pub fn open_directory() -> TempDir {
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap()
}

/// The command and its library, where every user may run them and no build replaces them meanwhile.
pub struct Installation(TempDir);

impl Installation {
    /// Further names of what was built: linkers write anew what they make, under a name of its own. A copy
    /// where there can be none, or where others may not run what was built.
    pub fn new() -> Self {
        let directory = open_directory();
        let command = Path::new(env!("CARGO_BIN_EXE_spillway"));
        let library = command.with_file_name("libspillway_preload.so");
        assert!(library.is_file(), "{} is missing; build it: cargo build --workspace", library.display());
        for file in [command, &library] {
            let is_for_all = fs::metadata(file).unwrap().permissions().mode() & 0o555 == 0o555;
            let name = directory.path().join(file.file_name().unwrap());
            if is_for_all && fs::hard_link(file, name).is_ok() {
                continue;
            }
            // Copied by another process: a child that another test forks meanwhile would hold our file open
            // for writing, and the command could not be executed.
            let copied = Command::new(tool("install", "coreutils"))
                .args(["-m", "755"])
                .args([file, directory.path()])
                .status();
            assert!(copied.unwrap().success());
        }
        Self(directory)
    }

    /// Where the command under test lies.
    pub fn command(&self) -> PathBuf {
        self.0.path().join("spillway")
    }
}

/// Under which conditions programs run.
pub enum Memory {
    /// Programs run as they are.
    Unlimited,
    /// Programs run under `spillway run`.
    Limited {
        /// What `--local` is given.
        local_bytes: u64,
        /// What `--store` is given.
        store: String,
    },
}

/// Starts programs, all under the same conditions, and keeps what was seen of them.
pub struct Launch {
    memory: Memory,
    installation: Installation,
    work: TempDir,
    options: Vec<String>,
    stats_files: RefCell<Vec<PathBuf>>,
    is_watched: bool,
    peak_bytes: Cell<u64>,
    patience: Cell<Duration>,
}

impl Launch {
    fn new(memory: Memory) -> Self {
        Self {
            memory,
            installation: Installation::new(),
            work: open_directory(),
            options: Vec::new(),
            stats_files: RefCell::default(),
            is_watched: false,
            peak_bytes: Cell::new(0),
            patience: Cell::new(PATIENCE),
        }
    }

    /// Programs run as they are.
    pub fn unlimited() -> Self {
        Self::new(Memory::Unlimited)
    }

    /// Programs run with so much local memory and this store.
    pub fn limited(local_bytes: u64, store: &str) -> Self {
        Self::new(Memory::Limited { local_bytes, store: store.to_owned() })
    }

    /// The same with the default store.
    pub fn local_mib(local_mib: u64) -> Self {
        Self::limited(local_mib * MIB, "compressed:")
    }

    /// Gives `spillway run` a further option, or its value.
    pub fn with_option(mut self, option: &str) -> Self {
        self.options.push(option.to_owned());
        self
    }

    /// Has an eye on how much memory programs hold. That slows them down, most of all those that begin and
    /// end many processes.
    pub fn watched(self) -> Self {
        Self { is_watched: true, ..self }
    }

    /// Waits longer than [`PATIENCE`] for programs to end.
    pub fn with_patience(self, patience: Duration) -> Self {
        self.patience.set(patience);
        self
    }

    /// How long to wait for what takes its time.
    pub fn patience(&self) -> Duration {
        self.patience.get()
    }

    /// The conditions under which programs run.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A directory for the programs' files, which goes with this value.
    pub fn work(&self) -> &Path {
        self.work.path()
    }

    /// What starts `program` under these conditions; its arguments are to be added.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Memory::Limited { local_bytes, store } = &self.memory else {
            return Command::new(program);
        };
        let mut stats_files = self.stats_files.borrow_mut();
        let stats = self.work().join(format!("stats-{}.json", stats_files.len()));
        let mut command = Command::new(self.installation.command());
        command.args(["run", "--local", &format!("{local_bytes}B"), "--store", store, "--stats"]);
        command.arg(&stats).args(&self.options).arg("--").arg(program);
        stats_files.push(stats);
        command
    }

    /// Starts a program made by [`Self::command`].
    pub fn start(&self, command: &mut Command) -> Watched<'_> {
        self.start_with(command, Stdio::null())
    }

    /// The same with this standard input.
    pub fn start_with(&self, command: &mut Command, stdin: impl Into<Stdio>) -> Watched<'_> {
        let running = Running::start_with(command, stdin);
        let including = matches!(self.memory, Memory::Unlimited);
        let watch = self.is_watched.then(|| Watch::start(running.pid(), including));
        Watched { launch: self, watch, running }
    }

    /// Runs a program made by [`Self::command`] to its end.
    pub fn run(&self, command: &mut Command) -> Finished {
        self.start(command).finish()
    }

    /// Runs a program with arguments to its end.
    pub fn run_with<S: AsRef<OsStr>>(&self, program: impl AsRef<OsStr>, arguments: &[S]) -> Finished {
        self.run(self.command(program).args(arguments))
    }

    /// The most anonymous memory of any of the programs at a time, seen from outside; they must be
    /// [watched](Self::watched).
    pub fn peak_bytes(&self) -> u64 {
        assert!(self.is_watched, "nobody has looked");
        self.peak_bytes.get()
    }

    /// The statistics of each program that has ended.
    pub fn all_stats(&self) -> Vec<Stats> {
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("no statistics: {error}"));
            Stats(serde_json::from_str(&text).unwrap_or_else(|error| panic!("statistics {text:?}: {error}")))
        };
        self.stats_files.borrow().iter().map(read).collect()
    }

    /// The statistics of the program that was started last.
    pub fn stats(&self) -> Stats {
        self.all_stats().pop().expect("no program was started")
    }
}

/// A program that runs, watched where its [`Launch`] is.
pub struct Watched<'a> {
    launch: &'a Launch,
    watch: Option<Watch>,
    /// The program, under way.
    pub running: Running,
}

impl Watched<'_> {
    /// Waits for its end.
    pub fn finish(mut self) -> Finished {
        let finished = self.running.finish(self.launch.patience());
        let peak = self.watch.as_ref().map_or(0, Watch::peak_bytes);
        self.launch.peak_bytes.set(self.launch.peak_bytes.get().max(peak));
        finished
    }

    /// Asks a server to end, and waits.
    pub fn stop(self, signal: Signal) -> Finished {
        self.running.signal(signal);
        self.finish()
    }
}
