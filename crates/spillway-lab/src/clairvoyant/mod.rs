//! A bound to judge policies by where far memory can be read in place: how little a program's far accesses
//! and the moves of its pages could cost together, if all were known beforehand.
//!
//! For each page and epoch it is chosen whether the page is local. Far accesses cost by how much longer they
//! take, moves what they take of the program's cores, and local memory holds so many pages in each epoch. As
//! an integer program that is a flow of least cost; frames are given a price in each epoch, and it falls
//! apart into a shortest path of two states for each page. Whatever the prices, they give a lower bound that
//! is certain ([`prices`]); what comes of them is rounded to a choice that keeps to the capacity
//! ([`schedule`]); how far the two lie apart is told.
//!
//! What the bound is of: choices that change where one epoch ends and the next begins, base pages, an idle
//! link but for the neighbour, caches and translation as they are while everything is local. A policy that
//! moves a page twice within an epoch is not bound by it; more epochs bind it more.

mod foresight;
pub mod path;
pub mod prices;
pub mod problem;
pub mod schedule;

use serde::Serialize;

use crate::run::{Report, RunError, RunSpec};
pub use foresight::{CLAIRVOYANT, EPOCHS, Foresight, foresee};
use prices::bound;

/// What no choice of residency can beat, and a choice that comes near to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clairvoyant {
    /// What was asked for.
    pub spec: RunSpec,
    /// Epochs that the run was divided into.
    pub epochs: u32,
    /// Pages that the program uses.
    pub working_set_pages: u32,
    /// Local memory, in pages.
    pub local_pages: u32,
    /// Accesses of the program.
    pub accesses: u64,
    /// Run time with everything local, in seconds.
    pub all_local_s: f64,
    /// What a page's move takes of the program's cores, in nanoseconds.
    pub move_ns: f64,
    /// What far accesses cost all cores together where nothing is local, in seconds.
    pub all_far_cost_s: f64,
    /// What far accesses and moves cost them at least, in seconds.
    pub least_cost_s: f64,
    /// What they cost under the best choice that was found, in seconds.
    pub schedule_cost_s: f64,
    /// By how much that is more than the least, as a share of it.
    pub gap: f64,
    /// Moves of that choice, either way.
    pub moves: u64,
    /// Rounds in which prices were adapted.
    pub rounds: u32,
    /// Run time by the least cost, in seconds: what all cores spend together, evenly divided among them.
    pub run_s: f64,
    /// The same by the best choice that was found.
    pub schedule_run_s: f64,
}

/// Works out the bound of a run.
///
/// # Errors
/// Something in it does not exist or makes no sense.
pub fn clairvoyant(spec: &RunSpec) -> Result<Clairvoyant, RunError> {
    Ok(foresee(spec, foresight::epochs(spec)?)?.judge(spec))
}

impl Foresight {
    /// The bound under the local memory of `spec`, which is otherwise the one that was foreseen.
    #[must_use]
    pub fn judge(&self, spec: &RunSpec) -> Clairvoyant {
        let local_pages = self.local_pages(spec);
        let problem = self.problem(local_pages);
        let found = bound(&problem);
        let Report { run_s, time, accesses, working_set_pages, .. } = self.all_local();
        let cores_s = time.app_s + time.fault_s;
        let with_cost = |cost_s: f64| run_s.max((cores_s + cost_s) / f64::from(self.tasks()));
        let (least_cost_s, schedule_cost_s) = (found.lower_ns / 1e9, found.schedule.cost_ns / 1e9);
        Clairvoyant {
            spec: spec.clone(),
            epochs: problem.epochs,
            working_set_pages: *working_set_pages,
            local_pages,
            accesses: *accesses,
            all_local_s: *run_s,
            move_ns: problem.in_ns,
            all_far_cost_s: problem.all_far_ns() / 1e9,
            least_cost_s,
            schedule_cost_s,
            gap: found.gap(),
            moves: found.schedule.moves,
            rounds: found.rounds,
            run_s: with_cost(least_cost_s),
            schedule_run_s: with_cost(schedule_cost_s),
        }
    }
}

#[cfg(test)]
mod tests;
