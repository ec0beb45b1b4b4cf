//! `spillway bench ablation`: each switch beside the usual, in turns; it goes on where it stopped.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bench_common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bench_common::{complaint, finish};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(300);

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.args(["bench", "ablation"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ablation(arguments: &[&str], file: &Path) -> Output {
    let mut command = bench(&["--quick", "--memory", "24M", "--repeat", "1", "--pattern", "random_read"]);
    finish(command.args(arguments).arg("--save").arg(file).spawn().unwrap(), PATIENCE)
}

fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", complaint(output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["rows"].as_array().unwrap().clone()
}

#[test]
fn switches_are_measured_beside_the_usual_and_a_saved_measurement_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ablation.json");
    let both = ["--switch", "overlap", "--switch", "block", "--json", "--threads", "1"];
    let first = rows(&ablation(&both, &file));
    // Overlap over a store that takes its time, and three blocks over another.
    assert_eq!(first.len(), 4, "{first:?}");
    for row in &first {
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
        let ratio = row["usual"]["value"].as_f64().unwrap() / row["with"]["value"].as_f64().unwrap();
        assert!((number("ratio_median") - ratio).abs() < 1e-6 * ratio, "{row}");
        assert!(row["with"]["fetched"].as_f64() > Some(0.1), "{row}");
        let store = if row["switch"] == "overlap" { "ram:?fabric=fdr" } else { "ram:" };
        assert_eq!((&row["work"]["store"], &row["work"]["threads"]), (&store.into(), &1.into()), "{row}");
    }
    let more = rows(&ablation(&[&both[..], &["--threads", "2"]].concat(), &file));
    let again = |row: &Value| more.iter().any(|other| other == row);
    assert!(more.len() == 8 && first.iter().all(again), "what was there was measured anew: {more:?}");
    a_page_is_made_of(&file);
    let other = ablation(&["--switch", "block", "--json"], &file);
    let said = complaint(&other);
    assert_eq!((other.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("another --quick, --switch"), "{said}");
}

fn a_page_is_made_of(results: &Path) {
    let to = results.with_extension("docs");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    let output = command.args(["bench", "report", "--to"]).arg(&to).arg(results).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let page = fs::read_to_string(to.join("ablation.md")).unwrap();
    assert!(
        page.contains("| block = elastic | streams |") && page.contains("(ablation/speed.svg)"),
        "{page}"
    );
    assert!(fs::read_to_string(to.join("ablation/speed.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn the_switches_are_listed_and_every_flag_is_one_of_spillway_run() {
    let output = bench(&["--list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    for way in listed.as_array().unwrap() {
        let how = way["how"].as_str().unwrap();
        if how.starts_with('[') {
            continue;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        let store: Vec<&str> = way["store"].as_str().map_or(vec![], |store| vec!["--store", store]);
        let run = command.args(["run", "--local", "16M"]).args(store).args(how.split(' '));
        let run = run.args(["--", "true"]);
        let output = run.output().unwrap();
        assert!(output.status.success(), "{how}: {}", complaint(&output));
    }
    let text = String::from_utf8(bench(&["--list"]).output().unwrap().stdout).unwrap();
    assert!(text.contains("[fetch] overlap = false\n") && text.contains("--block elastic\n"), "{text}");
    let output = bench(&["--switch", "overlapping"]).output().unwrap();
    let said = complaint(&output);
    assert!(output.status.code() == Some(2) && said.contains("scan_share"), "{said}");
}
