//! What the documentation promises of itself: a published number says on which commit it was made, every page
//! is linked from the index, and a code such as H4 stands in the glossary.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pages_common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pages_common::root;

/// A number that is older says little of what is built now.
const MOST_COMMITS: u64 = 700;

/// The page of each row of the table of what was measured, the commit that it names, and what made it.
fn rows(index: &str) -> Vec<[String; 3]> {
    let (_, table) = index.split_once("## What was measured").expect("the index has a table");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = table.lines().map(cells).filter(|cells| cells.len() == 6 && cells[1].starts_with('['));
    rows.map(|cells| {
        let page = cells[1].split_once("](").unwrap().1.trim_end_matches(')').to_owned();
        let commit = cells[3].split('`').nth(1).unwrap_or_default().to_owned();
        [page, commit, cells[4].clone()]
    })
    .collect()
}

/// What git prints; none where it says no.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).current_dir(root()).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

fn is_commit(text: &str) -> bool {
    (7..=40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn pages_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            pages_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Whether commits can be counted: what is unpacked from an archive has no history to compare with.
fn has_history() -> bool {
    git(&["rev-parse", "--is-shallow-repository"]).is_some_and(|shallow| shallow == "false")
}

/// A commit that a page names is of this history, and not too old.
fn expect_recent(page: &str, commit: &str) {
    if !has_history() {
        return;
    }
    let since = git(&["rev-list", "--count", &format!("{commit}..HEAD")]);
    let since = since.unwrap_or_else(|| panic!("{page}: commit {commit} is none of this history"));
    let since: u64 = since.parse().unwrap();
    assert!(since <= MOST_COMMITS, "{page} is {since} commits old: renew it, or remove what does not hold");
}

/// The commits that a text names: the word behind each "commit".
fn commits_named(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let behind = words.windows(2).filter(|pair| pair[0].eq_ignore_ascii_case("commit"));
    let named = behind.map(|pair| pair[1]);
    named.filter(|word| is_commit(word)).map(str::to_owned).collect()
}

/// The pages of a reader: README.md and all below docs, examples and bench.
fn pages_of_readers() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for directory in ["docs", "examples", "bench"] {
        pages_below(&root().join(directory), &mut pages);
    }
    pages
}

/// Pages that `spillway bench report` or the lab has made are of numbers, whoever forgets them.
fn is_made(page: &str) -> bool {
    page.lines().take(12).any(|line| line.starts_with("Made by `spillway bench"))
}

#[test]
fn each_page_of_numbers_says_on_which_commit_it_was_made() {
    let docs = root().join("docs");
    let rows = rows(&fs::read_to_string(docs.join("README.md")).unwrap());
    assert!(rows.len() > 10, "{rows:?}");
    for [page, commit, _] in &rows {
        assert!(docs.join(page).is_file(), "{page} is no page");
        assert!(is_commit(commit), "{page}: '{commit}' is no commit");
        expect_recent(page, commit);
    }
    // That a command exists with its options is seen to where those of all pages are.
    let by_commands = rows.iter().filter(|[.., made]| made.starts_with("`spillway "));
    let told: BTreeSet<PathBuf> = by_commands.map(|[page, ..]| docs.join(page)).collect();
    let mut pages = Vec::new();
    pages_below(&docs, &mut pages);
    let made = pages.into_iter().filter(|page| is_made(&fs::read_to_string(page).unwrap()));
    let missing: Vec<PathBuf> = made.filter(|page| !told.contains(page)).collect();
    assert!(missing.is_empty(), "without a row that has their command in docs/README.md: {missing:?}");
}

#[test]
fn each_commit_that_a_page_names_is_of_this_history_and_not_too_old() {
    let mut checked = 0;
    for page in pages_of_readers() {
        for commit in commits_named(&fs::read_to_string(&page).unwrap()) {
            expect_recent(&page.display().to_string(), &commit);
            checked += 1;
        }
    }
    assert!(checked >= 5, "{checked} were found: are they written otherwise?");
}

/// What links of a page lead to, without headings, as paths.
fn linked(page: &Path) -> BTreeSet<PathBuf> {
    let text = fs::read_to_string(page).unwrap();
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    let files = targets.map(|target| page.parent().unwrap().join(target)).filter(|path| path.is_file());
    files.map(|path| path.canonicalize().unwrap()).collect()
}

#[test]
fn every_page_is_linked_from_the_index() {
    let index = root().join("docs/README.md");
    let linked = linked(&index);
    let mut pages = Vec::new();
    pages_below(&root().join("docs"), &mut pages);
    pages.retain(|page| *page != index);
    pages.extend(
        ["CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SPECIFICATION.md"]
            .map(|name| root().join(name)),
    );
    assert!(pages.len() > 40, "{pages:?}");
    let missing: Vec<_> =
        pages.iter().filter(|page| !linked.contains(&page.canonicalize().unwrap())).collect();
    assert!(missing.is_empty(), "docs/README.md has no link to {missing:?}");
}

/// A repository with the script, the pages that it renews and a `spillway` that makes nothing but a note of
/// how it was called.
fn repository_with_a_mock(place: &Path) {
    for directory in ["scripts", "docs/research"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    for file in ["scripts/figures", "docs/README.md", "docs/research/figures.md"] {
        fs::copy(root().join(file), place.join(file)).unwrap();
    }
    let mock = "#!/bin/sh\necho \"$*\" >>\"$(dirname \"$0\")/calls\"\necho \"| made anew by $*\"\n";
    fs::write(place.join("spillway"), mock).unwrap();
    let script = "chmod +x spillway && git init -q && git add docs && \
                  git -c user.name=a -c user.email=a@b.c commit -qm all";
    assert!(Command::new("sh").args(["-c", script]).current_dir(place).status().unwrap().success());
}

#[test]
fn figures_renews_the_pages_that_commands_make_and_names_the_rest() {
    let place = tempfile::tempdir().unwrap();
    repository_with_a_mock(place.path());
    let figures = |pages: &[&str]| {
        let mut script = Command::new("scripts/figures");
        script.current_dir(place.path()).arg("spillway").args(pages).env_remove("CARGO_TARGET_DIR");
        script.output().unwrap()
    };
    let read = |file: &str| fs::read_to_string(place.path().join(file)).unwrap();
    let before = rows(&read("docs/README.md"));
    let output = figures(&["figures", "ablation"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for words in ["Renewed: ablation figures\n", "README.md", "research/dcm-losses.md"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    // Each command as the table has it, and a page made of what it has printed.
    let calls = read("calls");
    let calls: Vec<&str> = calls.lines().collect();
    let command = |name: &str| {
        let row = before.iter().find(|[page, ..]| page.ends_with(&format!("/{name}.md"))).unwrap();
        row[2].trim_matches('`').trim_start_matches("spillway ").to_owned()
    };
    assert_eq!([calls[0], calls[2]], [command("ablation"), command("figures")]);
    assert!(calls[1].starts_with("bench report --to docs/research --note Commit "), "{}", calls[1]);
    assert!(calls[1].contains(&format!("`spillway {}`", command("ablation"))), "{}", calls[1]);
    let page = read("docs/research/figures.md");
    let made = page.split_once("<!-- made -->\n").unwrap().1.split_once("\n<!-- /made -->").unwrap().0;
    assert_eq!(made, format!("| made anew by {}", command("figures")));
    // The two rows name the commit, and no other row changes.
    let head =
        Command::new("git").args(["rev-parse", "--short=7", "HEAD"]).current_dir(place.path()).output();
    let head = String::from_utf8(head.unwrap().stdout).unwrap().trim().to_owned();
    for (before, after) in before.iter().zip(rows(&read("docs/README.md"))) {
        let is_renewed = ["research/ablation.md", "research/figures.md"].contains(&before[0].as_str());
        let commit = if is_renewed { &head } else { &before[1] };
        assert_eq!([&after[0], &after[1], &after[2]], [&before[0], commit, &before[2]]);
    }
    let nobody = figures(&["no-such-page"]);
    let complaint = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(
        !nobody.status.success() && complaint.contains("no command makes a page 'no-such-page'"),
        "{complaint}"
    );
}

/// Whether a word is the code of a paper's figure: letters of the paper, a number, perhaps a letter.
fn is_code(word: &str) -> bool {
    let number = ["IT", "H", "I", "D"].iter().find_map(|paper| word.strip_prefix(paper));
    number.is_some_and(|number| {
        let digits = number.trim_end_matches(['a', 'b', 'c']);
        !digits.is_empty()
            && number.len() - digits.len() <= 1
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[test]
fn every_code_on_a_page_is_in_the_glossary() {
    // A database in Java.
    const NO_CODES: [&str; 1] = ["H2"];
    let glossary = fs::read_to_string(root().join("docs/concepts/glossary.md")).unwrap();
    let words = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        words.filter(|word| is_code(word) && !NO_CODES.contains(word)).map(str::to_owned).collect()
    };
    let first_cells: String =
        glossary.lines().filter_map(|line| line.split('|').nth(1)).collect::<Vec<_>>().join(" ");
    let explained = words(&first_cells);
    let mut pages =
        ["README.md", "ARCHITECTURE.md", "SPECIFICATION.md"].map(|name| root().join(name)).to_vec();
    pages_below(&root().join("docs"), &mut pages);
    let mut used = BTreeSet::new();
    for page in pages {
        used.extend(words(&fs::read_to_string(page).unwrap()));
    }
    assert!(used.len() > 20, "{used:?}");
    let unexplained: Vec<&String> = used.difference(&explained).collect();
    assert!(unexplained.is_empty(), "docs/concepts/glossary.md does not explain {unexplained:?}");
}

#[test]
fn codes_and_rows_are_read_as_they_are_meant() {
    for (word, expected) in [
        ("H4", true),
        ("IT4", true),
        ("H5c", true),
        ("D75", true),
        ("H", false),
        ("Hub", false),
        ("I5cc", false),
    ] {
        assert_eq!(is_code(word), expected, "{word}");
    }
    let index = "# x\n| [a](a.md) | b | `1234567` | hand |\n## What was measured\n\n\
                 | page | is of | numbers of | made by |\n\
                 |---|---|---|---|\n| [c](d/c.md) | e | `abcdef0`, 2026-11-26 | hand |\n";
    assert_eq!(rows(index), [["d/c.md", "abcdef0", "hand"].map(str::to_owned)]);
    let page = "of commit `abcdef0`, then\ncommit\n1234567; Commit 0123456789 (a commit of ours, commit abc)";
    assert_eq!(commits_named(page), ["0123456789", "1234567", "abcdef0"].map(str::to_owned).into());
    assert!(!is_commit("abcdefg") && !is_commit("abc") && is_commit("abcdef0"));
}
