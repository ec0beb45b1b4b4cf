//! The pages that describe the snapshot name every key that is told, each under the object that has it, and
//! no others.
//!
//! A page has keys in the first cells of a table (`prefetch.accuracy` with the object before the dot). The
//! keys of an object stand in its row's second cell, or in a paragraph that begins with its name and a colon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use spillway_donor::status::ExportStatus;
use spillway_policy::machine::Tier;
use spillway_snapshot::histogram::Latency;
use spillway_snapshot::snapshot::{Body, Evictions, Faults, Process, Return};
use spillway_tier::history::{Reason, Sum};

use crate::watch::donor_snapshot::{donor_of, tests::donor_snapshot};
use crate::watch::metrics::tests::whole_snapshot;
use crate::watch::tier_metrics::tests::status;

/// Keys by the name of the object that has them; those of the outermost by no name.
type Keys = BTreeMap<String, BTreeSet<String>>;

/// Numbers by the reason: their keys are words that the kernel's errors are called.
const BY_REASON: &str = "refused";

fn told(value: &Value) -> Keys {
    let mut keys = Keys::new();
    collect(value, "", &mut keys);
    keys
}

fn collect(value: &Value, name: &str, keys: &mut Keys) {
    match value {
        Value::Object(members) if name != BY_REASON => {
            for (key, member) in members {
                keys.entry(name.to_owned()).or_default().insert(key.clone());
                collect(member, key, keys);
            }
        }
        Value::Array(items) => {
            assert!(!items.is_empty(), "there is no sample of what '{name}' has");
            items.iter().for_each(|item| collect(item, name, keys));
        }
        _ => {}
    }
}

/// What stands in a page between a heading and the next, as far as it names keys; `values` are words that
/// keys may have, and no keys.
fn documented(page: &str, heading: &str, values: &[&str]) -> Keys {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let section = section.split("\n#").next().unwrap();
    let mut keys = Keys::new();
    let mut note = |object: &str, text: &str| {
        for word in words(text).into_iter().filter(|word| !values.contains(word)) {
            keys.entry(object.to_owned()).or_default().insert(word.to_owned());
        }
    };
    for block in section.split("\n\n") {
        let rows = block.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
        for (first, second) in rows {
            match words(first).as_slice() {
                [name] => match name.split_once('.') {
                    Some((object, key)) => {
                        note("", &format!("`{object}`"));
                        note(object, &format!("`{key}`"));
                    }
                    None => {
                        note("", first);
                        note(name, second);
                    }
                },
                _ => note("", first),
            }
        }
        let paragraph = block.strip_prefix('`').and_then(|block| block.split_once("`: "));
        if let Some((name, text)) = paragraph.filter(|(name, _)| is_key(name)) {
            note(name, text);
        }
    }
    keys
}

/// What stands in backquotes and could be a key.
fn words(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|word| is_key(word)).collect()
}

fn is_key(word: &str) -> bool {
    let of_key =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_.".contains(letter);
    !word.is_empty() && word.chars().all(of_key)
}

fn histogram() -> Latency {
    Latency { buckets: vec![(900, 1)], ..Latency::default() }
}

#[test]
fn the_page_names_every_key_of_a_snapshot_and_of_a_run_and_no_others() {
    let mut snapshot = whole_snapshot();
    let Body::Run { run } = &mut snapshot.body else { panic!("no run") };
    run.returns.push(Return { within_bytes: 4096, faults: 1, total_us: 1.0 });
    run.processes.push(Process {
        pid: Some(8),
        name: None,
        fault_mode: "thread".to_owned(),
        local_bytes: 0,
        native_bytes: 0,
        far_bytes: 0,
        faults: Faults::default(),
        fault_latency: histogram(),
        fetched_pages: 0,
        fetched_ahead_pages: 0,
        written_pages: 0,
        evictions: Evictions::default(),
        heat: None,
    });
    let mut value = serde_json::to_value(&snapshot).unwrap();
    let run = value.as_object_mut().unwrap().remove("run").unwrap();
    let page = "reference/snapshot.md";
    assert_eq!(documented(page, "## Reading it", &["run", "donor", "tier", "null"]), told(&value));
    let values = ["thread", "inline", "null", "ok", "full", "failing", "silent", "unknown"];
    assert_eq!(documented(page, "### `run`", &values), told(&run));
}

#[test]
fn the_page_names_every_key_of_a_donor_and_no_others() {
    let mut donor = donor_of(&donor_snapshot(1.0, 4096)).unwrap();
    donor.exports.push(ExportStatus {
        name: String::new(),
        run: None,
        client: "127.0.0.1".to_owned(),
        connections: 0,
        promised_bytes: None,
        held_bytes: 0,
        grace_left_s: None,
    });
    let told = told(&serde_json::to_value(&donor).unwrap());
    assert_eq!(documented("operate/donor.md", "## What it says", &["null"]), told);
}

#[test]
fn the_page_names_every_key_of_the_tier_daemon_and_no_others() {
    let mut status = status();
    let moved = Sum { to: Tier::Far, reason: Reason::Policy, pages: 1 };
    status.groups.iter_mut().for_each(|group| group.last_minute.push(moved));
    let told = told(&serde_json::to_value(&status).unwrap());
    let values = ["null", "batches", "budget", "pressure", "local", "far"];
    assert_eq!(documented("reference/snapshot.md", "### `tier`", &values), told);
}
