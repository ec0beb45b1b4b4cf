//! Spillway is upgraded while a run goes on: the library that the run's later programs load is another one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::tools::c_program;

const LIBRARY: &str = "libspillway_preload.so";
/// What the build's number begins with, in the library as in the command.
const BUILD: &[u8] = b"spillway-build-";

/// A command and its library in a directory of their own, as they are installed.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let installed = Self(tempfile::tempdir().unwrap());
        let built = Path::new(env!("CARGO_BIN_EXE_spillway"));
        fs::copy(built, installed.place("spillway")).unwrap();
        fs::copy(built.with_file_name(LIBRARY), installed.place(LIBRARY)).unwrap();
        installed
    }

    fn place(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts another library in the place of the one that is there: a new file, as packages and `make install`
    /// do it.
    fn upgrade(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut library = fs::read(self.place(LIBRARY)).unwrap();
        change(&mut library);
        fs::write(self.place("new"), library).unwrap();
        fs::rename(self.place("new"), self.place(LIBRARY)).unwrap();
    }
}

/// A shell under Spillway that runs `hold` once more for each line that it is sent, and says how that ended.
struct Shell {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start(installed: &Installed) -> Self {
        let mut command = Command::new(installed.place("spillway"));
        command.args(["run", "--local", "16M", "sh", "-c"]);
        command
            .arg("while read -r line; do \"$@\"; echo \"status $?\"; done; echo the shell is well")
            .arg("sh");
        command.arg(c_program("hold")).args(["8", "0"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// What is printed until the next program has ended, and its status.
    fn next(&mut self) -> (String, String) {
        self.child.stdin.as_mut().unwrap().write_all(b"next\n").unwrap();
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the shell has ended: {printed}");
            match line.strip_prefix("status ") {
                Some(status) => return (printed, status.trim().to_owned()),
                None => printed += &line,
            }
        }
    }

    /// What it says last, and all that came as complaints.
    fn end(mut self) -> (String, String) {
        drop(self.child.stdin.take());
        let (mut last, mut complaints) = (String::new(), String::new());
        self.lines.read_to_string(&mut last).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {complaints}");
        (last, complaints)
    }
}

#[test]
fn a_run_goes_on_with_a_library_of_its_build_and_names_one_of_another() {
    let installed = Installed::new();
    let mut shell = Shell::start(&installed);
    let well = ("ready\nwhole\n".to_owned(), "0".to_owned());
    assert_eq!(shell.next(), well);
    installed.upgrade(|_| ());
    assert_eq!(shell.next(), well, "the same build once more");
    installed.upgrade(|library| {
        let found: Vec<usize> = (0..library.len() - BUILD.len())
            .filter(|&at| library[at..].starts_with(BUILD))
            .map(|at| at + BUILD.len())
            .collect();
        assert!(!found.is_empty(), "the library has no number of its build");
        for at in found {
            library[at] = if library[at] == b'0' { b'1' } else { b'0' };
        }
    });
    // Nothing of the program has run.
    assert_eq!(shell.next(), (String::new(), "125".to_owned()));
    let (last, complaints) = shell.end();
    assert_eq!(last, "the shell is well\n");
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
    assert!(complaints.contains("upgraded") && complaints.contains("start it again"), "{complaints}");
    // A run that begins now has both of one build only if the command was replaced too.
    let mixed = Command::new(installed.place("spillway")).args(["run", "--local", "16M", "true"]).output();
    let mixed = mixed.unwrap();
    assert_eq!(mixed.status.code(), Some(125), "{}", String::from_utf8_lossy(&mixed.stderr));
}
