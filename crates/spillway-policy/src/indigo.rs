//! INDIGO: page promotion that weighs what a page wins against what its transfer costs the network.
//!
//! From "INDIGO: Page Migration for Hardware Memory Disaggregation Across a Network":
//! - every second all pages are marked that are not marked already (4.1); the access rate is F = 1/(A - M)
//!   (Equation 2);
//! - Algorithm 1 joins successive rates into a burst while they are close (delta1) and the marks are near
//!   (delta2); the burst duration reaches from its first to its last member; 8 bytes a page (4.3, 5.4);
//! - untrained, a page is promoted if (access_p - access_d) x available bandwidth x delta latency exceeds a
//!   threshold (5.1); here both sides are multiplied by the marking interval, so that the threshold is a
//!   number of page sizes, as in Equation 1;
//! - trained, if its burst duration and its rate exceed thresholds that an [`Advisor`] gives for the context
//!   (5.2, 5.3);
//! - no promotion below LOW_WATERMARK, demotion by LRU below HIGH_WATERMARK, 10 MB above (5.4).
//!
//! Chosen: delta1 (rates within a factor of 2; the paper found its own by search). The untrained threshold,
//! which the paper found by trying (5.1), was tried here too, by run time over the paper's applications: a
//! page size within 50 marking intervals, since Equation 1 counts what is saved until a page is swapped
//! again, and pages stay for tens of intervals (`docs/figures.md`). Where 10 MB come to less, the slack is a
//! few pages, at most 2% of local memory: cores promote at the same time, however small memory is. access_d
//! is a moving average over the rates of demoted pages, as they were at their demotion: stale, as the paper
//! says (5.1).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::indigo_telemetry::{Progress, TICK_NS, Telemetry, burst_ns, rate_of, tick};
use crate::knowledge::Knowledge;
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{Fault, FaultKind, Policy};
use crate::two_list::TwoList;

/// What decides whether a page is promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Equation 1, with what the network's counters say.
    Network,
    /// Thresholds of burst duration and access rate.
    Thresholds,
}

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The rule that decides on a promotion.
    pub rule: Rule,
    /// Time between two rounds of marking.
    pub marking_period_us: u64,
    /// By which factor rates of one burst may differ (delta1).
    pub closeness: f64,
    /// Most time between two marks of one burst (delta2: the marking interval).
    pub adjacent_us: u64,
    /// Pages' worth of traffic that a promotion must save within a marking interval: 1 over the intervals
    /// that it stays.
    pub benefit_pages: f64,
    /// Marks in a row at which a promotion must pay by the network's rule. Of many pages that are accessed
    /// seldom some are accessed soon after a mark by chance, but seldom soon after several.
    pub marks_in_a_row: u16,
    /// Burst duration that a page must reach.
    pub burst_threshold_us: u64,
    /// Access rate that a page must reach.
    pub rate_threshold_hz: f64,
    /// Share of local memory that promotion leaves free.
    pub low_share: f64,
    /// How much more demotion keeps free.
    pub slack_bytes: u64,
    /// Share of the two lists that is kept inactive (Linux for 1 GB: 1/4).
    pub inactive_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rule: Rule::Network,
            marking_period_us: 1_000_000,
            closeness: 2.0,
            adjacent_us: 1_500_000,
            benefit_pages: 0.02,
            marks_in_a_row: 1,
            burst_threshold_us: 1_000_000,
            rate_threshold_hz: 10.0,
            low_share: 0.002,
            slack_bytes: 10 << 20,
            inactive_share: 0.25,
        }
    }
}

/// What an advisor is told (5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Context {
    /// Local memory, in bytes.
    pub local_limit_bytes: u64,
    /// Most local memory used so far, in bytes.
    pub local_peak_bytes: u64,
    /// Most far memory used so far, in bytes.
    pub far_peak_bytes: u64,
    /// Bytes on the network so far.
    pub network_bytes: u64,
}

/// What a page must reach to be promoted (5.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Burst duration, in nanoseconds.
    pub burst_ns: u64,
    /// Access rate, in accesses per second.
    pub rate_hz: f64,
}

/// Chooses thresholds for a context: where a trained agent sits.
pub trait Advisor: Send {
    /// The thresholds for what is known now.
    fn thresholds(&mut self, context: &Context) -> Thresholds;
}

/// The same thresholds for every context.
impl Advisor for Thresholds {
    fn thresholds(&mut self, _context: &Context) -> Thresholds {
        *self
    }
}

/// Least slack, in pages, however little the slack in bytes comes to: what a few cores promote at the same
/// time.
const FEW_PAGES: u32 = 4;
/// Most of local memory that this least slack may be (TPP's headroom).
const MOST_SHARE_OF_FEW: f64 = 0.02;

const MARK: u32 = 0;
const DEMOTE: u32 = 1;

/// What is known of each page, and of those that were demoted.
pub struct Indigo {
    config: Config,
    telemetry: Telemetry,
    lists: TwoList,
    advisor: Box<dyn Advisor>,
    thresholds: Thresholds,
    context: Context,
    /// Moving average of the rates of demoted pages.
    demoted_hz: f64,
    demoting: bool,
}

impl Registered for Indigo {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        let thresholds =
            Thresholds { burst_ns: config.burst_threshold_us * 1000, rate_hz: config.rate_threshold_hz };
        Self {
            config,
            telemetry: Self::telemetry(0, config.rule),
            lists: TwoList::new(0, config.inactive_share),
            advisor: Box::new(thresholds),
            thresholds,
            context: Context::default(),
            demoted_hz: 0.0,
            demoting: false,
        }
    }
}

impl Indigo {
    /// INDIGO with a trained advisor.
    #[must_use]
    pub fn trained(config: Config, advisor: Box<dyn Advisor>) -> Self {
        let untrained = Self::build(Config { rule: Rule::Thresholds, ..config }, 0, &Knowledge::default());
        Self { advisor, ..untrained }
    }

    fn telemetry(pages: u32, rule: Rule) -> Telemetry {
        match rule {
            Rule::Network => Telemetry::with_paid_marks(pages),
            Rule::Thresholds => Telemetry::with_bursts(pages),
        }
    }

    fn low_pages(&self, machine: &dyn TieredMachine) -> u32 {
        (f64::from(machine.capacity_pages(Tier::Local)) * self.config.low_share).ceil() as u32
    }

    fn high_pages(&self, machine: &dyn TieredMachine) -> u32 {
        let local_pages = machine.capacity_pages(Tier::Local);
        let few = FEW_PAGES.min((f64::from(local_pages) * MOST_SHARE_OF_FEW) as u32).max(1);
        let slack =
            u32::try_from(self.config.slack_bytes / machine.page_bytes()).unwrap_or(u32::MAX).max(few);
        // Never more than a quarter: the slack is meant for tens of gigabytes.
        self.low_pages(machine) + slack.min(local_pages.div_ceil(4))
    }

    /// The time since a page's last mark took effect.
    fn waited_ns(&self, machine: &dyn TieredMachine, page: PageIndex) -> u64 {
        let now_ns = machine.now_ns();
        let ticks = tick(now_ns).wrapping_sub(self.telemetry.marked_at[page as usize]);
        let asked_ns = now_ns.saturating_sub(u64::from(ticks) * TICK_NS);
        now_ns.saturating_sub(machine.marked_from_ns(page, asked_ns))
    }

    /// Algorithm 1, one measurement: returns the rate.
    fn measure(&mut self, page: PageIndex, machine: &dyn TieredMachine) -> f64 {
        let rate_hz = rate_of(self.waited_ns(machine, page));
        self.telemetry.note_rate(page, rate_hz, self.config.closeness);
        rate_hz
    }

    /// The last rate of a page, or the most that it can be now where its mark has been waiting for longer
    /// (4.2).
    fn rate_now(&self, machine: &dyn TieredMachine, page: PageIndex) -> f64 {
        let rate_hz = self.telemetry.rate_hz(page);
        if !machine.is_marked(page) {
            return rate_hz;
        }
        rate_hz.min(rate_of(self.waited_ns(machine, page)))
    }

    /// Whether a far page is worth its transfer.
    fn pays(&mut self, machine: &dyn TieredMachine, page: PageIndex, rate_hz: f64) -> bool {
        match &mut self.telemetry.progress {
            Progress::Bursts(bursts) => {
                let burst_ns = burst_ns(bursts[page as usize]);
                burst_ns >= self.thresholds.burst_ns && rate_hz >= self.thresholds.rate_hz
            }
            Progress::PaidMarks(paid) => {
                let link = machine.link();
                let interval_s = self.config.marking_period_us as f64 / 1e6;
                let saved = (rate_hz - self.demoted_hz) * interval_s;
                let transfer_bytes = saved * link.available_bytes_per_s * link.delta_latency_ns / 1e9;
                let page_bytes = (machine.page_bytes() * u64::from(machine.span(page))) as f64;
                let marks = &mut paid[page as usize];
                let pays = transfer_bytes > self.config.benefit_pages * page_bytes;
                *marks = if pays { marks.saturating_add(1) } else { 0 };
                *marks >= self.config.marks_in_a_row.max(1)
            }
        }
    }

    /// Marks every page that is not marked already.
    fn mark_all(&mut self, machine: &mut dyn TieredMachine) {
        let tick = tick(machine.now_ns());
        let adjacent_ticks = (self.config.adjacent_us * 1000 / TICK_NS) as u32;
        let mut marks = Vec::new();
        let mut page = machine.next_unmarked(0);
        while page < machine.page_count() {
            if machine.tier_of(page).is_some() && !machine.is_marked(page) {
                self.telemetry.note_mark(page, tick, adjacent_ticks);
                marks.push(page);
            }
            page = machine.next_unmarked(page + machine.span(page));
        }
        if !marks.is_empty() {
            machine.mark(&marks);
        }
    }

    fn wake_demotion(&mut self, machine: &mut dyn TieredMachine) {
        if !self.demoting && machine.free_pages(Tier::Local) < self.high_pages(machine) {
            self.demoting = true;
            machine.set_timer(DEMOTE, 0);
        }
    }

    fn demote(&mut self, machine: &mut dyn TieredMachine) {
        const WEIGHT: f64 = 1.0 / 64.0;
        let want = self.high_pages(machine).saturating_sub(machine.free_pages(Tier::Local));
        let cold = self.lists.take_cold(machine, want);
        for &page in &cold {
            let rate_hz = self.rate_now(machine, page);
            self.demoted_hz += (rate_hz - self.demoted_hz) * WEIGHT;
        }
        machine.migrate(&cold, Tier::Far, Call::Kernel);
    }

    fn observe(&mut self, machine: &dyn TieredMachine) {
        let used =
            |tier| u64::from(machine.capacity_pages(tier) - machine.free_pages(tier)) * machine.page_bytes();
        self.context = Context {
            local_limit_bytes: u64::from(machine.capacity_pages(Tier::Local)) * machine.page_bytes(),
            local_peak_bytes: self.context.local_peak_bytes.max(used(Tier::Local)),
            far_peak_bytes: self.context.far_peak_bytes.max(used(Tier::Far)),
            network_bytes: machine.link().traffic_bytes,
        };
        self.thresholds = self.advisor.thresholds(&self.context);
    }
}

impl Policy for Indigo {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        self.telemetry = Self::telemetry(machine.page_count(), self.config.rule);
        self.lists = TwoList::new(machine.page_count(), self.config.inactive_share);
        self.observe(machine);
        machine.set_timer(MARK, self.config.marking_period_us * 1000);
    }

    fn on_first_touch(&mut self, page: PageIndex, tier: Tier, machine: &mut dyn TieredMachine) {
        if tier == Tier::Local {
            self.lists.insert(page, false);
            self.wake_demotion(machine);
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        if fault.kind != FaultKind::Hint {
            return;
        }
        let rate_hz = self.measure(fault.page, machine);
        if machine.tier_of(fault.page) != Some(Tier::Far) {
            return;
        }
        let pays = self.pays(machine, fault.page, rate_hz);
        let room = machine.free_pages(Tier::Local) >= self.low_pages(machine) + machine.span(fault.page);
        if pays && room {
            machine.migrate(&[fault.page], Tier::Local, Call::Kernel);
            self.lists.insert(fault.page, true);
        }
        self.wake_demotion(machine);
    }

    fn on_release(&mut self, pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {
        self.lists.remove(pages.start);
        self.telemetry.forget(pages.start);
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        if timer == DEMOTE {
            self.demoting = false;
            return self.demote(machine);
        }
        self.observe(machine);
        self.mark_all(machine);
        machine.set_timer(MARK, self.config.marking_period_us * 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    const PERIOD_NS: u64 = 1_000_000_000;

    fn indigo(config: Config, local: u32) -> (Indigo, TestMachine) {
        let mut policy = Indigo::build(config, 1, &Knowledge::default());
        let mut machine = TestMachine::new(16, 0);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..16);
        machine.local_capacity = local;
        (policy, machine)
    }

    /// How long a page's burst has lasted, in nanoseconds.
    fn burst_of(policy: &Indigo, page: PageIndex) -> u64 {
        let Progress::Bursts(bursts) = &policy.telemetry.progress else { panic!("no rule by bursts") };
        burst_ns(bursts[page as usize])
    }

    #[test]
    fn the_rate_is_one_by_the_time_from_mark_to_access() {
        let (mut policy, mut machine) = indigo(Config::default(), 4);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert!(machine.marked.iter().all(|&marked| marked));
        machine.pass_ns(&mut policy, PERIOD_NS / 4);
        let rate_hz = policy.measure(3, &machine);
        assert!((rate_hz - 4.0).abs() < 0.05, "{rate_hz}");
    }

    /// Where the kernel marks at times of its own, the time to the access begins then.
    #[test]
    fn a_mark_that_took_effect_later_counts_from_then() {
        let (mut policy, mut machine) = indigo(Config::default(), 4);
        machine.pass_ns(&mut policy, PERIOD_NS);
        machine.marked_from_ns = Some(machine.now_ns + PERIOD_NS / 2);
        machine.pass_ns(&mut policy, PERIOD_NS * 3 / 4);
        let rate_hz = policy.measure(3, &machine);
        assert!((rate_hz - 4.0).abs() < 0.05, "{rate_hz}");
    }

    /// The counter of ticks wraps after 73 minutes; rates and bursts go on over it.
    #[test]
    fn hours_of_running_change_no_rate() {
        let wrap_ns = TICK_NS << 32;
        let (mut policy, mut machine) = indigo(Config { rule: Rule::Thresholds, ..Config::default() }, 4);
        machine.now_ns = wrap_ns - 3 * PERIOD_NS / 2;
        for round in 0..4 {
            machine.pass_ns(&mut policy, PERIOD_NS / 2);
            let (rate_hz, burst_ns) = (policy.measure(3, &machine), burst_of(&policy, 3));
            machine.marked[3] = false;
            if round > 0 {
                assert!((rate_hz - 2.0).abs() < 0.05, "{rate_hz} in round {round}");
                assert!(burst_ns + PERIOD_NS / 10 >= (round - 1) * PERIOD_NS, "{burst_ns} in round {round}");
            }
            machine.pass_ns(&mut policy, PERIOD_NS / 2);
        }
        assert!(machine.now_ns > wrap_ns);
    }

    #[test]
    fn a_page_that_was_not_accessed_keeps_its_mark_and_its_time() {
        let (mut policy, mut machine) = indigo(Config::default(), 4);
        machine.pass_ns(&mut policy, 3 * PERIOD_NS + PERIOD_NS / 2);
        let rate_hz = policy.measure(3, &machine);
        assert!((rate_hz - 0.4).abs() < 0.01, "{rate_hz}");
    }

    #[test]
    fn close_rates_at_adjacent_marks_make_a_burst_and_others_end_it() {
        let (mut policy, mut machine) = indigo(Config { rule: Rule::Thresholds, ..Config::default() }, 0);
        let mut bursts = Vec::new();
        machine.pass_ns(&mut policy, PERIOD_NS);
        for wait_ms in [100, 110, 90, 800, 790] {
            machine.pass_ns(&mut policy, wait_ms * 1_000_000);
            machine.run(&mut policy, 3);
            bursts.push(burst_of(&policy, 3));
            machine.pass_ns(&mut policy, PERIOD_NS - wait_ms * 1_000_000);
        }
        let rounds: Vec<_> = bursts.iter().map(|burst| (burst + PERIOD_NS / 2) / PERIOD_NS).collect();
        assert_eq!(rounds, [0, 1, 2, 0, 1]);
        assert_eq!(bursts[0], 0, "one measurement is no burst");
        machine.pass_ns(&mut policy, 3 * PERIOD_NS);
        machine.run(&mut policy, 3);
        machine.pass_ns(&mut policy, PERIOD_NS);
        assert_eq!(burst_of(&policy, 3), 0, "the mark before was too long ago");
    }

    #[test]
    fn fixed_thresholds_ask_for_burst_and_rate() {
        for (burst_threshold_us, rate_threshold_hz, comes) in
            [(1_500_000, 5.0, true), (10_000_000, 5.0, false), (1_500_000, 50.0, false)]
        {
            let config =
                Config { rule: Rule::Thresholds, burst_threshold_us, rate_threshold_hz, ..Config::default() };
            let (mut policy, mut machine) = indigo(config, 8);
            machine.pass_ns(&mut policy, PERIOD_NS);
            for _ in 0..4 {
                machine.pass_ns(&mut policy, PERIOD_NS / 10);
                machine.run(&mut policy, 3);
                machine.pass_ns(&mut policy, PERIOD_NS * 9 / 10);
            }
            assert_eq!(
                machine.tier_of(3) == Some(Tier::Local),
                comes,
                "{burst_threshold_us} {rate_threshold_hz}"
            );
        }
    }

    /// Equation 1: the same page pays on a free network, and does not on a contended one, on a near one, or
    /// where the page that would go is accessed as often.
    #[test]
    fn the_network_rule_weighs_saving_against_transfer() {
        let comes = |bytes_per_s: f64, delta_ns: f64, demoted_hz: f64| {
            let (mut policy, mut machine) = indigo(Config { benefit_pages: 1.0, ..Config::default() }, 8);
            policy.demoted_hz = demoted_hz;
            machine.link.available_bytes_per_s = bytes_per_s;
            machine.link.delta_latency_ns = delta_ns;
            machine.pass_ns(&mut policy, PERIOD_NS);
            machine.pass_ns(&mut policy, PERIOD_NS / 10);
            machine.run(&mut policy, 3);
            machine.tier_of(3) == Some(Tier::Local)
        };
        // 10 accesses a second save 10 us, in which 4 KiB pass at 0.43 GB/s.
        assert!(comes(0.43e9, 1000.0, 0.0));
        assert!(!comes(0.2e9, 1000.0, 0.0));
        assert!(!comes(0.43e9, 100.0, 0.0));
        assert!(!comes(0.43e9, 1000.0, 9.0));
    }

    /// One access soon after a mark may be chance; several in a row seldom are.
    #[test]
    fn a_promotion_must_pay_at_as_many_marks_in_a_row_as_are_asked_for() {
        for (marks_in_a_row, waits_ms, comes) in [
            (1, [900, 900, 10], true),
            (2, [900, 900, 10], false),
            (2, [10, 900, 10], false),
            (2, [900, 10, 10], true),
            (3, [900, 10, 10], false),
            (3, [10, 10, 10], true),
        ] {
            let config = Config { benefit_pages: 1.0, marks_in_a_row, ..Config::default() };
            let (mut policy, mut machine) = indigo(config, 8);
            machine.link.available_bytes_per_s = 0.43e9;
            machine.link.delta_latency_ns = 1000.0;
            machine.pass_ns(&mut policy, PERIOD_NS);
            for wait_ms in waits_ms {
                assert_eq!(machine.tier_of(3), Some(Tier::Far), "{marks_in_a_row} {waits_ms:?}");
                machine.pass_ns(&mut policy, wait_ms * 1_000_000);
                machine.run(&mut policy, 3);
                machine.pass_ns(&mut policy, PERIOD_NS - wait_ms * 1_000_000);
            }
            assert_eq!(machine.tier_of(3) == Some(Tier::Local), comes, "{marks_in_a_row} {waits_ms:?}");
        }
    }

    /// A page that came for its many accesses and gets none any more is no reason to keep others out.
    #[test]
    fn a_page_whose_mark_waits_is_demoted_at_the_rate_that_it_has_now() {
        let (mut policy, mut machine) = indigo(Config { slack_bytes: PAGE_BYTES, ..Config::default() }, 4);
        machine.pass_ns(&mut policy, PERIOD_NS);
        machine.pass_ns(&mut policy, PERIOD_NS / 1000);
        machine.run(&mut policy, 3);
        assert_eq!(machine.tier_of(3), Some(Tier::Local));
        assert!((policy.rate_now(&machine, 3) - 1000.0).abs() < 10.0, "measured, and not marked again");
        machine.pass_ns(&mut policy, 10 * PERIOD_NS);
        let rate_hz = policy.rate_now(&machine, 3);
        assert!((rate_hz - 0.11).abs() < 0.01, "marked again 9 s ago: {rate_hz}");
    }

    #[test]
    fn promotion_stops_at_the_low_watermark_and_demotion_keeps_the_high_one() {
        let config =
            Config { slack_bytes: 2 * PAGE_BYTES, low_share: 0.01, inactive_share: 1.0, ..Config::default() };
        let (mut policy, mut machine) = indigo(config, 8);
        machine.pass_ns(&mut policy, PERIOD_NS);
        for page in 0..8 {
            machine.run(&mut policy, page);
        }
        assert_eq!(machine.free_pages(Tier::Local), 1, "the low watermark");
        machine.always_accessed = true;
        machine.pass_ns(&mut policy, 10);
        assert_eq!(machine.free_pages(Tier::Local), 1, "all are in use");
        machine.always_accessed = false;
        policy.wake_demotion(&mut machine);
        machine.pass_ns(&mut policy, 10);
        assert_eq!(machine.free_pages(Tier::Local), 3);
    }

    #[test]
    fn the_slack_is_a_few_pages_where_its_bytes_are_less_than_one() {
        for (local_pages, slack_bytes, expected) in
            [(8, 1, 1), (100, 1, 2), (1000, 1, 4), (1000, 10 * PAGE_BYTES, 10)]
        {
            let config = Config { slack_bytes, low_share: 0.001, ..Config::default() };
            let (policy, machine) =
                (Indigo::build(config, 1, &Knowledge::default()), TestMachine::new(8, local_pages));
            assert_eq!(
                policy.high_pages(&machine) - policy.low_pages(&machine),
                expected,
                "{local_pages} {slack_bytes}"
            );
        }
    }

    #[test]
    fn an_advisor_is_told_the_context_and_obeyed() {
        struct Strict;
        impl Advisor for Strict {
            fn thresholds(&mut self, context: &Context) -> Thresholds {
                Thresholds { burst_ns: 0, rate_hz: if context.far_peak_bytes > 0 { 1e12 } else { 0.0 } }
            }
        }
        let mut policy = Indigo::trained(Config::default(), Box::new(Strict));
        let mut machine = TestMachine::new(16, 0);
        policy.start(&mut machine);
        assert_eq!(policy.thresholds.rate_hz, 0.0);
        machine.touch(&mut policy, 0..16);
        machine.local_capacity = 8;
        machine.pass_ns(&mut policy, PERIOD_NS);
        machine.run(&mut policy, 3);
        assert!(machine.moves.is_empty());
        assert_eq!(policy.context.far_peak_bytes, 16 * PAGE_BYTES);
    }
}
