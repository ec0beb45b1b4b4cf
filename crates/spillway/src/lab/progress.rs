//! How far a command is.

use std::fs::File;
use std::io::{BufReader, Read};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressFinish, ProgressState, ProgressStyle};

/// Read at once of a large file.
const READ_BYTES: usize = 1 << 20;
/// What is smaller is read before anybody wonders.
const LARGE_BYTES: u64 = 16 << 20;

/// How many of `all` things are done, and how long the rest takes; on a terminal only.
pub fn progress_bar(all: usize, things: &str) -> ProgressBar {
    let template = format!("{{wide_bar}} {{pos}} of {{len}} {things}{{left}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(all as u64).with_style(style.with_key("left", write_left));
    // Drawn at once, and while a single thing takes its time.
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// What a simulation has come to, in the bar's message, and how long the rest takes where the workload knows
/// how much of its work is left.
pub fn simulation_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {msg}{left}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::no_length().with_style(style.with_key("left", write_left));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A file that is read once, from its beginning to its end; on a terminal with how much of it is read, and
/// how long the rest takes.
pub fn read_with_progress(file: File) -> BufReader<impl Read> {
    // Of a pipe nobody knows how much comes.
    let bytes = file.metadata().map_or(0, |metadata| if metadata.is_file() { metadata.len() } else { 0 });
    let template = "{wide_bar} {bytes} of {total_bytes} read{left}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = if bytes >= LARGE_BYTES { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
    let bar = bar.with_style(style.with_key("left", write_left)).with_finish(ProgressFinish::AndClear);
    BufReader::with_capacity(READ_BYTES, bar.wrap_read(file))
}

/// Nothing before the first thing is done: until then nobody knows.
fn write_left(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    if state.pos() > 0 {
        let _ = write!(to, ", {:#} left", HumanDuration(state.eta()));
    }
}
