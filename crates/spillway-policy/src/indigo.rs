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
//! - trained, if its burst duration and its rate exceed thresholds that an agent gives for the context (5.2,
//!   5.3): a [`Model`], from the file that the setting `model` names. It is asked once it has observed some
//!   marking intervals, and anew where the local limit has become another one; until then, and in a context
//!   unlike all that it was trained on, the untrained rule decides, and [`Policy::remark`] says so;
//! - no promotion below LOW_WATERMARK, demotion by LRU below HIGH_WATERMARK, 10 MB above (5.4).
//!
//! Delta1 and delta2 were found by Bayesian search, as the paper's were (`docs/lab/agent.md`). The untrained
//! threshold, which the paper found by trying (5.1), was tried here too, by run time over the paper's
//! applications: a page size within 50 marking intervals, since Equation 1 counts what is saved until a page
//! is swapped again, and pages stay for tens of intervals (`docs/research/figures.md`). Where 10 MB come to
//! less, the slack is a few pages, at most 2% of local memory: cores promote at the same time, however small
//! memory is. access_d is a moving average over the rates of demoted pages, as they were at their demotion:
//! stale, as the paper says (5.1).

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::indigo_context::{Advice, Advisor, Deltas, Glance, Observation, Thresholds};
use crate::indigo_model::{Card, Model};
use crate::indigo_telemetry::{Closeness, TICK_NS, Telemetry, rate_of, tick};
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
    /// Fixed thresholds of burst duration and access rate.
    Thresholds,
}

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The rule that decides on a promotion where no agent does.
    pub rule: Rule,
    /// The file of a trained agent, [`SHIPPED`] for the one that this program brings along, empty for none.
    pub model: String,
    /// Time between two rounds of marking.
    pub marking_period_us: u64,
    /// Less than this lies between two successive rates of one burst (delta1). A model brings its own.
    pub closeness_hz: f64,
    /// Most time between two marks of one burst (delta2). A model brings its own.
    pub adjacent_us: u64,
    /// Pages' worth of traffic that a promotion must save within a marking interval: 1 over the intervals
    /// that it stays.
    pub benefit_pages: f64,
    /// Marks in a row at which a promotion must pay by the network's rule. Of many pages that are accessed
    /// seldom some are accessed soon after a mark by chance, but seldom soon after several.
    pub marks_in_a_row: u8,
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
            model: String::new(),
            marking_period_us: 1_000_000,
            closeness_hz: 190.0,
            adjacent_us: 2_400_000,
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

/// The setting `model` of the agent that this program brings along.
pub const SHIPPED: &str = "shipped";

/// Least slack, in pages, however little the slack in bytes comes to: what a few cores promote at the same
/// time.
const FEW_PAGES: u32 = 4;
/// Most of local memory that this least slack may be (TPP's headroom).
const MOST_SHARE_OF_FEW: f64 = 0.02;

/// The greatest rate that can be measured.
const MOST_RATE_HZ: f64 = 1e9 / TICK_NS as f64;

const MARK: u32 = 0;
const DEMOTE: u32 = 1;

/// What is known of each page, and of those that were demoted.
pub struct Indigo {
    config: Config,
    closeness: Closeness,
    telemetry: Telemetry,
    lists: TwoList,
    agent: Option<Agent>,
    /// What a page must reach; none where the network's rule decides.
    thresholds: Option<Thresholds>,
    /// Moving average of the rates of demoted pages.
    demoted_hz: f64,
    demoting: bool,
}

/// A trained agent, what it is told, and what it said.
struct Agent {
    advisor: Box<dyn Advisor>,
    observation: Observation,
    advice: Option<Advice>,
}

impl Registered for Indigo {
    type Config = Config;

    fn try_build(config: Config, seed: u64, knowledge: &Knowledge) -> Result<Self, String> {
        let model = match config.model.as_str() {
            "" => return Ok(Self::build(config, seed, knowledge)),
            SHIPPED => Model::shipped(),
            path => Model::read(Path::new(path)),
        };
        let model = model.map_err(|error| {
            let name = &config.model;
            format!(
                "model '{name}' {error}; make one with 'spillway lab train', or set 'model' to '{SHIPPED}'"
            )
        })?;
        Ok(Self::with_model(config, model))
    }

    /// Without an agent, whatever the setting `model` says.
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        let (rate_hz, adjacent_us) = (config.closeness_hz, config.adjacent_us as f64);
        Self {
            closeness: Closeness { rate_hz, ticks: ticks_of(adjacent_us) },
            telemetry: Telemetry::new(0, 0, false),
            lists: TwoList::new(0, config.inactive_share),
            agent: None,
            thresholds: fixed_thresholds(&config),
            demoted_hz: 0.0,
            demoting: false,
            config,
        }
    }
}

/// The thresholds that the settings name, where they decide.
fn fixed_thresholds(config: &Config) -> Option<Thresholds> {
    let Config { burst_threshold_us, rate_threshold_hz, .. } = *config;
    let thresholds = Thresholds { burst_ns: burst_threshold_us * 1000, rate_hz: rate_threshold_hz };
    (config.rule == Rule::Thresholds).then_some(thresholds)
}

fn ticks_of(us: f64) -> u32 {
    (us * 1e3 / TICK_NS as f64) as u32
}

impl Indigo {
    /// INDIGO with an agent that is asked after so many marking intervals, and which clusters by these
    /// deltas.
    #[must_use]
    pub fn advised(
        config: Config,
        deltas: Deltas,
        observed_intervals: u32,
        advisor: Box<dyn Advisor>,
    ) -> Self {
        let interval_us = config.marking_period_us.max(1) as f64;
        let rate_hz = deltas.closeness_per_interval * 1e6 / interval_us;
        let closeness = Closeness { rate_hz, ticks: ticks_of(deltas.adjacent_intervals * interval_us) };
        let agent = Agent { advisor, observation: Observation::over(observed_intervals), advice: None };
        Self { closeness, agent: Some(agent), ..Self::build(config, 0, &Knowledge::default()) }
    }

    /// INDIGO with a trained agent, which clusters as in its training.
    #[must_use]
    pub fn with_model(config: Config, model: Model) -> Self {
        let Card { deltas, observed_intervals, .. } = *model.card();
        Self::advised(config, deltas, observed_intervals, Box::new(model))
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
        self.telemetry.note_rate(page, rate_hz, self.closeness);
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
        if let Some(thresholds) = self.thresholds {
            return self.telemetry.burst_ns(page) >= thresholds.burst_ns && rate_hz >= thresholds.rate_hz;
        }
        let link = machine.link();
        let interval_s = self.config.marking_period_us as f64 / 1e6;
        let saved = (rate_hz - self.demoted_hz) * interval_s;
        let transfer_bytes = saved * link.available_bytes_per_s * link.delta_latency_ns / 1e9;
        let page_bytes = (machine.page_bytes() * u64::from(machine.span(page))) as f64;
        let pays = transfer_bytes > self.config.benefit_pages * page_bytes;
        self.telemetry.note_paid(page, pays) >= self.config.marks_in_a_row.max(1)
    }

    /// Marks every page that is not marked already.
    fn mark_all(&mut self, machine: &mut dyn TieredMachine) {
        let tick = tick(machine.now_ns());
        let mut marks = Vec::new();
        let mut page = machine.next_unmarked(0);
        while page < machine.page_count() {
            if machine.tier_of(page).is_some() && !machine.is_marked(page) {
                self.telemetry.note_mark(page, tick, self.closeness);
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

    /// Lets the agent see how things stand, and does what it says.
    fn observe(&mut self, machine: &dyn TieredMachine) {
        let Some(agent) = &mut self.agent else { return };
        let bytes = |pages: u32| u64::from(pages) * machine.page_bytes();
        let used = |tier| bytes(machine.capacity_pages(tier).saturating_sub(machine.free_pages(tier)));
        let link = machine.link();
        let context = agent.observation.see(Glance {
            now_ns: machine.now_ns(),
            local_limit_bytes: bytes(machine.capacity_pages(Tier::Local)),
            local_bytes: used(Tier::Local),
            far_bytes: used(Tier::Far),
            traffic_bytes: link.traffic_bytes,
            available_bytes_per_s: link.available_bytes_per_s,
        });
        if let Some(context) = context {
            agent.advice = Some(agent.advisor.advise(&context));
        } else if !agent.observation.is_over() {
            agent.advice = None;
        }
        self.thresholds = match agent.advice {
            Some(Advice::Thresholds(action)) => Some(action.thresholds(self.config.marking_period_us)),
            _ => fixed_thresholds(&self.config),
        };
    }
}

impl Policy for Indigo {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let interval_ns = self.config.marking_period_us * 1000;
        self.telemetry = Telemetry::new(machine.page_count(), interval_ns, self.config.marks_in_a_row > 1);
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

    fn remark(&self) -> Option<String> {
        let agent = self.agent.as_ref()?;
        Some(match (agent.advice, self.thresholds) {
            (Some(Advice::Unknown { distance }), _) => {
                format!("untrained rule: unlike all that was trained on ({distance:.2} off)")
            }
            (Some(_), Some(Thresholds { rate_hz, .. })) if rate_hz > MOST_RATE_HZ => {
                "agent: no promotion pays here".to_owned()
            }
            (Some(_), Some(Thresholds { burst_ns, rate_hz })) => {
                let burst_ms = burst_ns as f64 / 1e6;
                format!("agent: bursts of {burst_ms:.2} ms, {rate_hz:.0} accesses/s and more")
            }
            _ => "untrained rule, while the agent observes".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
