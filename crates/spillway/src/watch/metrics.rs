//! A snapshot as OpenMetrics text: a run's here, a donor's in [`crate::watch::donor_metrics`], the
//! daemon's in [`crate::watch::tier_metrics`]. docs/reference/metrics.md describes each name.
//!
//! Processes have no metrics of their own: a run may start thousands, and each would be a series that never
//! goes. `spillway status --json` tells of each.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde::Deserialize;
use spillway_donor::status::Status;
use spillway_snapshot::histogram::Latency;
use spillway_snapshot::snapshot::{Body, Health, Run, Snapshot, Store};

use crate::watch::writer::{Labelled, Writer, ratio};

/// Upper bounds of the histogram's buckets, in nanoseconds: 1, 2 and 5 of each power of ten, from 1 us to
/// 10 s.
const BOUNDS_NS: [u64; 22] = {
    let mut bounds = [0; 22];
    let (mut place, mut power) = (0, 1000);
    while place < bounds.len() {
        bounds[place] = [1, 2, 5][place % 3] * power;
        place += 1;
        if place % 3 == 0 {
            power *= 10;
        }
    }
    bounds
};

/// The metrics of a run or a donor.
pub fn text(snapshot: &Arc<Snapshot>) -> String {
    text_of(Box::new(Metrics(snapshot.clone())))
}

/// What a collector tells, as OpenMetrics text.
pub fn text_of(collector: Box<dyn Collector>) -> String {
    let mut registry = Registry::with_prefix("spillway");
    registry.register_collector(collector);
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Metrics(Arc<Snapshot>);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut writer = Writer(&mut encoder);
        match &self.0.body {
            Body::Run { run } => {
                writer.about(&self.0, run)?;
                writer.memory(run)?;
                writer.paging(run)?;
                writer.stores(&run.stores)
            }
            Body::Donor { donor } => match Status::deserialize(donor) {
                Ok(donor) => writer.donor(&donor),
                // It is this process's own.
                Err(_) => Err(Error),
            },
            Body::Tier { .. } => Ok(()),
        }
    }
}

impl Writer<'_, '_> {
    fn about(&mut self, snapshot: &Snapshot, run: &Run) -> Result<(), Error> {
        let labels = vec![
            ("program", snapshot.name.as_str()),
            ("fault_mode", run.fault_mode.as_str()),
            ("version", snapshot.spillway_version.as_str()),
        ];
        let about = "What runs, and who serves its faults";
        self.0.encode_descriptor("run", about, None, MetricType::Info)?.encode_info(&labels)?;
        self.gauge("uptime", "Time since the start of the program", Some(&Unit::Seconds), snapshot.uptime_s)?;
        let processes = run.processes.len() as u64 + run.processes_unlisted;
        self.gauge("processes", "Managed processes at present", None, processes as f64)?;
        self.counter("processes_started", "Processes that ran managed", run.processes_started)
    }

    fn memory(&mut self, run: &Run) -> Result<(), Error> {
        for (name, help, bytes) in [
            ("local_limit", "Most memory that may be local", run.local_limit_bytes),
            ("local", "Memory that is local", run.local_bytes),
            ("peak_local", "The most that ever was local", run.peak_local_bytes),
            ("native", "Local memory that is left to the kernel", run.native_bytes),
            ("far", "Memory that is far", run.far_bytes),
        ] {
            self.gauge(name, help, Some(&Unit::Bytes), bytes as f64)?;
        }
        Ok(())
    }

    fn paging(&mut self, run: &Run) -> Result<(), Error> {
        let faults = run.faults;
        self.counters(
            "faults",
            "Faults by what they needed",
            "kind",
            &[
                ("first_touch", faults.first_touch),
                ("fetch", faults.fetch),
                ("inactive", faults.inactive),
                ("writeback", faults.writeback),
                ("other", faults.other),
                ("refused", faults.refused),
            ],
        )?;
        self.histogram(
            "fault_latency",
            "How long faults took; the sum is the time lost to paging",
            &run.fault_latency,
        )?;
        self.counter("fetched_pages", "Pages read from stores", run.fetched_pages)?;
        let ahead = run.prefetch;
        self.counter("fetched_ahead_pages", "Pages fetched before a fault asked", ahead.fetched_ahead_pages)?;
        if let Some(accuracy) = ahead.accuracy {
            let help = "The share of pages fetched ahead that was used, at least";
            self.gauge("fetched_ahead_used", help, Some(&ratio()), accuracy)?;
        }
        let evictions = run.evictions;
        self.counters(
            "evicted_pages",
            "Pages that left local memory, by how they left",
            "how",
            &[
                ("written", evictions.written_pages),
                ("clean", evictions.clean_dropped_pages),
                ("zero", evictions.zero_dropped_pages),
            ],
        )?;
        self.counters(
            "kept_pages",
            "Pages that stayed local when their turn to leave had come, by why, counted each time",
            "why",
            &[
                ("in_use", evictions.kept_in_use_pages),
                ("refused", evictions.refused_pages),
                ("write_failed", evictions.failed_writes),
                ("touched", evictions.cancelled_writes),
            ],
        )
    }

    fn stores(&mut self, stores: &[Store]) -> Result<(), Error> {
        let bytes = Some(&Unit::Bytes);
        self.store_gauge(
            stores,
            "store_capacity",
            "Pages that the store may hold, uncompressed",
            bytes,
            |store| Some(store.capacity_bytes as f64),
        )?;
        self.store_gauge(stores, "store_used", "Pages that the store holds, uncompressed", bytes, |store| {
            Some(store.used_bytes as f64)
        })?;
        self.store_gauge(stores, "store_stored", "Memory or disk that the store takes", bytes, |store| {
            store.stored_bytes.map(|bytes| bytes as f64)
        })?;
        self.store_gauge(
            stores,
            "store_compression",
            "Uncompressed to stored bytes",
            Some(&ratio()),
            |store| store.compression_ratio,
        )?;
        self.store_gauge(stores, "store_healthy", "1 while the store answers and has room", None, |store| {
            Some(f64::from(u8::from(store.health == Health::Ok)))
        })?;
        self.store_counter(stores, "store_fetched_pages", "Pages read from the store", |store| {
            store.fetched_pages
        })?;
        self.store_counter(stores, "store_written_pages", "Pages written to the store", |store| {
            store.written_pages
        })?;
        self.store_counter(stores, "store_failed_reads", "Pages not read, or read wrong", |store| {
            store.failed_reads
        })?;
        self.store_counter(
            stores,
            "store_failed_writes",
            "Pages not written, but for want of room",
            |store| store.failed_writes,
        )?;
        self.store_counter(stores, "store_full_refusals", "Pages that the store had no room for", |store| {
            store.full_refusals
        })?;
        self.store_counter(stores, "store_hedged_reads", "Reads asked of another donor too", |store| {
            store.hedged_reads
        })
    }

    fn store_counter(
        &mut self,
        stores: &[Store],
        name: &str,
        help: &str,
        value: impl Fn(&Store) -> u64,
    ) -> Result<(), Error> {
        let values = stores.iter().map(|store| (vec![("store", store.uri.as_str())], value(store)));
        self.labelled(name, help, values.collect())
    }

    /// A gauge of each store that has a value for it.
    fn store_gauge(
        &mut self,
        stores: &[Store],
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl Fn(&Store) -> Option<f64>,
    ) -> Result<(), Error> {
        let values: Vec<Labelled<'_, f64>> = stores
            .iter()
            .filter_map(|store| Some((vec![("store", store.uri.as_str())], value(store)?)))
            .collect();
        if values.is_empty() {
            return Ok(());
        }
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        values.iter().try_for_each(|(labels, value)| metric.encode_family(labels)?.encode_gauge(value))
    }

    fn histogram(&mut self, name: &str, help: &str, latency: &Latency) -> Result<(), Error> {
        let unit = Some(&Unit::Seconds);
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        let buckets = buckets(latency);
        metric.encode_histogram::<NoLabelSet>(latency.total_us / 1e6, latency.count, &buckets, None)
    }
}

/// Counts by upper bound in seconds. Latencies are known to 1/16, so one that is a little below a bound may
/// count as above it.
fn buckets(latency: &Latency) -> Vec<(f64, u64)> {
    let mut left = latency.buckets.iter().peekable();
    let mut counts_up_to = |bound_ns: u64| {
        let mut sum = 0;
        while let Some((_, count)) = left.next_if(|(upper_ns, _)| *upper_ns <= bound_ns) {
            sum += count;
        }
        sum
    };
    let bounded: Vec<_> = BOUNDS_NS.iter().map(|&ns| (ns as f64 / 1e9, counts_up_to(ns))).collect();
    bounded.into_iter().chain([(f64::INFINITY, counts_up_to(u64::MAX))]).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use spillway_snapshot::snapshot::{Evictions, Faults, Prefetch, VERSION};

    /// A run of which every number is there.
    pub(crate) fn whole_snapshot() -> Snapshot {
        let store = Store {
            uri: "compressed:?x=\"1\"\n".to_owned(),
            capacity_bytes: 8 << 30,
            used_bytes: 2 << 20,
            stored_bytes: Some(1 << 20),
            stored_limit_bytes: None,
            compression_ratio: Some(2.0),
            fetched_pages: 5,
            written_pages: 6,
            failed_reads: 0,
            failed_writes: 0,
            full_refusals: 3,
            hedged_reads: 0,
            is_sealed: false,
            health: Health::Full,
        };
        let run = Run {
            command: vec!["/bin/x".to_owned()],
            program_pid: 8,
            fault_mode: "inline".to_owned(),
            fault_mode_reason: "asked for".to_owned(),
            local_limit_bytes: 64 << 20,
            local_bytes: 60 << 20,
            peak_local_bytes: 64 << 20,
            native_bytes: 1 << 20,
            far_bytes: 2 << 20,
            faults: Faults { first_touch: 1, fetch: 2, ..Faults::default() },
            fault_latency: Latency {
                count: 3,
                total_us: 5003.5,
                p50_us: 1.5,
                p99_us: 5000.0,
                max_us: 5000.0,
                buckets: vec![(1_500, 2), (5_000_001, 1)],
            },
            returns: Vec::new(),
            fetched_pages: 5,
            written_pages: 6,
            prefetch: Prefetch { fetched_ahead_pages: 3, accuracy: Some(0.5) },
            evictions: Evictions { written_pages: 6, clean_dropped_pages: 7, ..Evictions::default() },
            stores: vec![store],
            processes: Vec::new(),
            processes_unlisted: 0,
            processes_started: 1,
            sites: None,
        };
        Snapshot {
            version: VERSION,
            spillway_version: "1.2.3".to_owned(),
            pid: 7,
            uid: 0,
            name: "x".to_owned(),
            uptime_s: 2.5,
            body: Body::Run { run: Box::new(run) },
        }
    }

    #[test]
    fn numbers_are_told_in_base_units_and_labels_are_escaped() {
        let text = text(&Arc::new(whole_snapshot()));
        for line in [
            "spillway_run_info{program=\"x\",fault_mode=\"inline\",version=\"1.2.3\"} 1",
            "spillway_uptime_seconds 2.5",
            "spillway_local_limit_bytes 67108864.0",
            "spillway_faults_total{kind=\"fetch\"} 2",
            "spillway_fault_latency_seconds_sum 0.0050035",
            "spillway_fault_latency_seconds_count 3",
            "spillway_fault_latency_seconds_bucket{le=\"0.000001\"} 0",
            "spillway_fault_latency_seconds_bucket{le=\"+Inf\"} 3",
            "spillway_evicted_pages_total{how=\"clean\"} 7",
            "spillway_store_healthy{store=\"compressed:?x=\\\"1\\\"\\n\"} 0.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn a_bucket_counts_what_is_at_most_its_bound() {
        let latency = Latency {
            buckets: vec![(900, 1), (1_000, 2), (2_100, 4), (20_000_000_000, 8)],
            ..Latency::default()
        };
        let buckets = buckets(&latency);
        assert_eq!(buckets[..3], [(1e-6, 3), (2e-6, 0), (5e-6, 4)]);
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 8)));
        assert_eq!(BOUNDS_NS[21], 10_000_000_000);
    }
}
