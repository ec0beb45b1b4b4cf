//! Processes for the time of a measurement: run to their end unless the user interrupts, and never left
//! behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::BenchError;

/// So long a child has to end in its own way: a run or a donor takes its sockets away.
const GRACE: Duration = Duration::from_secs(2);

/// A child that has ended when this is dropped.
pub struct Ended(pub Child);

impl Ended {
    fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end, and waits a little.
    fn ask(&mut self, ask: impl FnOnce(Pid)) {
        if self.runs() {
            ask(Pid::from_child(&self.0));
        }
        let asked = Instant::now();
        while self.runs() && asked.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.ask(|pid| {
            let _ = kill_process(pid, Signal::TERM);
        });
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a child, but no longer than `longest`. `line` names it in errors.
pub fn wait(
    child: &mut Ended,
    line: &str,
    longest: Duration,
    interrupted: &AtomicBool,
) -> Result<ExitStatus, BenchError> {
    let failed = |reason: String| BenchError::Measured { command: line.to_owned(), reason };
    let started = Instant::now();
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        match child.0.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if started.elapsed() > longest => {
                return Err(failed(format!("it takes longer than {longest:?}")));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}

/// Runs a command to its successful end; what it wrote, by way of the file `output`.
pub fn output_of(
    command: &mut Command,
    output: &Path,
    longest: Duration,
    interrupted: &AtomicBool,
) -> Result<String, BenchError> {
    let line = format!("{command:?}");
    let failed = |reason: String| BenchError::Measured { command: line.clone(), reason };
    let file = fs::File::create(output).map_err(|error| failed(error.to_string()))?;
    // In a group of its own, so that what the program has started ends with it.
    let child = command.process_group(0).stdin(Stdio::null()).stdout(file).spawn();
    let mut child = Ended(child.map_err(|error| failed(error.to_string()))?);
    let group = Pid::from_child(&child.0);
    let status = wait(&mut child, &line, longest, interrupted).inspect_err(|_| {
        child.ask(|group| {
            let _ = kill_process_group(group, Signal::TERM);
        });
        let _ = kill_process_group(group, Signal::KILL);
    })?;
    // The terminal interrupts the measured process too, which may be seen first.
    if interrupted.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    Ok(fs::read_to_string(output).unwrap_or_default())
}

/// Makes a command that runs under a control group, to whose `procs` file a shell writes itself first.
#[must_use]
pub fn under(procs: &Path, program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(program);
    command
}
