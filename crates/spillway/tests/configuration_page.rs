//! docs/reference/configuration.md has each key that the command takes, none else, and what is so without it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};

use pages_common::root;
use serde_json::Value;

/// A key that no configuration has and that is like none, so that what is said of it names those that are.
const NO_KEY: &str = "zzz";

/// What `spillway check` finds in a text.
fn findings(command: &str, text: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("probe.toml");
    fs::write(&file, text).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_spillway"));
    check.args(["check", "--json", "--kind", command]).arg(&file).stdin(Stdio::null());
    let output = check.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["what"].as_str().unwrap().to_owned()).collect()
}

/// The keys that there are in this table of a command's configuration; none where it is no table.
fn keys_in(command: &str, table: &str) -> Vec<String> {
    let headers = match table {
        "" => vec![String::new()],
        table => vec![format!("[{table}]\n"), format!("[[{table}]]\n")],
    };
    let begins = format!("unknown key '{NO_KEY}'; there are ");
    let said = headers.iter().flat_map(|header| findings(command, &format!("{header}{NO_KEY} = 1\n")));
    let lists: Vec<String> = said.filter_map(|what| what.strip_prefix(&begins).map(str::to_owned)).collect();
    assert!(lists.len() <= 1, "{command}, [{table}]: {lists:?}");
    lists.iter().flat_map(|list| list.split(", ")).map(str::to_owned).collect()
}

/// All keys of a command's configuration, each with its table before it, such as `pool.local.copy_share`.
fn keys_of(command: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut tables = vec![String::new()];
    while let Some(table) = tables.pop() {
        for key in keys_in(command, &table) {
            let path = if table.is_empty() { key } else { format!("{table}.{key}") };
            if keys_in(command, &path).is_empty() {
                found.insert(path);
            } else {
                tables.push(path);
            }
        }
    }
    found
}

fn page() -> String {
    fs::read_to_string(root().join("docs/reference/configuration.md")).unwrap()
}

/// The part of the page that is of one file.
fn part_of<'p>(page: &'p str, file: &str) -> &'p str {
    let (_, part) = page.split_once(&format!("\n## {file}\n")).unwrap_or_else(|| panic!("no part on {file}"));
    part.split("\n## ").next().unwrap()
}

/// The rows of a file's part by their keys, each with its table before it; the other cells of each.
fn rows(part: &str) -> BTreeMap<String, Vec<String>> {
    let mut table = String::new();
    let mut rows = BTreeMap::new();
    for line in part.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            let named = heading.split('`').nth(1).unwrap_or_default();
            table = named.trim_matches(['[', ']']).to_owned();
        }
        let Some(row) = line.strip_prefix("| `").and_then(|row| row.strip_suffix(" |")) else { continue };
        let mut cells = row.split(" | ").map(str::to_owned);
        let key = cells.next().unwrap();
        let key = key.trim_end_matches('`');
        let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        assert!(rows.insert(path, cells.collect()).is_none(), "twice: {row}");
    }
    rows
}

/// The settings of a table and of those in it, each with its tables before it.
fn flat(table: &toml::Table, above: &str, found: &mut BTreeMap<String, toml::Value>) {
    for (key, value) in table {
        let path = format!("{above}{key}");
        match value {
            toml::Value::Table(table) => flat(table, &format!("{path}."), found),
            toml::Value::Array(elements) if elements.iter().any(toml::Value::is_table) => {
                for table in elements.iter().filter_map(toml::Value::as_table) {
                    flat(table, &format!("{path}."), found);
                }
            }
            value => {
                found.insert(path, value.clone());
            }
        }
    }
}

/// What an example sets, with what is commented out there: lines that begin with `#` and no space.
fn example(command: &str) -> BTreeMap<String, toml::Value> {
    let path = root().join(format!("packaging/examples/{command}.toml"));
    let text = fs::read_to_string(path).unwrap();
    let is_setting = |line: &&str| !line.starts_with("# ");
    let lines = text.lines().filter(is_setting).map(|line| line.strip_prefix('#').unwrap_or(line));
    let table: toml::Table = toml::from_str(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    let mut found = BTreeMap::new();
    flat(&table, "", &mut found);
    found
}

#[test]
fn every_key_of_a_configuration_has_a_row_and_no_row_is_of_another() {
    let page = page();
    for command in ["run", "tier"] {
        let known = keys_of(command);
        assert!(known.len() > 10, "{command}: {known:?}");
        let written: BTreeSet<String> =
            rows(part_of(&page, &format!("{command}.toml"))).into_keys().collect();
        let missing: Vec<_> = known.difference(&written).collect();
        let unknown: Vec<_> = written.difference(&known).collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "{command}.toml: without a row {missing:?}; no keys {unknown:?}"
        );
        let shown = example(command);
        let gone: Vec<_> = shown.keys().filter(|key| !written.contains(*key)).collect();
        assert!(gone.is_empty(), "of the example without a row: {gone:?}");
    }
}

#[test]
fn what_is_so_without_a_key_is_what_the_example_has() {
    let page = page();
    for (command, all) in [("run", true), ("tier", false)] {
        let shown = example(command);
        let mut compared = 0;
        for (key, cells) in rows(part_of(&page, &format!("{command}.toml"))) {
            // In words where it is no value.
            let Some(value) = cells[1].strip_prefix('`').and_then(|value| value.strip_suffix('`')) else {
                assert!(!all, "{key} has no value: {}", cells[1]);
                continue;
            };
            let written: toml::Table = toml::from_str(&format!("value = {value}")).unwrap();
            assert_eq!(Some(&written["value"]), shown.get(&key), "{command}.toml: {key}");
            compared += 1;
        }
        assert!(compared > 5, "{command}: {compared}");
    }
}

#[test]
fn options_that_keys_stand_for_are_the_commands() {
    let output = Command::new(env!("CARGO_BIN_EXE_spillway")).args(["tier", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let page = page();
    let mut checked = 0;
    for (key, cells) in rows(part_of(&page, "tier.toml")) {
        let Some(option) = cells[2].strip_prefix('`').and_then(|option| option.strip_suffix('`')) else {
            assert_eq!(cells[2], "none", "{key}");
            continue;
        };
        let is_there = help.split_whitespace().any(|word| word == option);
        assert!(is_there, "{key}: 'spillway tier' has no {option}");
        checked += 1;
    }
    assert!(checked > 10, "{checked} were found");
}

#[test]
fn the_donors_file_is_as_it_is_installed() {
    let file = fs::read_to_string(root().join("packaging/default/spillway-donor")).unwrap();
    let variables: BTreeMap<&str, &str> =
        file.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')).collect();
    let page = page();
    let rows = rows(part_of(&page, "spillway-donor"));
    assert!(rows.keys().eq(variables.keys()), "{rows:?}, {variables:?}");
    for (name, value) in variables {
        assert_eq!(rows[name][0], format!("`{value}`"), "{name}");
    }
}
