//! Runs side by side: which policy wins under which conditions, and how each does along a scale.

use spillway_report::chart::Chart;

use super::table::Run;

/// What a run was made under, but for its policy and its seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The name of the workload.
    pub workload: String,
    /// The name of the platform.
    pub platform: String,
    /// Local memory, as a share of the working set.
    pub local: f64,
    /// Latency of far memory, in nanoseconds; none for the platform's.
    pub far_ns: Option<f64>,
    /// Share of the link that a neighbour takes.
    pub contention: f64,
}

impl Condition {
    fn of(run: &Run) -> Self {
        Self {
            workload: run.workload.clone(),
            platform: run.platform.clone(),
            local: run.number("param_local_share").unwrap_or(0.0),
            far_ns: run.number("param_far_ns"),
            contention: run.number("param_contention").unwrap_or(0.0),
        }
    }

    /// Local memory in words.
    #[must_use]
    pub fn local_text(&self) -> String {
        format!("{}%", rounded(self.local * 100.0))
    }

    /// All but the workload and local memory in words.
    #[must_use]
    pub fn link_text(&self) -> String {
        let mut words = vec![self.platform.clone()];
        words.extend(self.far_ns.map(|ns| format!("{} ns", rounded(ns))));
        if self.contention > 0.0 {
            words.push(format!("{}% of the link taken", rounded(self.contention * 100.0)));
        }
        words.join(", ")
    }

    /// All of it in words.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}, {} local, {}", self.workload, self.local_text(), self.link_text())
    }
}

fn rounded(value: f64) -> String {
    format!("{}", (value * 100.0).round() / 100.0)
}

/// Runs under one condition: a policy each, the mean over its seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The condition that its runs share.
    pub condition: Condition,
    /// The runs of each policy, one a seed; policies in the order of the table.
    pub policies: Vec<(String, Vec<Run>)>,
}

impl Group {
    /// Mean over seeds of a measure, for a policy.
    #[must_use]
    pub fn mean(&self, policy: &str, measure: &str) -> Option<f64> {
        let (_, runs) = self.policies.iter().find(|(name, _)| name == policy)?;
        let found: Vec<f64> = runs.iter().filter_map(|run| run.number(measure)).collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    }

    fn rivals(&self) -> Vec<(&str, f64)> {
        let rivals = self.policies.iter().filter(|(_, runs)| !runs.iter().any(Run::is_bound));
        let mut times: Vec<(&str, f64)> =
            rivals.filter_map(|(policy, _)| Some((policy.as_str(), self.mean(policy, "run_s")?))).collect();
        times.sort_by(|one, other| one.1.total_cmp(&other.1));
        times
    }

    /// The fastest policy that is no bound, and by what factor the next one is slower.
    #[must_use]
    pub fn winner(&self) -> Option<(&str, Option<f64>)> {
        let rivals = self.rivals();
        let &(first, best) = rivals.first()?;
        Some((first, rivals.get(1).map(|(_, next)| next / best)))
    }

    /// Run time over the fastest policy's that is no bound.
    #[must_use]
    pub fn slowdown(&self, policy: &str) -> Option<f64> {
        let best = self.rivals().first()?.1;
        Some(self.mean(policy, "run_s")? / best)
    }
}

/// Runs by condition, in the order of the table.
#[must_use]
pub fn groups(runs: &[Run]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for run in runs {
        let condition = Condition::of(run);
        let at = groups.iter().position(|group| group.condition == condition).unwrap_or_else(|| {
            groups.push(Group { condition, policies: Vec::new() });
            groups.len() - 1
        });
        let policies = &mut groups[at].policies;
        match policies.iter_mut().find(|(policy, _)| *policy == run.policy) {
            Some((_, runs)) => runs.push(run.clone()),
            None => policies.push((run.policy.clone(), vec![run.clone()])),
        }
    }
    groups
}

/// All policies of some groups, in their order.
#[must_use]
pub fn policies(groups: &[Group]) -> Vec<String> {
    let mut policies: Vec<String> = Vec::new();
    for (policy, _) in groups.iter().flat_map(|group| &group.policies) {
        if !policies.contains(policy) {
            policies.push(policy.clone());
        }
    }
    policies
}

/// Run time by local memory, a chart for each workload and link at which more than one size was run.
#[must_use]
pub fn by_local_memory(groups: &[Group]) -> Vec<Chart> {
    let same = |one: &Condition, other: &Condition| Condition { local: other.local, ..one.clone() } == *other;
    let title =
        |condition: &Condition| format!("{} by local memory ({})", condition.workload, condition.link_text());
    curves(groups, same, title, Condition::local_text)
}

/// Run time by latency of far memory, a chart for each workload and size at which more than one latency was
/// run.
#[must_use]
pub fn by_latency(groups: &[Group]) -> Vec<Chart> {
    let same =
        |one: &Condition, other: &Condition| Condition { far_ns: other.far_ns, ..one.clone() } == *other;
    let title = |condition: &Condition| {
        let fixed = Condition { far_ns: None, ..condition.clone() };
        format!("{} by latency ({} local, {})", fixed.workload, fixed.local_text(), fixed.link_text())
    };
    curves(groups, same, title, |condition| format!("{} ns", rounded(condition.far_ns.unwrap_or(0.0))))
}

fn curves(
    groups: &[Group],
    same: impl Fn(&Condition, &Condition) -> bool,
    title: impl Fn(&Condition) -> String,
    point: impl Fn(&Condition) -> String,
) -> Vec<Chart> {
    let mut charts = Vec::new();
    let mut left: Vec<&Group> = groups.iter().collect();
    while let Some(first) = left.first().copied() {
        let (along, others) = left.iter().partition(|group| same(&group.condition, &first.condition));
        left = others;
        let along: Vec<&Group> = along;
        if along.len() < 2 {
            continue;
        }
        let names = policies(&along.iter().map(|group| (*group).clone()).collect::<Vec<_>>());
        let values: Vec<(&str, String, f64)> = names
            .iter()
            .flat_map(|policy| along.iter().map(move |group| (policy.as_str(), *group)))
            .filter_map(|(policy, group)| {
                Some((policy, point(&group.condition), group.mean(policy, "run_s")?))
            })
            .collect();
        let values = values.iter().map(|(policy, point, value)| (*policy, point.as_str(), *value));
        charts.push(Chart::of(&title(&first.condition), "run time, seconds", false, values));
    }
    charts
}

/// What time is spent on, by the column that holds it.
const SPENT: [(&str, &str); 5] = [
    ("program", "app_s"),
    ("scans of local memory", "scan_local_s"),
    ("scans of far memory", "scan_far_s"),
    ("faults", "fault_s"),
    ("migration", "migration_s"),
];

/// Where the time of the program's cores goes under each policy.
#[must_use]
pub fn breakdown(group: &Group) -> Chart {
    let mut values = Vec::new();
    for (name, column) in SPENT {
        for (policy, _) in &group.policies {
            values.extend(group.mean(policy, column).map(|seconds| (name, policy.as_str(), seconds)));
        }
    }
    Chart::of(&group.condition.text(), "seconds of the program's cores", true, values.into_iter())
}
