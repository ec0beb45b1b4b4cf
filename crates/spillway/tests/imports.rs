//! Holds the sources to their order: no files of a crate import each other in a circle, and no crate uses
//! one that stands below it in ARCHITECTURE.md. A failure lists each circle with its arrows: the lines on
//! which a file names what another one defines.
//!
//! For one crate: `cargo test -p spillway --test imports spillway_store`.
#![allow(clippy::unwrap_used)]

mod source_check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use source_check::arrows::{arrows, crates_named};
use source_check::circles::{Circle, circles};
use source_check::module_tree::ModuleTree;
use source_check::workspace;

/// One test for each crate, and one that they are all there.
macro_rules! crates_without_circles {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                assert_no_circle(stringify!($name));
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

crates_without_circles!(
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

fn assert_no_circle(name: &str) {
    let directory = workspace::root().join("crates").join(name.replace('_', "-"));
    let mut trees = ModuleTree::of_crate(&directory);
    assert!(!trees.is_empty(), "{} has no sources", directory.display());
    let arrows: Vec<_> = trees.iter_mut().flat_map(arrows).collect();
    let circles = circles(&arrows);
    assert!(circles.is_empty(), "\n{}", circles.iter().map(Circle::to_string).collect::<Vec<_>>().join("\n"));
}

/// What a crate uses that does not stand above it: each as the place that says so and the crate used.
fn upward(order: &[String], name: &str, used: &BTreeMap<String, String>) -> Vec<String> {
    let place = order.iter().position(|other| other == name);
    let above = &order[..place.unwrap_or(0)];
    let named = used.iter().filter(|(other, _)| *other != name && !above.contains(other));
    named
        .map(|(other, place)| format!("{name} uses {other}, which does not stand above it: {place}"))
        .collect()
}

#[test]
fn no_crate_uses_what_stands_below_it() {
    let order = workspace::order();
    let mut sorted = order.clone();
    sorted.sort();
    assert_eq!(sorted, workspace::crates(), "ARCHITECTURE.md's table of crates");
    let mut complaints = Vec::new();
    for name in &order {
        let ours = workspace::dependencies(name).into_iter().filter(|other| order.contains(other));
        let mut used: BTreeMap<_, _> = ours.map(|other| (other, "Cargo.toml".to_owned())).collect();
        for mut tree in ModuleTree::of_crate(&workspace::root().join("crates").join(name)) {
            used.extend(crates_named(&mut tree, &order));
        }
        complaints.extend(upward(&order, name, &used));
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The arrows of a crate made of the given files, as "from:line to path".
fn arrows_of(files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &Path| {
        files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
    };
    let found = arrows(&mut ModuleTree::read(Path::new("lib.rs"), &read));
    let say = |file: &PathBuf| file.display().to_string();
    found
        .iter()
        .map(|arrow| format!("{}:{} {} {}", say(&arrow.from), arrow.line, say(&arrow.to), arrow.path))
        .collect()
}

#[test]
fn arrows_lead_to_where_an_item_is_defined() {
    let lib = ("lib.rs", "pub mod a; pub mod b; pub use b::B;");
    for (a, b, expected) in [
        // Declarations, nested groups, inline paths, what a macro is given, and attributes.
        ("use crate::b::B;", "pub struct B;", vec!["a.rs:1 b.rs crate::b::B"]),
        ("use crate::{b::{self, B}};", "pub struct B;", vec!["a.rs:1 b.rs crate::b::B"]),
        ("\nfn f() { super::b::g() }", "pub fn g() {}", vec!["a.rs:2 b.rs super::b::g"]),
        ("use crate::b; fn f() -> b::B { b::B }", "pub struct B;", vec!["a.rs:1 b.rs b::B"]),
        ("fn f() { use crate::b as c; c::g() }", "pub fn g() {}", vec!["a.rs:1 b.rs c::g"]),
        (
            "fn f() { println!(\"{}\", crate::b::N + 1) }",
            "pub const N: u8 = 1;",
            vec!["a.rs:1 b.rs crate::b::N"],
        ),
        ("struct A { #[serde(with = \"crate::b\")] a: u8 }", "pub fn serialize() {}", vec![]),
        (
            "struct A { #[serde(default = \"crate::b::g\")] a: u8 }",
            "pub fn g() {}",
            vec!["a.rs:1 b.rs crate::b::g"],
        ),
        // A re-export leads on, and makes no arrow by itself.
        ("use crate::B;", "pub struct B;", vec!["a.rs:1 b.rs crate::B"]),
        ("pub use crate::b::B;", "pub struct B;", vec![]),
        ("pub use crate::b::B; fn f(_: B) {}", "pub struct B;", vec!["a.rs:1 b.rs B"]),
        ("use super::*; fn f() -> Option<B> { None }", "pub struct B;", vec!["a.rs:1 b.rs B"]),
        ("use super::*;", "pub struct B;", vec![]),
        // A module alone is no item; what its macros make is.
        ("use crate::b;", "pub struct B;", vec![]),
        (
            "use crate::b::Flags;",
            "bitflags! { pub struct Flags: u8 {} }",
            vec!["a.rs:1 b.rs crate::b::Flags"],
        ),
        ("fn f() { crate::b::B::One.g() }", "pub enum B { One }", vec!["a.rs:1 b.rs crate::b::B::One"]),
        // Tests do not count.
        ("#[cfg(test)] mod tests { use crate::b::B; }", "pub struct B;", vec![]),
        ("#[cfg(all(test, not(loom)))] use crate::b::B;", "pub struct B;", vec![]),
        ("#[cfg(not(test))] use crate::b::B;", "pub struct B;", vec!["a.rs:1 b.rs crate::b::B"]),
        ("#[test] fn f() { crate::b::B; }", "pub struct B;", vec![]),
        ("fn f() { #[cfg(test)] let _ = crate::b::B; }", "pub struct B;", vec![]),
        // Other crates' names, and fields of a like name.
        ("use other::b::B; fn f(s: S) { s.b; print!(\"{}\", s.g()) }", "pub struct B; pub fn g() {}", vec![]),
        ("/// [`crate::b::B`]\npub(in crate::a) struct A;", "pub struct B;", vec![]),
    ] {
        assert_eq!(arrows_of(&[lib, ("a.rs", a), ("b.rs", b)]), expected, "{a}");
    }
}

#[test]
fn modules_are_found_where_rust_looks_for_them() {
    let found = arrows_of(&[
        ("lib.rs", "mod a; mod b { pub mod c; }"),
        ("a/mod.rs", "mod d; pub struct A; use d::D;"),
        ("a/d.rs", "use super::A; use crate::b::c::C; pub struct D;"),
        ("b/c.rs", "use super::super::a::A; pub struct C;"),
    ]);
    let expected = [
        "a/d.rs:1 a/mod.rs super::A",
        "a/d.rs:1 b/c.rs crate::b::c::C",
        "a/mod.rs:1 a/d.rs d::D",
        "b/c.rs:1 a/mod.rs super::super::a::A",
    ];
    assert_eq!(found, expected);
}

#[test]
fn circles_are_found_with_their_arrows() {
    let arrow = |from: &str, to: &str| source_check::arrows::Arrow {
        from: from.into(),
        to: to.into(),
        path: format!("crate::{to}"),
        line: 1,
    };
    let chain = [arrow("a", "b"), arrow("b", "c"), arrow("a", "c"), arrow("d", "a")];
    assert!(circles(&chain).is_empty());
    let closed: Vec<_> =
        chain.into_iter().chain([arrow("c", "a"), arrow("d", "e"), arrow("e", "d")]).collect();
    let found = circles(&closed);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].arrows, [&closed[0], &closed[1], &closed[2], &closed[4]].map(Clone::clone));
    assert!(
        found[1].to_string().contains("a circle of 2 files:\n  d\n    line   1 -> e  (crate::e)"),
        "{}",
        found[1]
    );
}

#[test]
fn an_arrow_upward_is_found() {
    let table = "text\n| crate | holds |\n|---|---|\n| `low` | this |\n| `middle` | that |\n\
                 | `high` | more |\n\n| `no` |";
    let order = workspace::order_in(table);
    assert_eq!(order, ["low", "middle", "high"]);
    let manifest = "[dependencies]\nlow.workspace = true\n[target.'cfg(loom)'.dependencies]\nhigh = \"1\"\n\
                    [dev-dependencies]\nother = \"1\"";
    let mut dependencies = workspace::dependencies_in(manifest);
    dependencies.sort();
    assert_eq!(dependencies, ["high", "low"]);
    let read = |_: &Path| Some("use middle::A;\nfn f() { ::high::g() }\n#[cfg(test)] use low::B;".to_owned());
    let used = crates_named(&mut ModuleTree::read(Path::new("lib.rs"), &read), &order);
    assert_eq!(used.keys().collect::<Vec<_>>(), ["high", "middle"]);
    assert_eq!(
        upward(&order, "middle", &used),
        ["middle uses high, which does not stand above it: lib.rs:2"]
    );
}
