//! Figures of INDIGO. Where the paper runs its trained agent these show ours beside the untrained policy: the
//! agent that is shipped, which was trained on other graphs, distributions and seeds than any figure has.
//! What is about the agent alone (Fig. 13, 14) is in `indigo_agent`, several programs at once (Table 4) in
//! `indigo_tenants`. Fig. 12 shows the thresholds as well
//! that an agent comes to which has tried all of them on the very run.

use std::sync::{Arc, Mutex};

use spillway_policy::indigo;
use spillway_policy::machine::{PageIndex, Sample, Tier, TieredMachine};
use spillway_policy::policy::Policy;
use spillway_report::claim::{Asks, Claim};

use super::figure::Figure;
use super::lab::{Change, Lab};
use super::nimble;
use super::statistics::{geometric_mean, least, most};
use crate::run::{NO_PROGRAM, Report, RunError, RunSpec, execute_with};

/// The mechanisms of Fig. 3 and 4.
const MECHANISMS: [&str; 9] = [
    "indigo",
    TRAINED,
    "autonuma",
    "autotiering",
    "tpp",
    "multi-clock",
    "memtis",
    nimble::BASE[0],
    nimble::BASE[1],
];

/// INDIGO with the trained agent.
pub(super) const TRAINED: &str = "indigo-trained";

/// The rivals of Fig. 8 to 12.
pub(super) const RIVALS: [&str; 4] = ["memtis", "tpp", nimble::BASE[0], nimble::BASE[1]];

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
pub(super) const CORES: u64 = 32;

pub(super) fn spec(lab: &Lab, workload: &str, policy: &str, share: f64) -> RunSpec {
    on_cores(lab, workload, policy, share, CORES).at("working_set_bytes", memory_usage_bytes(workload))
}

pub(super) fn on_cores(lab: &Lab, workload: &str, policy: &str, share: f64, cores: u64) -> RunSpec {
    // Redis serves with one thread.
    let tasks = if workload == "redis" { 1 } else { cores };
    let mut spec = lab.spec(workload, policy).on("indigo").local(share).with("tasks", tasks);
    if policy == "memtis" {
        // A huge page is up to an eighth of these working sets, where it was 1/24,000 of the paper's.
        spec.policy_settings.insert("mapping".into(), "base".into());
    }
    spec
}

/// Exponentially weighted moving averages of each page's access rate, and how far the next measurement window
/// is from them. A rate is what the paper's sentence says: accesses in a measurement window, which is a
/// marking interval. Of a window without an access no error can be told, since it is relative.
struct Estimator {
    window_ns: u64,
    averages: [Vec<f64>; 2],
    counts: Vec<u32>,
    samples: Vec<Sample>,
    errors: Errors,
}

/// The errors, for each weight.
type Errors = Arc<Mutex<[Vec<f32>; 2]>>;

/// Weights of what went before: HeMem's and MEMTIS's (INDIGO 2.6).
const WEIGHTS: [f64; 2] = [0.5, 0.9];

impl Policy for Estimator {
    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let pages = machine.page_count() as usize;
        self.averages = [vec![0.0; pages], vec![0.0; pages]];
        self.counts = vec![0; pages];
        machine.sample_accesses(1);
        machine.set_timer(0, self.window_ns);
    }

    fn place(&mut self, _page: PageIndex, _machine: &mut dyn TieredMachine) -> Tier {
        Tier::Far
    }

    fn on_timer(&mut self, timer: u32, machine: &mut dyn TieredMachine) {
        machine.set_timer(timer, self.window_ns);
        machine.take_samples(&mut self.samples);
        for sample in self.samples.drain(..) {
            self.counts[sample.page as usize] += 1;
        }
        let Ok(mut errors) = self.errors.lock() else { return };
        for (page, count) in self.counts.iter_mut().enumerate() {
            let accesses = f64::from(std::mem::take(count));
            for (at, weight) in WEIGHTS.iter().enumerate() {
                let average = &mut self.averages[at][page];
                if *average == 0.0 {
                    *average = accesses;
                    continue;
                }
                if accesses > 0.0 {
                    errors[at].push(((*average - accesses).abs() / accesses) as f32);
                }
                *average = *average * weight + accesses * (1.0 - weight);
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
    // What is counted costs nothing: no policy is judged here.
    let run = spec(lab, "graph500-bfs", "all-remote", 0.0).at("sample_ns", 0.0);
    let errors = Errors::default();
    execute_with(&run, |factor| {
        let marking_period_us = indigo::Config::default().marking_period_us;
        Box::new(Estimator {
            window_ns: ((marking_period_us as f64 * 1e3 * factor) as u64).max(1),
            averages: [Vec::new(), Vec::new()],
            counts: Vec::new(),
            samples: Vec::new(),
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
    figure.claim(Claim::new(
        "75th percentile of the error, worse of both",
        "170%",
        Asks::AtLeast(1.7),
        most(p75.clone()),
    ));
    figure.claim(Claim::new(
        "99th percentile of the error, worse of both",
        "60,000%",
        Asks::AtLeast(600.0),
        most(p99),
    ));
    Ok(figure)
}

/// Run times on NUMA, remote, and remote with a neighbour, of every mechanism.
fn scenarios(lab: &mut Lab) -> Result<Vec<Vec<Report>>, RunError> {
    let mut all = Vec::new();
    for (platform, contention) in SCENARIOS_ON {
        let specs: Vec<RunSpec> = MECHANISMS
            .iter()
            .map(|policy| RunSpec { contention, ..spec(lab, "graph500-bfs", policy, 0.1).on(platform) })
            .collect();
        all.push(lab.all(&specs)?);
    }
    Ok(all)
}

/// The same: a platform, and what a neighbour takes of its link. That of Fig. 3 leaves 8 GB/s of 12.5
/// (footnote 3).
const SCENARIOS_ON: [(&str, f64); 3] = [("numa", 0.0), ("indigo", 0.0), ("indigo", 0.36)];

const SCENARIOS: [&str; 3] = ["NUMA", "remote", "remote, contention"];

pub(super) fn i3(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I3",
        "Run time of Graph500 BFS at 10% local by mechanism (INDIGO untrained and trained)",
        "INDIGO, Fig. 3",
        "run time over the best mechanism",
    );
    let mut over_indigo = Vec::new();
    let mut spread = Vec::new();
    for (at, (scenario, reports)) in SCENARIOS.iter().zip(scenarios(lab)?).enumerate() {
        let best = least(reports.iter().map(|report| report.run_s));
        for (policy, report) in MECHANISMS.iter().zip(&reports) {
            figure.value(*policy, *scenario, report.run_s / best);
        }
        let (platform, contention) = SCENARIOS_ON[at];
        let of = spec(lab, "graph500-bfs", "all-local", 0.1).on(platform);
        figure.value("bound", *scenario, lab.bound(&RunSpec { contention, ..of })?.run_s / best);
        let rival = least(reports[2..].iter().map(|report| report.run_s));
        over_indigo.push([rival / reports[0].run_s, rival / reports[1].run_s]);
        spread.push(most(with_better_nimble(&reports).iter().map(|report| report.run_s)) / best);
    }
    figure.claim(Claim::new(
        "Best rival over INDIGO on the remote pool",
        "it is the best",
        Asks::Larger,
        over_indigo[1][0],
    ));
    figure.claim(Claim::new(
        "Best rival over INDIGO under contention",
        "it is the best",
        Asks::Larger,
        over_indigo[2][0],
    ));
    figure.claim(Claim::new(
        "Best rival over trained INDIGO, less of both",
        "it is the best",
        Asks::Larger,
        over_indigo[1][1].min(over_indigo[2][1]),
    ));
    figure.claim(Claim::new(
        "Worst over best, contention over NUMA",
        "rivals degrade",
        Asks::Larger,
        spread[2] / spread[0],
    ));
    Ok(figure)
}

pub(super) fn i4(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I4",
        "Promotion rates of Graph500 BFS at 10% local (INDIGO untrained and trained)",
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
    for (name, policy) in [("INDIGO", "indigo"), ("Trained INDIGO", TRAINED)] {
        figure.claim(
            Claim::new(
                &format!("{name} over TPP under contention"),
                "12,000 over 22,000 pages a second",
                Asks::Smaller,
                rate(2, policy) / rate(2, "tpp").max(1.0),
            )
            .sized(12.0 / 22.0),
        );
        figure.claim(Claim::new(
            &format!("{name} under contention over {name} without"),
            "more selective",
            Asks::Smaller,
            rate(2, policy) / rate(1, policy).max(1.0),
        ));
    }
    Ok(figure)
}

/// INDIGO's run time in an application, and the best rival's over that of both versions.
struct Gain {
    over_local: f64,
    trained_over_local: f64,
    of_untrained: f64,
    of_trained: f64,
}

/// Degradation of every application, and INDIGO's gain over the best rival in each.
fn degradation(
    lab: &mut Lab,
    figure: &mut Figure,
    applications: &[&str],
    share: f64,
    contention: f64,
) -> Result<Vec<Gain>, RunError> {
    let mut gains = Vec::new();
    for workload in applications {
        let base = lab.times(&[spec(lab, workload, "all-local", 1.0)])?[0];
        let policies = ["indigo", RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3], "all-remote", TRAINED];
        let specs = policies.map(|policy| RunSpec { contention, ..spec(lab, workload, policy, share) });
        let times = lab.times(&specs)?;
        for (policy, time) in policies.iter().zip(&times) {
            figure.value(*policy, *workload, time / base);
        }
        let bounded = RunSpec { contention, ..spec(lab, workload, "all-local", share) };
        figure.value("bound", *workload, lab.bound(&bounded)?.run_s / base);
        let rival = least(times[1..5].iter().copied());
        gains.push(Gain {
            over_local: times[0] / base,
            trained_over_local: times[6] / base,
            of_untrained: rival / times[0],
            of_trained: rival / times[6],
        });
    }
    Ok(gains)
}

/// The paper says of the untrained policy, over all applications, that without contention its run time is
/// comparable to that of other mechanisms (6.3).
fn comparable(figure: &mut Figure, gains: &[Gain]) {
    figure.claim(Claim::new(
        "Best rival over INDIGO, geometric mean over applications",
        "untrained: comparable to other mechanisms",
        Asks::NoLess(1.0),
        geometric_mean(gains.iter().map(|gain| gain.of_untrained)),
    ));
}

/// The paper's main result, of its trained agent (6.3).
fn improvement(figure: &mut Figure, gains: &[Gain]) {
    let over = most(gains.iter().map(|gain| gain.of_trained));
    let claim = Claim::new("Best rival over trained INDIGO, most of all", "up to 50-70%", Asks::Larger, over);
    figure.claim(claim.between(1.5..=1.7));
}

pub(super) fn i8(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I8",
        "Run time at 10% local (INDIGO untrained and trained)",
        "INDIGO, Fig. 8",
        "run time over all local",
    );
    let gains = degradation(lab, &mut figure, &APPLICATIONS, 0.1, 0.0)?;
    comparable(&mut figure, &gains);
    improvement(&mut figure, &gains);
    figure.claim(Claim::new(
        "Redis over all local",
        "no significant degradation",
        Asks::NoMore(1.0),
        gains[0].over_local,
    ));
    figure.claim(Claim::new(
        "SSSP over all local",
        "the most sensitive: several times",
        Asks::MuchLarger,
        gains[2].over_local,
    ));
    Ok(figure)
}

pub(super) fn i9(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I9",
        "Run time at 80% local (INDIGO untrained and trained)",
        "INDIGO, Fig. 9",
        "run time over all local",
    );
    let gains = degradation(lab, &mut figure, &APPLICATIONS, 0.8, 0.0)?;
    let scarce = degradation(lab, &mut Figure::new("", "", "", ""), &APPLICATIONS, 0.1, 0.0)?;
    comparable(&mut figure, &gains);
    // "Given the constraint of limited local memory, INDIGO still outperforms other mechanisms" (6.3).
    let on_graphs = APPLICATIONS.iter().zip(&gains).filter(|(name, _)| name.starts_with("graph500"));
    figure.claim(Claim::new(
        "BFS and SSSP: best rival over trained INDIGO, less of both",
        "still outperforms other mechanisms",
        Asks::Larger,
        least(on_graphs.map(|(_, gain)| gain.of_trained)),
    ));
    type GainOf = fn(&Gain) -> f64;
    let of_each: [(&str, GainOf); 2] =
        [("Degradation", |gain| gain.over_local), ("Trained: degradation", |gain| gain.trained_over_local)];
    for (name, over_local) in of_each {
        let relief = gains.iter().zip(&scarce).map(|(ample, scarce)| over_local(scarce) / over_local(ample));
        figure.claim(Claim::new(
            &format!("{name} at 10% over that at 80%, least of all"),
            "less with more memory",
            Asks::Larger,
            least(relief),
        ));
    }
    Ok(figure)
}

pub(super) fn i10(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I10",
        "BFS by local memory (INDIGO untrained and trained)",
        "INDIGO, Fig. 10",
        "run time over all local",
    );
    let base = lab.times(&[spec(lab, "graph500-bfs", "all-local", 1.0)])?[0];
    let (mut gains, mut trained_gains) = (Vec::new(), Vec::new());
    let mut promotions = Vec::new();
    for share in [0.1, 0.3, 0.5, 0.8] {
        let policies = ["indigo", RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3], TRAINED];
        let specs = policies.map(|policy| spec(lab, "graph500-bfs", policy, share));
        let reports = lab.all(&specs)?;
        for (policy, report) in policies.iter().zip(&reports) {
            figure.value(*policy, format!("{:.0}%", share * 100.0), report.run_s / base);
        }
        let bounded = spec(lab, "graph500-bfs", "all-local", share);
        figure.value("bound", format!("{:.0}%", share * 100.0), lab.bound(&bounded)?.run_s / base);
        let rival = least(reports[1..5].iter().map(|report| report.run_s));
        gains.push(rival / reports[0].run_s);
        trained_gains.push(rival / reports[5].run_s);
        promotions.push(reports[0].promotions as f64 / reports[2].promotions.max(1) as f64);
    }
    figure.claim(Claim::new("Best rival over INDIGO at 10%", "more than 1", Asks::Larger, gains[0]));
    figure.claim(Claim::new(
        "Best rival over trained INDIGO at 10%",
        "more than 1",
        Asks::Larger,
        trained_gains[0],
    ));
    figure.claim(Claim::new(
        "The gain at 10% over that at 80%",
        "more pronounced with less memory",
        Asks::Larger,
        gains[0] / gains[3],
    ));
    figure.claim(
        Claim::new(
            "Promotions that INDIGO saves over TPP, at 10%",
            "20 to 40% fewer",
            Asks::Gain,
            1.0 - promotions[0],
        )
        .between(0.2..=0.4),
    );
    Ok(figure)
}

pub(super) fn i11(lab: &mut Lab) -> Result<Figure, RunError> {
    let mut figure = Figure::new(
        "I11",
        "Run time at 10% local with half the link taken (INDIGO untrained and trained)",
        "INDIGO, Fig. 11",
        "run time over all local",
    );
    let gains = degradation(lab, &mut figure, &APPLICATIONS, 0.1, 0.5)?;
    figure.claim(
        Claim::new(
            "Best rival over INDIGO, most of all",
            "30 to 50% better",
            Asks::Larger,
            most(gains.iter().map(|gain| gain.of_untrained)),
        )
        .between(1.3..=1.5),
    );
    figure.claim(Claim::new(
        "Best rival over INDIGO, least of all",
        "both versions better",
        Asks::Larger,
        least(gains.iter().map(|gain| gain.of_untrained)),
    ));
    figure.claim(Claim::new(
        "Best rival over trained INDIGO, least of all",
        "both versions better",
        Asks::Larger,
        least(gains.iter().map(|gain| gain.of_trained)),
    ));
    Ok(figure)
}

/// Burst durations that an agent may ask for, in marking intervals, and access rates, in accesses an
/// interval.
const BURSTS: [f64; 3] = [0.0, 2.0, 8.0];
const RATES: [f64; 3] = [1.0, 10.0, 100.0];

/// INDIGO under the thresholds of the shortest run: what its agent learns for one context, since the reward
/// is the run time and outcomes are kept for each action (5.3, 6.2).
fn best_of_thresholds(lab: &mut Lab, workload: &str, share: f64) -> Result<Report, RunError> {
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
    const NAMES: [&str; 2] = ["INDIGO", "Trained INDIGO"];
    let (mut reductions, mut against_remote) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for workload in APPLICATIONS {
        let policies = ["all-remote", RIVALS[0], RIVALS[1], RIVALS[2], RIVALS[3], TRAINED];
        let mut reports = lab.all(&policies.map(|policy| spec(lab, workload, policy, 0.1)))?;
        let agent = reports.pop().ok_or(NO_PROGRAM)?;
        let bytes = |report: &Report| report.traffic_bytes().max(1) as f64;
        let remote = bytes(&reports[0]);
        let ours = [best_of_thresholds(lab, workload, 0.1)?, agent];
        figure.value("indigo", workload, bytes(&ours[0]) / remote);
        for (policy, report) in RIVALS.iter().zip(&reports[1..]) {
            figure.value(*policy, workload, bytes(report) / remote);
        }
        figure.value(TRAINED, workload, bytes(&ours[1]) / remote);
        let worst = most(with_better_nimble(&reports[1..]).into_iter().map(bytes));
        for (at, report) in ours.iter().enumerate() {
            reductions[at].push(worst / bytes(report));
            against_remote[at].push(bytes(report) / remote);
        }
    }
    for ((name, reductions), against_remote) in NAMES.into_iter().zip(reductions).zip(against_remote) {
        figure.claim(
            Claim::new(
                &format!("Traffic of the worst rival over {name}'s, most of all"),
                "up to 3",
                Asks::Larger,
                most(reductions),
            )
            .sized(3.0),
        );
        figure.claim(Claim::new(
            &format!("{name} over all remote, most of all"),
            "remote has the most traffic",
            Asks::Smaller,
            most(against_remote),
        ));
    }
    Ok(figure)
}
