//! A program that is one command: its input is made once, and its output must be what it was when nothing
//! disturbed it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::BenchError;
use crate::whole::conditions::Start;
use crate::whole::digest::{digest, digest_of_file};
use crate::whole::workload::{Measure, Site, Workload, installed};

/// Makes a program's inputs in a directory.
pub(super) type MakeInput = fn(&Site<'_>, &Path) -> Result<(), BenchError>;
/// The arguments of a program that runs in a directory.
pub(super) type Arguments = fn(&Site<'_>, &Path) -> Vec<String>;

/// A program that is one command.
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) program: &'static str,
    pub(super) remedy: &'static str,
    pub(super) input: MakeInput,
    pub(super) arguments: Arguments,
    /// The file that it writes, in its directory; what it prints counts in any case.
    pub(super) output: Option<&'static str>,
}

/// A job with its inputs made.
pub(super) struct Prepared {
    job: Job,
    program: PathBuf,
    directory: PathBuf,
    expected: u64,
}

impl Prepared {
    pub(super) fn new(job: Job) -> Self {
        Self { job, program: PathBuf::new(), directory: PathBuf::new(), expected: 0 }
    }

    /// Runs it; its seconds, and a digest of what it has made.
    fn run_once(&self, site: &Site<'_>, mut command: Command) -> Result<(f64, u64), BenchError> {
        let output = self.job.output.map(|name| self.directory.join(name));
        if let Some(output) = &output {
            let _ = std::fs::remove_file(output);
        }
        command.args((self.job.arguments)(site, &self.directory)).current_dir(&self.directory);
        let begun = Instant::now();
        let text = site.output_of(&mut command)?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut digest = digest(text.as_bytes(), 1);
        if let Some(output) = output {
            digest = digest_of_file(&output, digest).map_err(|error| BenchError::Measured {
                command: self.job.name.to_owned(),
                reason: format!("its output cannot be read: {error}"),
            })?;
        }
        Ok((seconds, digest))
    }
}

impl Workload for Prepared {
    fn name(&self) -> &'static str {
        self.job.name
    }

    fn about(&self, _: &Site<'_>) -> String {
        self.job.about.to_owned()
    }

    fn measure(&self) -> Measure {
        Measure::Seconds
    }

    fn prepare(&mut self, site: &Site<'_>) -> Result<(), BenchError> {
        self.program = installed(self.job.program, self.job.remedy)?;
        self.directory = site.scratch().join(self.job.name);
        std::fs::create_dir_all(&self.directory).map_err(no_room)?;
        (self.job.input)(site, &self.directory)?;
        // Brings its files into the page cache, too.
        let alone = self.run_once(site, Command::new(&self.program)).map_err(|error| match error {
            // What it lacks may be a package that only it knows.
            BenchError::Measured { reason, .. } => {
                BenchError::setup(format!("run '{}'", self.job.name), reason, self.job.remedy)
            }
            other => other,
        });
        self.expected = alone?.1;
        Ok(())
    }

    fn run(&self, site: &Site<'_>, start: &Start<'_>) -> Result<f64, BenchError> {
        let (seconds, digest) = self.run_once(site, start.command(&self.program))?;
        if digest == self.expected {
            return Ok(seconds);
        }
        let reason = "its output differs from that of the run that nothing disturbed".to_owned();
        Err(BenchError::Wrong { command: self.job.name.to_owned(), reason })
    }
}

/// Inputs cannot be written.
pub(super) fn no_room(error: std::io::Error) -> BenchError {
    BenchError::setup("write a program's input", error, "make room, or set TMPDIR")
}
