//! Holds every file to the habits of the repository: narrow lines, doc comments that say something, the page
//! size and like constants defined once, and no reference to a file that is not there.
//!
//! For one crate: `cargo test -p spillway --test tidy spillway_store`; for what lies outside all crates:
//! `the_rest`.
#![allow(clippy::unwrap_used)]

mod source_check;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use source_check::constants::{PAGE_FILE, defined_again, page_numbers};
use source_check::files::{Finding, Text, has_limited_lines, paths, wide_lines};
use source_check::module_tree::ModuleTree;
use source_check::prose::{dead_anchors, dead_references, doc_tests, empty_docs};
use source_check::workspace;

/// Columns of a line at most, as in `rustfmt.toml`.
const WIDTH: usize = 110;

/// One test for each crate, one for the rest, and one that none is left out.
macro_rules! tidy_crates {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                let directory = Path::new("crates").join(stringify!($name).replace('_', "-"));
                assert_tidy(|path| path.starts_with(&directory));
            }
        )*

        #[test]
        fn every_crate_is_looked_at() {
            let mut names = [$(stringify!($name).replace('_', "-")),*];
            names.sort();
            assert_eq!(names.as_slice(), workspace::crates());
        }
    };
}

tidy_crates!(
    spillway_sys,
    spillway_core,
    spillway_policy,
    spillway_learn,
    spillway_nbd,
    spillway_pool,
    spillway_tls,
    spillway_store,
    spillway_etcd,
    spillway_events,
    spillway_donor,
    spillway_marker,
    spillway_pager,
    spillway_sim,
    spillway_preload,
    spillway_snapshot,
    spillway_tier,
    spillway_report,
    spillway_lab,
    spillway_bench,
    spillway,
);

#[test]
fn the_rest() {
    assert_tidy(|path| !path.starts_with("crates"));
}

/// The sources of which something is compiled where no test is.
fn shipped() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for name in workspace::crates() {
        let directory = Path::new("crates").join(name);
        for tree in ModuleTree::of_crate(&workspace::root().join(&directory)) {
            found.extend(tree.modules.iter().map(|module| directory.join(&module.file)));
        }
    }
    found
}

/// What all crates' tests look at, read once.
struct Repository {
    files: BTreeSet<PathBuf>,
    shipped: BTreeSet<PathBuf>,
    again: BTreeMap<PathBuf, Vec<Finding>>,
}

static REPOSITORY: LazyLock<Repository> = LazyLock::new(|| {
    let shipped = shipped();
    let again = defined_again(&shipped.iter().filter_map(|path| read(path)).collect::<Vec<_>>());
    let files = paths(&workspace::root(), Path::new("")).into_iter().collect();
    Repository { files, shipped, again }
});

/// The file at a path in the repository; none where it is no text.
fn read(path: &Path) -> Option<Text> {
    let text = String::from_utf8(std::fs::read(workspace::root().join(path)).unwrap()).ok()?;
    Some(Text { path: path.to_owned(), text })
}

/// What is wrong with one file.
fn findings(Text { path, text }: &Text) -> Vec<Finding> {
    let Repository { files, shipped, again } = &*REPOSITORY;
    let is = |ending: &str| path.extension().is_some_and(|extension| extension == ending);
    let mut found = Vec::new();
    if has_limited_lines(path) {
        found.extend(wide_lines(text, WIDTH));
    }
    if is("rs") {
        found.extend(empty_docs(text));
        found.extend(doc_tests(text));
    }
    if is("rs") || is("md") {
        found.extend(dead_references(path, text, files));
    }
    if is("md") {
        found.extend(dead_anchors(path, text, |other| {
            files.contains(other).then(|| read(other))?.map(|other| other.text)
        }));
    }
    if shipped.contains(path) && path != Path::new(PAGE_FILE) {
        found.extend(page_numbers(text));
    }
    found.extend(again.get(path).into_iter().flatten().cloned());
    found
}

/// Asserts that nothing is wrong with the files that are chosen.
fn assert_tidy(is_chosen: impl Fn(&Path) -> bool) {
    let chosen: Vec<_> = REPOSITORY.files.iter().filter(|path| is_chosen(path)).collect();
    assert!(!chosen.is_empty(), "no files");
    let mut complaints = Vec::new();
    for text in chosen.into_iter().filter_map(|path| read(path)) {
        let said = |Finding { line, what }| format!("{}:{line}: {what}", text.path.display());
        complaints.extend(findings(&text).into_iter().map(said));
    }
    assert!(complaints.is_empty(), "\n{} findings:\n{}\n", complaints.len(), complaints.join("\n"));
}

fn said(findings: &[Finding]) -> Vec<(usize, &str)> {
    findings.iter().map(|finding| (finding.line, finding.what.as_str())).collect()
}

#[test]
fn wide_lines_are_found_by_their_characters() {
    let text = format!("{}\n{}\n{}\n", "x".repeat(110), "\u{e4}".repeat(110), "x".repeat(111));
    assert_eq!(said(&wide_lines(&text, 110)), [(3, "111 columns")]);
}

#[test]
fn a_doc_comment_says_more_than_three_words() {
    let text = "/// The policy.\nstruct P;\n/// What moves pages between\n/// nodes.\nstruct Q;\n\
                //// not one\n// nor this";
    assert_eq!(said(&empty_docs(text)), [(1, "a doc comment of 2 words: The policy.")]);
}

#[test]
fn a_test_in_a_doc_comment_is_found_and_text_is_none() {
    let text =
        "//! ```text\n//! a\n//! ```\nfn f() {}\n/// ```\n/// f();\n/// ```\nfn g() {}\n/// ```rust\n/// ```";
    let found: Vec<usize> = doc_tests(text).iter().map(|finding| finding.line).collect();
    assert_eq!(found, [5, 9]);
}

#[test]
fn the_page_size_is_said_by_name_outside_tests() {
    for (text, lines) in [
        ("fn f(a: usize) -> usize { a / 4096 }", vec![1]),
        ("fn f(a: u64) -> u64 {\n a & !0xfff_u64 | 4_096 }", vec![2, 2]),
        ("fn f(a: u64) { println!(\"{}\", a >> 4095) }", vec![1]),
        ("const MAX_NAME_BYTES: usize = 4096;", vec![]),
        ("const MAX_NAME_BYTES: usize = 2 * 4096;", vec![1]),
        ("#[cfg(test)]\nmod tests { fn f() -> u32 { 4096 } }", vec![]),
        ("#[test]\nfn f() { assert_eq!(4096, 1) }", vec![]),
        ("/// 4096 bytes\nfn f() -> &'static str { \"4096\" }", vec![]),
    ] {
        let found: Vec<_> = page_numbers(text).iter().map(|finding| finding.line).collect();
        assert_eq!(found, lines, "{text}");
    }
}

#[test]
fn what_a_page_is_and_the_kernels_constants_are_defined_once() {
    let source = |path: &str, text: &str| Text { path: path.into(), text: text.to_owned() };
    let found = defined_again(&[
        source(PAGE_FILE, "pub const PAGE_SIZE: usize = 4096;\npub const HUGE_PAGE_SIZE: usize = 2 << 20;"),
        source("b.rs", "#[cfg(test)] mod tests { const PAGE_SIZE: u64 = 4096; }\nconst SHARE: u8 = 3;"),
        source("c.rs", "\nconst HUGE_BYTES: usize = 2_097_152; const SHARE: u8 = 3; const PAGE: u8 = 7;"),
        source("d.rs", "const PAGE_SIZE: u64 = spillway_sys::page::PAGE_SIZE as u64; const SYS_X: u8 = 9;"),
        source(
            "e.rs",
            "const PAGE_SHIFT: u32 = 12;\nfn f() {\n const SYS_X: i64 = 9; const SYS_Y: i64 = 9; }",
        ),
    ]);
    let at = |path: &str| said(&found[Path::new(path)]);
    assert_eq!(at("c.rs"), [(2, "HUGE_BYTES = 2097152 is what crates/spillway-sys/src/page.rs has")]);
    assert_eq!(at("d.rs"), [(1, "SYS_X = 9 is defined here too: e.rs:3")]);
    let of_page = (1, "PAGE_SHIFT = 12 is what crates/spillway-sys/src/page.rs has");
    assert_eq!(at("e.rs"), [of_page, (3, "SYS_X = 9 is defined here too: d.rs:1")]);
    assert_eq!(found.len(), 3);
}

#[test]
fn references_lead_to_files_that_are_there() {
    let files = ["docs/a.md", "crates/x/src/fault.rs", "README.md"].map(PathBuf::from).into();
    for (path, text, dead) in [
        (
            "README.md",
            "`fault.rs` `x/src/fault.rs` `docs/` `crates/x` [a](docs/a.md#part) `crates/x/src/fault.rs::f`",
            0,
        ),
        ("README.md", "`gone.rs` and `docs/b.txt`, [b](docs/b.md)", 3),
        ("README.md", "`/etc/a.md` `*.rs` `cargo test` [w](https://a.b/c.md) [p](#part) `results.json`", 0),
        ("docs/a.md", "[up](../README.md) [beside](a.md)", 0),
        ("docs/a.md", "[wrong](README.md)", 1),
        ("crates/x/src/fault.rs", "//! see `fault.rs` and `gone.rs`\nlet a = \"`gone.rs`\"; // `x`", 1),
        (
            "crates/x/src/fault.rs",
            "/// [`Page`](crate::Page), [there](../../../README.md), [gone](../b.md)",
            1,
        ),
    ] {
        assert_eq!(dead_references(Path::new(path), text, &files).len(), dead, "{path}: {text}");
    }
}

#[test]
fn links_lead_to_headings_that_are_there() {
    let other = |path: &Path| (path == Path::new("docs/b.md")).then(|| "# The `b`, again\n".to_owned());
    for (text, dead) in [
        (
            "## Part two\n[here](#part-two) [there](b.md#the-b-again) [far](https://a.b/c.md#d) [file](b.md)",
            0,
        ),
        ("```\n# no heading\n```\n[here](#no-heading)", 1),
        ("# A\n# A\n[one](#a) [two](#a-1) [three](#a-2)", 1),
        ("[there](b.md#gone) [unread](c.md#gone)", 1),
    ] {
        assert_eq!(dead_anchors(Path::new("docs/a.md"), text, other).len(), dead, "{text}");
    }
}
