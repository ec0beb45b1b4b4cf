//! Holds SPECIFICATION.md to its word: each promise names a test, and each named test exists.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The promises of a specification, each with the tests that its last column names in back-quotes.
fn promises(text: &str) -> Vec<(&str, Vec<&str>)> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix('|')?.strip_suffix('|'))
        .map(|row| row.rsplit_once('|').unwrap_or((row, "")))
        .filter(|(promise, _)| promise.trim() != "promise" && !promise.trim().starts_with("--"))
        .map(|(promise, tests)| (promise.trim(), tests.split('`').skip(1).step_by(2).collect()))
        .collect()
}

/// Why a test, named `path/to/file::name` or `path/to/script`, cannot be found under `root`.
fn complaint(root: &Path, test: &str) -> Option<String> {
    let (path, name) = test.split_once("::").map_or((test, None), |(path, name)| (path, Some(name)));
    let Ok(text) = std::fs::read_to_string(root.join(path)) else {
        return Some(format!("no file {path}"));
    };
    match name {
        Some(name) if !is_test(&text, name) => Some(format!("no test {name} in {path}")),
        None if path.ends_with(".rs") => Some(format!("which test of {path}?")),
        _ => None,
    }
}

/// Whether a Rust source has a test function of this name: the attribute stands in the lines just above.
fn is_test(source: &str, name: &str) -> bool {
    let lines = source.lines().collect::<Vec<_>>();
    let function = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        line.trim().starts_with(&function)
            && lines[at.saturating_sub(5)..at].iter().any(|above| above.trim().starts_with("#[test]"))
    })
}

#[test]
fn every_promise_has_a_test_that_exists() {
    let text = std::fs::read_to_string(root().join("SPECIFICATION.md")).unwrap();
    let promises = promises(&text);
    assert!(!promises.is_empty(), "SPECIFICATION.md has no table");
    let mut complaints = Vec::new();
    for (promise, tests) in promises {
        if tests.is_empty() {
            complaints.push(format!("'{promise}' names no test"));
        }
        let missing = tests.iter().filter_map(|test| complaint(&root(), test));
        complaints.extend(missing.map(|why| format!("'{promise}': {why}")));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_promise_without_a_test_is_noticed() {
    let text = "| promise | test |\n|---|---|\n| one | `a.rs::b` `c` |\n| two | later |\ntext\n";
    assert_eq!(promises(text), [("one", vec!["a.rs::b", "c"]), ("two", vec![])]);
    let this = "crates/spillway/tests/specification.rs";
    for (test, complains) in [
        (format!("{this}::a_promise_without_a_test_is_noticed"), false),
        (format!("{this}::is_test"), true),
        (format!("{this}::no_such_test"), true),
        (this.to_owned(), true),
        ("no/such/file".to_owned(), true),
        ("Cargo.toml".to_owned(), false),
    ] {
        assert_eq!(complaint(&root(), &test).is_some(), complains, "{test}");
    }
}
