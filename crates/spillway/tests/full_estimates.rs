//! The lab's estimate from a memory trace, beside what the live pager fetched. Run by `make test-full`; the
//! programs are those of `scripts/install-bench-programs`, `scripts/install-test-tools` has QEMU's user mode.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// How far the estimate may be from the live run.
const SHARE: f64 = 0.1;
/// A linear congruential generator's, as in Knuth's MMIX.
const FACTOR: u64 = 6_364_136_223_846_793_005;

fn random(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |x| Some(x.wrapping_mul(FACTOR).wrapping_add(1)))
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn spillway(folder: &Path, arguments: &[&str], program: &[&str]) -> Output {
    run(folder, env!("CARGO_BIN_EXE_spillway"), &[arguments, program].concat())
}

/// Records the memory accesses of a program, and returns how much memory they touch.
fn touched_bytes(folder: &Path, program: &[&str]) -> f64 {
    let recorded = spillway(folder, &["lab", "record", "-o", "memory", "--"], program);
    let told = String::from_utf8(recorded.stderr).unwrap();
    let touched = told.rsplit_once("which touch ").and_then(|(_, rest)| rest.strip_suffix(" MiB\n"));
    touched.and_then(|mib| mib.parse::<f64>().ok()).unwrap_or_else(|| panic!("{told}")) * 1_048_576.0
}

/// Runs a program page by page with a quarter and a half local of what it touches, and has the lab estimate
/// both. The median of so many runs counts: some programs' own differ by a tenth.
fn check(folder: &Path, program: &[&str], runs: usize) {
    let name = Path::new(program[0]).file_name().unwrap().to_string_lossy();
    let touched_bytes = touched_bytes(folder, program);
    for local_pct in [25, 50] {
        let local = (touched_bytes as u64 * local_pct / 100).to_string();
        let ratio = |_| {
            let [live, estimate] = live_and_estimate(folder, &local, program);
            println!("{name} at {local_pct}%: {live} pages fetched, {estimate} estimated");
            assert!(live > 1000.0, "{name} at {local_pct}%: {live} pages fetched, too few to tell");
            estimate / live
        };
        let mut ratios: Vec<f64> = (0..runs).map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let median = ratios[runs / 2];
        assert!((median - 1.0).abs() <= SHARE, "{name} at {local_pct}%: estimates over live runs {ratios:?}");
    }
}

/// Pages that one run fetches, and that the lab says it would.
fn live_and_estimate(folder: &Path, local: &str, program: &[&str]) -> [f64; 2] {
    spillway(folder, &["run", "--block", "4K", "--local", local, "--record", "faults", "--"], program);
    let told = spillway(folder, &["lab", "replay", "faults", "--memory", "memory", "--json"], &[]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let [came, estimate] = [&told["came"], &told["estimate"]["scanned_as_live"]];
    let both = [&came["fetched"], &estimate["fetched_pages"]].map(|pages| pages.as_f64().unwrap());
    let bounds = &told["estimate"]["bounds"];
    println!("by the same trace: {bounds}");
    // Nothing fetches less than what knows the future.
    assert!(bounds["belady_pages"].as_f64().unwrap() <= both[1], "{bounds}, {} estimated", both[1]);
    both
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Words in no order, some often and most seldom.
fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 32);
    let mut words = random(12).map(|x| ((x >> 33) * (x >> 33)) >> 31);
    while text.len() < bytes {
        let rank = (words.next().unwrap_or_default() * words.next().unwrap_or_default()) >> 48;
        write!(text, "{:x} ", rank.wrapping_mul(FACTOR) >> 40).unwrap();
    }
    text
}

#[test]
fn what_xz_fetches_is_estimated() {
    let folder = folder();
    fs::write(folder.path().join("text"), text(5 << 20)).unwrap();
    let filter = "--lzma2=preset=0,dict=8MiB,mf=hc4";
    check(folder.path(), &["xz", "--threads=1", "--format=xz", "--keep", "--force", filter, "text"], 1);
}

#[test]
fn what_sqlite_fetches_is_estimated() {
    let folder = folder();
    let rows = 50_000;
    let queries = format!(
        "create table t(id integer primary key, k integer, g integer, v text);\n\
         with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})\n\
         insert into t select i, (i * 2654435761) % {rows}, (i * 40503) % 9973,\n\
         printf('%016x%0284d', i * 2654435761, i) from n;\n\
         create index by_k on t(k);\n\
         select count(*), sum(a.id % 1000 + b.g) from t a join t b on b.k = a.id where a.g < 4000;\n\
         select g, count(*), max(v) from t group by g order by 3 desc limit 5;\n"
    );
    fs::write(folder.path().join("queries"), queries).unwrap();
    check(folder.path(), &["sqlite3", "-batch", ":memory:", ".read queries"], 1);
}

/// It gives back what it has sorted and written.
#[test]
fn what_sort_fetches_is_estimated() {
    let folder = folder();
    let mut lines = text(16 << 20);
    // A line for every twelve words.
    let ends = lines.match_indices(' ').step_by(12).map(|(at, _)| at).collect::<Vec<_>>();
    ends.iter().for_each(|&at| lines.replace_range(at..=at, "\n"));
    fs::write(folder.path().join("lines"), lines).unwrap();
    check(folder.path(), &["sort", "--buffer-size=20M", "--parallel=1", "--output=sorted", "lines"], 3);
}

#[test]
fn what_a_python_dictionary_fetches_is_estimated() {
    let folder = folder();
    let script = "\
words = {}
x = 1
for i in range(150000):
    x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
    words[x >> 20] = (i, str(x))
total = 0
for k in sorted(words):
    total = (total * 31 + words[k][0]) % 1000003
print(total, len(words))
";
    fs::write(folder.path().join("words.py"), script).unwrap();
    check(folder.path(), &["/usr/bin/python3", "words.py"], 3);
}

#[test]
fn what_a_perl_hash_fetches_is_estimated() {
    let folder = folder();
    let script = "\
my ($x, $total, %seen) = (1, 0);
for my $i (1 .. 120000) { $x = ($x * 1103515245 + 12345) % 4294967296; $seen{$x >> 3} = \"$i:$x\"; }
$total = ($total * 31 + length $seen{$_}) % 1000003 for sort { $a <=> $b } keys %seen;
print \"$total\\n\";
";
    fs::write(folder.path().join("words.pl"), script).unwrap();
    check(folder.path(), &["perl", "words.pl"], 3);
}

/// One that uses a tenth of its memory most of the time.
#[test]
fn what_a_program_with_favourites_fetches_is_estimated() {
    let folder = folder();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/favourites.c");
    run(folder.path(), "gcc", &["-O1", "-o", "favourites", source.to_str().unwrap(), "-lm"]);
    let program = folder.path().join("favourites");
    check(folder.path(), &[program.to_str().unwrap(), "64", "6", "300000"], 1);
}
