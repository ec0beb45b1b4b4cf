//! Tapes: a program that is run again fetches by what it did before, and whatever the tape says, its memory
//! is right.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use spillway_policy::tape::{Run, Tape};
use support::MIB;
use support::launch::{Launch, Stats};
use support::tools::c_program;

/// Rounds in which a tape proves what it is worth, and fewer that are enough for there to be one.
const ROUNDS: &str = "6";
const FEW_ROUNDS: &str = "2";

/// Walks in rounds over three times as much as is local, with tapes in a directory. Returns what came of it,
/// and what was said on stderr.
fn walked(tapes: &Path, store: &str, mode: &str, options: &[&str]) -> (Stats, String) {
    walked_for(ROUNDS, tapes, store, mode, options)
}

/// The same for a while, which is enough for there to be a tape.
fn walked_a_little(tapes: &Path) -> (Stats, String) {
    walked_for(FEW_ROUNDS, tapes, "ram:", "inline", &[])
}

fn walked_for(rounds: &str, tapes: &Path, store: &str, mode: &str, options: &[&str]) -> (Stats, String) {
    let launch = Launch::limited(16 * MIB, store);
    let launch = launch.with_option("--tape").with_option(tapes.to_str().unwrap());
    let launch = launch.with_option(&format!("--fault-mode={mode}"));
    let launch = options.iter().fold(launch, |launch, option| launch.with_option(option));
    let ended = launch.run_with(c_program("strides"), &["48", rounds]);
    let said = ended.complaint();
    assert_eq!(ended.text(), "whole\n", "{said}");
    (launch.stats(), said)
}

fn tape_of(directory: &Path) -> PathBuf {
    let files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("not one tape: {files:?}") };
    file.clone()
}

fn changed(file: &Path, change: impl Fn(&mut Tape)) {
    let mut tape = Tape::decode(&fs::read(file).unwrap()).unwrap();
    change(&mut tape);
    fs::write(file, tape.encode()).unwrap();
}

#[test]
fn a_second_run_fetches_by_what_the_first_did() {
    // With the longer tests `ram:` by itself too.
    let ways =
        [("compressed:", "inline"), ("ram:?fabric=fdr", "thread"), ("ram:", "inline"), ("ram:", "thread")];
    let tried = if cfg!(feature = "full-tests") { ways.len() } else { 2 };
    for (store, mode) in ways.into_iter().take(tried) {
        let faults = |stats: &Stats| stats.count("faults.fetch");
        let median = |mut all: Vec<u64>| {
            all.sort_unstable();
            all[all.len() / 2]
        };
        // Two threads go through memory, in another order each time: now and then a run has few faults less.
        let mut tapes = tempfile::tempdir().unwrap();
        let first_faults: Vec<u64> = (0..3)
            .map(|_| {
                tapes = tempfile::tempdir().unwrap();
                let (first, said) = walked(tapes.path(), store, mode, &[]);
                assert!(said.is_empty(), "{said}");
                let on_tape = ["tapes_recorded", "tapes_played", "pages_by_tape"].map(|key| first.count(key));
                assert_eq!(on_tape, [1, 0, 0], "{}", first.0);
                faults(&first)
            })
            .collect();
        tape_of(tapes.path());
        let later_faults: Vec<u64> = (0..7)
            .map(|_| {
                let (later, said) = walked(tapes.path(), store, mode, &[]);
                assert!(said.is_empty(), "{said}");
                assert_eq!(
                    (later.count("tapes_recorded"), later.count("tapes_played")),
                    (0, 1),
                    "{}",
                    later.0
                );
                let (came, used) = (later.count("pages_by_tape"), later.count("pages_by_tape_used"));
                assert!(came > 5_000 && used > came / 2, "{store} {mode}: {}", later.0);
                assert!(used <= came && came <= later.count("pages_fetched_ahead"), "{}", later.0);
                faults(&later)
            })
            .collect();
        let said = format!("{store} {mode}: {first_faults:?} {later_faults:?}");
        assert!(5 * median(later_faults) < 4 * median(first_faults), "{said}");
    }
}

#[test]
fn what_came_by_a_tape_comes_by_it_again_in_a_replay() {
    let folder = tempfile::tempdir().unwrap();
    let (tapes, trace) = (folder.path().join("tapes"), folder.path().join("faults"));
    let config = folder.path().join("run.toml");
    fs::write(&config, "[fetch]\nstrides = \"rounds\"\n").unwrap();
    let trace = trace.to_str().unwrap();
    let options = ["--record", trace, "--config", config.to_str().unwrap()];
    for _ in 0..2 {
        let (stats, _) = walked(&tapes, "ram:", "inline", &options);
        let replay = Command::new(env!("CARGO_BIN_EXE_spillway"))
            .args(["lab", "replay", "--json", trace])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        let replayed: serde_json::Value = serde_json::from_slice(&replay.stdout).unwrap();
        assert_eq!(replayed["difference"], serde_json::Value::Null);
        assert_eq!(stats.count("pages_by_tape") > 1_000, stats.count("tapes_played") == 1);
    }
}

/// What is done to a tape, and what that is called.
type Change<'a> = (&'a str, &'a dyn Fn(&mut Tape));

/// Each of them costs fetches and nothing else: the program checks every page that it reaches.
#[test]
fn a_wrong_tape_costs_fetches_and_is_dropped() {
    let tapes = tempfile::tempdir().unwrap();
    let _ = walked(tapes.path(), "ram:", "inline", &[]);
    let file = tape_of(tapes.path());
    let good = fs::read(&file).unwrap();
    let backwards = |tape: &mut Tape| tape.threads.iter_mut().for_each(|runs| runs.reverse());
    let elsewhere = |tape: &mut Tape| {
        for run in tape.threads.iter_mut().flatten() {
            *run = Run { page: run.page ^ 0x8000_0000, pages: 64, ..*run };
        }
    };
    let scattered = |tape: &mut Tape| {
        let mut random = 1_u32;
        for run in tape.threads.iter_mut().flatten().skip(1).step_by(2) {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *run = Run { page: (random >> 8) % 12_288, pages: 1 + (random >> 28) as u8, ..*run };
        }
    };
    let changes: [Change<'_>; 3] =
        [("backwards", &backwards), ("elsewhere", &elsewhere), ("scattered", &scattered)];
    for mode in ["inline", "thread"] {
        for (name, change) in changes {
            fs::write(&file, &good).unwrap();
            changed(&file, change);
            let (stats, said) = walked(tapes.path(), "ram:", mode, &[]);
            assert_eq!(stats.count("tapes_played"), 1, "{name}: {}", stats.0);
            let is_dropped = stats.count("tapes_dropped") == 1;
            assert_eq!((is_dropped, said.contains("it is dropped")), (!file.exists(), is_dropped), "{said}");
            assert!(is_dropped || name != "elsewhere", "{name}: {}", stats.0);
        }
    }
}

#[test]
fn bytes_that_are_no_tape_of_this_program_are_recorded_over() {
    let tapes = tempfile::tempdir().unwrap();
    let _ = walked_a_little(tapes.path());
    let file = tape_of(tapes.path());
    let good = fs::read(&file).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    let mut foreign = Tape::decode(&good).unwrap();
    foreign.key ^= 1;
    for (bytes, why) in [
        (damaged, "its checksum is wrong"),
        (good[..good.len() / 2].to_vec(), "its checksum is wrong"),
        (b"nonsense, and not even long".to_vec(), "it is no tape of this version"),
        (Vec::new(), "it is no tape of this version"),
        (foreign.encode(), "it is another program's"),
    ] {
        fs::write(&file, bytes).unwrap();
        let (stats, said) = walked_a_little(tapes.path());
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        assert_eq!((stats.count("tapes_recorded"), stats.count("tapes_played")), (1, 0));
        assert!(Tape::decode(&fs::read(tape_of(tapes.path())).unwrap()).is_ok());
    }
}

#[test]
fn a_directory_that_cannot_be_had_costs_a_line_and_no_program() {
    let (stats, said) = walked_a_little(Path::new("/proc/nowhere"));
    assert!(said.contains("/proc/nowhere") && said.contains("it is not kept"), "{said}");
    assert_eq!(stats.count("tapes_recorded"), 0);
    let tapes = tempfile::tempdir().unwrap();
    let _ = walked_a_little(tapes.path());
    let file = tape_of(tapes.path());
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let (stats, said) = walked_a_little(tapes.path());
    assert!(said.contains("it is not kept"), "{said}");
    assert_eq!(stats.count("tapes_recorded"), 0);
    assert!(tape_of(tapes.path()).is_dir(), "nothing is left behind");
}

/// By arguments, local memory and the sizes of what is read; forked children are on no tape, and programs
/// that hardly fetch have none.
#[test]
fn tapes_are_kept_by_program_input_and_local_memory() {
    let tapes = tempfile::tempdir().unwrap();
    let run = |program: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
        command.args(["run", "--local", "8M", "--store", "ram:", "--tape"]).arg(tapes.path()).arg("--");
        let output = command.args(program).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read_dir(tapes.path()).unwrap().count()
    };
    assert_eq!(run(&["true"]), 0);
    let walks = c_program("strides");
    let walks = walks.to_str().unwrap();
    assert_eq!(run(&[walks, "24", "2"]), 1);
    assert_eq!(run(&[walks, "24", "2"]), 1);
    assert_eq!(run(&[walks, "25", "2"]), 2);
    assert_eq!(run(&["sh", "-c", &format!("(exec {walks} 24 2); exec {walks} 26 2")]), 3);
    let lines = tapes.path().with_extension("lines");
    let line = |i: u64| format!("{:050}\n", i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let sorted = |count: u64| {
        fs::write(&lines, (0..count).map(line).collect::<String>()).unwrap();
        run(&["sort", "--parallel=1", "-S", "32M", "-o", "/dev/null", lines.to_str().unwrap()])
    };
    assert_eq!((sorted(220_000), sorted(220_000), sorted(200_000)), (4, 4, 5));
    fs::remove_file(&lines).unwrap();
}
