//! What happens in the tier daemon, as events: what is other in its status than it was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spillway_core::size::Size;
use spillway_events::catalogue::tier as told;
use spillway_tier::status::{GroupStatus, Status};

/// How often it is looked.
const PERIOD: Duration = Duration::from_millis(500);
/// Refused pages are summed up for so long.
const REFUSALS_PERIOD: Duration = Duration::from_secs(10);

/// What was told of the groups.
#[derive(Debug, Default)]
pub struct TierEvents {
    looked: Option<Instant>,
    groups: BTreeMap<String, Told>,
}

#[derive(Debug, Default)]
struct Told {
    is_at_limit: bool,
    is_paused: bool,
    has_ended: bool,
    restarts: u64,
    refused: BTreeMap<String, u64>,
    refused_at: Option<Instant>,
}

impl TierEvents {
    /// Whether it is time for another look.
    pub fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= PERIOD)
    }

    /// Tells what is new. The last look leaves nothing for later.
    pub fn look(&mut self, status: &Status, now: Instant, is_last: bool) {
        self.looked = Some(now);
        for group in &status.groups {
            let told = self.groups.entry(group.name.clone()).or_insert_with(|| {
                let GroupStatus { name, policy, local_limit_bytes, .. } = group;
                let limit = Size::from_bytes(*local_limit_bytes);
                let text = format!("tier: group {name} is managed by {policy}: {limit} may be local");
                told::group_began(&text, name, policy, *local_limit_bytes);
                Told::default()
            });
            told.look(group, now, is_last);
        }
    }
}

impl Told {
    fn look(&mut self, group: &GroupStatus, now: Instant, is_last: bool) {
        let GroupStatus { name, policy, local_limit_bytes: limit, local_bytes, far_bytes, .. } = group;
        let is_at_limit = *limit > 0 && local_bytes >= limit && *far_bytes > 0;
        if is_at_limit && !std::mem::replace(&mut self.is_at_limit, true) {
            let [may_be, far] = [*limit, *far_bytes].map(Size::from_bytes);
            let text = format!("tier: group {name} has its {may_be} of local memory, and {far} are far");
            told::limit_reached(&text, name, *limit, *far_bytes);
        }
        let was_paused = std::mem::replace(&mut self.is_paused, group.paused.is_some());
        match &group.paused {
            Some(reason) if !was_paused => {
                let text = format!("tier: group {name}: {policy} moves nothing: {reason}");
                told::policy_paused(&text, name, policy, reason);
            }
            None if was_paused => {
                told::policy_resumed(&format!("tier: group {name}: {policy} moves pages again"), name, policy);
            }
            _ => {}
        }
        if group.policy_restarts > self.restarts {
            self.restarts = group.policy_restarts;
            let text = format!("tier: group {name}: {policy} begins anew, for the processes have grown");
            told::policy_restarted(&text, name, policy, self.restarts);
        }
        self.look_at_refusals(group, now, is_last);
        if let Some(reason) = group.ended.as_ref().filter(|_| !std::mem::replace(&mut self.has_ended, true)) {
            told::group_ended(&format!("tier: group {name} is no longer managed: {reason}"), name, reason);
        }
    }

    fn look_at_refusals(&mut self, group: &GroupStatus, now: Instant, is_last: bool) {
        let is_due = self.refused_at.is_none_or(|at| now.saturating_duration_since(at) >= REFUSALS_PERIOD);
        if !is_due && !is_last {
            return;
        }
        for (reason, all) in group.counts.refused.reasons() {
            let before = self.refused.insert(reason.to_owned(), all).unwrap_or(0);
            let new = all.saturating_sub(before);
            if new > 0 {
                self.refused_at = Some(now);
                let name = &group.name;
                let text = format!("tier: group {name}: the kernel did not move {new} pages: {reason}");
                told::pages_refused(&text, name, reason, new, all);
            }
        }
    }
}
