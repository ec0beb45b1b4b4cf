//! How far a command is.

use indicatif::{ProgressBar, ProgressStyle};

/// How many of `all` things are done, and how long the rest takes; on a terminal only.
pub fn progress_bar(all: usize, things: &str) -> ProgressBar {
    let template = format!("{{wide_bar}} {{pos}} of {{len}} {things}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(all as u64).with_style(style)
}
