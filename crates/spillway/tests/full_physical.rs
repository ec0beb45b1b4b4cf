//! `spillway bench physical` whole, if quick: what needs all free memory, whole programs, or a browser. It
//! checks the physics, not times. Run by `make test-full` as root.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;
mod browser_common;
mod physical_common;

use std::time::Duration;

use browser_common::shown_without_network;
use physical_common::{alone, distribution, physical, report, rows, settings};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(20 * 60);

fn value(rows: &[Value], series: &str, point: &str) -> f64 {
    let row = rows.iter().find(|row| row["series"] == series && row["point"] == point);
    row.unwrap_or_else(|| panic!("no {series}, {point} in {rows:?}"))["value"].as_f64().unwrap()
}

fn mean(row: &Value) -> f64 {
    row["distribution"]["mean"].as_f64().unwrap()
}

#[test]
fn huge_pages_cost_more_from_fragmented_memory() {
    let _guard = alone();
    let before = settings();
    let report = report(&mut physical(&["capacity", "--quick"]), PATIENCE);
    assert_eq!(settings(), before);
    let cost = rows(&report, "capacity", "First touch of 2 MiB");
    cost.iter().for_each(distribution);
    let got = rows(&report, "capacity", "Huge pages that the kernel found");
    let of =
        |series: &str| cost.iter().rfind(|row| row["series"] == series).unwrap_or_else(|| panic!("{report}"));
    let whole = of("whole");
    let found = |row: &Value| value(&got, row["series"].as_str().unwrap(), row["point"].as_str().unwrap());
    assert!(found(whole) > 90.0, "{report}");
    // Where the kernel gives up it finds none, and where it does not it moves pages - unless it did so in the
    // background.
    let fragmented = [of("fragmented, 99% free"), of("fragmented, 50% free")];
    assert!(fragmented.iter().any(|row| found(row) < 50.0 || mean(row) > mean(whole)), "{report}");
}

#[test]
fn khugepaged_promotes_sooner_the_less_it_sleeps() {
    let _guard = alone();
    let before = settings();
    let report = report(&mut physical(&["khugepaged", "--quick"]), PATIENCE);
    assert_eq!(settings(), before);
    let time = rows(&report, "khugepaged", "Time to promote the region");
    let of = |rate: &str| value(&time, "this machine", rate);
    assert!(of("unlimited") < of("moderate") && of("moderate") < of("default"), "{report}");
    let cpu = rows(&report, "khugepaged", "CPU of khugepaged meanwhile");
    assert!(value(&cpu, "this machine", "unlimited") > value(&cpu, "this machine", "default"), "{report}");
}

#[test]
fn programs_run_under_each_mode_and_spend_time_on_zeroing() {
    let _guard = alone();
    let before = settings();
    let report = report(&mut physical(&["thp", "zeroing", "--quick"]), PATIENCE);
    assert_eq!(settings(), before);
    for panel in ["BFS: one round", "memcached: one request"] {
        let rows = rows(&report, "thp", panel);
        rows.iter().for_each(distribution);
        let points: Vec<&str> = rows.iter().map(|row| row["point"].as_str().unwrap()).collect();
        assert_eq!(points, ["never", "madvise", "defer", "always"], "{report}");
    }
    let share = rows(&report, "zeroing", "Share of run time spent zeroing");
    for program in ["BFS", "memcached, filling", "Node.js, many short runs", "many small processes"] {
        let percent = value(&share, "this machine", program);
        assert!(percent > 0.0 && percent < 100.0, "{program}: {report}");
    }
    assert_eq!(value(&share, "paper, Optane", "BFS"), 16.29);
    assert!(report["advice"].as_array().unwrap().iter().any(|advice| {
        advice["setting"] == "/sys/kernel/mm/transparent_hugepage/enabled"
            && advice["measurement"].as_str().unwrap().starts_with("thp: ")
    }));
}

#[test]
fn a_browser_shows_the_page_without_error_or_network() {
    let _guard = alone();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("memory.html");
    let mut command =
        physical(&["alloc", "breakdown", "threads", "zeroing", "--quick", "--memory", "64M", "--html"]);
    let report = report(command.arg(&page), PATIENCE);
    let dom = shown_without_network(&page);
    for text in [
        "What to set on this machine",
        "threads that allocate at once",
        "First touch of a page, node 0",
        "paper, Optane",
        "51x of DRAM",
        "p99.9",
        "holds",
    ] {
        assert!(dom.contains(text), "'{text}' is not shown:\n{dom}");
    }
    let panels: usize = report["experiments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["panels"].as_array().unwrap().len())
        .sum();
    assert_eq!(dom.matches("</svg>").count(), panels, "{dom}");
    // Each case of 'alloc' is a violin.
    assert!(dom.matches("<polygon").count() >= rows(&report, "alloc", "First touch of a page, node 0").len());
}
