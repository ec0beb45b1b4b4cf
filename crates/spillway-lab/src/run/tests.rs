//! Whole runs: that bounds hold, that totals add up, and that nonsense is refused.

use super::*;

fn spec(workload: &str, policy: &str) -> RunSpec {
    RunSpec { workload: workload.into(), policy: policy.into(), bytes: 4 << 20, ..RunSpec::default() }
}

#[test]
fn every_policy_runs_and_keeps_to_its_local_memory() {
    for entry in registry::entries() {
        let report = execute(&spec("memcached-etc", entry.name)).unwrap();
        assert!(report.run_s > 0.0 && report.accesses > 0, "{}", entry.name);
        assert!(entry.unlimited || report.local_pages < report.pages / 4, "{}", entry.name);
        assert!(report.good_put <= 1.0 && report.prefetch_accuracy <= 1.0, "{}", entry.name);
    }
}

#[test]
fn bounds_hold() {
    let run_s = |policy: &str| execute(&spec("memcached-etc", policy)).unwrap().run_s;
    let (local, remote, oracle) = (run_s("all-local"), run_s("all-remote"), run_s("oracle"));
    assert!(local < oracle && oracle < remote, "{local} {oracle} {remote}");
}

#[test]
fn no_page_fetch_policy_has_fewer_fetches_than_belady() {
    let fetches = |policy: &str| {
        let spec = RunSpec {
            policy_settings: match policy {
                "swap" => Map::from_iter([("read_ahead_pages".to_owned(), 1.into())]),
                _ => Map::new(),
            },
            lockstep: true,
            ..spec("ligra-bfs", policy)
        };
        execute(&spec).unwrap().missing_faults
    };
    let best = fetches("belady");
    assert!(best > 0);
    for policy in ["swap", "dcm-4k"] {
        assert!(fetches(policy) >= best, "{policy}");
    }
}

#[test]
fn a_run_that_tells_how_far_it_is_gives_the_same_report() {
    let mut left = Vec::new();
    let mut told_s = 0.0;
    let told = execute_telling(&spec("memcached-etc", "hotbox"), &mut |simulation| {
        left.extend(simulation.work_left());
        told_s = simulation.simulated_s();
    });
    assert!(left.len() > 10 && left.is_sorted_by(|before, after| before >= after), "{left:?}");
    assert!(left[left.len() - 1] < left[0] / 4 && told_s > 0.0, "{left:?}");
    let silent = execute(&spec("memcached-etc", "hotbox")).unwrap();
    assert_eq!(serde_json::to_string(&told.unwrap()).unwrap(), serde_json::to_string(&silent).unwrap());
}

#[test]
fn one_seed_gives_one_report_on_any_thread() {
    let run = || serde_json::to_string(&execute(&spec("ligra-bfs", "hotbox")).unwrap()).unwrap();
    let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(run)).collect();
    let reports: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(reports[0], reports[1]);
    assert_eq!(reports[0], run());
}

/// What the totals say, the points of the series say in pieces.
#[test]
fn the_series_adds_up_to_the_totals() {
    for (workload, policy) in [("memcached-etc", "hotbox"), ("ligra-bfs", "swap"), ("tpcc", "nimble-base")] {
        let report = execute(&spec(workload, policy)).unwrap();
        let points = &report.series;
        assert!(points.len() > 3, "{workload} {}", points.len());
        let starts = std::iter::once(0.0).chain(points.iter().map(|point| point.time_s));
        let windows: Vec<(f64, &Point)> =
            starts.zip(points).map(|(start, point)| (point.time_s - start, point)).collect();
        let sum = |rate: fn(&Point) -> f64| windows.iter().map(|(s, point)| s * rate(point)).sum::<f64>();
        let time = |part: fn(&TimeSplit) -> f64| points.iter().map(|point| part(&point.time)).sum::<f64>();
        let parts = [
            (sum(|point| point.promotions_per_s), report.promotions as f64),
            (sum(|point| point.demotions_per_s), report.demotions as f64),
            (sum(|point| point.access_bytes_per_s), report.access_bytes as f64),
            (sum(|point| point.migration_bytes_per_s), report.migration_bytes as f64),
            (time(|time| time.app_s), report.time.app_s),
            (time(|time| time.scan_local_s), report.time.scan_local_s),
            (time(|time| time.scan_far_s), report.time.scan_far_s),
            (time(|time| time.fault_s), report.time.fault_s),
            (time(|time| time.migration_s), report.time.migration_s),
        ];
        for (at, (series, total)) in parts.into_iter().enumerate() {
            assert!((series - total).abs() <= 1e-3 * total + 1e-9, "{policy} {at}: {series} of {total}");
        }
        let last = points.last().unwrap();
        assert_eq!((last.time_s, last.good_put), (report.run_s, report.good_put));
        assert!(points.iter().all(|point| (0.0..=1.0).contains(&point.good_put)));
    }
}

#[test]
fn tenants_share_the_link_and_slow_each_other_down() {
    let mut one = spec("uniform-kv", "all-remote");
    one.platform_settings.insert("link_bytes_per_s".into(), 2e8.into());
    let alone = execute(&one).unwrap().run_s;
    let together = execute_together(&[one.clone(), one]).unwrap();
    assert_eq!(together.len(), 2);
    assert!(together.iter().all(|report| report.run_s > 1.2 * alone), "{alone} {}", together[0].run_s);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let setting = |key: &str, value: f64| RunSpec {
        platform_settings: Map::from_iter([(key.to_owned(), value.into())]),
        ..spec("scan", "swap")
    };
    let wrong = [
        RunSpec { contention: 1.5, ..spec("scan", "swap") },
        RunSpec { local: LocalSize::Share(2.0), ..spec("scan", "swap") },
        RunSpec { platform: "abacus".into(), ..spec("scan", "swap") },
        RunSpec { scale: Some(0.0), ..spec("scan", "swap") },
        RunSpec { scale: Some(f64::NAN), ..spec("scan", "swap") },
        RunSpec { bytes: 0, ..spec("scan", "swap") },
        RunSpec { bytes: 100 << 40, ..spec("scan", "swap") },
        RunSpec { local: LocalSize::Bytes(0), ..spec("scan", "swap") },
        RunSpec { local: LocalSize::Share(f64::NAN), ..spec("scan", "swap") },
        RunSpec { workload: "nonsense".into(), ..spec("scan", "swap") },
        RunSpec { policy: "nonsense".into(), ..spec("scan", "swap") },
        setting("link_bytes_per_s", 0.0),
        setting("far_ns", -1.0),
        setting("far_ns", 1e300),
        setting("swap_locked_share", 2.0),
        setting("llc_bytes", 1e14),
        RunSpec {
            platform_settings: Map::from_iter([("page_bytes".to_owned(), 5000.into())]),
            ..spec("scan", "swap")
        },
        RunSpec {
            platform_settings: Map::from_iter([("speed".to_owned(), 1.into())]),
            ..spec("scan", "swap")
        },
    ];
    for spec in wrong {
        assert!(execute(&spec).is_err(), "{spec:?}");
    }
}

/// A trace that fills 200 pages, gives them back, and fills 200 others, ten times.
fn giving_back(folder: &std::path::Path, gives_back: bool) -> RunSpec {
    use crate::access::Access;
    let path = folder.join(format!("{gives_back}.trace"));
    let mut writer = crate::trace::TraceWriter::new(std::fs::File::create(&path).unwrap()).unwrap();
    for round in 0..10_u64 {
        for pass in 0..3 {
            for page in 0..200 {
                let address = ((round % 2) * 200 + page) * PAGE_BYTES + pass * 64;
                writer.append(0, Access::write(address)).unwrap();
            }
        }
        if gives_back {
            writer.append_release(0, (round % 2) * 200, 200).unwrap();
        }
    }
    writer.finish().unwrap();
    let mut spec = spec(workloads::TRACE, "");
    spec.workload_settings.insert("file".into(), path.to_str().unwrap().into());
    RunSpec { local: LocalSize::Bytes(256 * PAGE_BYTES), ..spec }
}

#[test]
fn what_a_program_gives_back_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    for policy in ["swap", "dcm", "belady", "hotbox", "tpp", "memtis"] {
        let run = |gives_back| {
            execute(&RunSpec { policy: policy.into(), ..giving_back(folder.path(), gives_back) }).unwrap()
        };
        let (kept, given_back) = (run(false), run(true));
        assert_eq!((kept.working_set_pages, given_back.working_set_pages), (400, 200), "{policy}");
        // A few pages are kept free; nothing else has to leave where all that is held fits.
        let demotions = [kept.demotions, given_back.demotions];
        assert!(demotions[1] <= demotions[0] / 2 || demotions == [0, 0], "{policy}: {demotions:?}");
        assert!(given_back.local_hit_ratio > kept.local_hit_ratio - 0.01, "{policy}");
    }
}

#[test]
fn what_was_not_written_is_not_sent() {
    // Read round and round, of which half fits: each page comes many times, and none has changed.
    let read = execute(&RunSpec { policy: "swap".into(), ..spec("scan", "swap") }).unwrap();
    let bytes_each_way = read.promotions * PAGE_BYTES;
    assert!(read.demotions > 1000 && read.missing_faults > 0, "{read:?}");
    assert!(read.migration_bytes < bytes_each_way * 3 / 2, "{} for {bytes_each_way}", read.migration_bytes);
    assert!(read.migration_bytes >= bytes_each_way);
}
