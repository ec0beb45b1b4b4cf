//! What was simulated, beside what was computed. Bytes are of memory on donors but where pages are lost.

use serde::Serialize;

use crate::site::Terms;

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub terms: Site,
    pub schemes: Vec<OfScheme>,
}

/// The site, as it was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    pub seed: u64,
    pub donors: usize,
    pub racks: usize,
    pub offered_bytes: u64,
    pub full: f64,
    pub written: f64,
    pub least_run_bytes: u64,
    pub most_run_bytes: u64,
    pub runs_at_once: usize,
    pub turns: usize,
    pub extents_together: u64,
}

impl Site {
    /// As the terms have it.
    pub fn of(terms: &Terms) -> Self {
        Self {
            seed: terms.seed,
            donors: terms.donors,
            racks: terms.racks,
            offered_bytes: terms.offered_bytes,
            full: terms.full,
            written: terms.written,
            least_run_bytes: terms.least_run_bytes,
            most_run_bytes: terms.most_run_bytes,
            runs_at_once: terms.at_once,
            turns: terms.turns,
            extents_together: terms.together,
        }
    }
}

/// One way of keeping pages.
#[derive(Clone, Debug, Serialize)]
pub struct OfScheme {
    pub scheme: &'static str,
    pub runs: usize,
    /// Runs that found too little room, of all that came.
    pub refused_runs: usize,
    /// Bytes of all runs' pages.
    pub page_bytes: u64,
    /// Copysets that runs were given.
    pub copysets: usize,
    /// Sets of donors on which some run has pages.
    pub sets: usize,
    /// Groups of donors whose death loses something.
    pub deadly_groups: usize,
    /// How much of all extents, or slabs, lies on copysets, of 1.
    pub on_copysets: f64,
    /// Units for which donors were lacking.
    pub short_units: u64,
    pub loads: Vec<Load>,
    pub losses: Vec<Loss>,
    pub repairs: Vec<Repair>,
}

/// How even the load is: bytes of each donor.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// Promised to runs, or used by them.
    pub of: &'static str,
    pub placement: &'static str,
    pub mean_bytes: f64,
    pub deviation_bytes: f64,
    pub computed_deviation_bytes: Option<f64>,
    pub p99_bytes: u64,
    pub most_bytes: u64,
}

/// What is lost where donors die at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Loss {
    pub placement: &'static str,
    pub dead: String,
    pub cases: u64,
    /// Something is lost somewhere, of 1.
    pub probability: f64,
    pub computed_probability: f64,
    /// Some run loses something, of 1: the mean of all runs.
    pub run_probability: f64,
    pub computed_run_probability: f64,
    /// Bytes of pages that are lost, the mean of all cases.
    pub mean_bytes: f64,
    pub computed_mean_bytes: f64,
    /// The same of those cases in which something is lost; 0 where there is none.
    pub bytes_if_any: f64,
    pub runs_if_any: f64,
}

/// What repair takes where donors have died.
#[derive(Clone, Debug, Serialize)]
pub struct Repair {
    pub placement: &'static str,
    pub dead_donors: usize,
    pub cases: usize,
    /// Bytes on the dead donors that can be had of others.
    pub lost_bytes: f64,
    pub read_bytes: f64,
    pub computed_read_bytes: f64,
    pub written_bytes: f64,
    pub computed_written_bytes: f64,
    /// Bytes of what was lost for which the runs' donors have no room.
    pub no_room_bytes: f64,
    /// Donors that give or take something.
    pub donors: f64,
    pub computed_donors: Option<f64>,
    /// Bytes that one donor gives or takes, whichever is more, at most.
    pub most_of_a_donor_bytes: f64,
    pub runs: f64,
    pub computed_runs: f64,
    /// Bytes of pages that one run moves at most, as `rebuild=` counts them.
    pub most_of_a_run_bytes: f64,
    /// Seconds where each donor gives and takes 1 GiB a second.
    pub seconds_by_donors: f64,
    /// Seconds where each run moves 256 MiB a second, as it does unless told otherwise.
    pub seconds_by_runs: f64,
}
