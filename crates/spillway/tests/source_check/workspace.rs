//! The workspace as its files tell it: its crates, their order, what each depends on.

use std::path::{Path, PathBuf};

/// The repository's directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Names of the directories in `crates/`, sorted.
pub fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The crates in the order of a Markdown table whose first column is headed "crate" and names each in
/// back-quotes.
pub fn order_in(text: &str) -> Vec<String> {
    text.lines()
        .skip_while(|line| !line.starts_with("| crate |"))
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect()
}

/// The order of the crates in ARCHITECTURE.md: each uses only what stands above it.
pub fn order() -> Vec<String> {
    order_in(&std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap())
}

/// What a manifest depends on, for whatever platform, in tests excepted.
pub fn dependencies_in(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let tables =
        platforms.into_iter().flat_map(|platforms| platforms.values().filter_map(toml::Value::as_table));
    std::iter::once(&manifest)
        .chain(tables)
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .filter_map(|table| table?.as_table())
        .flat_map(|table| table.keys().cloned())
        .collect()
}

/// What a crate of the workspace depends on, in tests excepted.
pub fn dependencies(name: &str) -> Vec<String> {
    let manifest = root().join("crates").join(name).join("Cargo.toml");
    dependencies_in(&std::fs::read_to_string(manifest).unwrap())
}
