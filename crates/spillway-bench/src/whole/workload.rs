//! What whole programs have in common.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::BenchError;
use crate::cgroup::Used;
use crate::measured::output_of;
use crate::whole::conditions::Start;

/// A step of a workload that takes longer than this is given up.
pub const LONGEST: Duration = Duration::from_secs(1800);

/// What a program's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Seconds that it took: less is better.
    Seconds,
    /// Gigabytes a second: more is better.
    GbPerS,
    /// Transactions a second: more is better.
    PerSecond,
}

impl Measure {
    /// The unit of the value.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::GbPerS => "GB/s",
            Self::PerSecond => "transactions/s",
        }
    }

    /// The performance as a share of the baseline's, as the paper has it.
    #[must_use]
    pub fn normalised(self, baseline: f64, value: f64) -> f64 {
        if self == Self::Seconds { baseline / value } else { value / baseline }
    }
}

/// One run of a program.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// In the unit of its [`Measure`].
    pub value: f64,
    /// The most memory of each kind that it used at a time, where that was watched.
    pub most: Used,
    /// Spillway's statistics, where it ran under Spillway.
    pub stats: serde_json::Value,
    /// How long its clients waited, where it has any.
    pub latency: Option<Latency>,
    /// The stages that it goes through, where it tells them apart.
    pub stages: Vec<Stage>,
}

/// A part of a program's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// What it does meanwhile.
    pub name: String,
    /// How long that took.
    pub seconds: f64,
}

/// How long a program's clients waited for answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the answers came sooner, in microseconds.
    pub p50_us: f64,
    /// All but one in a hundred came sooner, in microseconds.
    pub p99_us: f64,
}

impl Latency {
    /// Of these waits, in microseconds; none where there are none.
    pub(crate) fn of(mut waits_us: Vec<f64>) -> Option<Self> {
        waits_us.sort_unstable_by(f64::total_cmp);
        let share = |percent: usize| waits_us.get((waits_us.len().checked_sub(1)?) * percent / 100).copied();
        Some(Self { p50_us: share(50)?, p99_us: share(99)? })
    }
}

/// How large a program's inputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Small inputs, of `--quick`.
    Quick,
    /// As `bench programs` has them.
    Whole,
    /// As `bench dcm` has them: at least 2 GiB of anonymous memory, and at least half a minute.
    Paper,
}

impl Scale {
    pub(crate) fn of_suite(quick: bool) -> Self {
        if quick { Self::Quick } else { Self::Whole }
    }
}

/// Where programs run and what they need.
pub struct Site<'a> {
    pub(crate) spillway: &'a Path,
    pub(crate) interrupted: &'a AtomicBool,
    scale: Scale,
    scratch: TempDir,
    /// Where inputs stay from one benchmark to the next.
    kept: Option<PathBuf>,
}

impl<'a> Site<'a> {
    pub(crate) fn new(
        spillway: &'a Path,
        scale: Scale,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, BenchError> {
        // Users other than root run there too.
        let scratch = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir();
        let scratch = scratch.map_err(|error| {
            BenchError::setup("make a directory for temporary files", error, "make room, or set TMPDIR")
        })?;
        Ok(Self { spillway, interrupted, scale, scratch, kept: None })
    }

    /// Keeps inputs that take long to make in this directory, and takes what it has.
    pub(crate) fn keeping(self, directory: Option<&Path>) -> Self {
        Self { kept: directory.map(Path::to_path_buf), ..self }
    }

    /// The directory of inputs of this name, which says what they are.
    pub(crate) fn inputs(&self, name: &str) -> Result<PathBuf, BenchError> {
        let directory = self.kept.as_deref().unwrap_or(self.scratch()).join(name);
        match fs::create_dir_all(&directory) {
            Ok(()) => Ok(directory),
            Err(error) => {
                let action = format!("make {}", directory.display());
                Err(BenchError::setup(action, error, "name another directory"))
            }
        }
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Takes away what a program has left there, to make room for the next.
    pub(crate) fn clear(&self) {
        for entry in fs::read_dir(self.scratch()).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }

    /// Something small for `--quick`, or the whole.
    pub(crate) fn pick<T>(&self, quick: T, whole: T) -> T {
        if self.scale == Scale::Quick { quick } else { whole }
    }

    /// The same, and what `bench dcm` has in place of the whole.
    pub(crate) fn scaled<T>(&self, quick: T, whole: T, paper: T) -> T {
        if self.scale == Scale::Paper { paper } else { self.pick(quick, whole) }
    }

    /// Runs a command to its successful end; what it wrote to its standard output. What it complains of is
    /// told only where it fails.
    pub(crate) fn output_of(&self, command: &mut Command) -> Result<String, BenchError> {
        let complaints = self.scratch().join("complaints");
        let file = fs::File::create(&complaints)
            .map_err(|error| BenchError::setup("write temporary files", error, "make room, or set TMPDIR"))?;
        command.stderr(file);
        let output = output_of(command, &self.scratch().join("output"), LONGEST, self.interrupted);
        output.map_err(|error| match error {
            BenchError::Measured { command, reason } => {
                let said = fs::read_to_string(&complaints).unwrap_or_default();
                // The first error is the cause of the others.
                let line = said.lines().find(|line| line.to_lowercase().contains("error"));
                let line = line.or_else(|| said.lines().last()).unwrap_or("nothing");
                BenchError::Measured { command, reason: format!("{reason}; it said: {line}") }
            }
            other => other,
        })
    }
}

/// A program that is measured.
pub trait Workload {
    /// The program's name in tables and plots.
    fn name(&self) -> &'static str;
    /// What it does with what, in a sentence.
    fn about(&self, site: &Site<'_>) -> String;
    /// What its value is.
    fn measure(&self) -> Measure;
    /// Makes the inputs that its runs need.
    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError>;
    /// Runs it once, its program started by `start`; its value. Fails where its result is wrong.
    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError>;
    /// How long its clients waited in the run before, where it has any.
    fn latency(&self) -> Option<Latency> {
        None
    }
    /// The stages of the run before, where it tells them apart.
    fn stages(&self) -> Vec<Stage> {
        Vec::new()
    }
}

/// The path of an installed program.
pub(crate) fn installed(program: &str, remedy: &'static str) -> Result<PathBuf, BenchError> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search_path)
        .chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| BenchError::setup(format!("run '{program}'"), "not found", remedy))
}

/// Where the user keeps what can be had again.
pub(crate) fn cache_directory() -> Result<PathBuf, BenchError> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache
        .ok_or_else(|| BenchError::setup("find the cache directory", "HOME is not set", "set XDG_CACHE_HOME"))
}
