//! Reports on small sweeps and made-up figures.

use std::collections::BTreeMap;

use super::*;
use crate::sweep::{Grid, sweep};
use compare::groups;

fn swept() -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let grid = Grid {
        workloads: vec!["uniform-kv".into(), "scan".into()],
        traces: Vec::new(),
        policies: vec!["all-local".into(), "hotbox".into(), "swap".into()],
        local: vec![0.2, 0.5],
        far_ns: vec![750.0, 1500.0],
        contention: vec![0.0],
        seeds: vec![1, 2],
        bytes: 2 << 20,
        platform: "hotbox".into(),
        workload_settings: BTreeMap::new(),
        policy_settings: BTreeMap::new(),
    };
    sweep(&grid, out.path(), 2, &|_, _| {}).unwrap();
    out
}

const FIGURE: &str = r#"{"figures": [{"id": "H99", "title": "A <b>title</b>", "source": "Nowhere",
    "unit": "seconds", "stacked": false,
    "panels": [{"title": "", "unit": "seconds", "values": [{"series": "a", "point": "20%", "value": 1.5}]}],
    "claims": [{"text": "more & more", "paper": "2", "measured": 1.0, "holds": false}]}]}"#;

#[test]
fn the_winner_is_the_fastest_that_is_no_bound() {
    let out = swept();
    let runs = table::read(&out.path().join(RUNS)).unwrap();
    assert_eq!(runs.len(), 48);
    let groups = groups(&runs);
    assert_eq!(groups.len(), 8, "seeds are no conditions");
    for group in &groups {
        let time = |policy| group.mean(policy, "run_s").unwrap();
        let (first, lead) = group.winner().unwrap();
        let (best, next) =
            if time("hotbox") < time("swap") { ("hotbox", "swap") } else { ("swap", "hotbox") };
        assert_eq!(first, best, "all-local is a bound");
        assert!((lead.unwrap() - time(next) / time(best)).abs() < 1e-9);
        assert!(group.slowdown("all-local").unwrap() <= 1.0 && group.slowdown(best) == Some(1.0));
    }
}

#[test]
fn the_page_shows_every_condition_and_figure_and_needs_nothing_else() {
    let out = swept();
    fs::write(out.path().join(FIGURES), FIGURE).unwrap();
    let page = report(out.path()).unwrap();
    let expected = [
        "uniform-kv",
        "scan by local memory (hotbox, 750 ns)",
        "scan by latency (50% local, hotbox)",
        "scan, 20% local, hotbox, 1500 ns",
        "faults",
        "A &lt;b&gt;title&lt;/b&gt;",
        "more &amp; more",
        "differs",
        "0 of 1",
    ];
    for text in expected {
        assert!(page.contains(text), "'{text}' is not on the page");
    }
    // Four curves by local memory, four by latency, eight breakdowns and the figure.
    assert_eq!(page.matches("<svg").count(), 17);
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http:", "https:", "src=", "@import", "<script", "url("] {
        assert!(!outside.contains(reference), "'{reference}' is on the page");
    }
    assert_eq!(page, report(out.path()).unwrap(), "one sweep, one page");
}

#[test]
fn figures_alone_are_enough() {
    let out = tempfile::tempdir().unwrap();
    fs::write(out.path().join(FIGURES), FIGURE).unwrap();
    let page = report(out.path()).unwrap();
    assert!(page.contains("H99") && !page.contains("Who wins where"));
}

#[test]
fn what_is_no_result_is_refused_by_name() {
    let out = tempfile::tempdir().unwrap();
    let error = || report(out.path()).unwrap_err().to_string();
    assert!(error().contains("neither"), "{}", error());
    fs::write(out.path().join(FIGURES), "{}").unwrap();
    assert!(error().contains("figures.json"), "{}", error());
    fs::write(out.path().join(RUNS), "PAR1").unwrap();
    assert!(error().contains("runs.parquet"), "{}", error());
}
