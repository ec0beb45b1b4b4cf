//! What comments and documents say.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::files::Finding;

/// Doc comments of so many words or fewer say nothing that the name does not.
const FEW_WORDS: usize = 3;

/// The text of a doc comment's line.
fn doc_line(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    // Four slashes are no doc comment.
    (!text.starts_with('/')).then_some(text)
}

/// Doc comments that are too short to say anything.
pub fn empty_docs(source: &str) -> Vec<Finding> {
    let lines: Vec<_> = source.lines().map(doc_line).collect();
    let mut found = Vec::new();
    let mut at = 0;
    for block in lines.chunk_by(|one, next| one.is_some() == next.is_some()) {
        let text = block.iter().copied().flatten().collect::<Vec<_>>().join(" ");
        let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        if block[0].is_some() && words <= FEW_WORDS {
            found.push(Finding::new(at + 1, format!("a doc comment of {words} words: {}", text.trim())));
        }
        at += block.len();
    }
    found
}

/// Code in doc comments that rustdoc would take for a test: what opens with a fence and no language. Nobody
/// runs those.
pub fn doc_tests(source: &str) -> Vec<Finding> {
    let (mut is_open, mut found) = (false, Vec::new());
    for (at, line) in source.lines().enumerate() {
        let Some(fence) = doc_line(line).and_then(|text| text.trim_start().strip_prefix("```")) else {
            continue;
        };
        if !is_open && fence.trim() != "text" {
            found
                .push(Finding::new(at + 1, "a test in a doc comment, which nobody runs: ```text".to_owned()));
        }
        is_open = !is_open;
    }
    found
}

/// Endings of files that are looked for wherever they are said to lie.
const ENDINGS: [&str; 2] = [".rs", ".md"];
/// Directories of the repository: what begins with one is a path.
const DIRECTORIES: [&str; 9] =
    ["bench/", "crates/", "docs/", "examples/", "fuzz/", "packaging/", "research/", "scripts/", "tests/"];

/// The path that a word in back-quotes names, if it names one.
fn path_in(word: &str) -> Option<&str> {
    let word = word.split("::").next().unwrap_or(word).trim_end_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let is_path = word.chars().all(is_plain) && word.contains(char::is_alphanumeric);
    let is_ours = DIRECTORIES.iter().any(|directory| word.starts_with(directory));
    let has_ending =
        ENDINGS.iter().any(|ending| word.strip_suffix(ending).is_some_and(|stem| !stem.is_empty()));
    (is_path && (is_ours || has_ending) && !word.starts_with(['/', '.'])).then_some(word)
}

/// The places that Markdown's links in a line lead to, those on other machines and within the page excepted.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.map(|target| target.split('#').next().unwrap_or(target));
    targets.filter(|target| !target.is_empty() && !target.contains(':') && !target.contains(' '))
}

/// The anchors that a document's headings have: lower case, words joined by dashes, no other signs.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let title =
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#') && !is_code);
        let Some(title) = title else { continue };
        let letters = title.trim().to_lowercase();
        let kept = letters.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        // A second heading of the same words has a number.
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// Links in a document at `path` to headings that are not there. `read` has the text of another document.
pub fn dead_anchors(path: &Path, text: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<Finding> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for (file, anchor) in targets.filter_map(|target| target.split_once('#')) {
            if file.contains(':') {
                continue;
            }
            let there = match file {
                "" => Some(text.to_owned()),
                file => read(&normal(&directory.join(file))),
            };
            // That there is no such file is another finding.
            if there.is_some_and(|there| !anchors(&there).contains(anchor)) {
                found.push(Finding::new(at + 1, format!("{file}#{anchor} leads to no heading")));
            }
        }
    }
    found
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

/// References in a text at `path` to files that are not in the repository, which has `files`.
/// In a source, comments are read and not the code.
pub fn dead_references(path: &Path, text: &str, files: &BTreeSet<PathBuf>) -> Vec<Finding> {
    let is_source = path.extension().is_some_and(|extension| extension == "rs");
    let directory = path.parent().unwrap_or(Path::new(""));
    let exists = |wanted: &Path| files.iter().any(|file| file.starts_with(wanted));
    let is_there = |named: &str| {
        let named = Path::new(named);
        exists(&normal(&directory.join(named))) || files.iter().any(|file| lies_in(file, named))
    };
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let said = if is_source { line.trim_start().strip_prefix("//").unwrap_or_default() } else { line };
        let words = said.split('`').skip(1).step_by(2).filter_map(path_in);
        let dead = words.filter(|named| !is_there(named));
        found.extend(
            dead.map(|named| Finding::new(at + 1, format!("`{named}` is no file of the repository"))),
        );
        let files_linked = links(said).filter(|target| !is_source || target.contains('.'));
        let dead = files_linked.filter(|target| !exists(&normal(&directory.join(target))));
        found.extend(dead.map(|target| Finding::new(at + 1, format!("the link to {target} leads nowhere"))));
    }
    found
}

/// Whether a file or one of the directories above it ends with the parts of `named`.
fn lies_in(file: &Path, named: &Path) -> bool {
    file.ancestors().any(|above| above.ends_with(named))
}
