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
//! - Scans take no more than a share of the time, some times that for a while after a change; while nothing
//!   is worth a move they come less and less often, until the share of local accesses changes.
//!
//! Settings are few; they were tuned on the training set of `spillway lab judge` and then left alone
//! (`docs/lab/spillway-policy.md`).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Scan, Tier, TieredMachine};
use crate::policy::{CounterWindow, Policy};
use crate::spillway_forecast::Forecast;

/// What a run may set.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Least time between two scans.
    pub period_us: u64,
    /// Most time between two scans.
    pub longest_period_us: u64,
    /// Most that scans take of the time.
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
        }
    }
}

const TICK: u32 = 0;

/// What a new measurement counts for in an average.
const NEW_WEIGHT: f64 = 0.3;
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
/// Uses that are taken to have come as foretold, so that a few exchanges prove nothing.
const BELIEVED_USES: f64 = 4.0;
/// What is left after an interval of what earlier exchanges proved.
const PROOF_KEPT: f64 = 0.9;
/// Differences are believed no less and no more than this.
const TRUST: Range<f64> = 0.1..1.0;

/// A moving average that begins with its first value.
#[derive(Clone, Copy, Debug, Default)]
struct Average(Option<f64>);

impl Average {
    fn note(&mut self, value: f64) {
        let before = self.0.unwrap_or(value);
        self.0 = Some(before + NEW_WEIGHT * (value - before));
    }
}

/// When a page came and went.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    /// The interval in which it left last, counted from 1; 0 for never.
    left_in: u32,
    /// How often it came back soon.
    returns: u8,
}

/// What exchanges were foretold to bring by the next scan, and what they brought, in pages found used.
#[derive(Clone, Copy, Debug, Default)]
struct Proof {
    foretold: f64,
    found: f64,
}

/// A page, and the chance that the next scan finds it used, by its base pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Foretold {
    uses: f64,
    page: PageIndex,
}

/// What pages of both tiers are worth at present, the most first among the far, the least among the local.
struct Worth {
    far: Vec<Foretold>,
    local: Vec<Foretold>,
    /// The first of `local` that has not been sent away.
    next: usize,
    /// What a use is worth until the difference is over, in nanoseconds.
    use_ns: f64,
}

impl Worth {
    /// The next local pages that make up `pages` together with `free` frames; fewer where there are no more.
    fn victims(&self, free: u32, pages: u32, machine: &dyn TieredMachine) -> &[Foretold] {
        let mut found = free;
        let rest = &self.local[self.next..];
        let enough = rest.iter().take_while(|one| {
            let lacks = found < pages;
            found += machine.span(one.page);
            lacks
        });
        &rest[..enough.count()]
    }
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
    accesses_of_use: Average,
    far_is_longer_ns: Average,
    in_ns: Average,
    out_ns: Average,
    /// The exchanges since the last scan, and what those before proved.
    promoted: Vec<Foretold>,
    demoted: Vec<Foretold>,
    proof: Proof,
    /// Scans since the program has changed.
    scans_since_change: u32,
}

impl Registered for Spillway {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
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
            accesses_of_use: Average::default(),
            far_is_longer_ns: Average::default(),
            in_ns: Average::default(),
            out_ns: Average::default(),
            promoted: Vec::new(),
            demoted: Vec::new(),
            proof: Proof::default(),
            scans_since_change: 0,
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
        }
    }

    /// Holds what exchanges were foretold to bring against what they brought.
    fn note_exchanged(&mut self) {
        let foretold = |pages: &[Foretold]| pages.iter().map(|one| one.uses).sum::<f64>();
        let found =
            |pages: &[Foretold]| pages.iter().filter(|one| self.used[one.page as usize]).count() as f64;
        let [more, less] = [&self.promoted, &self.demoted];
        let (new_foretold, new_found) = (foretold(more) - foretold(less), found(more) - found(less));
        self.proof.foretold = self.proof.foretold * PROOF_KEPT + new_foretold;
        self.proof.found = self.proof.found * PROOF_KEPT + new_found;
        self.promoted.clear();
        self.demoted.clear();
    }

    /// How much of a difference that is foretold is believed.
    fn trust(&self) -> f64 {
        let Proof { foretold, found } = self.proof;
        ((found + BELIEVED_USES) / (foretold.max(0.0) + BELIEVED_USES)).clamp(TRUST.start, TRUST.end)
    }

    /// What a use costs of a page that lies far, beyond what it would cost there where it is local: of the
    /// accesses that make it up the first is waited for, the others partly.
    fn use_ns(&self) -> f64 {
        let followers = (self.accesses_of_use.0.unwrap_or(1.0) - 1.0).max(0.0);
        self.far_is_longer_ns.0.unwrap_or(0.0) * (1.0 + followers * self.config.follower_share)
    }

    /// What one of these moves takes of the program's cores, in nanoseconds.
    fn cost_ns(&self, measured: Average, machine: &dyn TieredMachine) -> f64 {
        let own_ns = measured.0.filter(|ns| *ns > 0.0).unwrap_or(self.config.move_ns);
        own_ns * machine.background_share() + f64::from(machine.cores()) * self.config.interrupt_ns
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
        let saved_ns = (one.uses * span - lost) * self.trust() * worth;
        let out_ns = out.iter().map(spans).sum::<f64>() * self.cost_ns(self.out_ns, machine);
        saved_ns / ((span * self.cost_ns(self.in_ns, machine) + out_ns) * self.config.margin)
    }

    /// Exchanges pages as long as it pays. How many came.
    fn exchange(&mut self, machine: &mut dyn TieredMachine, mut worth: Worth) -> u32 {
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
        let cost_ns = scan_ns as f64 * machine.background_share();
        let times = if self.scans_since_change <= URGENT_SCANS { URGENT_TIMES } else { 1.0 };
        let affordable_ns = (cost_ns / (self.config.scan_share * times).max(1e-6)) as u64;
        let wanted_ns = if idle { self.period_ns * 2 } else { least_ns };
        self.period_ns = wanted_ns.max(affordable_ns).clamp(least_ns, most_ns.max(least_ns));
    }

    fn tick(&mut self, machine: &mut dyn TieredMachine, forecast: &mut Forecast) {
        self.interval += 1;
        let scan_ns = self.scan(machine);
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
        let worth = self.worth(machine, forecast);
        let came = self.exchange(machine, worth);
        self.choose_period(machine, scan_ns, steady && came == 0);
    }
}

impl Policy for Spillway {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let pages = machine.page_count();
        self.used = vec![false; pages as usize];
        self.past = vec![Past::default(); pages as usize];
        let first_guess_ns = FIRST_GUESS_INTERVALS * self.period_ns;
        self.forecast = Some(Forecast::new(pages, first_guess_ns as f64));
        machine.count_accesses(self.config.period_us * 1000);
        machine.set_timer(TICK, self.period_ns);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        for page in pages {
            self.past[page as usize] = Past::default();
            if let Some(forecast) = &mut self.forecast {
                forecast.forget(page);
            }
        }
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        if let Some(mut forecast) = self.forecast.take() {
            self.tick(machine, &mut forecast);
            self.forecast = Some(forecast);
        }
        machine.set_timer(timer, self.period_ns);
    }

    fn on_counters(&mut self, window: CounterWindow, _machine: &mut dyn TieredMachine) {
        self.window.local_accesses += window.local_accesses;
        self.window.far_accesses += window.far_accesses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use proptest::prelude::*;

    const PERIOD_NS: u64 = 1_000_000;
    const PAGES: u32 = 64;

    fn spillway(local: u32) -> (Spillway, TestMachine) {
        let config = Config { period_us: PERIOD_NS / 1000, ..Config::default() };
        let mut policy = Spillway::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(PAGES, local);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..PAGES);
        (policy, machine)
    }

    /// Intervals in each of which these pages are used, so many accesses of each counted.
    fn use_pages(
        policy: &mut Spillway,
        machine: &mut TestMachine,
        pages: std::ops::Range<u32>,
        accesses: u64,
        intervals: u32,
    ) {
        for _ in 0..intervals {
            let mut window = CounterWindow::default();
            for page in pages.clone() {
                machine.run(policy, page);
                match machine.tier_of(page) {
                    Some(Tier::Local) => window.local_accesses += accesses,
                    _ => window.far_accesses += accesses,
                }
            }
            policy.on_counters(window, machine);
            machine.pass_ns(policy, PERIOD_NS);
        }
    }

    fn local_of(machine: &TestMachine, pages: std::ops::Range<u32>) -> usize {
        pages.filter(|&page| machine.tier_of(page) == Some(Tier::Local)).count()
    }

    #[test]
    fn pages_come_that_save_more_than_they_cost() {
        let (mut policy, mut machine) = spillway(16);
        use_pages(&mut policy, &mut machine, 40..52, 100, 20);
        assert_eq!(local_of(&machine, 40..52), 12);
        assert_eq!(machine.pages_in(Tier::Local).len(), 16);
    }

    #[test]
    fn nothing_moves_that_saves_less_than_it_costs() {
        let (mut policy, mut machine) = spillway(16);
        policy.config.move_ns = 1e9;
        use_pages(&mut policy, &mut machine, 40..52, 100, 20);
        assert!(machine.moves.is_empty());
    }

    #[test]
    fn while_far_memory_takes_no_longer_nothing_moves() {
        let (mut policy, mut machine) = spillway(16);
        machine.link.delta_latency_ns = 0.0;
        use_pages(&mut policy, &mut machine, 40..52, 100, 20);
        assert!(machine.moves.is_empty());
    }

    #[test]
    fn where_all_pages_are_used_alike_none_moves() {
        let (mut policy, mut machine) = spillway(16);
        use_pages(&mut policy, &mut machine, 0..PAGES, 100, 20);
        assert!(machine.moves.is_empty(), "{:?}", machine.moves);
    }

    #[test]
    fn another_hot_set_takes_the_place_of_the_one_before() {
        let (mut policy, mut machine) = spillway(16);
        use_pages(&mut policy, &mut machine, 40..52, 100, 20);
        use_pages(&mut policy, &mut machine, 20..32, 100, 20);
        assert_eq!(local_of(&machine, 20..32), 12);
    }

    #[test]
    fn a_page_that_comes_back_soon_again_and_again_is_left_alone() {
        let (mut policy, mut machine) = spillway(16);
        use_pages(&mut policy, &mut machine, 40..52, 100, 20);
        let page = 40;
        for _ in 0..3 {
            policy.interval += 1;
            policy.move_page(&mut machine, page, Tier::Far);
            policy.move_page(&mut machine, page, Tier::Local);
        }
        assert_eq!(policy.past[page as usize].returns, 3);
        policy.move_page(&mut machine, page, Tier::Far);
        policy.interval += PING_PONG_INTERVALS + 1;
        policy.move_page(&mut machine, page, Tier::Local);
        assert_eq!(policy.past[page as usize].returns, 1, "after a while it is believed again");
    }

    #[test]
    fn where_nothing_is_worth_a_move_scans_come_less_often_until_the_program_changes() {
        let (mut policy, mut machine) = spillway(16);
        use_pages(&mut policy, &mut machine, 0..12, 100, 20);
        assert!(policy.period_ns >= 4 * PERIOD_NS, "{}", policy.period_ns);
        let comes_often_again = (0..20).any(|_| {
            use_pages(&mut policy, &mut machine, 30..60, 100, 1);
            policy.period_ns == PERIOD_NS
        });
        assert!(comes_often_again);
    }

    #[test]
    fn forecasts_that_do_not_come_true_are_believed_the_less() {
        let (mut policy, _) = spillway(16);
        let pages = |pages: std::ops::Range<u32>, uses| pages.map(|page| Foretold { uses, page }).collect();
        (policy.promoted, policy.demoted) = (pages(0..8, 1.0), Vec::new());
        policy.used[..8].fill(true);
        policy.note_exchanged();
        assert!(policy.trust() > 0.99, "all came true: {}", policy.trust());
        (policy.promoted, policy.demoted) = (pages(0..8, 1.0), pages(8..16, 0.1));
        policy.used[..16].fill(true);
        policy.note_exchanged();
        assert!(policy.trust() < 0.8, "what left is used as well: {}", policy.trust());
    }

    proptest! {
        /// Local memory is never overdrawn, and each page lies in one tier.
        #[test]
        fn capacity_is_kept_and_no_page_is_lost(
            local in 1_u32..PAGES, runs in proptest::collection::vec((0_u32..PAGES, 1_u32..20), 1..40),
        ) {
            let (mut policy, mut machine) = spillway(local);
            for (first, pages) in runs {
                use_pages(&mut policy, &mut machine, first..(first + pages).min(PAGES), 50, 1);
                let (near, far) = (machine.pages_in(Tier::Local), machine.pages_in(Tier::Far));
                prop_assert!(near.len() as u32 <= local);
                prop_assert_eq!(near.len() + far.len(), PAGES as usize);
            }
        }
    }
}
