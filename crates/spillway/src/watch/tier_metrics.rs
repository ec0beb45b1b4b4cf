//! The metrics of the daemon `spillway tier`. docs/reference/metrics.md describes each name.
//!
//! Groups have metrics of their own, since a configuration names them; processes have none.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use spillway_tier::status::{GroupStatus, Status};

use crate::watch::metrics::text_of;
use crate::watch::writer::{Labelled, Writer, ratio};

const NS_PER_S: f64 = 1e9;

/// All metrics of the daemon, as OpenMetrics text.
pub fn text(status: Status) -> String {
    text_of(Box::new(TierMetrics(status)))
}

#[derive(Debug)]
struct TierMetrics(Status);

impl Collector for TierMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut writer = Writer(&mut encoder);
        writer.tier(&self.0)?;
        writer.tier_link(&self.0)?;
        writer.tier_memory(&self.0.groups)?;
        writer.tier_moves(&self.0.groups)?;
        writer.tier_scans(&self.0.groups)
    }
}

/// What is told of a group, without its name.
type OfGroup<T> = (&'static str, &'static str, fn(&GroupStatus) -> T);

impl Writer<'_, '_> {
    fn tier(&mut self, status: &Status) -> Result<(), Error> {
        let labels = vec![
            ("version", env!("CARGO_PKG_VERSION")),
            ("fast", status.fast.as_str()),
            ("slow", status.slow.as_str()),
            ("telemetry", status.source.name.as_str()),
            ("migration", status.migration.by),
        ];
        let about = "Between which nodes pages move, and by what is known of their use";
        self.0.encode_descriptor("tier", about, None, MetricType::Info)?.encode_info(&labels)?;
        let seconds = Some(&Unit::Seconds);
        self.gauge("tier_uptime", "Time since the start of the daemon", seconds, status.uptime_s)?;
        let managed = "Memory that the daemon manages";
        self.gauge("tier_managed", managed, Some(&Unit::Bytes), status.managed_bytes as f64)?;
        let cpu = "Share of one core that the daemon has taken since its start";
        self.gauge("tier_cpu", cpu, Some(&ratio()), status.cpu_pct / 100.0)
    }

    fn tier_link(&mut self, status: &Status) -> Result<(), Error> {
        let link = &status.link;
        for (name, help, latency_ns) in [
            ("tier_far_latency", "A read of far memory at present", link.latency_ns),
            ("tier_far_idle_latency", "A read of far memory over the idle link", link.idle_latency_ns),
            ("tier_local_latency", "A read of local memory at present", link.local_latency_ns),
        ] {
            self.gauge(name, help, Some(&Unit::Seconds), latency_ns / NS_PER_S)?;
        }
        let free = "Share of the link to far memory that nobody uses at present";
        self.gauge("tier_link_available", free, Some(&ratio()), link.available_share)?;
        let carried = "Bytes that the link to far memory carried, as far as it can be told";
        self.counter("tier_link_traffic_bytes", carried, link.traffic_bytes)?;
        let counts = &status.migration.counts;
        self.counters(
            "tier_marked_pages",
            "Pages that stop their next access, by what became of them",
            "what",
            &[
                ("marked", counts.marked),
                ("accessed", counts.accessed),
                ("returned", counts.returned),
                ("gone", counts.gone),
            ],
        )
    }

    fn tier_memory(&mut self, groups: &[GroupStatus]) -> Result<(), Error> {
        let sizes: [OfGroup<u64>; 3] = [
            ("tier_local_limit", "Most memory of the group that may be local", |group| {
                group.local_limit_bytes
            }),
            ("tier_local", "Managed memory of the group that is local", |group| group.local_bytes),
            ("tier_far", "Managed memory of the group that is far", |group| group.far_bytes),
        ];
        for (name, help, bytes) in sizes {
            self.group_gauge(groups, name, help, Some(&Unit::Bytes), |group| bytes(group) as f64)?;
        }
        self.group_gauge(groups, "tier_processes", "Processes of the group at present", None, |group| {
            group.processes.len() as f64
        })?;
        self.group_gauge(
            groups,
            "tier_paused",
            "1 while the group's migrations are paused",
            None,
            |group| f64::from(u8::from(group.paused.is_some())),
        )?;
        let mut metric = self.0.encode_descriptor(
            "tier_left_alone",
            "Memory of the group that is not managed, by why",
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?;
        for group in groups {
            let alone = &group.left_alone;
            for (why, bytes) in
                [("locked", alone.locked_bytes), ("bound", alone.bound_bytes), ("shared", alone.shared_bytes)]
            {
                let labels = vec![("group", group.name.as_str()), ("why", why)];
                metric.encode_family(&labels)?.encode_gauge(&(bytes as f64))?;
            }
        }
        Ok(())
    }

    fn tier_moves(&mut self, groups: &[GroupStatus]) -> Result<(), Error> {
        let counts: [OfGroup<u64>; 5] = [
            ("tier_promoted_pages", "Pages moved to local memory", |group| group.counts.promotions),
            ("tier_promoted_used_pages", "Of these, pages that were used there", |group| {
                group.counts.promotions_used
            }),
            ("tier_demoted_pages", "Pages moved to far memory", |group| group.counts.demotions),
            ("tier_capped_pages", "Pages not moved since more was wanted than --rate allows", |group| {
                group.counts.capped
            }),
            ("tier_kernel_moved_pages", "Pages that the kernel moved by itself", |group| {
                group.counts.moved_by_kernel
            }),
        ];
        for (name, help, count) in counts {
            self.group_counter(groups, name, help, count)?;
        }
        let refused = groups.iter().flat_map(|group| {
            let reasons = group.counts.refused.reasons();
            reasons.map(|(why, pages)| (vec![("group", group.name.as_str()), ("why", why)], pages))
        });
        self.labelled("tier_refused_pages", "Pages that the kernel did not move, by why", refused.collect())
    }

    fn tier_scans(&mut self, groups: &[GroupStatus]) -> Result<(), Error> {
        self.group_counter(groups, "tier_scans", "Scans of the group's memory", |group| group.scans)?;
        let early = "Of these, scans that came early because local memory was short";
        self.group_counter(groups, "tier_early_scans", early, |group| group.early_scans)?;
        let uses = groups.iter().flat_map(|group| {
            let of = |at| vec![("group", group.name.as_str()), ("at", at)];
            [(of("local"), group.counts.local_uses), (of("far"), group.counts.far_uses)]
        });
        self.labelled("tier_found_in_use_pages", "Pages that scans found in use, by where", uses.collect())
    }

    fn group_counter(
        &mut self,
        groups: &[GroupStatus],
        name: &str,
        help: &str,
        value: impl Fn(&GroupStatus) -> u64,
    ) -> Result<(), Error> {
        let values = groups.iter().map(|group| (vec![("group", group.name.as_str())], value(group)));
        self.labelled(name, help, values.collect())
    }

    fn group_gauge(
        &mut self,
        groups: &[GroupStatus],
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl Fn(&GroupStatus) -> f64,
    ) -> Result<(), Error> {
        let values: Vec<Labelled<'_, f64>> =
            groups.iter().map(|group| (vec![("group", group.name.as_str())], value(group))).collect();
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        values.iter().try_for_each(|(labels, value)| metric.encode_family(labels)?.encode_gauge(value))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use rustix::io::Errno;
    use spillway_tier::link::LinkStatus;
    use spillway_tier::live::Counts;
    use spillway_tier::markers::MarkerCounts;
    use spillway_tier::mover::Refusals;
    use spillway_tier::pace::ScanPace;
    use spillway_tier::process::ProcessLayout;
    use spillway_tier::source::SourceCounts;
    use spillway_tier::status::{MigrationStatus, SourceStatus};

    use super::*;

    fn group() -> GroupStatus {
        let mut refused = Refusals::default();
        refused.count(Errno::BUSY, 4);
        GroupStatus {
            name: "a \"group\"".to_owned(),
            policy: "hotbox".to_owned(),
            processes: vec![5, 6],
            local_limit_bytes: 1 << 20,
            local_bytes: 1 << 19,
            far_bytes: 1 << 21,
            left_alone: ProcessLayout { locked_bytes: 4096, ..ProcessLayout::default() },
            scans: 9,
            scan_interval_ms: 100.0,
            scan_pace: ScanPace::default(),
            early_scans: 2,
            scan_pressure: 0,
            telemetry_cpu_pct: 0.5,
            local_use_ratio: None,
            counts: Counts { promotions: 7, demotions: 3, refused, local_uses: 11, ..Counts::default() },
            last_minute: Vec::new(),
            paused: Some("nothing is gained".to_owned()),
            remark: None,
            policy_restarts: 0,
            ended: None,
        }
    }

    /// A daemon with one group.
    pub(crate) fn status() -> Status {
        Status {
            pid: 4,
            uptime_s: 2.5,
            fast: "0".to_owned(),
            slow: "1".to_owned(),
            source: SourceStatus {
                name: "page-tables".to_owned(),
                why: String::new(),
                precision: String::new(),
                cost: String::new(),
                counts: SourceCounts::default(),
            },
            link: LinkStatus {
                source: "probes",
                why: String::new(),
                latency_ns: 400.0,
                idle_latency_ns: 350.0,
                local_latency_ns: 100.0,
                bytes_per_s: 1e10,
                available_bytes_per_s: 5e9,
                available_share: 0.5,
                traffic_bytes: 12_288,
                probes: 3,
                cpu_pct: 0.1,
            },
            migration: MigrationStatus {
                by: "batches",
                why: String::new(),
                markers: 0,
                counts: MarkerCounts::default(),
            },
            managed_bytes: 3 << 20,
            cpu_pct: 1.5,
            cpu_pct_per_10_gib: None,
            groups: vec![group()],
        }
    }

    #[test]
    fn a_daemons_numbers_are_told_under_names_of_their_own() {
        let text = text(status());
        for line in [
            "spillway_tier_uptime_seconds 2.5",
            "spillway_tier_cpu_ratio 0.015",
            "spillway_tier_far_latency_seconds 4e-7",
            "spillway_tier_link_traffic_bytes_total 12288",
            "spillway_tier_local_limit_bytes{group=\"a \\\"group\\\"\"} 1048576.0",
            "spillway_tier_left_alone_bytes{group=\"a \\\"group\\\"\",why=\"locked\"} 4096.0",
            "spillway_tier_promoted_pages_total{group=\"a \\\"group\\\"\"} 7",
            "spillway_tier_refused_pages_total{group=\"a \\\"group\\\"\",why=\"pinned_or_busy\"} 4",
            "spillway_tier_found_in_use_pages_total{group=\"a \\\"group\\\"\",at=\"local\"} 11",
            "spillway_tier_paused{group=\"a \\\"group\\\"\"} 1.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn the_names_of_a_daemon_are_those_that_are_documented() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
        let page = std::fs::read_to_string(page).unwrap();
        let documented: BTreeSet<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|name| name.starts_with("spillway_tier_"))
            .collect();
        let text = text(status());
        let told = text.lines().filter(|line| !line.starts_with('#'));
        let told: BTreeSet<&str> = told.filter_map(|line| line.split(['{', ' ']).next()).collect();
        assert_eq!(documented, told);
    }

    #[test]
    fn prometheus_takes_what_a_daemon_tells() {
        // `promtool check metrics` knows Prometheus's older text only, where counters lack the ending _total.
        // What fills a database reads OpenMetrics, and each sample with a time.
        let timed =
            |line: &str| if line.starts_with('#') { line.to_owned() } else { format!("{line} 1700000000") };
        let timed: Vec<String> = text(status()).lines().map(timed).collect();
        let directory = tempfile::tempdir().unwrap();
        let [file, blocks] = ["metrics", "blocks"].map(|name| directory.path().join(name));
        fs::write(&file, timed.join("\n") + "\n").unwrap();
        let mut check = Command::new("promtool");
        check.args(["tsdb", "create-blocks-from", "openmetrics"]).args([&file, &blocks]);
        let output = check.stdin(Stdio::null()).output().unwrap_or_else(|error| {
            panic!("'promtool' cannot be run ({error}); install it: apt-get install prometheus")
        });
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{check:?}: {said:?}");
    }
}
