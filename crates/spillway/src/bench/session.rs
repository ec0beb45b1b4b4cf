//! What benchmarks have in common with each other at a terminal: interruption, progress, results and
//! failures.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use spillway_report::whole_file;

use crate::exit::complain;

/// Prints results as JSON; the exit status says whether that went well.
pub fn print_json(value: &impl serde::Serialize) -> ExitCode {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    printed(writeln!(std::io::stdout(), "{text}"))
}

/// How a benchmark ends that has printed its results, or tried. A reader that went away has seen what it
/// wanted.
pub fn printed(outcome: std::io::Result<()>) -> ExitCode {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            failure(format!("cannot print: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Results that are printed one by one. What keeps one from being printed is told at the end: the machine is
/// put in order all the same.
#[derive(Debug)]
pub struct Results(RefCell<std::io::Result<()>>);

impl Results {
    /// None has been printed.
    pub fn new() -> Self {
        Self(RefCell::new(Ok(())))
    }

    /// Prints one, where those before it could be.
    pub fn print(&self, text: impl Display) {
        let mut printed = self.0.borrow_mut();
        if printed.is_ok() {
            *printed = write!(std::io::stdout(), "{text}");
        }
    }

    /// How a benchmark ends that has printed them, or tried.
    pub fn ended(self) -> ExitCode {
        printed(self.0.into_inner())
    }
}

/// Whether a file can be made there, asked before minutes of measuring are lost for it.
pub fn expect_place(file: &Path) -> Result<(), String> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    rustix::fs::access(directory.unwrap_or(Path::new(".")), rustix::fs::Access::WRITE_OK)
        .map_err(|error| format!("cannot write {}: {error}; name a file that can be written", file.display()))
}

/// Says on stderr why a benchmark failed.
pub fn failure(error: impl Display) -> ExitCode {
    complain(format!("bench: {error}"));
    ExitCode::FAILURE
}

/// Set when the user interrupts, so that everything is taken down before the end.
pub fn interruption() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    interrupted
}

/// What an earlier measurement has kept, or nothing where there is no such file yet. `is_like` says whether
/// it is of the same, or why not.
pub fn saved<T: serde::de::DeserializeOwned>(
    path: &Path,
    is_like: impl FnOnce(&T) -> Result<(), &'static str>,
) -> Result<Option<T>, String> {
    let named = |reason: String| format!("cannot go on from {}: {reason}; name another file", path.display());
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(error.to_string())),
    };
    let report: T = serde_json::from_str(&text).map_err(|error| named(error.to_string()))?;
    is_like(&report).map_err(|reason| named(reason.to_owned()))?;
    Ok(Some(report))
}

/// Keeps what was measured so far.
pub fn save(path: &Path, report: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(report).unwrap_or_default();
    // The next run reads it.
    whole_file::write(path, text).map_err(|error| {
        format!("cannot save to {}: {error}; the results are printed at the end", path.display())
    })
}

/// Keeps what was measured so far where a file is named for it.
pub fn keep(bar: &ProgressBar, path: Option<&Path>, report: &impl serde::Serialize) {
    if let Some(Err(error)) = path.map(|path| save(path, report)) {
        bar.suspend(|| complain(format!("bench: {error}")));
    }
}

/// So many runs of so many are done.
pub fn show_done(bar: &ProgressBar, name: &str, done: usize, total: usize) {
    bar.set_message(name.to_owned());
    bar.set_length(total as u64);
    bar.set_position(done as u64);
}

/// The path of this very command, which benchmarks start anew.
pub fn this_command() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot find itself: {error}; call it by its path"))
}

/// How much is done and how long the rest takes, where somebody looks.
pub fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {done}{msg}") {
        bar.set_style(style.with_key("done", write_done));
    }
    bar
}

/// Nothing before it is known how much there is to do, and no time before the first of it is done.
fn write_done(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    if let Some(all) = state.len().filter(|&all| all > 0) {
        let _ = match state.pos() {
            0 => write!(to, "0 of {all} "),
            done => write!(to, "{done} of {all}, {:#} left ", HumanDuration(state.eta())),
        };
    }
}
