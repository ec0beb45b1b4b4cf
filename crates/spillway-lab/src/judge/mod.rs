//! Our own policy against its rivals and against the bound: in each cell of a set that nothing was tuned on.
//!
//! All policies had the same chance: their settings were searched on a training set with one budget
//! ([`tune`]), and then left alone. In each cell the rival counts that is best there, which nobody could have
//! known before. The bound is what no choice of residency could have beaten ([`crate::clairvoyant`]).

pub mod cells;
pub mod contenders;
pub mod doings;
mod jobs;
pub mod tune;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clairvoyant::clairvoyant;
use crate::run::RunError;
use jobs::{Jobs, geometric_mean};

pub use cells::{Cell, judgement, training};
pub use contenders::{OURS, RIVALS};
pub use doings::Doings;
pub use tune::{Budget, Searched, Tuned, search};

/// By how much our own may be behind the best rival of a cell.
const BEHIND: f64 = 0.02;
/// By how much it may be above the bound.
const ABOVE_BOUND: f64 = 0.15;

/// What came of one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// What was run, by name.
    pub cell: String,
    /// Working set of each of its programs, in bytes.
    pub bytes: u64,
    /// What came of it under each policy.
    pub runs: BTreeMap<String, Doings>,
    /// The rival that is first there.
    pub best_rival: String,
    /// Our own run time over that rival's.
    pub over_best: f64,
    /// What no choice of residency can beat, in seconds.
    pub bound_s: f64,
    /// Our own run time over that.
    pub over_bound: f64,
}

impl Verdict {
    fn is_of(&self, cell: &Cell) -> bool {
        self.cell == cell.name() && self.bytes == cell.bytes()
    }

    /// What came of it under the best rival, and under our own policy.
    #[must_use]
    pub fn best_and_ours(&self) -> [Doings; 2] {
        [self.best_rival.as_str(), OURS].map(|name| self.runs.get(name).copied().unwrap_or_default())
    }
}

/// What came of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// By what the settings of policies were multiplied.
    pub tuned: Tuned,
    /// Each cell, in order.
    pub verdicts: Vec<Verdict>,
    /// Those in which our own is first, or as fast as the best rival.
    pub first: usize,
    /// Those in which it is no more than 2% behind the best rival.
    pub near: usize,
    /// Our own over the best rival, in the cell that is worst for it.
    pub worst_over_best: f64,
    /// The best rival of each cell over our own, in the geometric mean.
    pub best_over_ours: f64,
    /// Those in which our own is at most 15% above the bound.
    pub near_bound: usize,
    /// Our own over the bound, in the geometric mean.
    pub over_bound: f64,
    /// Each rival over our own in the geometric mean: what who had chosen it everywhere would have had.
    pub rivals_over_ours: BTreeMap<String, f64>,
}

/// Cells to judge our own policy in.
pub struct Case<'a> {
    /// The cells, in order.
    pub cells: &'a [Cell],
    /// By what the settings of policies are multiplied.
    pub tuned: &'a Tuned,
    /// A judgement of the same cells with the same settings of all rivals: these and the bound are not run
    /// again.
    pub known: Option<&'a Judgement>,
}

impl Case<'_> {
    /// How many runs it makes, bounds included.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.cells.iter().map(|cell| self.runs_of(cell).len()).sum()
    }

    fn known_of(&self, cell: &Cell) -> Option<&Verdict> {
        let known = self.known.filter(|known| known.tuned.rivals_are_as_in(self.tuned))?;
        known.verdicts.iter().find(|verdict| verdict.is_of(cell))
    }

    /// The policies under which a cell is run; none for the bound.
    fn runs_of(&self, cell: &Cell) -> Vec<Option<&'static str>> {
        match self.known_of(cell) {
            Some(_) => vec![Some(OURS)],
            None => RIVALS.into_iter().chain([OURS]).map(Some).chain([None]).collect(),
        }
    }

    fn run(&self, cell: &Cell, policy: Option<&str>) -> Result<Doings, RunError> {
        let Some(policy) = policy else {
            let bounds = cell.programs.iter().map(|spec| Ok(clairvoyant(spec)?.run_s));
            let run_s = bounds.sum::<Result<f64, RunError>>()?;
            return Ok(Doings { run_s, ..Doings::default() });
        };
        let programs = cell.programs.iter().map(|spec| self.tuned.apply(spec, policy));
        Doings::of(&programs.collect::<Result<Vec<_>, _>>()?)
    }

    /// Judges our own policy in each of the cells. Tells `ended` each time that a run has ended.
    ///
    /// # Errors
    /// The first run, in order, that failed.
    pub fn judge(&self, threads: usize, ended: &(dyn Fn() + Sync)) -> Result<Judgement, RunError> {
        let of_cell = |cell| self.runs_of(cell).into_iter().map(move |policy| (cell, policy));
        let jobs: Vec<_> = self.cells.iter().flat_map(of_cell).collect();
        let done = Jobs { threads, ended }.all(&jobs, |(cell, policy)| self.run(cell, *policy));
        let mut done = done.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
        let verdict = |cell: &Cell| {
            let policies = self.runs_of(cell);
            let new = policies.into_iter().zip(done.by_ref());
            verdict(cell, self.known_of(cell), new.collect())
        };
        Ok(sum_up(self.tuned.clone(), self.cells.iter().map(verdict).collect()))
    }
}

/// What the runs of a cell say: those of the rivals, our own, and the bound.
fn verdict(cell: &Cell, known: Option<&Verdict>, new: Vec<(Option<&str>, Doings)>) -> Verdict {
    let mut runs = known.map_or_else(BTreeMap::new, |known| known.runs.clone());
    let mut bound_s = known.map_or(f64::NAN, |known| known.bound_s);
    for (policy, doings) in new {
        match policy {
            Some(policy) => _ = runs.insert(policy.to_owned(), doings),
            None => bound_s = doings.run_s,
        }
    }
    let run_s = |name: &str| runs.get(name).map_or(f64::NAN, |doings| doings.run_s);
    let best_rival = RIVALS.into_iter().min_by(|a, b| run_s(a).total_cmp(&run_s(b))).unwrap_or_default();
    Verdict {
        cell: cell.name(),
        bytes: cell.bytes(),
        best_rival: best_rival.to_owned(),
        over_best: run_s(OURS) / run_s(best_rival),
        bound_s,
        over_bound: run_s(OURS) / bound_s,
        runs,
    }
}

fn sum_up(tuned: Tuned, verdicts: Vec<Verdict>) -> Judgement {
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    let over = |name: &str| {
        let ratio = |verdict: &Verdict| Some(verdict.runs.get(name)?.run_s / verdict.runs.get(OURS)?.run_s);
        geometric_mean(verdicts.iter().filter_map(ratio))
    };
    Judgement {
        tuned,
        first: count(|verdict| verdict.over_best <= 1.0),
        near: count(|verdict| verdict.over_best <= 1.0 + BEHIND),
        worst_over_best: verdicts.iter().map(|verdict| verdict.over_best).fold(0.0, f64::max),
        best_over_ours: geometric_mean(verdicts.iter().map(|verdict| 1.0 / verdict.over_best)),
        near_bound: count(|verdict| verdict.over_bound <= 1.0 + ABOVE_BOUND),
        over_bound: geometric_mean(verdicts.iter().map(|verdict| verdict.over_bound)),
        rivals_over_ours: RIVALS.iter().map(|name| ((*name).to_owned(), over(name))).collect(),
        verdicts,
    }
}

/// A judgement as tables in Markdown.
#[must_use]
pub fn markdown(judgement: &Judgement) -> String {
    let mut text = format!("{}\n\n| rival | its run time over ours |\n|---|---|\n", summary(judgement));
    for (rival, over) in &judgement.rivals_over_ours {
        text += &format!("| {rival} | {over:.3} |\n");
    }
    text += "\n| cell | first of the rivals | ours over it | ours over the bound |\n|---|---|---|---|\n";
    for Verdict { cell, best_rival, over_best, over_bound, .. } in &judgement.verdicts {
        text += &format!("| {cell} | {best_rival} | {over_best:.3} | {over_bound:.3} |\n");
    }
    text
}

/// A judgement in a few sentences.
#[must_use]
pub fn summary(judgement: &Judgement) -> String {
    let Judgement { verdicts, first, near, worst_over_best, best_over_ours, near_bound, over_bound, .. } =
        judgement;
    let cells = verdicts.len();
    format!(
        "Of {cells} cells ours is first in {first}, at most 2% behind the best rival of the cell in {near}, \
         and {worst_over_best:.3} of it where it is worst. The best rival of each cell takes \
         {best_over_ours:.3} of our run time in the geometric mean. At most 15% above the bound: \
         {near_bound} cells; {over_bound:.3} of it in the geometric mean."
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::run::RunSpec;

    fn cell() -> Cell {
        let spec = RunSpec { workload: "uniform-kv".into(), bytes: 1 << 20, ..RunSpec::default() };
        Cell { programs: vec![spec] }
    }

    #[test]
    fn rivals_are_all_that_need_not_know_the_run() {
        use spillway_policy::knowledge::Foreknowledge;
        use spillway_policy::registry;
        for name in RIVALS.into_iter().chain([OURS]) {
            let entry = registry::find(name).map_err(|error| error.to_string()).unwrap();
            assert_eq!(entry.needs.foreknowledge, Foreknowledge::Nothing, "{name}");
        }
    }

    /// A verdict from these run times: of the fourth rival, of all others, our own, and the bound.
    fn verdict_of(fourth_s: f64, others_s: f64, ours_s: f64, bound_s: f64) -> Verdict {
        let of = |run_s| Doings { run_s, ..Doings::default() };
        let rival = |name| (Some(name), of(if name == RIVALS[3] { fourth_s } else { others_s }));
        let rest = [(Some(OURS), of(ours_s)), (None, of(bound_s))];
        verdict(&cell(), None, RIVALS.into_iter().map(rival).chain(rest).collect())
    }

    #[test]
    fn a_verdict_names_the_first_of_the_rivals_and_the_sum_counts_what_is_near() {
        let one = verdict_of(1.0, 2.0, 1.01, 0.5);
        assert_eq!((one.best_rival.as_str(), one.over_best, one.over_bound), (RIVALS[3], 1.01, 2.02));
        assert_eq!(one.best_and_ours().map(|doings| doings.run_s), [1.0, 1.01]);
        let judgement = sum_up(Tuned::default(), vec![one, verdict_of(1.0, 2.0, 0.5, 0.5)]);
        assert_eq!((judgement.first, judgement.near, judgement.near_bound), (1, 2, 1));
        assert_eq!(judgement.worst_over_best, 1.01);
        assert!((judgement.rivals_over_ours[RIVALS[0]] - (2.0 / 1.01 * 4.0_f64).sqrt()).abs() < 1e-9);
        let text = markdown(&judgement);
        assert!(text.contains("uniform-kv, 20% local") && text.contains("| hotbox |"), "{text}");
    }

    #[test]
    fn a_cell_is_run_under_all_and_threads_change_nothing() {
        let cells = [cell()];
        let tuned = Tuned::default();
        let count = AtomicUsize::new(0);
        let ended = || _ = count.fetch_add(1, Ordering::Relaxed);
        let judged = |threads, known: Option<&Judgement>| {
            let case = Case { cells: &cells, tuned: &tuned, known };
            let judged = case.judge(threads, &ended).map_err(|error| error.to_string()).unwrap();
            (case.runs(), judged)
        };
        let text = |judged: &Judgement| serde_json::to_string(judged).unwrap();
        let (runs, one) = judged(1, None);
        assert_eq!(text(&one), text(&judged(2, None).1));
        assert_eq!((runs, count.load(Ordering::Relaxed)), (RIVALS.len() + 2, 2 * runs));
        let kept: Judgement = serde_json::from_str(&text(&one)).unwrap();
        let (runs, again) = judged(1, Some(&kept));
        assert_eq!((runs, text(&one)), (1, text(&again)), "what is known of rivals is not run again");
    }

    #[test]
    fn what_is_known_of_other_cells_or_of_rivals_set_otherwise_is_run_anew() {
        let (cells, tuned) = ([cell()], Tuned::default());
        let known = sum_up(tuned.clone(), vec![verdict_of(1.0, 2.0, 1.01, 0.5)]);
        let runs = |cells: &[Cell], tuned: &Tuned| Case { cells, tuned, known: Some(&known) }.runs();
        assert_eq!(runs(&cells, &tuned), 1);
        let mut larger = cell();
        larger.programs[0].bytes *= 2;
        assert_eq!(runs(&[larger], &tuned), RIVALS.len() + 2);
        let others: Tuned = serde_json::from_str(r#"{"tpp": {"scan_bytes": 2.0}}"#).unwrap();
        assert_eq!(runs(&cells, &others), RIVALS.len() + 2);
        let ours: Tuned = serde_json::from_str(r#"{"spillway": {"margin": 2.0}}"#).unwrap();
        assert_eq!(runs(&cells, &ours), 1);
    }
}
