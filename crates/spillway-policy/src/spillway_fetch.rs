//! Fetching in place of far accesses: whether it would pay, whether it does, and who does it meanwhile.
//!
//! Where a program reads whole pages, or works in one part of its memory for a while, it is better served by
//! one who brings in each page that is used, as `dcm` does, than by accesses to far memory in place. A rival
//! of that kind is followed in its shadow ([`crate::spillway_shadow`]): what its fetches would cost is held
//! against what far accesses cost now, as much as these can cost at most. Only where fetches come to less is
//! it tried, and only where the program then comes further is it kept ([`crate::spillway_trial`]). Trials go
//! by the windows of the counters, which are shorter than intervals between scans, and end as soon as they
//! are plainly in vain.

use crate::dcm_blocks::{self, Dcm};
use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{PageIndex, Tier, TieredMachine};
use crate::policy::Policy;
use crate::spillway_shadow::Shadow;
use crate::spillway_trial::{Progress, Trial};
use crate::spillway_worth::Average;

/// Windows after a change of sides that count for neither: first all comes in that is in use.
const TRANSITION_WINDOWS: u32 = 2;
/// With fewer frames than these nothing is fetched.
pub(crate) const LEAST_FRAMES: u32 = 8;

/// What far accesses cost in an interval, and what fetches would have cost in their place, in nanoseconds of
/// the program's cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    pub accesses_ns: f64,
    pub fetches_ns: f64,
}

/// The rival in the shadow, or at work.
pub(crate) struct Fetching {
    seed: u64,
    shadow: Shadow,
    accesses_ns: Average,
    fetches_ns: Average,
    trial: Trial,
    /// Who fetches, while pages are fetched.
    at_work: Option<Box<Dcm>>,
    /// The machine has refused.
    is_refused: bool,
}

impl Fetching {
    /// For so many pages; `seed` is for the lots that the rival draws.
    pub(crate) fn new(pages: u32, seed: u64) -> Self {
        Self {
            seed,
            shadow: Shadow::new(pages),
            accesses_ns: Average::default(),
            fetches_ns: Average::default(),
            trial: Trial::new(false, TRANSITION_WINDOWS),
            at_work: None,
            is_refused: false,
        }
    }

    /// Who fetches pages at present; nobody where far pages are accessed in place.
    pub(crate) fn at_work(&mut self) -> Option<&mut Dcm> {
        self.at_work.as_deref_mut()
    }

    /// Whether pages are fetched at present.
    pub(crate) fn is_on(&self) -> bool {
        self.at_work.is_some()
    }

    /// Whether one side is on trial at present.
    pub(crate) fn is_asking(&self) -> bool {
        self.trial.is_asking()
    }

    /// A page is touched for the first time.
    pub(crate) fn note_made(&mut self, page: PageIndex) {
        self.shadow.note_made(page);
    }

    /// A scan has found these in use. How many the rival would have fetched with so many frames.
    pub(crate) fn note_scan(&mut self, pages: &[PageIndex], used: &[bool], frames: u32) -> f64 {
        self.shadow.note_scan(pages, used, frames)
    }

    /// What an interval cost, and what it would have cost.
    pub(crate) fn note_costs(&mut self, costs: Costs) {
        self.accesses_ns.note(costs.accesses_ns);
        self.fetches_ns.note(costs.fetches_ns);
    }

    /// The program has changed: what was measured says nothing any more.
    pub(crate) fn begin_phase(&mut self) {
        self.trial.begin_phase();
        (self.accesses_ns, self.fetches_ns) = (Average::default(), Average::default());
    }

    /// A window of the counters is over. Whether the other side is to be taken now.
    pub(crate) fn note_window(&mut self, progress: Progress, may_ask: bool) -> bool {
        let fetches_ns = self.fetches_ns.0.unwrap_or(f64::MAX);
        let may_pay = self.is_on() || self.accesses_ns.0.unwrap_or(0.0) > fetches_ns;
        self.trial.note(progress, may_ask && may_pay && !self.is_refused);
        self.trial.is_on() != self.is_on()
    }

    /// Pages are fetched from now on. `local` are the local pages with whether they are in use, those first
    /// that are worth the least.
    pub(crate) fn begin(
        &mut self,
        machine: &mut dyn TieredMachine,
        local: impl Iterator<Item = (PageIndex, bool)>,
    ) {
        let has_huge = (0..machine.page_count()).any(|page| machine.span(page) > 1);
        let has_room = machine.capacity_pages(Tier::Local) >= LEAST_FRAMES;
        if has_huge || !has_room || !machine.set_page_fetch(true) {
            self.is_refused = true;
            self.trial = Trial::new(false, TRANSITION_WINDOWS);
            return;
        }
        let config = dcm_blocks::Config::default();
        let mut dcm = Box::new(Dcm::build(config, self.seed, &Knowledge::default()));
        dcm.start(machine);
        local.for_each(|(page, is_used)| dcm.adopt(page, is_used, machine));
        self.at_work = Some(dcm);
    }

    /// Far pages are accessed in place again.
    pub(crate) fn end(&mut self, machine: &mut dyn TieredMachine) {
        if self.at_work.take().is_some() {
            machine.set_page_fetch(false);
        }
    }
}
