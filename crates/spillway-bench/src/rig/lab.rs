//! The rig's runs beside the lab's: the same workload under the same policy, from a record of what the
//! program does to memory, on the platform that the rig models.
//!
//! A record has as many steps as the workload made in the rig under that policy, so that the lab's run is as
//! long. What is compared is measured at the same time in both: after the workload has filled its memory and
//! been warmed up.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spillway_lab::run::{LocalSize, Report, RunSpec, execute};
use spillway_lab::trace::record::record;
use spillway_lab::workloads::TRACE;

use super::guest::{cache_bytes, prepare_workload, scaled_settings};
use super::plan::{DAEMONS, Plan};
use super::report::Row;
use crate::BenchError;

/// A run of the rig and one of the lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The workload that was run.
    pub workload: String,
    /// The policy that moved pages.
    pub policy: String,
    /// Local memory, in percent of the workload's.
    pub local_pct: u32,
    /// Latency of far memory.
    pub latency_ns: u32,
    /// Share of the misses that local memory served, in the rig.
    pub rig_local_hit_ratio: f64,
    /// The same in the lab.
    pub lab_local_hit_ratio: f64,
    /// Pages promoted in the rig.
    pub rig_promotions: u64,
    /// The same in the lab.
    pub lab_promotions: u64,
}

/// How far the ratios may be apart, in points, without a word about it.
pub const CLOSE_POINTS: f64 = 5.0;

impl Pair {
    /// By how many points the lab's ratio is above the rig's.
    #[must_use]
    pub fn points(&self) -> f64 {
        (self.lab_local_hit_ratio - self.rig_local_hit_ratio) * 100.0
    }
}

/// All pairs as a Markdown table.
#[must_use]
pub fn markdown(pairs: &[Pair]) -> String {
    let mut text = "| workload | policy | rig | lab | points apart | promotions, rig | promotions, lab \
                    |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for pair in pairs {
        text += &format!(
            "| {} | {} | {:.1}% | {:.1}% | {:+.1} | {} | {} |\n",
            pair.workload,
            pair.policy,
            pair.rig_local_hit_ratio * 100.0,
            pair.lab_local_hit_ratio * 100.0,
            pair.points(),
            pair.rig_promotions,
            pair.lab_promotions
        );
    }
    text
}

fn failed(action: String, reason: impl std::fmt::Display) -> BenchError {
    BenchError::setup(
        action,
        reason,
        "'make rig' installs what the rig needs; recording needs the package qemu-user",
    )
}

/// Records the accesses of a workload as a trace.
fn record_steps(program: &Path, arguments: &[String], to: &Path) -> Result<(), BenchError> {
    let wrong = |reason: &dyn std::fmt::Display| failed(format!("record {arguments:?}"), reason);
    let file = File::create(to).map_err(|error| wrong(&error))?;
    let arguments: Vec<_> = arguments.iter().map(Into::into).collect();
    let recorded = record(program.as_os_str(), &arguments, BufWriter::with_capacity(1 << 20, file), |_| ());
    match recorded {
        Ok(recorded) if recorded.status.success() => Ok(()),
        Ok(recorded) => Err(wrong(&recorded.status)),
        Err(error) => Err(wrong(&error)),
    }
}

/// The lab's run of a trace that stands for a run of the rig.
fn spec(plan: &Plan, row: &Row, trace: &Path) -> RunSpec {
    let settings =
        scaled_settings(&row.policy, plan.memory_mib).into_iter().chain(plan.settings.iter().cloned());
    let policy_settings = settings.filter_map(|setting| {
        let (key, value) = setting.split_once('=')?;
        Some((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
    });
    let platform_settings = [
        ("far_ns", Value::from(row.latency_ns)),
        // The lab makes it a power of two.
        ("llc_bytes", cache_bytes(plan.memory_mib).into()),
        // Nothing is prefetched, and pages are copied within this machine's memory, which has no far lines to
        // wait for.
        ("stream_overlap", 1.into()),
        ("copy_overlap", 0.into()),
    ];
    RunSpec {
        workload: TRACE.to_owned(),
        workload_settings: Map::from_iter([("file".to_owned(), trace.to_string_lossy().into())]),
        policy: row.policy.clone(),
        policy_settings: policy_settings.collect(),
        local: LocalSize::Share(f64::from(row.local_pct) / 100.0),
        platform: "hotbox".to_owned(),
        platform_settings: platform_settings
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect(),
        // Times and caches are those of the rig already.
        scale: Some(1.0),
        ..RunSpec::default()
    }
}

/// Misses that local memory served as a share, after `from_s`: the mean over points of equal length.
fn ratio_from(report: &Report, from_s: f64) -> Option<f64> {
    let measured: Vec<f64> =
        report.series.iter().filter(|point| point.time_s > from_s).map(|point| point.local_ratio).collect();
    (!measured.is_empty()).then(|| measured.iter().sum::<f64>() / measured.len() as f64)
}

/// The lab's run for a row of the rig's.
fn beside(plan: &Plan, program: &Path, row: &Row, directory: &Path) -> Result<Pair, BenchError> {
    let trace = directory.join("trace");
    let run = |warm_s: u32, measured_s: u32| -> Result<Report, BenchError> {
        let steps = format!("steps={}", row.steps_per_s);
        let arguments = [
            row.workload.clone(),
            plan.memory_mib.to_string(),
            warm_s.to_string(),
            measured_s.to_string(),
            steps,
        ];
        record_steps(program, &arguments, &trace)?;
        execute(&spec(plan, row, &trace))
            .map_err(|error| failed(format!("run {} in the lab", row.workload), error))
    };
    let filled_s = run(0, 0)?.run_s;
    let report = run(plan.warm_s, plan.measured_s)?;
    let warm = f64::from(plan.warm_s) / f64::from(plan.warm_s + plan.measured_s);
    let from_s = filled_s + (report.run_s - filled_s) * warm;
    let ratio = ratio_from(&report, from_s).unwrap_or(report.local_hit_ratio);
    Ok(Pair {
        workload: row.workload.clone(),
        policy: row.policy.clone(),
        local_pct: row.local_pct,
        latency_ns: row.latency_ns,
        rig_local_hit_ratio: row.local_hit_ratio,
        lab_local_hit_ratio: ratio,
        rig_promotions: row.promotions,
        lab_promotions: report.promotions,
    })
}

/// Runs in the lab what the rig ran under the daemon's policies, on `plan`'s platform; `tell` hears of each
/// pair.
///
/// # Errors
/// A program is missing or fails, or there is no room for a trace: some 200 MB at a time.
pub fn compare(plan: &Plan, rows: &[Row], tell: &mut dyn FnMut(&Pair)) -> Result<Vec<Pair>, BenchError> {
    let directory = tempfile::tempdir().map_err(|error| failed("make a directory".to_owned(), error))?;
    let program: PathBuf = prepare_workload(directory.path())?;
    let of_daemon = rows.iter().filter(|row| DAEMONS.contains(&row.policy.as_str()));
    let planned = of_daemon.filter(|row| {
        // The lab's neighbour neither comes nor goes.
        row.contention_pct.is_none()
            && plan.workloads.contains(&row.workload)
            && plan.policies.contains(&row.policy)
            && plan.local_pct.contains(&row.local_pct)
            && plan.latency_ns.contains(&row.latency_ns)
    });
    planned
        .map(|row| {
            let pair = beside(plan, &program, row, directory.path())?;
            tell(&pair);
            Ok(pair)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::report::blank;
    use spillway_lab::access::Access;
    use spillway_lab::trace::TraceWriter;

    #[test]
    fn the_lab_runs_the_rigs_policy_with_its_settings_and_on_its_platform() {
        let plan = Plan { settings: vec!["throttle=false".into()], ..Plan::default() };
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("bfs.trace");
        let mut writer = TraceWriter::new(std::fs::File::create(&trace).unwrap()).unwrap();
        for page in 0..600_u64 {
            writer.append(0, Access::read(page * 4096)).unwrap();
        }
        writer.finish().unwrap();
        let spec = spec(&plan, &blank("bfs", "hotbox"), &trace);
        assert_eq!(spec.policy_settings["throttle"], false);
        assert_eq!(spec.policy_settings["scan_block_bytes"], 4_u64 << 30);
        assert_eq!((&spec.platform_settings["far_ns"], spec.scale), (&Value::from(750), Some(1.0)));
        assert_eq!(spec.platform_settings["llc_bytes"], 192 << 10);
        spillway_lab::run::check(&spec).unwrap();
    }

    /// Runs where QEMU's user mode is installed; elsewhere it checks that this is said.
    #[test]
    fn a_run_of_the_rigs_is_repeated_in_the_lab() {
        let plan = Plan { memory_mib: 4, warm_s: 1, measured_s: 1, ..Plan::default() };
        let row = Row { steps_per_s: 40.0, ..blank("uniform", "hotbox") };
        let rows = [row, blank("uniform", "kernel"), blank("bfs", "none")];
        match compare(&plan, &rows, &mut |_| {}) {
            Ok(pairs) => {
                assert_eq!(pairs.len(), 1, "those of the daemon's policies: {pairs:?}");
                let ratio = pairs[0].lab_local_hit_ratio;
                assert!((0.05..0.6).contains(&ratio), "a fifth of memory, and what the fill left: {ratio}");
                assert!(markdown(&pairs).contains("| uniform | hotbox | 50.0% |"));
            }
            Err(error) => assert!(error.to_string().contains("qemu-user"), "{error}"),
        }
    }
}
