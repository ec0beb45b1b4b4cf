//! Spillway is upgraded while a run goes on: the library that the run's later programs load is another one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
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
    fn upgrade(&self, change: impl FnOnce(&mut [u8])) {
        let mut library = fs::read(self.place(LIBRARY)).unwrap();
        change(&mut library);
        fs::write(self.place("new"), library).unwrap();
        fs::rename(self.place("new"), self.place(LIBRARY)).unwrap();
    }
}

/// Makes a file that of another build: the first digit of the number is another, wherever the number or the
/// beginning of the build's name is, since compilers cut what is compared in parts.
fn renumber(file: &mut [u8]) {
    let output = Command::new(env!("CARGO_BIN_EXE_spillway")).args(["generate", "build"]).output().unwrap();
    let name = output.stdout.trim_ascii_end();
    let number = name.strip_prefix(BUILD).expect("the command says which build it is");
    let beginning = &name[..=BUILD.len()];
    let digits: Vec<usize> = (0..file.len())
        .filter_map(|at| match &file[at..] {
            rest if rest.starts_with(number) => Some(at),
            rest if rest.starts_with(beginning) => Some(at + BUILD.len()),
            _ => None,
        })
        .collect();
    assert!(!digits.is_empty(), "the file has no number of its build");
    for at in digits {
        file[at] = if number[0] == b'0' { b'1' } else { b'0' };
    }
}

/// What `scripts/install` takes, of this build or of another.
fn build_at(place: &Path, change: impl Fn(&mut [u8])) {
    let built = Path::new(env!("CARGO_BIN_EXE_spillway"));
    fs::create_dir_all(place).unwrap();
    for name in ["spillway", LIBRARY] {
        let mut file = fs::read(built.with_file_name(name)).unwrap();
        change(&mut file);
        // Written by another process: a child that another test forks meanwhile would hold our file open for
        // writing, and the command could not be executed.
        let mut writer = Command::new("dd");
        writer.arg(format!("of={}", place.join(name).display())).args(["bs=1M", "status=none"]);
        let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
        writer.stdin.take().unwrap().write_all(&file).unwrap();
        assert!(writer.wait().unwrap().success());
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Installs or uninstalls, as one whose new files are for nobody else; what it says on standard error.
fn script(name: &str, arguments: &[&Path]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(path).args(arguments);
    let output = command.output().unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{complaints}");
    complaints
}

/// The builds whose libraries an installation keeps.
fn kept(prefix: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(prefix.join("lib/spillway/builds")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// A shell under Spillway that runs `hold` once more for each line that it is sent, and says how that ended.
struct Shell {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn start(spillway: &Path) -> Self {
        let mut command = Command::new(spillway);
        command.args(["run", "--local", "16M", "sh", "-c"]);
        // A line may have what it is to run by.
        command
            .arg("while read -r line; do $line \"$@\"; echo \"status $?\"; done; echo the shell is well")
            .arg("sh");
        command.arg(c_program("hold")).args(["8", "0"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// What is printed until the next program has ended, and its status.
    fn next(&mut self) -> (String, String) {
        self.next_by("")
    }

    /// The same of a program that these words run.
    fn next_by(&mut self, words: &str) -> (String, String) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{words}").unwrap();
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

/// What the shell's program says where its memory is whole.
fn well() -> (String, String) {
    ("ready\nwhole\n".to_owned(), "0".to_owned())
}

#[test]
fn a_run_goes_on_with_a_library_of_its_build_and_names_one_of_another() {
    let installed = Installed::new();
    let mut shell = Shell::start(&installed.place("spillway"));
    let well = well();
    assert_eq!(shell.next(), well);
    installed.upgrade(|_| ());
    assert_eq!(shell.next(), well, "the same build once more");
    installed.upgrade(renumber);
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

#[test]
fn a_run_keeps_its_library_while_other_builds_are_installed() {
    let directory = tempfile::tempdir().unwrap();
    let [old, new, prefix] = ["old", "new", "usr"].map(|name| directory.path().join(name));
    build_at(&old, |_| ());
    build_at(&new, renumber);
    script("install", &[&old, &prefix]);
    let of_old = kept(&prefix);
    assert_eq!(of_old.len(), 1, "{of_old:?}");
    let spillway = prefix.join("bin/spillway");
    let mut shell = Shell::start(&spillway);
    assert_eq!(shell.next(), well());
    // Twice, since it is no longer the last one then. Meanwhile the shell has no child.
    script("install", &[&new, &prefix]);
    script("install", &[&new, &prefix]);
    let of_both = kept(&prefix);
    assert!(of_both.len() == 2 && of_both.contains(&of_old[0]), "{of_both:?}");
    assert_eq!(shell.next(), well());
    let loaded = shell.next_by("grep -s libspillway_preload /proc/self/maps");
    assert!(loaded.0.contains(of_old[0].to_str().unwrap()), "{loaded:?}");
    // The command is of the new build by now, and is a program of this run as others are.
    let nested = format!("{} run --local 16M", spillway.display());
    assert_eq!(shell.next_by(&nested), well());
    // Programs of other users find it too.
    let library = of_old[0].join(LIBRARY);
    for (path, mode) in [(of_old[0].parent().unwrap(), 0o755), (&of_old[0], 0o755), (&library, 0o644)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
    let mut other = Shell::start(&spillway);
    assert_eq!(other.next(), well());
    let said = script("uninstall", &[&prefix]);
    assert!(said.lines().count() == 1 && said.contains("runs go on"), "{said}");
    assert_eq!((shell.next(), other.next()), (well(), well()));
    assert_eq!(shell.end(), ("the shell is well\n".to_owned(), String::new()));
    script("install", &[&old, &prefix]);
    // That of the other run, and the one that is installed.
    assert_eq!(kept(&prefix), of_both);
    assert_eq!(other.end(), ("the shell is well\n".to_owned(), String::new()));
    script("install", &[&old, &prefix]);
    assert_eq!(kept(&prefix), of_old);
    assert_eq!(script("uninstall", &[&prefix]), "");
    assert!(!prefix.join("lib/spillway").exists());
}
