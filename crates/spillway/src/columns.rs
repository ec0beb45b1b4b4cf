//! How wide what is printed may be.

use terminal_size::{Width, terminal_size_of};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_where_they_are_too_long_and_keep_their_indent() {
        let text = "short\n  one two three four\n\n      80%";
        assert_eq!(fitted(text, 12), "short\n  one two\n  three four\n\n      80%\n");
        assert_eq!(fitted(text, 80), format!("{text}\n"));
        // A word alone may be longer than any line.
        assert!(fitted("  abcdefghij", 3).lines().all(|line| line.chars().count() <= 3));
    }
}
