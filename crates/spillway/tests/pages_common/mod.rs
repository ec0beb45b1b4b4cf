//! Commands on pages: found, run as a reader would, and what they print compared by its shape.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the repository lies.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages that a newcomer reads with a shell beside them.
pub fn newcomers_pages() -> Vec<PathBuf> {
    let start = fs::read_dir(root().join("docs/start")).unwrap().map(|entry| entry.unwrap().path());
    let start = start.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    std::iter::once(root().join("README.md")).chain(start).collect()
}

/// A command on a page, and what the page says that it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub command: String,
    /// Empty where the page shows nothing.
    pub output: Vec<String>,
}

/// The commands in the blocks of a page: all lines of `sh`, those of `console` that begin with a prompt.
pub fn commands(page: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut language = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(_), Some(_)) => language = None,
            (Some(begun), None) => language = Some(begun),
            (None, Some("sh")) => {
                let command = line.split(" #").next().unwrap().trim();
                if !command.is_empty() {
                    found.push(Shown { command: command.to_owned(), output: Vec::new() });
                }
            }
            (None, Some("console")) => match line.strip_prefix("$ ") {
                Some(command) => found.push(Shown { command: command.to_owned(), output: Vec::new() }),
                None => found.last_mut().expect("a prompt first").output.push(line.to_owned()),
            },
            _ => {}
        }
    }
    found
}

/// The commands of all newcomers' pages. One that stands on several comes once for each output.
pub fn newcomers_commands() -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for page in newcomers_pages() {
        for shown in commands(&fs::read_to_string(page).unwrap()) {
            if !all.contains(&shown) {
                all.push(shown);
            }
        }
    }
    all
}

/// All pages: those at the root that a reader is led to, and all in docs, examples and bench.
pub fn all_pages() -> Vec<PathBuf> {
    let mut pages =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name)).to_vec();
    for directory in ["docs", "examples", "bench"] {
        pages_below(&root().join(directory), &mut pages);
    }
    pages
}

fn pages_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            pages_below(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "md") {
            found.push(entry);
        }
    }
}

/// The command lines that a page has, in its blocks and between backticks, each by itself and without sudo.
pub fn command_lines(page: &str) -> Vec<String> {
    let in_blocks = commands(page).into_iter().map(|Shown { command, .. }| command);
    let between = page
        .lines()
        .filter(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    let parts = in_blocks.chain(between).flat_map(|line| {
        line.split(" && ").flat_map(|part| part.split(" | ")).map(str::to_owned).collect::<Vec<_>>()
    });
    parts.map(|line| line.trim().trim_start_matches("sudo ").to_owned()).collect()
}

/// A line with `N` in place of each number, and of a size with its unit.
pub fn shape(line: &str) -> String {
    let mut shape = String::new();
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        let number =
            rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        if letter.is_ascii_digit() {
            let number = rest[..number].trim_end_matches('.').len();
            rest = &rest[number..];
            shape.push('N');
            let unit =
                rest.trim_start().chars().take_while(|letter| letter.is_alphanumeric()).collect::<String>();
            if ["B", "KiB", "MiB", "GiB", "TiB", "us", "ms", "s"].contains(&unit.as_str()) {
                rest = &rest.trim_start()[unit.len()..];
            }
        } else {
            shape.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    shape
}

/// Fails where what was printed does not have the shape that the page shows, line by line.
pub fn expect_shape(shown: &Shown, printed: &str) {
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let shapes = |lines: &[&str]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
    let expected: Vec<&str> = shown.output.iter().map(String::as_str).collect();
    let command = &shown.command;
    assert_eq!(shapes(&printed), shapes(&expected), "{command}\n{}", printed.join("\n"));
}

/// A command line as a reader types it, with the command under test on PATH.
pub fn typed(command: &str) -> Command {
    let ours = Path::new(env!("CARGO_BIN_EXE_spillway")).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", ours.display());
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).env("PATH", path).env("NO_COLOR", "1").stdin(Stdio::null());
    shell.current_dir(root());
    shell
}

/// What a command line prints on a terminal, which has to end well.
pub fn on_a_terminal(command: &str) -> String {
    on_a_terminal_by("exec bash -c \"$TYPED\"", command)
}

/// The same by another shell than this machine's: a line for sh(1) that runs what `$TYPED` holds.
pub fn on_a_terminal_by(shell: &str, command: &str) -> String {
    let mut terminal = typed("exec script --quiet --return --command \"$SHELL_LINE\" /dev/null");
    let output = terminal.env("SHELL_LINE", shell).env("TYPED", command).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    assert!(output.status.success(), "{command}: {}: {printed}", output.status);
    printed
}
