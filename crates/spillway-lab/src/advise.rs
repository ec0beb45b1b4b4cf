//! Advice before hardware is bought: how much local memory a workload needs, under which policy, and what
//! more would bring.

use serde::Serialize;

use crate::figures::lab::{Change, Lab};
use crate::judge::{OURS, RIVALS};
use crate::run::{RunError, RunSpec};

/// Local memory at which runs are made, as shares of the working set.
const SHARES: [f64; 8] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 0.95];

/// Losses that are asked about.
const LOSSES: [f64; 3] = [0.05, 0.10, 0.20];

/// Policies that are advised among: ours, and those that it is judged against but the one that moves nothing.
const POLICIES: [&str; RIVALS.len()] = {
    let mut policies = RIVALS;
    policies[0] = OURS;
    policies
};

/// Changes of the platform that are asked about.
const VARIANTS: usize = 3;

/// How one policy does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyAdvice {
    /// The name of the policy.
    pub policy: &'static str,
    /// Run time over all local, for each share of local memory.
    pub slowdowns: Vec<(f64, f64)>,
    /// The least share of local memory at which it loses no more than 5%, 10%, 20%; none where it always
    /// loses more.
    pub least_local: Vec<(f64, Option<f64>)>,
}

/// What the runs came to, and the advice that follows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Every policy, the best at the asked local memory first.
    pub policies: Vec<PolicyAdvice>,
    /// The local memory that was asked about, as a share.
    pub local: f64,
    /// Slowdown of the best policy there.
    pub slowdown: f64,
    /// The same with a tenth of the working set more local memory.
    pub slowdown_more_local: f64,
    /// The same with half the latency to far memory.
    pub slowdown_half_latency: f64,
    /// The same with twice the link's bandwidth.
    pub slowdown_double_bandwidth: f64,
}

/// The least share at which the loss is at most `loss`, between measured ones by a straight line.
fn least_local(slowdowns: &[(f64, f64)], loss: f64) -> Option<f64> {
    let limit = 1.0 + loss;
    // From the most local memory down, as long as the limit holds.
    let mut least = None;
    let mut above: Option<(f64, f64)> = None;
    for &(share, slowdown) in slowdowns.iter().rev() {
        if slowdown > limit {
            let (upper, better) = above?;
            return Some(share + (upper - share) * (slowdown - limit) / (slowdown - better));
        }
        least = Some(share);
        above = Some((share, slowdown));
    }
    least
}

/// How many runs [`advise`] makes about this share of local memory, at most: each only once.
#[must_use]
pub fn most_runs(local: f64) -> usize {
    let here = if SHARES.contains(&local) { 0 } else { POLICIES.len() };
    1 + SHARES.len() * POLICIES.len() + here + VARIANTS
}

/// Advice for the workload and platform of `spec`, whose local memory is the one asked about.
///
/// # Errors
/// A run failed.
pub fn advise(
    lab: &mut Lab,
    spec: &RunSpec,
    local: f64,
    far_ns: f64,
    link_bytes_per_s: f64,
) -> Result<Advice, RunError> {
    let with = |policy: &str, share: f64| RunSpec { policy: policy.into(), ..spec.clone() }.local(share);
    let base_s = lab.times(&[with("all-local", 1.0)])?[0];
    let mut policies = Vec::new();
    for policy in POLICIES {
        let specs = SHARES.map(|share| with(policy, share));
        let times = lab.times(&specs)?;
        let slowdowns: Vec<_> =
            SHARES.iter().zip(times).map(|(&share, time)| (share, time / base_s)).collect();
        let least_local = LOSSES.map(|loss| (loss, least_local(&slowdowns, loss))).to_vec();
        policies.push(PolicyAdvice { policy, slowdowns, least_local });
    }
    let here = POLICIES.map(|policy| with(policy, local));
    let times = lab.times(&here)?;
    let mut order: Vec<usize> = (0..POLICIES.len()).collect();
    order.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
    let best = POLICIES[order[0]];
    let variants: [RunSpec; VARIANTS] = [
        with(best, (local + 0.1).min(1.0)),
        with(best, local).far_ns(far_ns / 2.0),
        with(best, local).at("link_bytes_per_s", link_bytes_per_s * 2.0),
    ];
    let better = lab.times(&variants)?;
    Ok(Advice {
        policies: order.iter().map(|&at| policies[at].clone()).collect(),
        local,
        slowdown: times[order[0]] / base_s,
        slowdown_more_local: better[0] / base_s,
        slowdown_half_latency: better[1] / base_s,
        slowdown_double_bandwidth: better[2] / base_s,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use spillway_policy::knowledge::Foreknowledge;
    use spillway_policy::registry;

    use super::*;

    #[test]
    fn the_least_local_memory_lies_where_the_curve_crosses_the_loss() {
        let curve = [(0.2, 1.4), (0.4, 1.2), (0.6, 1.0)];
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-9;
        assert!(near(least_local(&curve, 0.1), 0.5));
        assert!(near(least_local(&curve, 0.5), 0.2));
        assert_eq!(least_local(&[(0.2, 1.4), (0.9, 1.3)], 0.05), None);
    }

    #[test]
    fn advice_orders_policies_by_run_time() {
        let ended = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&ended);
        let mut lab = Lab::new(2 << 20, 2).telling(move || {
            told.fetch_add(1, Ordering::Relaxed);
        });
        let spec = lab.spec("uniform-kv", "");
        let advice = advise(&mut lab, &spec, 0.2, 750.0, 14.4e9).unwrap();
        let ended = ended.load(Ordering::Relaxed);
        assert!(ended == lab.runs() && (most_runs(0.2) - 1..=most_runs(0.2)).contains(&ended), "{ended}");
        assert_eq!((advice.policies.len(), RIVALS[0]), (POLICIES.len(), "first-touch"));
        let live = |name: &&str| {
            registry::find(name)
                .is_ok_and(|entry| entry.needs.foreknowledge == Foreknowledge::Nothing && !entry.unlimited)
        };
        assert!(POLICIES.iter().all(live));
        let at = |policy: &PolicyAdvice| policy.slowdowns[2].1;
        assert!(advice.policies.windows(2).all(|pair| at(&pair[0]) <= at(&pair[1])));
        assert!((at(&advice.policies[0]) - advice.slowdown).abs() < 1e-9);
        assert!(advice.slowdown_half_latency <= advice.slowdown);
    }
}
