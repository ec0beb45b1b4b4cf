//! Simulates a site with one way of keeping pages, and computes the same.

use spillway_pool::EXTENT_BYTES;
use spillway_pool::MAX_DONORS;
use spillway_pool::placement::Dice;

use crate::failures::{Kind, Losses, losses};
use crate::layout::{Layout, place};
use crate::paper::{any_of, at_least_dead, deviation_by_chance, exactly_dead, sharers};
use crate::progress::Progress;
use crate::random::{Random, random};
use crate::repair::{Summary, repair};
use crate::report::{Load, Loss, OfScheme, Repair};
use crate::site::{By, Run, Scheme, Site, Terms};

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// 64 cases of donors that die, so many times.
    pub failures: usize,
    /// Donors whose death alone is repaired.
    pub deaths: usize,
    /// Deaths of 1% that are repaired.
    pub large_deaths: usize,
}

impl Effort {
    /// Less than 2 minutes for 10,000 donors.
    pub const FULL: Self = Self { failures: 512, deaths: 200, large_deaths: 8 };
}

/// Bytes a second that a donor gives and takes, for the time that repair needs.
const DONOR_RATE: f64 = (1_u64 << 30) as f64;
/// Bytes a second that a run moves, where `rebuild=` does not say otherwise.
const RUN_RATE: f64 = (256_u64 << 20) as f64;

const OWN: &str = "Spillway";
const RANDOM: &str = "random";

struct World<'a> {
    scheme: Scheme,
    site: Site,
    layouts: Vec<Layout>,
    /// Of each run, the groups of donors whose death loses something.
    groups: Vec<usize>,
    random: Random,
    kinds: [Kind; 2],
    progress: &'a Progress,
}

/// Simulates a site with this scheme, and computes the same.
pub fn measure(terms: Terms, scheme: Scheme, effort: Effort, progress: &Progress) -> OfScheme {
    let site = Site::after_a_while(terms, scheme, By::TwoChoices, progress);
    let mut layouts = Vec::with_capacity(site.runs.len());
    for (number, run) in site.runs.iter().enumerate() {
        progress.say(|| format!("{}: {number} of {} runs placed", scheme.name, site.runs.len()));
        layouts.push(place(&terms, run, scheme, terms.seed ^ number as u64));
    }
    let kinds = [Kind::Donors((terms.donors / 100).max(1)), Kind::Racks((terms.racks / 100).max(1))];
    let random = random(&terms, &site.runs, scheme, kinds, progress);
    let groups = layouts.iter().map(|layout| layout.groups(scheme.fatal)).collect();
    let world = World { scheme, site, layouts, groups, random, kinds, progress };
    OfScheme {
        scheme: scheme.name,
        runs: world.site.runs.len(),
        refused_runs: world.site.refused,
        page_bytes: world.site.runs.iter().map(|run| run.bytes).sum(),
        copysets: world.layouts.iter().map(|layout| layout.copysets).sum(),
        sets: world.layouts.iter().map(|layout| layout.sets.len()).sum(),
        deadly_groups: world.groups.iter().sum(),
        on_copysets: world.on_copysets(),
        short_units: world.layouts.iter().map(|layout| u64::from(layout.short)).sum(),
        loads: world.loads(),
        losses: (0..2).flat_map(|kind| world.losses(kind, effort)).collect(),
        repairs: world.repairs(effort),
    }
}

fn load(of: &'static str, placement: &'static str, mut bytes: Vec<u64>, computed: Option<f64>) -> Load {
    bytes.sort_unstable();
    let count = bytes.len() as f64;
    let mean_bytes = bytes.iter().map(|bytes| *bytes as f64).sum::<f64>() / count;
    let variance = bytes.iter().map(|bytes| (*bytes as f64 - mean_bytes).powi(2)).sum::<f64>() / count;
    let at = |share: f64| bytes.get((count * share) as usize).copied().unwrap_or(0);
    Load {
        of,
        placement,
        mean_bytes,
        deviation_bytes: variance.sqrt(),
        computed_deviation_bytes: computed,
        p99_bytes: at(0.99),
        most_bytes: bytes.last().copied().unwrap_or(0),
    }
}

impl World<'_> {
    fn terms(&self) -> &Terms {
        &self.site.terms
    }

    /// How much of all extents lies on copysets.
    fn on_copysets(&self) -> f64 {
        let units: u64 = self.site.runs.iter().map(|run| u64::from(run.units)).sum();
        let on: u64 = self.layouts.iter().map(|layout| u64::from(layout.on_copysets)).sum();
        on as f64 / units.max(1) as f64
    }

    fn loads(&self) -> Vec<Load> {
        let terms = *self.terms();
        let promised = |by| Site::after_a_while(terms, self.scheme, by, self.progress);
        let by_chance = promised(By::Chance);
        let share = |run: &Run| (f64::from(run.share_units) * terms.unit_bytes() as f64, run.donors.len());
        let computed = deviation_by_chance(by_chance.runs.iter().map(share), terms.donors);
        let mut used = vec![0; terms.donors];
        for (run, layout) in self.site.runs.iter().zip(&self.layouts) {
            for (&donor, left) in run.donors.iter().zip(&layout.candidates) {
                used[usize::from(donor)] += u64::from(run.share_units - left.free) * terms.unit_bytes();
            }
        }
        let random = self.random.extents.iter().map(|&extents| u64::from(extents) * EXTENT_BYTES).collect();
        // All amounts are the same, so many that they need not be listed.
        let each = deviation_by_chance([(EXTENT_BYTES as f64, self.scheme.width)].into_iter(), terms.donors);
        let of_random = each * (self.random.placed as f64).sqrt();
        vec![
            load("promised", OWN, self.site.promised(), None),
            load("promised", "32 by chance", by_chance.promised(), Some(computed)),
            load("promised", "the 32 freest", promised(By::Freest).promised(), None),
            load("used", OWN, used, None),
            load("used", RANDOM, random, Some(of_random)),
        ]
    }

    fn losses(&self, kind: usize, effort: Effort) -> [Loss; 2] {
        self.progress.say(|| format!("{}: donors die", self.scheme.name));
        let own = losses(&self.site, &self.layouts, self.scheme, self.kinds[kind], effort.failures);
        let groups = |run: usize| self.groups[run] as f64;
        let extents = |run: usize| self.scheme.extents_for(self.site.runs[run].bytes) as f64;
        let (random, fatal, width) = (self.random.losses[kind], self.scheme.fatal, self.scheme.width);
        [self.loss(OWN, kind, own, (fatal, &groups)), self.loss(RANDOM, kind, random, (width, &extents))]
    }

    /// Simulated and computed, where a run has so many sets of so many donors, each for itself.
    fn loss(
        &self,
        placement: &'static str,
        kind: usize,
        seen: Losses,
        (size, sets): (usize, &dyn Fn(usize) -> f64),
    ) -> Loss {
        let (terms, scheme) = (self.terms(), self.scheme);
        let (dead, all, name) = match self.kinds[kind] {
            Kind::Donors(dead) => (dead, terms.donors, "donors"),
            Kind::Racks(dead) => (dead, terms.racks, "whole racks"),
        };
        let of_set = at_least_dead(size, scheme.fatal, dead, all);
        let of_page = at_least_dead(scheme.width, scheme.fatal, dead, all);
        let runs = self.site.runs.len();
        let all_sets: f64 = (0..runs).map(sets).sum();
        let of_run = (0..runs).map(|run| any_of(of_set, sets(run))).sum::<f64>() / runs as f64;
        let pages: f64 = self.site.runs.iter().map(|run| run.bytes as f64).sum();
        let (cases, with_loss) = (seen.cases as f64, seen.with_loss.max(1) as f64);
        Loss {
            placement,
            dead: format!("{dead} {name}"),
            cases: seen.cases,
            probability: seen.with_loss as f64 / cases,
            computed_probability: any_of(of_set, all_sets),
            run_probability: seen.runs as f64 / cases / runs as f64,
            computed_run_probability: of_run,
            mean_bytes: seen.bytes / cases,
            computed_mean_bytes: of_page * pages * scheme.lost_share(),
            bytes_if_any: seen.bytes / with_loss,
            runs_if_any: seen.runs as f64 / with_loss,
        }
    }

    fn repairs(&self, effort: Effort) -> Vec<Repair> {
        let terms = *self.terms();
        let mut dice = Dice::new(terms.seed ^ 0x6465_6164);
        let mut all = Vec::new();
        for (large, cases) in [(false, effort.deaths), (true, effort.large_deaths)] {
            let count = if large { (terms.donors / 100).max(1) } else { 1 };
            let mut found = Vec::with_capacity(cases);
            for case in 0..cases {
                self.progress.say(|| format!("{}: repair {case} of {cases}", self.scheme.name));
                let mut is_dead = vec![false; terms.donors];
                while is_dead.iter().filter(|dead| **dead).count() < count {
                    is_dead[dice.below(terms.donors)] = true;
                }
                let traffic = repair(&self.site, &self.layouts, self.scheme, &is_dead, dice.next_u64());
                found.push(traffic.summary());
            }
            let units: f64 = self.site.runs.iter().map(|run| f64::from(run.units)).sum();
            let extents = units * terms.together as f64;
            all.push(self.of_repair(OWN, (count, cases), extents, Summary::mean(&found)));
            let random = self.random.traffic[usize::from(large)].summary();
            all.push(self.of_repair(RANDOM, (count, 1), self.random.placed as f64, random));
        }
        all
    }

    /// Simulated and computed, where so many extents, or slabs, were placed.
    fn of_repair(
        &self,
        placement: &'static str,
        (dead, cases): (usize, usize),
        extents: f64,
        seen: Summary,
    ) -> Repair {
        let (terms, scheme) = (self.terms(), self.scheme);
        // Of copies each that is lost is read once and written once, of a slab all rows.
        let (reads, writes) = match scheme.data {
            None => (None, None),
            Some(data) => (Some(data), Some(scheme.width)),
        };
        let bytes = |each: Option<usize>| {
            let of = |gone: usize| {
                exactly_dead(scheme.width, gone, dead, terms.donors) * each.unwrap_or(gone) as f64
            };
            (1..scheme.fatal).map(of).sum::<f64>() * extents * EXTENT_BYTES as f64
        };
        let (read, written) = (bytes(reads), bytes(writes));
        let runs = self.site.runs.len() as f64;
        let is_own = placement == OWN;
        let of_run = |donors: f64| any_of(dead as f64 / terms.donors as f64, donors);
        let hit = |run: &Run| match is_own {
            true => of_run(MAX_DONORS as f64),
            false => of_run(scheme.extents_for(run.bytes) as f64 * scheme.width as f64),
        };
        let requests = (read + written) / EXTENT_BYTES as f64;
        let moved = scheme.data.map_or(1.0, |data| data as f64 / scheme.width as f64);
        let most_of_a_run_bytes = seen.most_of_a_run * moved;
        Repair {
            placement,
            dead_donors: dead,
            cases,
            lost_bytes: seen.lost_bytes,
            read_bytes: seen.read_bytes,
            computed_read_bytes: read,
            written_bytes: seen.written_bytes,
            computed_written_bytes: written,
            no_room_bytes: seen.no_room_bytes,
            donors: seen.donors,
            computed_donors: (!is_own).then(|| sharers(requests, terms.donors - dead)),
            most_of_a_donor_bytes: seen.most_of_a_donor,
            runs: seen.runs,
            computed_runs: self.site.runs.iter().map(hit).sum::<f64>().min(runs),
            most_of_a_run_bytes,
            seconds_by_donors: seen.most_of_a_donor / DONOR_RATE,
            seconds_by_runs: most_of_a_run_bytes / RUN_RATE,
        }
    }
}
