//! Spillway's own: a page moves where what that saves is more than what it costs, both as they are measured
//! while the program runs.
//!
//! No paper's. Nothing is asked for that a stock kernel cannot tell of another process: accessed bits, and
//! how many accesses went to either tier.
//! - Use is foretold for each page from scans of accessed bits ([`crate::spillway_forecast`]), and so is how
//!   long a difference between pages lasts.
//! - Before each exchange of a far page for a local one stand, on one side, the accesses that it is foretold
//!   to save as long as the difference lasts, by how much longer far memory takes under its present load, and
//!   less for accesses that come in runs, as hardware reads ahead of those; on the other, what the two moves
//!   take of the program's cores: measured, interrupts of all cores included.
//! - What exchanges were foretold to bring is held against what they then brought: where the best of many
//!   forecasts are too good to be true, differences are believed the less.
//! - A page that comes back soon after it left costs more each time (ping-pong).
//! - Where the share of local accesses changes without our doing, the program has: the slow averages begin
//!   anew.
//! - Pages are fetched whole, and none is accessed in far memory, where a rival that does so is seen in its
//!   shadow to cost less and where, tried, the program comes further with it (`spillway_fetch`).
//! - Exchanges that the share of local accesses does not rise by pause, where the program comes no less far
//!   without them (`spillway_trial`).
//! - Scans take no more than a share of the time, some times that for a while after a change; while nothing
//!   is worth a move they come less and less often, until the share of local accesses changes. A machine
//!   that scans at times of its own (a daemon, within its budget) is asked as often as ever.
//!
//! Settings are few; they were tuned on the training set of `spillway lab judge` and then left alone
//! (`docs/lab/spillway-policy.md`).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Scan, Tier, TieredMachine};
use crate::policy::{CounterWindow, Fault, Policy};
use crate::spillway_fetch::{Costs, Fetching};
use crate::spillway_forecast::Forecast;
use crate::spillway_trial::{Progress, Trial};
use crate::spillway_worth::{Average, Foretold, Proof, Worth};

/// What a run may set.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Least time between two scans.
    pub period_us: u64,
    /// Most time between two scans.
    pub longest_period_us: u64,
    /// Most that scans take of the time of the program's cores.
    pub scan_share: f64,
    /// Most that moves take of an interval.
    pub move_share: f64,
    /// What of a far access's longer latency a core waits for where it follows another one in its page.
    pub follower_share: f64,
    /// By how much what is saved must exceed what it costs, as a factor.
    pub margin: f64,
    /// A move, in nanoseconds, where the machine does not show what it takes.
    pub move_ns: f64,
    /// Interrupting a core so that it forgets a translation, in nanoseconds.
    pub interrupt_ns: f64,
    /// Accesses of a page between two scans that find it used, where nobody counts accesses.
    pub uncounted_accesses: f64,
    /// A fault at a far page, in nanoseconds.
    pub fault_ns: f64,
    /// Pages may be fetched whole in place of far accesses, where the program is found to come further by it.
    pub fetches_pages: bool,
    /// Exchanges may pause, where the program is found to come further without them.
    pub pauses: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            period_us: 500_000,
            longest_period_us: 8_000_000,
            scan_share: 0.02,
            move_share: 0.5,
            follower_share: 0.3,
            margin: 1.0,
            move_ns: 5000.0,
            interrupt_ns: 500.0,
            uncounted_accesses: 20.0,
            fault_ns: 1000.0,
            fetches_pages: true,
            pauses: true,
        }
    }
}

const TICK: u32 = 0;

/// Intervals that differences are taken to last for until that is measured.
const FIRST_GUESS_INTERVALS: u64 = 8;
/// Scans after a change that may take more of the time, and how many times as much.
const URGENT_SCANS: u32 = 10;
const URGENT_TIMES: f64 = 4.0;
/// By how much the share of local accesses must change for the program to have changed.
const CHANGED: f64 = 0.1;
/// By how much it must differ for scans to come often again.
const STIRRED: f64 = 0.02;
/// Intervals within which a page that left and comes back has been sent to and fro.
const PING_PONG_INTERVALS: u32 = 16;

/// When a page came and went.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// The interval in which it left last, counted from 1; 0 for never.
    left_in: u32,
    /// How often it came back soon.
    returns: u8,
}

/// What is foretold of pages, what moves cost, and how things stand.
pub struct Spillway {
    config: Config,
    forecast: Option<Forecast>,
    pages: Vec<PageIndex>,
    used: Vec<bool>,
    past: Vec<Past>,
    interval: u32,
    period_ns: u64,
    /// Accesses since the last scan.
    window: CounterWindow,
    local_ratio: Average,
    /// What it rises by from one scan to the next.
    rise: Average,
    accesses_of_use: Average,
    far_is_longer_ns: Average,
    /// What the cores can have waited at most for a far access, since there was no more time.
    waited_at_most_ns: Average,
    in_ns: Average,
    out_ns: Average,
    /// The exchanges since the last scan, and what those before proved.
    promoted: Vec<Foretold>,
    demoted: Vec<Foretold>,
    proof: Proof,
    /// Scans since the program has changed.
    scans_since_change: u32,
    /// What the program came to since the last scan, and until when that is counted.
    progress: Progress,
    counted_to_ns: u64,
    /// Whether exchanges help the program.
    exchanging: Trial,
    /// What the last ones took of the program's time, in nanoseconds.
    exchanges_ns: u64,
    /// Whether pages are better fetched than accessed where they lie.
    fetching: Fetching,
    /// What was found before says nothing any more: pages were fetched since.
    is_stale: bool,
    seed: u64,
}

impl Registered for Spillway {
    type Config = Config;
    fn build(config: Config, seed: u64, _knowledge: &Knowledge) -> Self {
        Self {
            config,
            forecast: None,
            pages: Vec::new(),
            used: Vec::new(),
            past: Vec::new(),
            interval: 0,
            period_ns: config.period_us * 1000,
            window: CounterWindow::default(),
            local_ratio: Average::default(),
            rise: Average::default(),
            accesses_of_use: Average::default(),
            far_is_longer_ns: Average::default(),
            waited_at_most_ns: Average::default(),
            in_ns: Average::default(),
            out_ns: Average::default(),
            promoted: Vec::new(),
            demoted: Vec::new(),
            proof: Proof::default(),
            scans_since_change: 0,
            progress: Progress::default(),
            counted_to_ns: 0,
            exchanging: Trial::new(true, 1),
            exchanges_ns: 0,
            fetching: Fetching::new(0, seed),
            is_stale: false,
            seed,
        }
    }
}

impl Spillway {
    /// Reads all accessed bits. What that took.
    fn scan(&mut self, machine: &mut dyn TieredMachine) -> u64 {
        let began_ns = machine.now_ns();
        self.pages.clear();
        self.used.fill(false);
        let (pages, used) = (&mut self.pages, &mut self.used);
        for tier in [Tier::Local, Tier::Far] {
            let scan = Scan { start: 0, pages: machine.page_count(), tier, hierarchical: false };
            machine.scan(scan, &mut |page, accessed| {
                pages.push(page);
                used[page as usize] = accessed;
            });
        }
        machine.now_ns() - began_ns
    }

    /// Whether the program has changed since the last scans, and whether it does what it did.
    fn note_window(&mut self) -> (bool, bool) {
        let window = std::mem::take(&mut self.window);
        if window.local_accesses + window.far_accesses == 0 {
            return (false, true);
        }
        let ratio = window.local_ratio();
        let before = self.local_ratio.0.unwrap_or(ratio);
        // What we promoted since brings the share up; that is no change of the program's.
        self.rise.note(ratio - before);
        let changed = before - ratio > CHANGED || self.promoted.is_empty() && ratio - before > CHANGED;
        if changed {
            self.local_ratio = Average(Some(ratio));
        } else {
            self.local_ratio.note(ratio);
        }
        (changed, (before - ratio).abs() < STIRRED)
    }

    /// How many accesses a use stands for that a scan could tell.
    fn note_accesses(&mut self, far_accesses: u64, machine: &dyn TieredMachine, forecast: &Forecast) {
        if !machine.counts_each_access() {
            self.accesses_of_use = Average(Some(self.config.uncounted_accesses));
            return;
        }
        let far = self.pages.iter().filter(|&&page| machine.tier_of(page) == Some(Tier::Far));
        let (mut found, mut foretold) = (0.0, 0.0);
        for &page in far {
            found += f64::from(u8::from(self.used[page as usize]));
            foretold += forecast.uses(page);
        }
        let uses = f64::max(found, foretold);
        if far_accesses > 0 && uses >= 1.0 {
            self.accesses_of_use.note(far_accesses as f64 / uses);
            self.waited_at_most_ns.note(self.progress.core_ns as f64 / far_accesses as f64);
        }
    }

    /// Holds what exchanges were foretold to bring against what they brought.
    fn note_exchanged(&mut self) {
        let foretold = |pages: &[Foretold]| pages.iter().map(|one| one.uses).sum::<f64>();
        let found =
            |pages: &[Foretold]| pages.iter().filter(|one| self.used[one.page as usize]).count() as f64;
        let [more, less] = [&self.promoted, &self.demoted];
        let (new_foretold, new_found) = (foretold(more) - foretold(less), found(more) - found(less));
        self.proof.note(new_foretold, new_found);
        self.promoted.clear();
        self.demoted.clear();
    }

    /// What a use costs of a page that lies far, beyond what it would cost there where it is local: of the
    /// accesses that make it up the first is waited for, the others partly, and no more than there was time.
    fn use_ns(&self) -> f64 {
        let accesses = self.accesses_of_use.0.unwrap_or(1.0).max(1.0);
        let longer_ns = self.far_is_longer_ns.0.unwrap_or(0.0);
        let waited_ns = longer_ns * (1.0 + (accesses - 1.0) * self.config.follower_share);
        self.waited_at_most_ns.0.map_or(waited_ns, |most_ns| waited_ns.min(accesses * most_ns))
    }

    /// What one of these moves takes of the program's cores, in nanoseconds.
    fn cost_ns(&self, measured: Average, machine: &dyn TieredMachine) -> f64 {
        let own_ns = measured.0.filter(|ns| *ns > 0.0).unwrap_or(self.config.move_ns);
        own_ns * machine.background_share() + f64::from(machine.cores()) * self.config.interrupt_ns
    }

    /// What a far access is waited for beyond a local one, on average over those of a use.
    fn use_ns_each(&self) -> f64 {
        self.use_ns() / self.accesses_of_use.0.unwrap_or(1.0).max(1.0)
    }

    /// What far accesses cost since the last scan, and what fetches would have cost in their place. Cores
    /// that have waited for far memory have done so for no longer than there was time.
    fn note_costs(&mut self, far_accesses: u64, machine: &dyn TieredMachine) {
        let fetched = self.fetching.note_scan(&self.pages, &self.used, machine.capacity_pages(Tier::Local));
        let longer_ns = far_accesses as f64 * self.far_is_longer_ns.0.unwrap_or(0.0);
        let exchanges_ns = if self.exchanging.is_on() { self.exchanges_ns } else { 0 };
        let moves_ns = exchanges_ns as f64 * machine.background_share();
        let in_ns = self.in_ns.0.filter(|ns| *ns > 0.0).unwrap_or(self.config.move_ns);
        self.fetching.note_costs(Costs {
            accesses_ns: longer_ns.min(self.progress.core_ns as f64) + moves_ns,
            fetches_ns: fetched * (self.config.fault_ns + in_ns),
        });
    }

    /// Holds what the program came to against what it came to otherwise.
    fn note_progress(&mut self, machine: &dyn TieredMachine, changed: bool, lasts_ns: f64) {
        let progress = std::mem::take(&mut self.progress);
        if changed {
            self.exchanging.begin_phase();
            self.fetching.begin_phase();
            return;
        }
        // What the share of local accesses rose by, for as long as differences last, against what that took.
        let intervals = lasts_ns / self.period_ns as f64;
        let saved_ns = self.rise.0.unwrap_or(0.0).max(0.0) * progress.accesses as f64 * self.use_ns_each();
        let taken_ns = self.exchanges_ns as f64 * machine.background_share();
        let scans_ns = self.config.scan_share * progress.core_ns as f64;
        let much = taken_ns > scans_ns && taken_ns > saved_ns * intervals;
        let may_pause = self.config.pauses && (much || !self.exchanging.is_on());
        self.exchanging.note(progress, may_pause && !self.fetching.is_asking());
    }

    /// Fetches pages from now on, or leaves them where they are again.
    fn change_sides(&mut self, machine: &mut dyn TieredMachine) {
        self.period_ns = self.config.period_us * 1000;
        if self.fetching.is_on() {
            self.fetching.end(machine);
            (self.local_ratio, self.rise) = (Average::default(), Average::default());
            self.promoted.clear();
            self.demoted.clear();
            self.is_stale = true;
            return;
        }
        let local = (0..machine.page_count()).filter(|&page| machine.tier_of(page) == Some(Tier::Local));
        let mut local: Vec<PageIndex> = local.collect();
        if let Some(forecast) = &self.forecast {
            local.sort_by(|a, b| forecast.uses(*a).total_cmp(&forecast.uses(*b)));
        }
        let used = |page: PageIndex| (page, self.used[page as usize]);
        self.fetching.begin(machine, local.into_iter().map(used));
    }

    /// Moves a page. What it took, by the machine's clock; nothing where it did not move.
    fn move_page(&mut self, machine: &mut dyn TieredMachine, page: PageIndex, to: Tier) -> Option<u64> {
        let began_ns = machine.now_ns();
        if machine.migrate(&[page], to, Call::Kernel) == 0 {
            return None;
        }
        let took_ns = machine.now_ns() - began_ns;
        let base_pages = f64::from(machine.span(page));
        let past = &mut self.past[page as usize];
        match to {
            Tier::Far => {
                past.left_in = self.interval;
                self.out_ns.note(took_ns as f64 / base_pages);
            }
            Tier::Local => {
                let soon = past.left_in > 0 && self.interval - past.left_in <= PING_PONG_INTERVALS;
                past.returns = if soon { past.returns.saturating_add(1) } else { past.returns / 2 };
                self.in_ns.note(took_ns as f64 / base_pages);
            }
        }
        Some(took_ns)
    }

    fn worth(&self, machine: &dyn TieredMachine, forecast: &Forecast) -> Worth {
        let (mut far, mut local) = (Vec::new(), Vec::new());
        for &page in &self.pages {
            let uses = forecast.uses(page) / f64::from(machine.span(page));
            let one = Foretold { uses, page };
            match machine.tier_of(page) {
                Some(Tier::Far) => far.push(one),
                Some(Tier::Local) => local.push(one),
                None => {}
            }
        }
        far.sort_unstable_by(|a, b| b.uses.total_cmp(&a.uses).then(a.page.cmp(&b.page)));
        local.sort_unstable_by(|a, b| a.uses.total_cmp(&b.uses).then(a.page.cmp(&b.page)));
        let intervals = forecast.lasts_ns() / self.period_ns as f64;
        Worth { far, local, next: 0, use_ns: self.use_ns() * intervals }
    }

    /// What the exchange of a far page for these local ones saves, over what it costs; nothing more than 1
    /// pays.
    fn saved_over_cost(
        &self,
        machine: &dyn TieredMachine,
        one: Foretold,
        out: &[Foretold],
        worth: f64,
    ) -> f64 {
        let span = f64::from(machine.span(one.page));
        let spans = |one: &Foretold| f64::from(machine.span(one.page));
        let lost: f64 = out.iter().map(|victim| victim.uses * spans(victim)).sum();
        let saved_ns = (one.uses * span - lost) * self.proof.trust() * worth;
        let out_ns = out.iter().map(spans).sum::<f64>() * self.cost_ns(self.out_ns, machine);
        saved_ns / ((span * self.cost_ns(self.in_ns, machine) + out_ns) * self.config.margin)
    }

    /// Exchanges pages as long as it pays. How many came.
    fn exchange(&mut self, machine: &mut dyn TieredMachine, worth: &mut Worth) -> u32 {
        let began_ns = machine.now_ns();
        let came = self.exchange_pages(machine, worth);
        self.exchanges_ns = machine.now_ns() - began_ns;
        came
    }

    fn exchange_pages(&mut self, machine: &mut dyn TieredMachine, worth: &mut Worth) -> u32 {
        let mut free = machine.free_pages(Tier::Local);
        let most_ns = (self.period_ns as f64 * self.config.move_share) as u64;
        let (mut spent_ns, mut came) = (0, 0);
        for one in std::mem::take(&mut worth.far) {
            let span = machine.span(one.page);
            let victims = worth.victims(free, span, machine).to_vec();
            let found = free + victims.iter().map(|victim| machine.span(victim.page)).sum::<u32>();
            let saved = self.saved_over_cost(machine, one, &victims, worth.use_ns);
            if found < span || saved <= 1.0 || spent_ns > most_ns {
                return came;
            }
            if saved <= 1.0 + f64::from(self.past[one.page as usize].returns) {
                continue;
            }
            worth.next += victims.len();
            for victim in &victims {
                spent_ns += self.move_page(machine, victim.page, Tier::Far).unwrap_or(0);
                self.demoted.push(*victim);
            }
            let Some(took_ns) = self.move_page(machine, one.page, Tier::Local) else { return came };
            spent_ns += took_ns;
            free = found - span;
            came += 1;
            self.promoted.push(one);
        }
        came
    }

    /// How long until the next scan.
    fn choose_period(&mut self, machine: &dyn TieredMachine, scan_ns: u64, idle: bool) {
        let [least_ns, most_ns] =
            [self.config.period_us, self.config.longest_period_us].map(|period_us| period_us * 1000);
        let cost_ns = scan_ns as f64 * machine.background_share() / f64::from(machine.cores().max(1));
        let times = if self.scans_since_change <= URGENT_SCANS { URGENT_TIMES } else { 1.0 };
        let affordable_ns = (cost_ns / (self.config.scan_share * times).max(1e-6)) as u64;
        let wanted_ns = if idle { self.period_ns * 2 } else { least_ns };
        self.period_ns = wanted_ns.max(affordable_ns).clamp(least_ns, most_ns.max(least_ns));
    }

    fn tick(&mut self, machine: &mut dyn TieredMachine, forecast: &mut Forecast) {
        self.interval += 1;
        if self.fetching.is_on() {
            return;
        }
        let scan_ns = self.scan(machine);
        // A machine that scans at times of its own has no answer yet: nothing is to be learned of that.
        if self.pages.is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_stale) {
            self.fetching.note_scan(&self.pages, &self.used, machine.capacity_pages(Tier::Local));
            (self.window, self.progress) = (CounterWindow::default(), Progress::default());
            return;
        }
        let far_accesses = self.window.far_accesses;
        let (changed, steady) = self.note_window();
        self.scans_since_change += 1;
        if changed {
            forecast.begin_phase();
            self.scans_since_change = 0;
        }
        self.note_accesses(far_accesses, machine, forecast);
        self.note_exchanged();
        self.far_is_longer_ns.note(machine.link().delta_latency_ns);
        forecast.learn(&self.pages, &self.used, machine.now_ns());
        self.note_costs(far_accesses, machine);
        self.note_progress(machine, changed, forecast.lasts_ns());
        let mut worth = self.worth(machine, forecast);
        let came = if self.exchanging.is_on() { self.exchange(machine, &mut worth) } else { 0 };
        // Who scans at times of its own does so anyway, and over a long interval most pages are in use, so
        // that hot ones are not told from the others.
        let idle = steady && !machine.scans_by_itself();
        self.choose_period(machine, scan_ns, idle && came == 0);
    }
}

impl Policy for Spillway {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let pages = machine.page_count();
        self.used = vec![false; pages as usize];
        self.past = vec![Past::default(); pages as usize];
        self.fetching = Fetching::new(pages, self.seed);
        let first_guess_ns = FIRST_GUESS_INTERVALS * self.period_ns;
        self.forecast = Some(Forecast::new(pages, first_guess_ns as f64));
        machine.count_accesses(self.config.period_us * 1000);
        machine.set_timer(TICK, self.period_ns);
    }

    fn place(&mut self, page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        match self.fetching.at_work() {
            Some(dcm) => dcm.place(page, machine),
            None if machine.free_pages(Tier::Local) >= machine.span(page) => Tier::Local,
            None => Tier::Far,
        }
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, machine: &mut dyn TieredMachine) {
        self.fetching.note_made(page);
        if let Some(dcm) = self.fetching.at_work() {
            dcm.on_first_touch(page, tier, machine);
        }
    }

    fn on_release(&mut self, pages: Range<PageIndex>, machine: &mut dyn TieredMachine) {
        for page in pages.clone() {
            self.past[page as usize] = Past::default();
            if let Some(forecast) = &mut self.forecast {
                forecast.forget(page);
            }
        }
        if let Some(dcm) = self.fetching.at_work() {
            dcm.on_release(pages, machine);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if let Some(dcm) = self.fetching.at_work() {
            dcm.on_fault(fault, machine);
        }
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        if let Some(mut forecast) = self.forecast.take() {
            self.tick(machine, &mut forecast);
            self.forecast = Some(forecast);
        }
        machine.set_timer(timer, self.period_ns);
    }

    fn on_counters(&mut self, window: CounterWindow, machine: &mut dyn TieredMachine) {
        let accesses = window.local_accesses + window.far_accesses;
        let time_ns = machine.now_ns().saturating_sub(self.counted_to_ns);
        self.counted_to_ns = machine.now_ns();
        let progress = Progress { accesses, core_ns: time_ns * u64::from(machine.cores()) };
        self.progress.add(progress);
        self.window.local_accesses += window.local_accesses;
        self.window.far_accesses += window.far_accesses;
        let may_ask =
            self.config.fetches_pages && machine.counts_each_access() && !self.exchanging.is_asking();
        if self.fetching.note_window(progress, may_ask) {
            self.change_sides(machine);
        }
    }
}

#[cfg(test)]
mod tests;
