//! The process of [`crate::access`], under Spillway or under what a caller makes the command of.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tempfile::TempDir;

use crate::BenchError;
use crate::access::{AccessPlan, AccessResult};
use crate::cells::Setting;
use crate::measured::output_of;
use crate::rows::Sample;

/// A measured process that takes longer than this is given up.
const LONGEST: Duration = Duration::from_secs(300);

/// How the process is measured, whatever it runs under.
pub(crate) struct OnAccess<'a> {
    pub(crate) spillway: &'a Path,
    /// Memory of the process.
    pub(crate) memory_bytes: u64,
    /// Time of one measurement.
    pub(crate) measured_ms: u64,
    pub(crate) interrupted: &'a AtomicBool,
    scratch: TempDir,
}

impl<'a> OnAccess<'a> {
    pub(crate) fn new(
        spillway: &'a Path,
        memory_bytes: u64,
        measured_ms: u64,
        interrupted: &'a AtomicBool,
    ) -> Result<Self, BenchError> {
        let scratch = TempDir::new().map_err(|error| {
            BenchError::setup("make a directory for temporary files", error, "make room, or set TMPDIR")
        })?;
        Ok(Self { spillway, memory_bytes, measured_ms, interrupted, scratch })
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn local_bytes(&self, setting: &Setting) -> u64 {
        self.memory_bytes / 100 * setting.local_pct
    }

    /// The arguments of `spillway` that make it the measured process.
    pub(crate) fn arguments(&self, setting: &Setting) -> Vec<String> {
        let plan = AccessPlan {
            pattern: setting.pattern,
            data: setting.data,
            memory_bytes: self.memory_bytes,
            threads: setting.threads,
            measured_ms: self.measured_ms,
            hashes_bytes: false,
        };
        let plan = serde_json::to_string(&plan).unwrap_or_default();
        ["bench", "access", "--plan"].map(str::to_owned).into_iter().chain([plan]).collect()
    }

    /// Measures it under `spillway run` with these arguments.
    pub(crate) fn under_spillway(&self, setting: &Setting, run: &[String]) -> Result<Sample, BenchError> {
        let stats = self.scratch().join("stats.json");
        let _ = fs::remove_file(&stats);
        let mut command = Command::new(self.spillway);
        command.arg("run").args(run).arg("--stats").arg(&stats);
        command.arg("--").arg(self.spillway).args(self.arguments(setting));
        let result = self.finish(&mut command)?;
        let text = fs::read_to_string(&stats).unwrap_or_default();
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let fetched = stats["pages_fetched"].as_u64().unwrap_or(0);
        Ok(Sample {
            misses_per_access: fetched as f64 / result.accesses_in_all.max(1) as f64,
            result,
            fault_mode: stats["settings"]["fault_mode"].as_str().map(str::to_owned),
        })
    }

    /// Runs the measured process to its end.
    pub(crate) fn finish(&self, command: &mut Command) -> Result<AccessResult, BenchError> {
        let output = self.scratch().join("result.json");
        let text = output_of(command, &output, LONGEST, self.interrupted)?;
        serde_json::from_str(&text).map_err(|error| BenchError::Measured {
            command: format!("{command:?}"),
            reason: format!("{error} in '{text}'"),
        })
    }
}
