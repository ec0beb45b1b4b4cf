//! What is planted in the sources, what is looked for, and what `docs/concepts/simulator.md` tells are the
//! same.
#![allow(clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use spillway_sim::mistakes::MISTAKES;

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates' folder")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The names that stand behind `call` in the sources of a crate, as string literals.
fn named_behind(call: &str, crate_name: &str) -> BTreeSet<String> {
    let mut paths = Vec::new();
    sources(&crates().join(crate_name).join("src"), &mut paths);
    let mut names = BTreeSet::new();
    for path in paths {
        let text: String = fs::read_to_string(&path).expect("a source").split_whitespace().collect();
        names.extend(text.split(call).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
    names
}

fn looked_for() -> BTreeSet<String> {
    MISTAKES.iter().map(|mistake| mistake.name.to_owned()).collect()
}

#[test]
fn each_mistake_that_the_sources_plant_is_looked_for() {
    let mut planted = named_behind("planted!(K,\"", "spillway-pager");
    assert!(planted.len() > 50, "{planted:?}");
    // One stands below the seam.
    planted.extend(named_behind("self.has_planted(\"", "spillway-sim"));
    assert_eq!(planted, looked_for());
}

#[test]
fn the_table_has_each_mistake_and_no_other() {
    let page = fs::read_to_string(crates().join("../docs/concepts/simulator.md")).expect("the page");
    let told: BTreeSet<(String, String)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(name, rest)| Some((name.to_owned(), rest.split_once(" | ")?.0.to_owned())))
        .collect();
    let what = |mistake: &spillway_sim::mistakes::Mistake| (mistake.name.to_owned(), mistake.what.to_owned());
    assert_eq!(told, MISTAKES.iter().map(what).collect());
    assert!(page.lines().filter(|line| line.starts_with("| `")).all(|line| {
        line.trim_end_matches(" |").rsplit("| ").next().is_some_and(|seed| seed.parse::<u64>().is_ok())
    }));
}
