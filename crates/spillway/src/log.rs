//! Where a run, a donor or the daemon tells what happens, and in which form.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use spillway_events::Format;

/// Where events go, and how.
#[derive(Args, Clone, Debug, Default)]
pub struct LogArgs {
    /// How events are told: as text, or as JSON objects with names and fields, a line each
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// Append events to this file, in place of stderr
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// What `--log-format` can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Sentences; with priorities where stderr is systemd's journal
    #[default]
    Text,
    /// JSON objects, also of what is not said as text
    Json,
}

impl LogArgs {
    /// Has events told so from now on; in JSON too where only `--json` was given.
    ///
    /// # Errors
    /// The file cannot be opened; a sentence that says so.
    pub fn begin(&self, is_json: bool) -> Result<(), String> {
        spillway_events::begin(self.format(is_json), self.open()?);
        Ok(())
    }

    /// Whether events are told in JSON.
    pub fn is_json(&self) -> bool {
        self.log_format == Some(LogFormat::Json)
    }

    fn format(&self, is_json: bool) -> Format {
        match self.log_format.unwrap_or(if is_json { LogFormat::Json } else { LogFormat::Text }) {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        }
    }

    fn open(&self) -> Result<Option<File>, String> {
        let Some(path) = &self.log else { return Ok(None) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let unable = |error| format!("--log {}: {error}; name a file that can be written", path.display());
        file.map(Some).map_err(unable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_output_means_json_events_unless_another_form_is_asked_for() {
        let format = |log_format, is_json| LogArgs { log_format, log: None }.format(is_json);
        assert_eq!([format(None, false), format(None, true)], [Format::Text, Format::Json]);
        assert_eq!(format(Some(LogFormat::Text), true), Format::Text);
        assert_eq!(format(Some(LogFormat::Json), false), Format::Json);
    }
}
