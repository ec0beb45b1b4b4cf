//! What stands on pages can be typed: the commands that README.md and docs/start show print what these pages
//! show, and every command that any page names exists, with its options.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use pages_common::{
    all_pages, command_lines, commands, expect_shape, newcomers_commands, on_a_terminal, root, shape, typed,
};

/// What is done here with a command on a newcomer's page.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Run on a terminal; what it prints has the shape that is shown.
    Shape,
    /// Run on a terminal; what it says depends on the machine, but for its first words.
    Begins(&'static str),
    /// A target of make's: make is asked what it would do.
    Target,
    /// Left to full_pages.rs, which types all of them on a clean Debian.
    Later,
}

const PYTHON: &str = "python3 -c 'x = [str(i) for i in range(3000000)]; print(len(x), x[-1])'";

/// Every command on the newcomers' pages.
fn plan() -> Vec<(String, How)> {
    vec![
        ("make run".to_owned(), How::Target),
        ("make test".to_owned(), How::Target),
        ("sudo make install".to_owned(), How::Target),
        ("spillway doctor".to_owned(), How::Begins("This machine can")),
        (format!("spillway run --local 64M {PYTHON}"), How::Shape),
        // Sets swap up and runs the program many times.
        (format!("sudo spillway bench command --local 64M {PYTHON}"), How::Later),
        // Runs until it is ended, beside the next.
        ("spillway donor --memory 1G --listen 127.0.0.1:10809".to_owned(), How::Later),
        (format!("spillway run --local 64M --store nbd://127.0.0.1:10809/ {PYTHON}"), How::Later),
    ]
}

#[test]
fn every_command_on_a_newcomers_page_is_planned_and_none_else() {
    let shown: BTreeSet<String> = newcomers_commands().into_iter().map(|shown| shown.command).collect();
    let planned: BTreeSet<String> = plan().into_iter().map(|(command, _)| command).collect();
    assert_eq!(shown, planned, "a command came or went: say in pages.rs how it is tried");
}

#[test]
fn commands_print_what_the_newcomers_pages_show() {
    let plan: BTreeMap<String, How> = plan().into_iter().collect();
    let mut printed: BTreeMap<String, String> = BTreeMap::new();
    for shown in newcomers_commands() {
        match plan[&shown.command] {
            How::Shape => {
                let text =
                    printed.entry(shown.command.clone()).or_insert_with(|| on_a_terminal(&shown.command));
                expect_shape(&shown, text);
                assert_eq!(
                    text.lines().next(),
                    shown.output.first().map(String::as_str),
                    "the program's own"
                );
            }
            How::Begins(words) => {
                let text = on_a_terminal(&shown.command);
                for first in [text.lines().next().unwrap(), &shown.output[0]] {
                    assert!(first.starts_with(words), "{}: {first}", shown.command);
                }
            }
            How::Target => {
                let target = shown.command.rsplit(' ').next().unwrap();
                let output =
                    typed(&format!("make --dry-run --no-print-directory {target}")).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
            How::Later => {}
        }
    }
}

/// Commands with their help, by name: `spillway run` and the like.
fn helps() -> BTreeMap<String, String> {
    let reference = fs::read_to_string(root().join("docs/reference/commands.md")).unwrap();
    let parts = reference.split("\n## ").skip(1).map(|part| part.split_once('\n').unwrap());
    parts.map(|(name, help)| (name.to_owned(), help.to_owned())).collect()
}

/// What is wrong with a command line that begins with `spillway`: a command or an option that is not there.
fn wrong(line: &str, helps: &BTreeMap<String, String>) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut name = "spillway".to_owned();
    let mut rest = &words[1..];
    while let Some(longer) =
        rest.first().map(|word| format!("{name} {word}")).filter(|name| helps.contains_key(name))
    {
        (name, rest) = (longer, &rest[1..]);
    }
    let help = helps.get(&name)?;
    let has_commands = help.contains("<COMMAND>");
    if let Some(word) =
        rest.first().filter(|word| has_commands && word.chars().all(|c| c.is_ascii_lowercase()))
    {
        // Hidden commands serve the benchmarks.
        return (*word != "access").then(|| format!("'{name}' has no '{word}'"));
    }
    let known = |option: &str| {
        help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == option)
    };
    let takes_value = |option: &str| help.contains(&format!("{option} <"));
    let takes_program = help.contains("<PROGRAM>") || help.contains("<COMMAND>...");
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let (option, has_value) = match word.trim_matches(['[', ']', ',', '\'']).split_once('=') {
            Some((option, _)) => (option, true),
            None => (word.trim_matches(['[', ']', ',', '\'']), false),
        };
        match option.strip_prefix("--") {
            // All behind it is the program's.
            Some("") => break,
            Some(_) if !known(option) => return Some(format!("'{name}' has no {option}")),
            Some(_) if takes_value(option) && !has_value => {
                words.next();
            }
            None if takes_program && !option.starts_with('-') => break,
            _ => {}
        }
    }
    None
}

/// The command lines of Spillway's that a page has, in its blocks and between backticks.
fn named(page: &str) -> Vec<String> {
    command_lines(page).into_iter().filter(|line| line.starts_with("spillway ")).collect()
}

#[test]
fn every_command_that_a_page_names_exists_with_its_options() {
    let helps = helps();
    let mut checked = 0;
    let mut mistakes = Vec::new();
    for page in all_pages() {
        for line in named(&fs::read_to_string(&page).unwrap()) {
            checked += 1;
            mistakes.extend(wrong(&line, &helps).map(|what| format!("{}: {line}: {what}", page.display())));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(checked > 100, "{checked} were found");
}

#[test]
fn commands_and_shapes_are_read_as_they_are_meant() {
    let page = "a\n```sh\nmake run   # builds\n\n```\n```console\n$ one 2\nout 3\n\nend\n$ two\n```\n\
                ```text\n$ no\n```\n";
    let found = commands(page);
    assert_eq!(
        found.iter().map(|shown| shown.command.as_str()).collect::<Vec<_>>(),
        ["make run", "one 2", "two"]
    );
    assert_eq!(found[1].output, ["out 3", "", "end"]);
    assert_eq!(
        shape("local 64.0 MiB of 1.5 GiB, p50 3.6 us; 3.7 s in all."),
        "local N of N, pN N; N in all."
    );
    assert_eq!(shape("3000000 2999999"), "N N");
    let helps = helps();
    for (line, expected) in [
        ("spillway run --local 1M --store=ram: -- x --no-such", None),
        ("spillway run --locale 1M", Some("'spillway run' has no --locale")),
        ("spillway donor status --json", None),
        ("spillway lab runn", Some("'spillway lab' has no 'runn'")),
        ("spillway run --local 1M python3 --version", None),
        ("spillway run --local 1M --store ram: --far 1M x", Some("'spillway run' has no --far")),
    ] {
        assert_eq!(wrong(line, &helps).as_deref(), expected, "{line}");
    }
}
