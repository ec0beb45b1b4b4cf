//! How far a command is.

use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// How many of `all` things are done, and how long the rest takes; on a terminal only.
pub fn progress_bar(all: usize, things: &str) -> ProgressBar {
    let template = format!("{{wide_bar}} {{pos}} of {{len}} {things}{{left}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(all as u64).with_style(style.with_key("left", write_left));
    // Drawn at once, and while a single thing takes its time.
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Nothing before the first thing is done: until then nobody knows.
fn write_left(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    if state.pos() > 0 {
        let _ = write!(to, ", {:#} left", HumanDuration(state.eta()));
    }
}
