//! Every command of README.md and docs/start, typed in the order of these pages on a clean Debian that has
//! Rust and make, and nothing else of ours. Needs root, Debian's packages and 20 minutes of two cores.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use pages_common::{Shown, expect_shape, newcomers_commands, on_a_terminal_by, root};
use rustix::process::Signal;
use support::child::{PATIENCE, Running, free_port};
use tempfile::TempDir;

/// Lends memory until it is ended, to the commands that follow it.
const DONOR: &str = "spillway donor --memory 1G --listen 127.0.0.1:10809";
/// The page's port may be somebody's on this machine.
const PORT: &str = "10809";
/// `make test-full` begins with it: typed here it would do all of that once more, with a browser and four
/// servers in the root. Make is asked what it would do.
const ONLY_ASKED: &str = "make test";

/// A clean Debian, which goes with the value.
struct CleanRoot(TempDir);

impl CleanRoot {
    /// Makes it, with the sources as they lie here in `~/spillway`.
    fn make() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let script = "set -o pipefail
            scripts/make-clean-root \"$0\" bookworm make,sudo,python3-minimal && mkdir \"$0/root/spillway\" &&
            git ls-files -z --cached --others --exclude-standard |
                tar --create --null --files-from=- --ignore-failed-read |
                tar --extract --directory \"$0/root/spillway\"";
        let output = Command::new("bash").args(["-c", script]).arg(made.path()).current_dir(root()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        made
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// What a command line prints on a terminal there.
    fn on_a_terminal(&self, command: &str) -> String {
        // The script looks for this machine's Rust, which the tests' own PATH has.
        let path = std::env::var("PATH").unwrap();
        let root = self.path().display();
        let shell = format!("PATH='{path}' exec scripts/in-clean-root '{root}' bash -c \"$TYPED\"");
        on_a_terminal_by(&shell, command)
    }

    /// Starts a command that goes on beside others.
    fn start(&self, command: &str) -> Running {
        let mut shell = Command::new("scripts/in-clean-root");
        shell.current_dir(root()).arg(self.path()).args(["bash", "-c", &format!("exec {command}")]);
        Running::start(&mut shell)
    }
}

/// The same with another port.
fn at_port(shown: &Shown, port: &str) -> Shown {
    let elsewhere = |text: &String| text.replace(PORT, port);
    Shown { command: elsewhere(&shown.command), output: shown.output.iter().map(elsewhere).collect() }
}

/// What was printed has the shape that the page shows, and what it promises.
fn expect_as_shown(shown: &Shown, printed: &str) {
    match shown.command.as_str() {
        // What else it says depends on the machine.
        "spillway doctor" => {
            assert!(shown.output[0].starts_with("This machine can"), "{:?}", shown.output);
            assert_eq!(printed.lines().next(), Some(shown.output[0].as_str()), "{printed}");
        }
        "make run" => assert!(printed.contains("To have it on PATH: sudo make install"), "{printed}"),
        "sudo make install" => assert!(printed.contains("Installed /usr/local/bin/spillway"), "{printed}"),
        command if command.starts_with("sudo spillway bench command") => {
            for words in ["zram", "Spillway"] {
                assert!(printed.contains(words), "no {words} in {printed}");
            }
        }
        ONLY_ASKED => {
            assert!(printed.lines().any(|line| line == "scripts/test"), "{printed}");
            let script = std::fs::read_to_string(root().join("scripts/test")).unwrap();
            assert!(script.contains("cargo test --locked --workspace"), "{script}");
        }
        _ => {
            assert!(!shown.output.is_empty(), "say what is to be seen of '{}'", shown.command);
            expect_shape(shown, printed);
            let own = shown.output.first().map(String::as_str);
            assert_eq!(printed.lines().next(), own, "the program's own");
        }
    }
}

#[test]
fn every_command_of_the_newcomers_pages_does_on_a_clean_debian_what_they_show() {
    assert!(rustix::process::getuid().is_root(), "only root makes a Debian: run this test as root");
    let clean = CleanRoot::make();
    let port = free_port().to_string();
    let mut donor = None;
    // One that stands on both pages is typed once.
    let mut typed: BTreeMap<String, String> = BTreeMap::new();
    for shown in newcomers_commands() {
        let shown = at_port(&shown, &port);
        if shown.command == DONOR.replace(PORT, &port) {
            let mut lending = clean.start(&shown.command);
            lending.expect("\n");
            expect_shape(&shown, &lending.text());
            donor = Some(lending);
            continue;
        }
        let printed = typed.entry(shown.command.clone()).or_insert_with(|| {
            let command = shown.command.as_str();
            let asked = format!("{command} --dry-run --no-print-directory");
            clean.on_a_terminal(if command == ONLY_ASKED { &asked } else { command })
        });
        expect_as_shown(&shown, printed);
    }
    let mut donor = donor.expect("a page starts a donor");
    donor.signal(Signal::INT);
    let finished = donor.finish(PATIENCE);
    assert!(finished.success().contains("ended: "), "{}", finished.text());
}
