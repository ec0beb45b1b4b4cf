//! The report on the command line, and in a browser that may not reach anything.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod browser_common;

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Output, Stdio};

use browser_common::shown_without_network;

fn lab<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    command.arg("lab").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const GRID: &str = r#"
workloads = ["uniform-kv", "scan"]
policies = ["all-local", "hotbox", "swap"]
local = [0.2, 0.5]
bytes = 2097152
"#;

const FIGURES: &str = r#"{"figures": [{"id": "H99", "title": "Made up", "source": "Nowhere", "unit": "seconds",
    "stacked": false,
    "panels": [{"title": "", "unit": "seconds", "values": [{"series": "a", "point": "20%", "value": 1.5}]}],
    "claims": [{"text": "more", "paper": "2", "measured": 1.0, "holds": false}]}]}"#;

/// A directory with a sweep and a figure, and the page made of them.
fn reported() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let grid = folder.path().join("grid.toml");
    fs::write(&grid, GRID).unwrap();
    let out = folder.path().to_str().unwrap();
    let swept = lab(&["sweep", grid.to_str().unwrap(), "-o", out]);
    assert!(swept.status.success(), "{}", stderr(&swept));
    fs::write(folder.path().join("figures.json"), FIGURES).unwrap();
    let output = lab(&["report", out]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("report.html"), "{}", stderr(&output));
    folder
}

#[test]
fn a_browser_shows_the_report_without_error_or_network() {
    let folder = reported();
    let dom = shown_without_network(&folder.path().join("report.html"));
    for text in ["Who wins where", "uniform-kv", "hotbox", "Where the time goes", "H99", "0 of 1"] {
        assert!(dom.contains(text), "'{text}' is not shown:\n{dom}");
    }
    // Two curves, four breakdowns, one figure: each still a drawing after the browser has read it.
    assert_eq!(dom.matches("</svg>").count(), 7);
}

#[test]
fn the_page_goes_where_it_is_asked_to_and_what_is_missing_is_named() {
    let folder = reported();
    let page = folder.path().join("other.html");
    let output = lab(&[OsStr::new("report"), folder.path().as_os_str(), OsStr::new("-o"), page.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    let empty = tempfile::tempdir().unwrap();
    let output = lab(&["report", empty.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("runs.parquet") && stderr(&output).lines().count() == 1,
        "{}",
        stderr(&output)
    );
}

#[test]
fn figures_are_drawn_into_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let plots = folder.path().join("plots");
    let output = lab(&[
        OsStr::new("figure"),
        OsStr::new("H42"),
        OsStr::new("--quick"),
        OsStr::new("--plots"),
        plots.as_os_str(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let svg = fs::read_to_string(plots.join("H42.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("migrations off over on"), "{svg}");
}

#[test]
fn help_fits_80_columns_and_has_an_example() {
    for command in ["report", "figure"] {
        let help = String::from_utf8(lab(&[command, "--help"]).stdout).unwrap();
        assert!(help.contains(&format!("spillway lab {command} ")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
