//! The command that a user gives: where it is found, and what it writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::BenchError;
use crate::whole::conditions::Start;
use crate::whole::digest::digest_of_file;
use crate::whole::workload::{Measure, Site, Workload, installed};

/// A command, and the digest of what it wrote when nothing disturbed it.
pub(super) struct Given {
    program: PathBuf,
    arguments: Vec<String>,
    outputs: Vec<PathBuf>,
    any_output: bool,
    expected: u64,
}

impl Given {
    pub(super) fn new(command: &[String], outputs: &[PathBuf], any_output: bool) -> Result<Self, BenchError> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| BenchError::setup("run a command", "none is given", "write it after '--'"))?;
        let program = match program.contains('/') {
            true => PathBuf::from(program),
            false => installed(program, "install it, or call it by its path")?,
        };
        Ok(Self {
            program,
            arguments: arguments.to_vec(),
            outputs: outputs.to_vec(),
            any_output,
            expected: 0,
        })
    }

    /// Runs it once; its seconds, and a digest of what it wrote.
    fn run_once(&self, site: &Site<'_>, mut command: Command) -> Result<(f64, u64), BenchError> {
        for output in &self.outputs {
            let _ = fs::remove_file(output);
        }
        let begun = Instant::now();
        site.output_of(command.args(&self.arguments))?;
        let seconds = begun.elapsed().as_secs_f64();
        let printed = site.scratch().join("output");
        let written = self.outputs.iter().map(PathBuf::as_path);
        let digest = std::iter::once(printed.as_path()).chain(written).try_fold(1, digest_of);
        Ok((seconds, digest?))
    }
}

fn digest_of(before: u64, path: &Path) -> Result<u64, BenchError> {
    digest_of_file(path, before).map_err(|error| {
        let action = format!("read its output {}", path.display());
        BenchError::setup(action, error, "name with --output what the command writes")
    })
}

impl Workload for Given {
    fn name(&self) -> &'static str {
        "the command"
    }

    fn about(&self, _: &Site<'_>) -> String {
        self.program.display().to_string()
    }

    fn measure(&self) -> Measure {
        Measure::Seconds
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        // Brings its files into the page cache, too.
        self.expected = self.run_once(site, Command::new(&self.program))?.1;
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let (seconds, digest) = self.run_once(site, start.command(&self.program))?;
        if self.any_output || digest == self.expected {
            return Ok(seconds);
        }
        let reason = "its output differs from that of the run that nothing disturbed".to_owned();
        Err(BenchError::Wrong { command: self.program.display().to_string(), reason })
    }
}
