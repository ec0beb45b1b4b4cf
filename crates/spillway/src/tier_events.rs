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
                told::policy_resumed(
                    &format!("tier: group {name}: {policy} moves pages again"),
                    name,
                    policy,
                );
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use serde_json::Value;
    use spillway_events::Format;
    use spillway_tier::live::Counts;
    use spillway_tier::mover::Refusals;
    use spillway_tier::pace::ScanPace;
    use spillway_tier::process::ProcessLayout;

    fn group() -> GroupStatus {
        GroupStatus {
            name: "database".to_owned(),
            policy: "hotbox".to_owned(),
            processes: vec![5],
            local_limit_bytes: 1 << 20,
            local_bytes: 1 << 19,
            far_bytes: 1 << 21,
            left_alone: ProcessLayout::default(),
            scans: 1,
            scan_interval_ms: 100.0,
            scan_pace: ScanPace::Budget,
            early_scans: 0,
            scan_pressure: 0,
            telemetry_cpu_pct: 0.0,
            local_use_ratio: None,
            counts: Counts::default(),
            last_minute: Vec::new(),
            paused: None,
            remark: None,
            policy_restarts: 0,
            ended: None,
        }
    }

    fn refused(pages: u32) -> Counts {
        let mut refused = Refusals::default();
        refused.count(Errno::BUSY, pages);
        Counts { refused, ..Counts::default() }
    }

    /// The events of one look.
    fn told(told: &mut Told, group: &GroupStatus, now: Instant, is_last: bool) -> Vec<Value> {
        let text = spillway_events::testing::told(Format::Json, || told.look(group, now, is_last)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn what_changes_is_told_once_with_its_reason() {
        let (mut seen, now) = (Told::default(), Instant::now());
        assert!(told(&mut seen, &group(), now, false).is_empty(), "nothing has changed");
        let paused = GroupStatus {
            local_bytes: 1 << 20,
            paused: Some("nothing is gained".to_owned()),
            counts: refused(4),
            ..group()
        };
        let [limit, pause, pages] = &told(&mut seen, &paused, now, false)[..] else { panic!("not three") };
        assert_eq!((&limit["event"], &limit["far_bytes"]), (&"limit_reached".into(), &(1 << 21).into()));
        assert_eq!(
            (&pause["event"], &pause["reason"]),
            (&"policy_paused".into(), &"nothing is gained".into())
        );
        assert_eq!((&pages["reason"], &pages["pages"]), (&"pinned_or_busy".into(), &4.into()));
        assert!(told(&mut seen, &paused, now, false).is_empty());

        let on = GroupStatus { paused: None, counts: refused(9), policy_restarts: 1, ..paused.clone() };
        let names = |events: &[Value]| events.iter().map(|event| event["event"].clone()).collect::<Vec<_>>();
        assert_eq!(names(&told(&mut seen, &on, now, false)), ["policy_resumed", "policy_restarted"]);
        let [pages] = &told(&mut seen, &on, now + REFUSALS_PERIOD, false)[..] else { panic!("not one") };
        assert_eq!((&pages["pages"], &pages["all_pages"]), (&5.into(), &9.into()), "those that are new");
        let ended = GroupStatus { ended: Some("all ended".to_owned()), counts: refused(10), ..on };
        assert_eq!(
            names(&told(&mut seen, &ended, now + REFUSALS_PERIOD, true)),
            ["pages_refused", "group_ended"]
        );
        assert!(told(&mut seen, &ended, now + REFUSALS_PERIOD, true).is_empty());
    }
}
