//! Our own policy against its rivals and against the bound: in each cell of a set that nothing was tuned on.
//!
//! All policies had the same chance: their settings were searched on a training set with one budget
//! ([`tune`]), and then left alone. In each cell the rival counts that is best there, which nobody could have
//! known before. The bound is what no choice of residency could have beaten ([`crate::clairvoyant`]).

pub mod cells;
mod jobs;
pub mod tune;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clairvoyant::clairvoyant;
use crate::run::RunError;
use jobs::{Jobs, geometric_mean, time_s};

pub use cells::{Cell, judgement, training};
pub use tune::{Searched, Tuned, tune};

/// The name of our own policy.
pub const OURS: &str = "spillway";

/// Those that it is judged against: all that need not know the run beforehand. Of Nimble's two readings both.
pub const RIVALS: [&str; 18] = [
    "first-touch",
    "hotbox",
    "indigo",
    "tpp",
    "nimble-base",
    "nimble-huge",
    "nimble-base-smaller",
    "nimble-huge-smaller",
    "multi-clock",
    "autonuma",
    "autotiering",
    "hemem",
    "memtis",
    "linux-tiering",
    "colloid",
    "nomad",
    "swap",
    "dcm",
];

/// By how much our own may be behind the best rival of a cell.
const BEHIND: f64 = 0.02;
/// By how much it may be above the bound.
const ABOVE_BOUND: f64 = 0.15;

/// What came of one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// What was run, by name.
    pub cell: String,
    /// Run time under each policy, in seconds; of several programs their sum.
    pub run_s: BTreeMap<String, f64>,
    /// The rival that is first there.
    pub best_rival: String,
    /// Our own run time over that rival's.
    pub over_best: f64,
    /// What no choice of residency can beat, in seconds.
    pub bound_s: f64,
    /// Our own run time over that.
    pub over_bound: f64,
}

/// What came of all.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
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

/// How many runs a judgement of these cells makes, bounds included.
#[must_use]
pub fn runs_of(cells: &[Cell]) -> usize {
    cells.len() * (RIVALS.len() + 2)
}

/// Judges our own policy in each of these cells. Tells `ended` each time that a run has ended.
///
/// # Errors
/// The first run, in order, that failed.
pub fn judge(
    cells: &[Cell],
    tuned: &Tuned,
    threads: usize,
    ended: &(dyn Fn() + Sync),
) -> Result<Judgement, RunError> {
    let policies: Vec<Option<&str>> = RIVALS.into_iter().chain([OURS]).map(Some).chain([None]).collect();
    let jobs: Vec<(&Cell, Option<&str>)> =
        cells.iter().flat_map(|cell| policies.iter().map(move |&policy| (cell, policy))).collect();
    let run = |(cell, policy): &(&Cell, Option<&str>)| match policy {
        Some(policy) => {
            let programs = cell.programs.iter().map(|spec| tuned.apply(spec, policy));
            programs.collect::<Result<Vec<_>, _>>().and_then(|programs| time_s(&programs))
        }
        None => cell.programs.iter().map(|spec| Ok(clairvoyant(spec)?.run_s)).sum(),
    };
    let times = Jobs { threads, ended }.all(&jobs, run).into_iter().collect::<Result<Vec<f64>, _>>()?;
    let of_cells = cells.iter().zip(times.chunks_exact(policies.len()));
    Ok(sum_up(of_cells.map(|(cell, times)| verdict(cell, times)).collect()))
}

/// What the times of a cell say: those of the rivals, our own, and the bound.
fn verdict(cell: &Cell, times: &[f64]) -> Verdict {
    let (rivals, rest) = times.split_at(RIVALS.len());
    let (ours, bound_s) = (rest[0], rest[1]);
    let best = RIVALS.iter().zip(rivals).min_by(|(_, a), (_, b)| a.total_cmp(b));
    let (best_rival, best_s) = best.map_or(("", f64::NAN), |(name, time)| (*name, *time));
    let named = RIVALS.iter().copied().chain([OURS]).zip(times.iter().copied());
    Verdict {
        cell: cell.name(),
        run_s: named.map(|(name, time)| (name.to_owned(), time)).collect(),
        best_rival: best_rival.to_owned(),
        over_best: ours / best_s,
        bound_s,
        over_bound: ours / bound_s,
    }
}

fn sum_up(verdicts: Vec<Verdict>) -> Judgement {
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    let over = |name: &str| {
        let ratio = |verdict: &Verdict| Some(verdict.run_s.get(name)? / verdict.run_s.get(OURS)?);
        geometric_mean(verdicts.iter().filter_map(ratio))
    };
    Judgement {
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

    #[test]
    fn a_verdict_names_the_first_of_the_rivals_and_the_sum_counts_what_is_near() {
        let mut times = vec![2.0; RIVALS.len() + 2];
        (times[3], times[RIVALS.len()], times[RIVALS.len() + 1]) = (1.0, 1.01, 0.5);
        let one = verdict(&cell(), &times);
        assert_eq!((one.best_rival.as_str(), one.over_best, one.over_bound), (RIVALS[3], 1.01, 2.02));
        times[RIVALS.len()] = 0.5;
        let judgement = sum_up(vec![one, verdict(&cell(), &times)]);
        assert_eq!((judgement.first, judgement.near, judgement.near_bound), (1, 2, 1));
        assert_eq!(judgement.worst_over_best, 1.01);
        assert!((judgement.rivals_over_ours[RIVALS[0]] - (2.0 / 1.01 * 4.0_f64).sqrt()).abs() < 1e-9);
        let text = markdown(&judgement);
        assert!(text.contains("uniform-kv, 20% local") && text.contains("| hotbox |"), "{text}");
    }

    #[test]
    fn a_cell_is_run_under_all_and_threads_change_nothing() {
        let cells = [cell()];
        let count = AtomicUsize::new(0);
        let ended = || _ = count.fetch_add(1, Ordering::Relaxed);
        let judged = |threads| {
            let judged = judge(&cells, &Tuned::default(), threads, &ended);
            serde_json::to_string(&judged.map_err(|error| error.to_string()).unwrap()).unwrap()
        };
        assert_eq!(judged(1), judged(2));
        assert_eq!(count.load(Ordering::Relaxed), 2 * runs_of(&cells));
    }
}
