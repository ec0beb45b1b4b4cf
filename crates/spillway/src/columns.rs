//! How wide what is printed may be.

use std::os::fd::AsFd;

use terminal_size::{Width, terminal_size_of};
use unicode_width::UnicodeWidthStr;

use crate::short::wrapped;

/// Columns of what goes to a file or a pipe, and the most that text is set in.
const USUAL: usize = 80;
/// No terminal is taken to be narrower.
const LEAST: usize = 40;

/// Columns of the terminal on standard output, where that is one: 40 to 80.
pub fn columns() -> usize {
    let terminal = terminal_size_of(std::io::stdout());
    terminal.map_or(USUAL, |(Width(columns), _)| usize::from(columns)).clamp(LEAST, USUAL)
}

/// The same text with lines that are too long broken between words; what hangs below begins where its line
/// does.
pub fn fitted(text: &str, columns: usize) -> String {
    let mut fitted = String::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let parts = match line.chars().count() > columns {
            true => wrapped(line, columns.saturating_sub(indent).max(1)),
            false => vec![line.trim_start().to_owned()],
        };
        parts.iter().for_each(|part| fitted += &format!("{:indent$}{part}\n", ""));
    }
    fitted
}

/// The same text for the terminal on standard output, where that is one: lines that are too long for it are
/// broken between words. A word that is too long, such as a path that is to be copied, stays whole.
pub fn for_terminal(text: &str) -> String {
    for_terminal_on(std::io::stdout(), text)
}

/// The same for what goes to another stream, such as standard error.
pub fn for_terminal_on(stream: impl AsFd, text: &str) -> String {
    match terminal_size_of(stream) {
        Some((Width(columns), _)) => broken(text, usize::from(columns).max(LEAST)),
        None => text.to_owned(),
    }
}

/// The same for so many columns.
pub fn broken(text: &str, columns: usize) -> String {
    let mut broken = String::new();
    for line in text.lines() {
        if line.width() <= columns {
            broken += line;
            broken.push('\n');
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let mut column = 0;
        for word in line.split_whitespace() {
            if column > 0 && column + 1 + word.width() <= columns {
                broken.push(' ');
                column += 1;
            } else {
                let below = if column > 0 { "\n" } else { "" };
                broken += &format!("{below}{:indent$}", "");
                column = indent;
            }
            broken += word;
            column += word.width();
        }
        broken.push('\n');
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_for_a_terminal_and_what_is_to_be_copied_is_not() {
        let text = "short\n  one two three four\n\nat /a/path/of/many/letters now\n";
        assert_eq!(broken(text, 12), "short\n  one two\n  three four\n\nat\n/a/path/of/many/letters\nnow\n");
        assert_eq!(broken(text, 80), text);
    }

    #[test]
    fn lines_are_broken_where_they_are_too_long_and_keep_their_indent() {
        let text = "short\n  one two three four\n\n      80%";
        assert_eq!(fitted(text, 12), "short\n  one two\n  three four\n\n      80%\n");
        assert_eq!(fitted(text, 80), format!("{text}\n"));
        // A word alone may be longer than any line.
        assert!(fitted("  abcdefghij", 3).lines().all(|line| line.chars().count() <= 3));
    }
}
