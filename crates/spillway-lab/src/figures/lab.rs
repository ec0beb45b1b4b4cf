//! Runs for figures: on all cores, and each only once.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use crate::clairvoyant::{CLAIRVOYANT, Clairvoyant, EPOCHS, Foresight, foresee};
use crate::run::{LocalSize, Report, RunError, RunSpec, execute};
use crate::simulator::platform::{self, Platform};
use crate::train::TrainError;
use crate::train::cells::Plan;
use crate::train::lessons::Lessons;

/// Where figures get their runs from.
pub struct Lab {
    bytes: u64,
    threads: usize,
    reports: BTreeMap<String, Report>,
    /// What was foreseen last, and of which run.
    foresight: Option<(String, Foresight)>,
    bounds: BTreeMap<String, Clairvoyant>,
    /// What agents are trained on, and of which plan.
    lessons: BTreeMap<String, Lessons>,
    /// A constant of all platforms that is another one, and by what factor.
    scaled: Option<(String, f64)>,
    /// Told each time that a run has ended.
    ended: Box<dyn Fn() + Send + Sync>,
}

impl Lab {
    /// Runs with working sets of `bytes`, on `threads` threads. The number of threads changes no result.
    #[must_use]
    pub fn new(bytes: u64, threads: usize) -> Self {
        let (reports, bounds, lessons) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let ended = Box::new(|| {});
        let scaled = None;
        Self { bytes, threads: threads.max(1), reports, foresight: None, bounds, lessons, scaled, ended }
    }

    /// The same, where this constant of the time model is so many times what it is otherwise, in every run.
    #[must_use]
    pub fn scaling(self, constant: &str, factor: f64) -> Self {
        Self { scaled: Some((constant.to_owned(), factor)), ..self }
    }

    /// The run as this lab makes it.
    fn own(&self, spec: &RunSpec) -> RunSpec {
        match &self.scaled {
            Some((constant, factor)) => scale_constant(spec, constant, *factor),
            None => spec.clone(),
        }
    }

    /// The same, which tells `ended` each time that a run has ended, from any of its threads.
    #[must_use]
    pub fn telling(self, ended: impl Fn() + Send + Sync + 'static) -> Self {
        Self { ended: Box::new(ended), ..self }
    }

    /// A run at this lab's working set, on HotBox's platform with 20% local memory unless changed.
    #[must_use]
    pub fn spec(&self, workload: &str, policy: &str) -> RunSpec {
        RunSpec { workload: workload.into(), policy: policy.into(), bytes: self.bytes, ..RunSpec::default() }
    }

    /// Working set of its runs, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What agents are trained on by a plan: its runs are made once.
    ///
    /// # Errors
    /// The plan or a run.
    pub fn lessons(&mut self, plan: &Plan) -> Result<&Lessons, TrainError> {
        let key = format!("{plan:?}");
        if !self.lessons.contains_key(&key) {
            let ended = &self.ended;
            let lessons = Lessons::of(plan, self.threads, &|| ended())?;
            self.lessons.insert(key.clone(), lessons);
        }
        Ok(&self.lessons[&key])
    }

    /// How many different runs were made.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.reports.len()
    }

    /// Makes those runs that were not made before, and returns all, in order.
    ///
    /// # Errors
    /// The first run, in order, that failed.
    pub fn all(&mut self, specs: &[RunSpec]) -> Result<Vec<Report>, RunError> {
        let specs: Vec<RunSpec> = specs.iter().map(|spec| self.own(spec)).collect();
        let mut missing: Vec<&RunSpec> = Vec::new();
        for spec in &specs {
            if !self.reports.contains_key(&key(spec)) && !missing.contains(&spec) {
                missing.push(spec);
            }
        }
        for (spec, result) in missing.iter().zip(run_parallel(&missing, self.threads, &self.ended)) {
            // A figure needs no time series; hundreds of them would be much to keep.
            let report = Report { series: Vec::new(), ..result? };
            self.reports.insert(key(spec), report);
        }
        Ok(specs.iter().filter_map(|spec| self.reports.get(&key(spec)).cloned()).collect())
    }

    /// What no choice of residency can beat in this run, whatever its policy.
    ///
    /// # Errors
    /// The run cannot be made.
    pub fn bound(&mut self, spec: &RunSpec) -> Result<&Clairvoyant, RunError> {
        let spec =
            RunSpec { policy: CLAIRVOYANT.into(), policy_settings: Default::default(), ..self.own(spec) };
        let key_of_bound = key(&spec);
        if !self.bounds.contains_key(&key_of_bound) {
            let of = key(&RunSpec { local: LocalSize::Share(1.0), ..spec.clone() });
            let foresight = match self.foresight.take().filter(|(key, _)| *key == of) {
                Some((_, foresight)) => foresight,
                None => foresee(&spec, EPOCHS)?,
            };
            self.bounds.insert(key_of_bound.clone(), foresight.judge(&spec));
            self.foresight = Some((of, foresight));
        }
        Ok(&self.bounds[&key_of_bound])
    }

    /// Run times of one run after the other.
    ///
    /// # Errors
    /// The first run, in order, that failed.
    pub fn times(&mut self, specs: &[RunSpec]) -> Result<Vec<f64>, RunError> {
        Ok(self.all(specs)?.iter().map(|report| report.run_s).collect())
    }
}

/// What tells runs apart: everything that their result depends on.
fn key(spec: &RunSpec) -> String {
    serde_json::to_string(spec).unwrap_or_default()
}

fn run_parallel(
    specs: &[&RunSpec],
    threads: usize,
    ended: &(dyn Fn() + Send + Sync),
) -> Vec<Result<Report, RunError>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads.min(specs.len()) {
            scope.spawn(|| {
                while let Some(spec) = specs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = execute(spec);
                    ended();
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    results.push((*spec, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(spec, _)| specs.iter().position(|other| other == spec));
    results.into_iter().map(|(_, result)| result).collect()
}

/// Changes that figures make to a run.
pub trait Change: Sized {
    /// Local memory as a share of the working set.
    #[must_use]
    fn local(self, share: f64) -> Self;
    /// Latency of far memory.
    #[must_use]
    fn far_ns(self, ns: f64) -> Self;
    /// The same run on another platform.
    #[must_use]
    fn on(self, platform: &str) -> Self;
    /// A setting of the workload.
    #[must_use]
    fn with(self, key: &str, value: impl Into<serde_json::Value>) -> Self;
    /// A setting of the platform.
    #[must_use]
    fn at(self, key: &str, value: impl Into<serde_json::Value>) -> Self;
}

impl Change for RunSpec {
    fn local(self, share: f64) -> Self {
        Self { local: LocalSize::Share(share), ..self }
    }

    fn far_ns(self, ns: f64) -> Self {
        self.at("far_ns", ns)
    }

    fn on(self, platform: &str) -> Self {
        Self { platform: platform.into(), ..self }
    }

    fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.workload_settings.insert(key.into(), value.into());
        self
    }

    fn at(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.platform_settings.insert(key.into(), value.into());
        self
    }
}
/// The run on a platform of which a constant is so many times what it is otherwise, within what makes sense.
pub(crate) fn scale_constant(spec: &RunSpec, constant: &str, factor: f64) -> RunSpec {
    let mut spec = spec.clone();
    let preset = || {
        let platform = Platform::named(&spec.platform).ok()?;
        serde_json::to_value(platform).ok()?.get(constant).cloned()
    };
    let Some(value) = spec.platform_settings.get(constant).cloned().or_else(preset) else { return spec };
    let Some(number) = value.as_f64() else { return spec };
    let scaled = number * factor;
    let within = |number: f64| {
        let range = platform::range(constant);
        range.map_or(number, |range| number.clamp(*range.start(), *range.end()))
    };
    let scaled =
        if value.is_u64() { Value::from(within(scaled).round() as u64) } else { within(scaled).into() };
    spec.platform_settings.insert(constant.to_owned(), scaled);
    spec
}
