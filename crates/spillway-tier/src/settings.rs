//! Settings of the kernel: what it moves by itself, and what the daemon changes and puts back.
//!
//! Before a setting is changed, what it was is written to a journal, which is deleted when all is put back. A
//! daemon that was killed leaves its journal; the next one puts back what stands in it before anything else.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the kernel does itself that would move, or look at, the same pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The setting, by its path.
    pub setting: String,
    /// What it is now.
    pub value: String,
    /// What that does to us.
    pub meaning: &'static str,
    /// The command that ends it.
    pub remedy: String,
    /// What turns it off for a while, where that is one setting.
    #[serde(skip)]
    pub off: Option<&'static str>,
}

impl Conflict {
    /// With which flags `tier` starts although this is so.
    #[must_use]
    pub fn flags(&self) -> &'static str {
        match self.off {
            Some(_) => "--pause-kernel or --beside-kernel",
            None => "--beside-kernel",
        }
    }
}

const NUMA_BALANCING: &str = "proc/sys/kernel/numa_balancing";
const DEMOTION: &str = "sys/kernel/mm/numa/demotion_enabled";
const DAMON: &str = "sys/kernel/mm/damon/admin/kdamonds";

/// What a file below `root` holds.
fn value(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned())
}

/// What works against us on the machine below `root`.
#[must_use]
pub fn conflicts(root: &Path) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    if let Some(mode) = value(root, NUMA_BALANCING).filter(|mode| mode != "0") {
        conflicts.push(Conflict {
            setting: format!("/{NUMA_BALANCING}"),
            value: mode,
            meaning: "the kernel promotes pages by itself",
            remedy: "sysctl kernel.numa_balancing=0".to_owned(),
            off: Some("0"),
        });
    }
    if let Some(enabled) = value(root, DEMOTION).filter(|enabled| matches!(enabled.as_str(), "1" | "true")) {
        conflicts.push(Conflict {
            setting: format!("/{DEMOTION}"),
            value: enabled,
            meaning: "the kernel demotes pages by itself",
            remedy: format!("echo 0 > /{DEMOTION}"),
            off: Some("0"),
        });
    }
    conflicts.extend(damon_schemes(root));
    conflicts
}

/// Turns off what migrates pages below `root`, as far as that is a setting.
///
/// # Errors
/// A setting cannot be changed, or the journal cannot be written.
pub fn pause_kernel(root: &Path, settings: &mut KernelSettings) -> Result<(), SettingsError> {
    for conflict in conflicts(root) {
        if let Some(off) = conflict.off {
            settings.set(&root.join(conflict.setting.trim_start_matches('/')), off)?;
        }
    }
    Ok(())
}

/// DAMON contexts that run and act.
fn damon_schemes(root: &Path) -> Vec<Conflict> {
    let count = |path: &str| value(root, path).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    let mut conflicts = Vec::new();
    for daemon in 0..count(&format!("{DAMON}/nr_kdamonds")) {
        let daemon = format!("{DAMON}/{daemon}");
        if value(root, &format!("{daemon}/state")).as_deref() != Some("on") {
            continue;
        }
        for context in 0..count(&format!("{daemon}/contexts/nr_contexts")) {
            let schemes = format!("{daemon}/contexts/{context}/schemes");
            for scheme in 0..count(&format!("{schemes}/nr_schemes")) {
                let setting = format!("{schemes}/{scheme}/action");
                let action = value(root, &setting).unwrap_or_default();
                // This action only counts.
                if action == "stat" {
                    continue;
                }
                conflicts.push(Conflict {
                    setting: format!("/{setting}"),
                    value: action,
                    meaning: "DAMON clears accessed bits and acts on what it finds",
                    remedy: format!("echo off > /{daemon}/state"),
                    // Who turned it on may want it on meanwhile, and DAMON forgets what it knew.
                    off: None,
                });
            }
        }
    }
    conflicts
}

/// Why settings cannot be changed or put back.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A setting cannot be read or written.
    #[error("{path}: {error}; root may change it where the kernel has it")]
    Setting {
        /// The file that stands for the setting.
        path: PathBuf,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// The journal cannot be written; nothing was changed.
    #[error("{path}: {error}; without this journal nothing is changed: give a directory that can be written")]
    Journal {
        /// The file that the journal is kept in.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
}

/// One setting as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Original {
    path: PathBuf,
    value: String,
}

/// How long putting back waits for settings that are busy: DAMON's are while its thread answers.
const MOST_BUSY: Duration = Duration::from_secs(10);
const BUSY_WAIT: Duration = Duration::from_millis(50);
/// How long who waits for an answer of a DAMON thread, such as a daemon that was killed, is given to see that
/// it has stopped. It looks every 100 ms; removing DAMON's directories before it has looked blocks both for
/// ever (Linux 6.12).
const DAMON_SEEN_STOPPED: Duration = Duration::from_millis(500);

/// Whether a setting is the state of a DAMON thread.
fn is_damon_state(path: &Path) -> bool {
    path.ends_with("state") && path.to_string_lossy().contains(DAMON)
}

/// Writes a setting, and waits until `deadline` where the kernel says that it is busy. A setting that the
/// kernel will not take because it is so already is as good: DAMON is not stopped twice, as by a daemon that
/// was killed while it put back.
fn write_until(deadline: Instant, path: &Path, value: &str) -> std::io::Result<()> {
    loop {
        match fs::write(path, value) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                sleep(BUSY_WAIT);
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let now = fs::read_to_string(path).unwrap_or_default();
                return if now.trim() == value { Ok(()) } else { Err(error) };
            }
            result => return result,
        }
    }
}

/// Changes settings, and puts them back when it is dropped.
#[derive(Debug)]
pub struct KernelSettings {
    journal: PathBuf,
    originals: Vec<Original>,
}

impl KernelSettings {
    /// Begins with what a journal says that was left by one that ended without putting back: that is put back
    /// now. Returns also which settings those were.
    ///
    /// # Errors
    /// A setting cannot be put back; the journal stays.
    pub fn open(journal: &Path) -> Result<(Self, Vec<PathBuf>), SettingsError> {
        let left = fs::read(journal).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut settings = Self { journal: journal.to_owned(), originals: left.unwrap_or_default() };
        let restored = settings.originals.iter().map(|original| original.path.clone()).collect();
        settings.restore()?;
        Ok((settings, restored))
    }

    /// Sets a file to a value.
    ///
    /// # Errors
    /// It cannot be read or written, or the journal cannot.
    pub fn set(&mut self, path: &Path, to: &str) -> Result<(), SettingsError> {
        let failed = |error| SettingsError::Setting { path: path.to_owned(), error };
        let now = fs::read_to_string(path).map_err(failed)?;
        if now.trim() == to {
            return Ok(());
        }
        if self.originals.iter().all(|original| original.path != path) {
            // What the kernel prints as a word, it does not everywhere read as one.
            let value = match now.trim() {
                "true" => "1",
                "false" => "0",
                other => other,
            };
            self.originals.push(Original { path: path.to_owned(), value: value.to_owned() });
            if let Err(error) = self.write_journal() {
                self.originals.pop();
                return Err(SettingsError::Journal { path: self.journal.clone(), error });
            }
        }
        fs::write(path, to).map_err(failed)
    }

    /// The journal is whole at every moment: it is written beside and takes its name at once.
    fn write_journal(&self) -> std::io::Result<()> {
        if let Some(directory) = self.journal.parent() {
            fs::create_dir_all(directory)?;
        }
        let beside = self.journal.with_extension("new");
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&self.originals)?)?;
        file.sync_all()?;
        fs::rename(beside, &self.journal)
    }

    /// Puts all settings back, the last changed first.
    ///
    /// # Errors
    /// One cannot be put back; the others are, and the journal keeps this one.
    pub fn restore(&mut self) -> Result<(), SettingsError> {
        let mut failure = None;
        let mut kept = Vec::new();
        let deadline = Instant::now() + MOST_BUSY;
        for original in std::mem::take(&mut self.originals).into_iter().rev() {
            match write_until(deadline, &original.path, &original.value) {
                // A setting that is gone went with what it was about.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    failure = Some(SettingsError::Setting { path: original.path.clone(), error });
                    kept.insert(0, original);
                }
                _ if is_damon_state(&original.path) => sleep(DAMON_SEEN_STOPPED),
                _ => {}
            }
        }
        self.originals = kept;
        match failure {
            None => {
                // None was written where nothing was changed.
                let _ = fs::remove_file(&self.journal);
                Ok(())
            }
            Some(failure) => {
                let _ = self.write_journal();
                Err(failure)
            }
        }
    }
}

impl Drop for KernelSettings {
    fn drop(&mut self) {
        // The journal tells the next start what could not be put back.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn what_the_kernel_moves_itself_is_found_with_its_remedy() {
        let tree = Tree::new();
        assert!(conflicts(tree.root()).is_empty());
        tree.write(NUMA_BALANCING, "0");
        tree.write(DEMOTION, "false");
        assert!(conflicts(tree.root()).is_empty());
        tree.write(NUMA_BALANCING, "2");
        tree.write(DEMOTION, "true");
        let found = conflicts(tree.root());
        assert_eq!(found.iter().map(|conflict| conflict.value.as_str()).collect::<Vec<_>>(), ["2", "true"]);
        assert_eq!(found[0].remedy, "sysctl kernel.numa_balancing=0");
        assert!(found[1].remedy.contains("demotion_enabled"));
    }

    #[test]
    fn the_state_of_a_damon_thread_is_told_from_other_settings() {
        let is_state = |path: &str| is_damon_state(&Path::new("/").join(path));
        assert!(is_state(&format!("{DAMON}/0/state")) && is_state(&format!("{DAMON}/12/state")));
        assert!(!is_state(&format!("{DAMON}/nr_kdamonds")) && !is_state(NUMA_BALANCING));
        assert!(!is_state("sys/devices/system/memory/memory0/state"));
    }

    #[test]
    fn damon_conflicts_while_it_runs_and_acts() {
        let tree = Tree::new();
        let scheme = format!("{DAMON}/0/contexts/0/schemes");
        tree.write(&format!("{DAMON}/nr_kdamonds"), "1");
        tree.write(&format!("{DAMON}/0/contexts/nr_contexts"), "1");
        tree.write(&format!("{scheme}/nr_schemes"), "2");
        tree.write(&format!("{scheme}/0/action"), "stat");
        tree.write(&format!("{scheme}/1/action"), "pageout");
        tree.write(&format!("{DAMON}/0/state"), "off");
        assert!(conflicts(tree.root()).is_empty());
        tree.write(&format!("{DAMON}/0/state"), "on");
        let found = conflicts(tree.root());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].value, "pageout");
        assert!(found[0].remedy.contains("echo off"), "{}", found[0].remedy);
        // A pause would leave it as it is.
        assert_eq!(found[0].flags(), "--beside-kernel");
    }

    #[test]
    fn the_kernels_own_migration_is_paused_and_put_back() {
        let tree = Tree::new();
        tree.write(NUMA_BALANCING, "2");
        tree.write(DEMOTION, "true");
        let (mut settings, _) = KernelSettings::open(&tree.root().join("journal")).unwrap();
        pause_kernel(tree.root(), &mut settings).unwrap();
        assert!(conflicts(tree.root()).is_empty());
        drop(settings);
        assert_eq!((tree.read(NUMA_BALANCING), tree.read(DEMOTION)), ("2".into(), "1".into()));
    }

    #[test]
    fn what_is_so_already_need_not_be_taken_again() {
        // The kernel lets nobody write it.
        let path = Path::new("/proc/sys/kernel/ngroups_max");
        let now = fs::read_to_string(path).unwrap();
        write_until(Instant::now(), path, now.trim()).unwrap();
        let refused = write_until(Instant::now(), path, "1").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn settings_are_put_back_at_the_end_and_on_drop() {
        let tree = Tree::new();
        tree.write("a", "1");
        tree.write("b", "x");
        let journal = tree.root().join("run/journal");
        let (mut settings, left) = KernelSettings::open(&journal).unwrap();
        assert!(left.is_empty());
        for value in ["2", "3"] {
            settings.set(&tree.root().join("a"), value).unwrap();
        }
        settings.set(&tree.root().join("b"), "x").unwrap();
        assert_eq!((tree.read("a"), tree.read("b")), ("3".into(), "x".into()));
        assert!(journal.exists());
        drop(settings);
        assert_eq!(tree.read("a"), "1");
        assert!(!journal.exists());
    }

    #[test]
    fn after_a_crash_the_next_start_puts_back() {
        let tree = Tree::new();
        tree.write("a", "1");
        let journal = tree.root().join("journal");
        let (mut settings, _) = KernelSettings::open(&journal).unwrap();
        settings.set(&tree.root().join("a"), "2").unwrap();
        std::mem::forget(settings);
        assert_eq!(tree.read("a"), "2");
        let (_settings, restored) = KernelSettings::open(&journal).unwrap();
        assert_eq!(restored, [tree.root().join("a")]);
        assert_eq!(tree.read("a"), "1");
        assert!(!journal.exists());
    }

    #[test]
    fn what_cannot_be_put_back_stays_in_the_journal() {
        let tree = Tree::new();
        for name in ["a", "b"] {
            tree.write(name, "1");
        }
        let journal = tree.root().join("journal");
        let (mut settings, _) = KernelSettings::open(&journal).unwrap();
        for name in ["a", "b"] {
            settings.set(&tree.root().join(name), "2").unwrap();
        }
        fs::remove_file(tree.root().join("a")).unwrap();
        fs::create_dir(tree.root().join("a")).unwrap();
        let error = settings.restore().unwrap_err().to_string();
        assert!(error.contains("/a"), "{error}");
        assert_eq!(tree.read("b"), "1", "the others are");
        assert!(fs::read_to_string(&journal).unwrap().contains("/a"));
    }

    #[test]
    fn without_a_journal_nothing_is_changed() {
        let tree = Tree::new();
        tree.write("a", "1");
        tree.write("file", "");
        let (mut settings, _) = KernelSettings::open(&tree.root().join("file/journal")).unwrap();
        let error = settings.set(&tree.root().join("a"), "2").unwrap_err();
        assert!(matches!(error, SettingsError::Journal { .. }), "{error}");
        assert_eq!(tree.read("a"), "1");
        assert!(matches!(settings.set(&tree.root().join("none"), "2"), Err(SettingsError::Setting { .. })));
    }

    #[test]
    fn a_journal_of_nonsense_changes_nothing() {
        let tree = Tree::new();
        tree.write("journal", "{]");
        let (_settings, restored) = KernelSettings::open(&tree.root().join("journal")).unwrap();
        assert!(restored.is_empty());
    }
}
