//! Runs of a training, each made once: what came of one is a line of a file at once, and a training that was
//! interrupted reads them again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use spillway_policy::indigo::{Config, Indigo};
use spillway_policy::indigo_context::{Action, Advice, Advisor, Context, Deltas, OBSERVED_INTERVALS};
use spillway_policy::registry;

use super::cells::Cell;
use super::error::{TrainError, file_error};
use super::progress::Progress;
use crate::run::{RunError, execute_with, platform};

/// A run to be: a cell under an action, or under the untrained rule.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub cell: Cell,
    pub deltas: Deltas,
    pub action: Option<Action>,
}

/// What came of a run: its time, and the context that was observed at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub run_s: f64,
    pub context: Option<Context>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    outcome: Outcome,
}

/// Notes the context and says what is to be tried.
struct Trial {
    advice: Advice,
    noted: Arc<Mutex<Option<Context>>>,
}

impl Advisor for Trial {
    fn advise(&mut self, context: &Context) -> Advice {
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(*context);
        self.advice
    }
}

impl Job {
    /// What tells runs apart: everything that their outcome depends on.
    fn key(&self) -> String {
        let key = (self.cell.spec(), self.deltas, self.action, OBSERVED_INTERVALS);
        serde_json::to_string(&key).unwrap_or_default()
    }

    fn run(&self) -> Result<Outcome, TrainError> {
        self.try_run().map_err(self.cell.failed())
    }

    fn try_run(&self) -> Result<Outcome, RunError> {
        let spec = self.cell.spec();
        let (_, factor) = platform(&spec, None)?;
        let settings = registry::find(&spec.policy)?.settings(factor)?;
        let wrong = |error: serde_json::Error| RunError::PlatformSetting {
            name: spec.platform.clone(),
            reason: error.to_string(),
        };
        let config: Config = serde_json::from_value(Value::Object(settings)).map_err(wrong)?;
        let noted = Arc::default();
        let unadvised = Advice::Unknown { distance: 0.0 };
        let advice = self.action.map_or(unadvised, Advice::Thresholds);
        let trial = Trial { advice, noted: Arc::clone(&noted) };
        let policy = Indigo::advised(config, self.deltas, OBSERVED_INTERVALS, Box::new(trial));
        let report = execute_with(&spec, |_| Box::new(policy))?;
        let context = *noted.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Outcome { run_s: report.run_s, context })
    }
}

/// Runs that were made, and how more are.
pub(super) struct Runs<'a> {
    /// Where each is kept at once, if anywhere.
    file: Option<(PathBuf, File)>,
    outcomes: BTreeMap<String, Outcome>,
    /// Those of the file that were not asked for yet.
    from_before: BTreeSet<String>,
    threads: usize,
    kept: usize,
    made: usize,
    /// Runs of the whole training, and those that it has asked for.
    all: usize,
    asked_for: usize,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl<'a> Runs<'a> {
    /// With what the file at `path` holds, and to it.
    pub(super) fn open(
        path: &Path,
        threads: usize,
        all: usize,
        progress: &'a (dyn Fn(Progress) + Sync),
    ) -> Result<Self, TrainError> {
        let opened = OpenOptions::new().create(true).read(true).append(true).open(path);
        let file = opened.map_err(file_error(path))?;
        let mut runs = Self { file: Some((path.to_owned(), file)), ..Self::unkept(threads, all, progress) };
        runs.read()?;
        Ok(runs)
    }

    /// With none that were made before, and none that are kept.
    pub(super) fn unkept(threads: usize, all: usize, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        Self {
            file: None,
            outcomes: BTreeMap::new(),
            from_before: BTreeSet::new(),
            threads: threads.max(1),
            kept: 0,
            made: 0,
            all,
            asked_for: 0,
            progress,
        }
    }

    /// Reads what is there, and cuts off what an interruption left unfinished.
    fn read(&mut self) -> Result<(), TrainError> {
        let Some((path, file)) = &self.file else { return Ok(()) };
        let wrong = file_error(path);
        let mut whole_bytes = 0;
        let mut reader = BufReader::new(file);
        let mut text = String::new();
        for number in 1.. {
            text.clear();
            let bytes = reader.read_line(&mut text).map_err(&wrong)?;
            if !text.ends_with('\n') {
                break;
            }
            whole_bytes += bytes as u64;
            let line: Line = serde_json::from_str(&text).map_err(|error| TrainError::Line {
                path: path.display().to_string(),
                line: number,
                reason: error.to_string(),
            })?;
            self.from_before.insert(line.run.clone());
            self.outcomes.insert(line.run, line.outcome);
        }
        file.set_len(whole_bytes).map_err(&wrong)
    }

    /// Runs that this training made.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Runs that were there from before and are of this training.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Makes those of these runs that are not there yet, and returns the outcomes of all, in order.
    pub(super) fn all(&mut self, jobs: &[Job]) -> Result<Vec<Outcome>, TrainError> {
        let keys: Vec<String> = jobs.iter().map(Job::key).collect();
        let missing = keys.iter().zip(jobs).filter(|(key, _)| !self.outcomes.contains_key(*key));
        let missing: Vec<(&String, &Job)> = missing.collect();
        self.kept += keys.iter().filter(|key| self.from_before.remove(*key)).count();
        self.made += missing.len();
        self.asked_for += jobs.len();
        let done = AtomicUsize::new(self.asked_for - missing.len());
        let tell = |more: usize| {
            let done = done.fetch_add(more, Ordering::Relaxed) + more;
            (self.progress)(Progress::Runs(done, self.all.max(done)));
        };
        tell(0);
        let next = AtomicUsize::new(0);
        let state = Mutex::new((&mut self.outcomes, None));
        let file = self.file.as_ref();
        thread::scope(|scope| {
            for _ in 0..self.threads.min(missing.len()) {
                scope.spawn(|| {
                    while let Some((key, job)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let result = job.run();
                        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                        let kept = result.and_then(|outcome| match file {
                            Some((path, file)) => keep(file, path, key, outcome),
                            None => Ok(outcome),
                        });
                        match kept {
                            Ok(outcome) => drop(state.0.insert((*key).clone(), outcome)),
                            Err(error) => {
                                state.1.get_or_insert(error);
                                next.store(missing.len(), Ordering::Relaxed);
                            }
                        }
                        drop(state);
                        tell(1);
                    }
                });
            }
        });
        let (_, failed) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failed {
            Some(error) => Err(error),
            None => Ok(keys.iter().filter_map(|key| self.outcomes.get(key).copied()).collect()),
        }
    }
}

/// Writes a line, whole: what an interruption leaves of the last one is cut off when it is read.
fn keep(mut file: &File, path: &Path, key: &str, outcome: Outcome) -> Result<Outcome, TrainError> {
    let line = Line { run: key.to_owned(), outcome };
    let mut text = serde_json::to_string(&line).unwrap_or_default();
    text.push('\n');
    let before_bytes = file.metadata().map_err(file_error(path))?.len();
    file.write_all(text.as_bytes()).map_err(|error| {
        // A full disk takes a part of it, behind which the next line would be lost.
        let _ = file.set_len(before_bytes);
        file_error(path)(error)
    })?;
    Ok(outcome)
}
