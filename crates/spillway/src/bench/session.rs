//! What benchmarks have in common with each other at a terminal: interruption, progress, results and
//! failures.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::complain;

/// Prints results as JSON; the exit status says whether that went well.
pub fn print_json(value: &impl serde::Serialize) -> ExitCode {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format!("bench: cannot print: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Says on stderr why a benchmark failed.
pub fn failure(error: impl std::fmt::Display) -> ExitCode {
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

/// Nothing before it is known how much there is to do.
fn write_done(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    if let Some(all) = state.len().filter(|&all| all > 0) {
        let _ = write!(to, "{} of {all}, {:#} left ", state.pos(), HumanDuration(state.eta()));
    }
}
