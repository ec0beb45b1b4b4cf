//! Commands on pages that are typed in Spillway's sources: what cargo and make are told to build is there,
//! and so are the scripts.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pages_common::{all_pages, command_lines, root};

/// A package of the workspace.
struct Package {
    directory: PathBuf,
    manifest: toml::Table,
}

impl Package {
    fn read(directory: PathBuf) -> Self {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap().parse().unwrap();
        Self { directory, manifest }
    }

    /// Whether it has an example, a test or a bench of this name, by the directory's and the manifest's word.
    fn has(&self, directory: &str, table: &str, name: &str) -> bool {
        let place = self.directory.join(directory);
        let named = |target: &toml::Value| target.get("name").and_then(toml::Value::as_str) == Some(name);
        place.join(format!("{name}.rs")).is_file()
            || place.join(name).join("main.rs").is_file()
            || self
                .manifest
                .get(table)
                .and_then(toml::Value::as_array)
                .is_some_and(|all| all.iter().any(named))
    }

    fn has_bin(&self, name: &str) -> bool {
        let own = self.manifest["package"]["name"].as_str() == Some(name);
        self.has("src/bin", "bin", name) || own && self.directory.join("src/main.rs").is_file()
    }

    fn has_feature(&self, feature: &str) -> bool {
        let listed = |table: &str| self.manifest.get(table).is_some_and(|all| all.get(feature).is_some());
        listed("features") || listed("dependencies")
    }
}

/// What there is to be built.
struct Sources {
    packages: BTreeMap<String, Package>,
    targets: BTreeSet<String>,
}

impl Sources {
    fn read() -> Self {
        let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let packages = crates.filter(|path| path.join("Cargo.toml").is_file()).map(|path| {
            let package = Package::read(path);
            (package.manifest["package"]["name"].as_str().unwrap().to_owned(), package)
        });
        let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
        let targets = makefile.lines().filter_map(|line| line.split_once(':').map(|(target, _)| target));
        let is_name = |target: &&str| target.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        Self {
            packages: packages.collect(),
            targets: targets.filter(is_name).filter(|target| !target.is_empty()).map(str::to_owned).collect(),
        }
    }

    /// What is wrong with a command line of cargo's, make's or a script's; nothing for all others.
    fn wrong(&self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Variables of the environment stand before a command.
        let is_setting = |word: &&&str| **word == "env" || word.contains('=');
        let words = &words[words.iter().take_while(is_setting).count()..];
        match words.split_first()? {
            (&"cargo", rest) => self.wrong_for_cargo(rest),
            // What stands in quotes is a variable's value.
            (&"make", rest) => rest.iter().take_while(|word| !word.contains('"')).find_map(|word| {
                let is_target = !word.starts_with('-') && !word.contains(['=', '.']);
                let is_missing = is_target && !self.targets.contains(*word);
                is_missing.then(|| format!("the Makefile has no '{word}'"))
            }),
            (command, _) => {
                let script = command.strip_prefix("scripts/")?;
                let is_missing = !root().join("scripts").join(script).is_file();
                is_missing.then(|| format!("there is no scripts/{script}"))
            }
        }
    }

    fn wrong_for_cargo(&self, words: &[&str]) -> Option<String> {
        let own: Vec<&str> = words.iter().copied().take_while(|word| *word != "--").collect();
        let values = |option: &str| -> Vec<&str> {
            let pairs = own.windows(2).filter(|pair| pair[0] == option);
            pairs.map(|pair| pair[1]).collect()
        };
        let manifests = values("--manifest-path");
        let elsewhere = manifests.first().map(|path| root().join(path));
        if let Some(missing) = elsewhere.as_ref().filter(|path| !path.is_file()) {
            return Some(format!("there is no {}", missing.display()));
        }
        let elsewhere =
            elsewhere.as_deref().and_then(Path::parent).map(|path| Package::read(path.to_owned()));
        let named: Vec<&str> = ["-p", "--package"].into_iter().flat_map(values).collect();
        if let Some(missing) = named.iter().find(|name| !self.packages.contains_key(**name)) {
            return Some(format!("there is no package '{missing}'"));
        }
        let among: Vec<&Package> = match (&elsewhere, named.as_slice()) {
            (Some(package), _) => vec![package],
            (None, []) => self.packages.values().collect(),
            (None, named) => named.iter().map(|name| &self.packages[*name]).collect(),
        };
        let missing = |option: &str, has: &dyn Fn(&Package, &str) -> bool| {
            let names = values(option);
            let mut names = names.iter().flat_map(|names| names.split(','));
            let missing = names.find(|name| !among.iter().any(|package| has(package, name)));
            missing.map(|name| format!("no package of these has {option} {name}"))
        };
        missing("--example", &|package, name| package.has("examples", "example", name))
            .or_else(|| missing("--test", &|package, name| package.has("tests", "test", name)))
            .or_else(|| missing("--bench", &|package, name| package.has("benches", "bench", name)))
            .or_else(|| missing("--bin", &|package, name| package.has_bin(name)))
            .or_else(|| missing("--features", &|package, name| package.has_feature(name)))
    }
}

#[test]
fn what_pages_have_cargo_and_make_build_is_there() {
    let sources = Sources::read();
    let mut checked = 0;
    let mut mistakes = Vec::new();
    for page in all_pages() {
        for line in command_lines(&fs::read_to_string(&page).unwrap()) {
            checked += usize::from(line.contains("cargo ") || line.starts_with("make "));
            mistakes.extend(sources.wrong(&line).map(|what| format!("{}: {line}: {what}", page.display())));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(checked > 50, "{checked} were found");
}

#[test]
fn what_is_not_there_is_named() {
    let sources = Sources::read();
    for (line, expected) in [
        ("make test RIG=--quick", None),
        ("make tests", Some("the Makefile has no 'tests'")),
        ("env \"PATH=$PATH\" make figurs", Some("the Makefile has no 'figurs'")),
        ("scripts/setup", None),
        ("scripts/set-up now", Some("there is no scripts/set-up")),
        ("cargo run -p spillway -- doctor --test no", None),
        ("cargo run -p spilway", Some("there is no package 'spilway'")),
        ("A=1 cargo test -p spillway --test clj", Some("no package of these has --test clj")),
        ("cargo run --release -p spillway-store --example codec_cost -- PID", None),
        (
            "cargo run -p spillway-pool --example codec_cost",
            Some("no package of these has --example codec_cost"),
        ),
        ("cargo test -p spillway --features full-test", Some("no package of these has --features full-test")),
        ("cargo run --bin spillway", None),
        ("cargo run --manifest-path research/none/Cargo.toml", Some("there is no ")),
        ("redis-server --test none", None),
    ] {
        let said = sources.wrong(line);
        let is_as_expected = match (&said, expected) {
            (Some(said), Some(expected)) => said.starts_with(expected),
            (said, expected) => said.is_none() && expected.is_none(),
        };
        assert!(is_as_expected, "{line}: {said:?}");
    }
}
