//! Figures of INDIGO. What needs the trained agent (Fig. 13, 14) is left to where it is trained; wherever the
//! paper runs it, these run the untrained policy, and say so. Fig. 12 is about nothing that the untrained
//! policy aims at: it runs the thresholds that an agent comes to which has tried all of them.

use std::sync::{Arc, Mutex};

use spillway_policy::indigo;
use spillway_policy::machine::{PageIndex, Tier, TieredMachine};
use spillway_policy::policy::{Fault, Policy};

use super::figure::Figure;
use super::lab::{Change, Lab};
use super::nimble;
use super::statistics::{geometric_mean, least, most};
use crate::run::{NO_PROGRAM, Report, RunError, RunSpec, execute_together, execute_with};

/// The mechanisms of Fig. 3 and 4.
const MECHANISMS: [&str; 8] = [
    "indigo",
    "autonuma",
    "autotiering",
    "tpp",
    "multi-clock",
    "memtis",
    nimble::BASE[0],
    nimble::BASE[1],
];

/// The rivals of Fig. 8 to 12.
const RIVALS: [&str; 4] = ["memtis", "tpp", nimble::BASE[0], nimble::BASE[1]];

/// Those with the better Nimble only, of reports in the order of `MECHANISMS` or `RIVALS`.
fn with_better_nimble(reports: &[Report]) -> Vec<&Report> {
    let [others @ .., larger, smaller] = reports else { return reports.iter().collect() };
    others.iter().chain([nimble::better(larger, smaller)]).collect()
}

/// INDIGO's applications (Table 3).
const APPLICATIONS: [&str; 7] =
    ["redis", "graph500-bfs", "graph500-sssp", "tpcc", "hash-join", "transformer", "amg"];

/// What an application takes on the real platform (Table 3): by what a run of it is scaled.
fn memory_usage_bytes(workload: &str) -> u64 {
    let gib = match workload {
        "redis" => 16,
        "tpcc" => 12,
        "hash-join" => 36,
        "transformer" => 100,
        "amg" => 40,
        _ => 48, // Graph500
    };
    gib << 30
}

/// Physical cores of a node (6.1). Marking has a period in seconds: how far a program gets in one hangs on
/// its cores.
const CORES: u64 = 32;

fn spec(lab: &Lab, workload: &str, policy: &str, share: f64) -> RunSpec {
    on_cores(lab, workload, policy, share, CORES).at("working_set_bytes", memory_usage_bytes(workload))
}

/// One of so many programs on a machine, which has one scale; their threads do not oversubscribe its cores
/// (6.3).
fn tenant(lab: &Lab, workload: &str, policy: &str, share: f64, tenants: usize) -> RunSpec {
    on_cores(lab, workload, policy, share, CORES / tenants as u64)
}

fn on_cores(lab: &Lab, workload: &str, policy: &str, share: f64, cores: u64) -> RunSpec {
    // Redis serves with one thread.
    let tasks = if workload == "redis" { 1 } else { cores };
    let mut spec = lab.spec(workload, policy).on("indigo").local(share).with("tasks", tasks);
    if policy == "memtis" {
        // A huge page is up to an eighth of these working sets, where it was 1/24,000 of the paper's.
        spec.policy_settings.insert("mapping".into(), "base".into());
    }
    spec
}

/// Exponentially weighted moving averages of each page's access rate, and how far the next measurement is
/// from them. A rate is measured as INDIGO measures it: one by the time from marking a page to its next
/// access (Equation 2).
struct Estimator {
    marking_period_ns: u64,
    marked_at_ns: Vec<u64>,
    averages: [Vec<f64>; 2],
    errors: Errors,
}

/// The errors, for each weight.
type Errors = Arc<Mutex<[Vec<f32>; 2]>>;

/// Weights of what went before: HeMem's and MEMTIS's (INDIGO 2.6).
const WEIGHTS: [f64; 2] = [0.5, 0.9];
const MARK: u32 = 0;

impl Policy for Estimator {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let pages = machine.page_count() as usize;
        self.marked_at_ns = vec![0; pages];
        self.averages = [vec![0.0; pages], vec![0.0; pages]];
        machine.set_timer(MARK, self.marking_period_ns);
    }

    fn place(&mut self, _page: PageIndex, _machine: &mut dyn TieredMachine) -> Tier {
        Tier::Far
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        machine.set_timer(timer, self.marking_period_ns);
        let unmarked = |&page: &PageIndex| machine.tier_of(page).is_some() && !machine.is_marked(page);
        let pages: Vec<_> = (0..machine.page_count()).filter(unmarked).collect();
        machine.mark(&pages);
        for page in pages {
            self.marked_at_ns[page as usize] = machine.now_ns();
        }
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        let page = fault.page as usize;
        let Ok(mut errors) = self.errors.lock() else { return };
        let rate_hz = 1e9 / machine.now_ns().saturating_sub(self.marked_at_ns[page]).max(1) as f64;
        for (at, weight) in WEIGHTS.iter().enumerate() {
            let average_hz = &mut self.averages[at][page];
            if *average_hz > 0.0 {
                errors[at].push(((*average_hz - rate_hz).abs() / rate_hz) as f32);
                *average_hz = *average_hz * weight + rate_hz * (1.0 - weight);
            } else {
                *average_hz = rate_hz;
            }
        }
    }
}

pub(super) fn i26(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I26",
        "Error of moving averages in the next measurement of the access rate, BFS",
        "INDIGO, 2.6, Insight 2",
        "relative error",
    );
    let run = spec(lab, "graph500-bfs", "all-remote", 0.0);
    let errors = Errors::default();
    execute_with(&run, |factor| {
        let marking_period_us = indigo::Config::default().marking_period_us;
        Box::new(Estimator {
            marking_period_ns: (marking_period_us as f64 * 1e3 * factor) as u64,
            marked_at_ns: Vec::new(),
            averages: [Vec::new(), Vec::new()],
            errors: errors.clone(),
        })
    })?;
    let mut errors = errors.lock().map(|errors| errors.clone()).unwrap_or_default();
    let mut p75 = Vec::new();
    let mut p99 = Vec::new();
    for (at, weight) in WEIGHTS.iter().enumerate() {
        errors[at].sort_unstable_by(f32::total_cmp);
        let quantile = |share: f64| -> f64 {
            let last = errors[at].len().saturating_sub(1);
            errors[at].get((last as f64 * share) as usize).copied().map_or(0.0, f64::from)
        };
        figure.value(format!("weight {weight}"), "p75", quantile(0.75));
        figure.value(format!("weight {weight}"), "p99", quantile(0.99));
        p75.push(quantile(0.75));
        p99.push(quantile(0.99));
    }
    figure.at_least("75th percentile of the error, worse of both", "1.7", most(p75.clone()), 0.5);
    figure.at_least("99th percentile over 75th", "600 over 1.7", most(p99) / most(p75).max(1e-9), 3.0);
    Ok(figure)
}

/// Run times on NUMA, remote, and remote with a neighbour, of every mechanism.
fn scenarios(lab: &mut Lab) -> Result<Vec<Vec<Report>>, RunError> {
    let mut all = Vec::new();
    // The neighbour of Fig. 3 leaves 8 GB/s of the link's 12.5 (footnote 3).
    for (platform, contention) in [("numa", 0.0), ("indigo", 0.0), ("indigo", 0.36)] {
        let specs: Vec<RunSpec> = MECHANISMS
            .iter()
            .map(|policy| RunSpec { contention, ..spec(lab, "graph500-bfs", policy, 0.1).on(platform) })
            .collect();
        all.push(lab.all(&specs)?);
    }
    Ok(all)
}

const SCENARIOS: [&str; 3] = ["NUMA", "remote", "remote, contention"];

pub(super) fn i3(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I3",
        "Run time of Graph500 BFS at 10% local by mechanism (INDIGO untrained)",
        "INDIGO, Fig. 3",
        "run time over the best mechanism",
    );
    let mut indigo = Vec::new();
    let mut spread = Vec::new();
    for (scenario, reports) in SCENARIOS.iter().zip(scenarios(lab)?) {
        let best = least(reports.iter().map(|report| report.run_s));
        for (policy, report) in MECHANISMS.iter().zip(&reports) {
            figure.value(*policy, *scenario, report.run_s / best);
        }
        indigo.push(reports[0].run_s / best);
        spread.push(most(with_better_nimble(&reports).iter().map(|report| report.run_s)) / best);
    }
    figure.at_most("INDIGO over the best on the remote pool", "1: it is the best", indigo[1], 1.05);
    figure.at_most("INDIGO over the best under contention", "1: it is the best", indigo[2], 1.05);
    figure.at_least("Worst over best, contention over NUMA", "rivals degrade", spread[2] / spread[0], 1.0);
    Ok(figure)
}

pub(super) fn i4(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I4",
        "Promotion rates of Graph500 BFS at 10% local (INDIGO untrained)",
        "INDIGO, Fig. 4",
        "pages promoted a second",
    );
    let all = scenarios(lab)?;
    for (scenario, reports) in SCENARIOS.iter().zip(&all) {
        for (policy, report) in MECHANISMS.iter().zip(reports) {
            figure.value(*policy, *scenario, report.promotions_per_s);
        }
    }
    let rate = |scenario: usize, policy: &str| {
        let at = MECHANISMS.iter().position(|name| *name == policy).unwrap_or(0);
        all[scenario][at].promotions_per_s
    };
    figure.at_most(
        "INDIGO over TPP under contention",
        "12,000 over 22,000",
        rate(2, "indigo") / rate(2, "tpp").max(1.0),
        0.55,
    );
    figure.at_most(
        "INDIGO under contention over INDIGO without",
        "more selective",
        rate(2, "indigo") / rate(1, "indigo").max(1.0),
        1.0,
    );
    Ok(figure)
}

/// Degradation of every application, and INDIGO's gain over the best rival in each.
fn degradation(
    lab: &mut Lab,
    figure: &mut Figure,
    applications: &[&str],
    share: f64,
    contention: f64,
) -> Result<Vec<(f64, f64)>, RunError> {
    let mut gains = Vec::new();
    for workload in applications {
        let base = lab.times(&[spec(lab, workload, "all-local", 1.0)])?[0];
        let policies = ["indigo", RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3], "all-remote"];
        let specs = policies.map(|policy| RunSpec { contention, ..spec(lab, workload, policy, share) });
        let times = lab.times(&specs)?;
        for (policy, time) in policies.iter().zip(&times) {
            figure.value(*policy, *workload, time / base);
        }
        gains.push((times[0] / base, least(times[1..5].iter().copied()) / times[0]));
    }
    Ok(gains)
}

/// The paper says of the untrained policy, over all applications, that without contention its run time is
/// comparable to that of other mechanisms (6.3).
fn comparable(figure: &mut Figure, gains: &[(f64, f64)]) {
    figure.at_least(
        "Best rival over INDIGO, geometric mean over applications",
        "untrained: comparable to other mechanisms",
        geometric_mean(gains.iter().map(|gain| gain.1)),
        0.9,
    );
}

pub(super) fn i8(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I8",
        "Run time at 10% local (INDIGO untrained)",
        "INDIGO, Fig. 8",
        "run time over all local",
    );
    let gains = degradation(lab, &mut figure, &APPLICATIONS, 0.1, 0.0)?;
    comparable(&mut figure, &gains);
    figure.at_most("Redis over all local", "no significant degradation", gains[0].0, 1.2);
    figure.at_least("SSSP over all local", "the most sensitive: several times", gains[2].0, 1.5);
    Ok(figure)
}

pub(super) fn i9(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I9",
        "Run time at 80% local (INDIGO untrained)",
        "INDIGO, Fig. 9",
        "run time over all local",
    );
    let gains = degradation(lab, &mut figure, &APPLICATIONS, 0.8, 0.0)?;
    let scarce = degradation(lab, &mut Figure::new("", "", "", ""), &APPLICATIONS, 0.1, 0.0)?;
    comparable(&mut figure, &gains);
    let relief = gains.iter().zip(&scarce).map(|(ample, scarce)| scarce.0 / ample.0);
    figure.at_least(
        "Degradation at 10% over that at 80%, least of all",
        "less with more memory",
        least(relief),
        0.99,
    );
    Ok(figure)
}

pub(super) fn i10(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I10",
        "BFS by local memory (INDIGO untrained)",
        "INDIGO, Fig. 10",
        "run time over all local",
    );
    let base = lab.times(&[spec(lab, "graph500-bfs", "all-local", 1.0)])?[0];
    let mut gains = Vec::new();
    let mut promotions = Vec::new();
    for share in [0.1, 0.3, 0.5, 0.8] {
        let policies = ["indigo", RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3]];
        let specs = policies.map(|policy| spec(lab, "graph500-bfs", policy, share));
        let reports = lab.all(&specs)?;
        for (policy, report) in policies.iter().zip(&reports) {
            figure.value(*policy, format!("{:.0}%", share * 100.0), report.run_s / base);
        }
        gains.push(least(reports[1..].iter().map(|report| report.run_s)) / reports[0].run_s);
        promotions.push(reports[0].promotions as f64 / reports[2].promotions.max(1) as f64);
    }
    figure.at_least("Best rival over INDIGO at 10%", "more than 1", gains[0], 1.0);
    figure.at_least(
        "The gain at 10% over that at 80%",
        "more pronounced with less memory",
        gains[0] / gains[3],
        1.0,
    );
    figure.at_most("Promotions, INDIGO over TPP, at 10%", "20 to 40% fewer", promotions[0], 0.8);
    Ok(figure)
}

pub(super) fn i11(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I11",
        "Run time at 10% local with half the link taken (INDIGO untrained)",
        "INDIGO, Fig. 11",
        "run time over all local",
    );
    let gains = degradation(lab, &mut figure, &APPLICATIONS, 0.1, 0.5)?;
    figure.at_least(
        "Best rival over INDIGO, most of all",
        "1.3 to 1.5",
        most(gains.iter().map(|gain| gain.1)),
        1.1,
    );
    figure.at_least(
        "Best rival over INDIGO, least of all",
        "both versions better",
        least(gains.iter().map(|gain| gain.1)),
        0.95,
    );
    Ok(figure)
}

/// Burst durations that an agent may ask for, in marking intervals, and access rates, in accesses an
/// interval.
const BURSTS: [f64; 3] = [0.0, 2.0, 8.0];
const RATES: [f64; 3] = [1.0, 10.0, 100.0];

/// INDIGO under the thresholds of the shortest run: what its agent learns for one context, since the reward
/// is the run time and outcomes are kept for each action (5.3, 6.2).
fn trained(lab: &mut Lab, workload: &str, share: f64) -> Result<Report, RunError> {
    let run = spec(lab, workload, "indigo-thresholds", share);
    let scale = run.bytes as f64 / memory_usage_bytes(workload) as f64;
    let interval_us = indigo::Config::default().marking_period_us as f64 * scale.min(1.0);
    let actions = BURSTS.iter().flat_map(|burst| RATES.map(|rate| (burst * interval_us, rate / interval_us)));
    let specs = actions.map(|(burst_us, rate_per_us)| {
        let mut spec = run.clone();
        spec.policy_settings.insert("burst_threshold_us".into(), (burst_us as u64).into());
        spec.policy_settings.insert("rate_threshold_hz".into(), (rate_per_us * 1e6).into());
        spec
    });
    let runs = lab.all(&specs.collect::<Vec<_>>())?;
    runs.into_iter().min_by(|one, other| one.run_s.total_cmp(&other.run_s)).ok_or(NO_PROGRAM)
}

pub(super) fn i12(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I12",
        "Traffic at 10% local (INDIGO with its best thresholds)",
        "INDIGO, Fig. 12",
        "bytes on the link over all remote",
    );
    let mut reductions = Vec::new();
    let mut against_remote = Vec::new();
    for workload in APPLICATIONS {
        let policies = ["all-remote", "indigo", RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3]];
        let remote_and_rivals = ["all-remote", RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3]];
        let mut reports = lab.all(&remote_and_rivals.map(|policy| spec(lab, workload, policy, 0.1)))?;
        reports.insert(1, trained(lab, workload, 0.1)?);
        let bytes: Vec<f64> = reports.iter().map(|report| report.traffic_bytes().max(1) as f64).collect();
        for (policy, value) in policies.iter().zip(&bytes).skip(1) {
            figure.value(*policy, workload, value / bytes[0]);
        }
        let rivals = with_better_nimble(&reports[2..]);
        reductions.push(most(rivals.iter().map(|report| report.traffic_bytes() as f64)) / bytes[1]);
        against_remote.push(bytes[1] / bytes[0]);
    }
    figure.at_least(
        "Traffic of the worst rival over INDIGO's, most of all",
        "up to 3",
        most(reductions),
        3.0,
    );
    figure.at_most(
        "INDIGO over all remote, most of all",
        "1: remote has the most traffic",
        most(against_remote),
        1.05,
    );
    Ok(figure)
}

pub(super) fn it4(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "IT4",
        "Three tenants at 10% local each (INDIGO untrained)",
        "INDIGO, Table 4",
        "run time over all local and alone",
    );
    const TENANTS: [&str; 3] = ["graph500-sssp", "hash-join", "tpcc"];
    let alone = TENANTS.map(|workload| tenant(lab, workload, "all-local", 1.0, TENANTS.len()));
    let base = lab.times(&alone)?;
    let mut sssp = Vec::new();
    for policy in ["indigo", nimble::BASE[0], nimble::BASE[1], "tpp", "memtis"] {
        let specs = TENANTS.map(|workload| tenant(lab, workload, policy, 0.1, TENANTS.len()));
        let reports = execute_together(&specs)?;
        for (at, workload) in TENANTS.iter().enumerate() {
            figure.value(policy, *workload, reports[at].run_s / base[at]);
        }
        sssp.push(reports[0].run_s / base[0]);
    }
    figure.at_least(
        "SSSP: best rival over INDIGO",
        "7 over 6.2",
        least(sssp[1..].iter().copied()) / sssp[0],
        1.0,
    );
    Ok(figure)
}
