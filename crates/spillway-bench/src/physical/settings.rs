//! Settings of the machine for the time of an experiment: what was there comes back at the end, on an error,
//! on an interrupt - and, where the benchmark was killed, when it is started again.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{BenchError, complain};

/// Notes what to set back if this process is killed. On a file system that a restart of the machine clears,
/// as it does the settings.
const JOURNAL: &str = "/run/spillway-bench-physical.json";
const REMEDY: &str = "run it as root";

/// A setting as it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Before {
    path: PathBuf,
    value: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    process: u32,
    before: Vec<Before>,
}

/// The settings that are changed, each with what it was.
#[derive(Debug)]
pub struct Settings {
    journal: PathBuf,
    before: RefCell<Vec<Before>>,
}

/// What a file of settings says now. Of `always [madvise] never`, the one in brackets.
pub fn read(path: impl AsRef<Path>) -> Result<String, BenchError> {
    let path = path.as_ref();
    let text = fs::read_to_string(path)
        .map_err(|error| BenchError::setup(format!("read {}", path.display()), error, REMEDY))?;
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    Ok(chosen.unwrap_or(text.trim()).to_owned())
}

fn write(path: &Path, value: &str) -> Result<(), BenchError> {
    fs::write(path, value)
        .map_err(|error| BenchError::setup(format!("write '{value}' to {}", path.display()), error, REMEDY))
}

impl Settings {
    /// Nothing is changed yet. What a killed run has left is set back first; the second value says what that
    /// was.
    ///
    /// # Errors
    /// Another run is changing settings now.
    pub fn new() -> Result<(Self, Vec<String>), BenchError> {
        Self::with_journal(Path::new(JOURNAL))
    }

    fn with_journal(journal: &Path) -> Result<(Self, Vec<String>), BenchError> {
        let settings = Self { journal: journal.to_owned(), before: RefCell::new(Vec::new()) };
        let left: Option<Journal> =
            fs::read_to_string(journal).ok().and_then(|text| serde_json::from_str(&text).ok());
        let Some(left) = left else { return Ok((settings, Vec::new())) };
        if left.process != std::process::id() && Path::new(&format!("/proc/{}", left.process)).exists() {
            return Err(BenchError::setup(
                "change settings of the machine",
                format!("process {} is measuring, says {}", left.process, journal.display()),
                "wait for it to end",
            ));
        }
        let restored = left.before.iter().map(|before| format!("{} {}", before.path.display(), before.value));
        let restored = restored.collect();
        *settings.before.borrow_mut() = left.before;
        settings.restore();
        Ok((settings, restored))
    }

    /// Settings that nobody can change: for what must not touch the machine.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { journal: PathBuf::from("/nowhere/journal"), before: RefCell::new(Vec::new()) }
    }

    /// Sets `path` to `value` until [`Self::restore`] or the end.
    pub fn set(&self, path: impl AsRef<Path>, value: &str) -> Result<(), BenchError> {
        let path = path.as_ref();
        if !self.before.borrow().iter().any(|before| before.path == path) {
            let value = read(path)?;
            self.before.borrow_mut().push(Before { path: path.to_owned(), value });
            self.note()?;
        }
        write(path, value)
    }

    /// Sets everything back, the last first.
    pub fn restore(&self) {
        let mut before = self.before.borrow_mut();
        if before.is_empty() {
            return;
        }
        while let Some(Before { path, value }) = before.pop() {
            if let Err(error) = write(&path, &value) {
                complain(format_args!("left behind: {error}"));
            }
        }
        let _ = fs::remove_file(&self.journal);
    }

    /// Writes down what to set back, before it is changed.
    fn note(&self) -> Result<(), BenchError> {
        let before = self.before.borrow().clone();
        let text =
            serde_json::to_string(&Journal { process: std::process::id(), before }).unwrap_or_default();
        let noted = fs::write(&self.journal, text);
        noted.map_err(|error| {
            self.before.borrow_mut().pop();
            BenchError::setup(format!("write {}", self.journal.display()), error, REMEDY)
        })
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        directory: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("enabled"), "always [madvise] never\n").unwrap();
            fs::write(directory.path().join("sleep"), "10000\n").unwrap();
            Self { directory }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn settings(&self) -> Result<(Settings, Vec<String>), BenchError> {
            Settings::with_journal(&self.path("journal"))
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).unwrap()
        }
    }

    #[test]
    fn settings_come_back_as_they_were() {
        let machine = Machine::new();
        let (settings, restored) = machine.settings().unwrap();
        assert!(restored.is_empty());
        for value in ["always", "never"] {
            settings.set(machine.path("enabled"), value).unwrap();
            settings.set(machine.path("sleep"), "0").unwrap();
            assert_eq!((machine.text("enabled").as_str(), machine.text("sleep").as_str()), (value, "0"));
        }
        assert!(settings.set(machine.path("none"), "1").is_err());
        drop(settings);
        assert_eq!((machine.text("enabled").as_str(), machine.text("sleep").as_str()), ("madvise", "10000"));
        assert!(!machine.path("journal").exists());
    }

    #[test]
    fn what_a_killed_run_left_is_set_back_by_the_next() {
        let machine = Machine::new();
        let (settings, _) = machine.settings().unwrap();
        settings.set(machine.path("enabled"), "never").unwrap();
        std::mem::forget(settings);
        let text = machine.text("journal").replace(&std::process::id().to_string(), "4194305");
        fs::write(machine.path("journal"), text).unwrap();
        let (_settings, restored) = machine.settings().unwrap();
        assert_eq!(machine.text("enabled"), "madvise");
        assert!(restored.len() == 1 && restored[0].ends_with("enabled madvise"), "{restored:?}");
    }

    #[test]
    fn two_runs_do_not_change_settings_at_once() {
        let machine = Machine::new();
        let journal = Journal { process: 1, before: Vec::new() };
        fs::write(machine.path("journal"), serde_json::to_string(&journal).unwrap()).unwrap();
        let error = machine.settings().unwrap_err().to_string();
        assert!(error.contains("process 1 is measuring"), "{error}");
    }
}
