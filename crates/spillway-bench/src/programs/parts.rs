//! The parts of a text with tables, for Markdown and for HTML.

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What begins a section.
    Heading(String),
    /// Sentences that can be broken.
    Paragraph(String),
    /// One item a line.
    List(Vec<String>),
    /// Rows of cells below a head.
    Table {
        /// What the columns are.
        head: Vec<String>,
        /// As many cells each as the head has.
        rows: Vec<Vec<String>>,
    },
}

/// Columns of a terminal, for what can be broken.
const WIDTH: usize = 80;

/// The parts as Markdown, one after the other.
#[must_use]
pub fn markdown(parts: &[Part]) -> String {
    let all: Vec<String> = parts.iter().map(of_part).collect();
    all.join("\n")
}

fn of_part(part: &Part) -> String {
    match part {
        Part::Heading(text) => format!("## {text}\n"),
        Part::Paragraph(text) => wrapped(text, ""),
        Part::List(items) => items.iter().map(|item| wrapped(&format!("- {item}"), "  ")).collect(),
        Part::Table { head, rows } => {
            let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
            let rule = format!("|{}\n", "---|".repeat(head.len()));
            let rows = rows.iter().map(|row| line(row));
            line(head) + &rule + &rows.collect::<String>()
        }
    }
}

/// Lines that fit a terminal; those after the first begin with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = indent.to_owned();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_markdown_and_sentences_fit_a_terminal() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let parts = [
            Part::Heading("Goals".to_owned()),
            Part::Paragraph("word ".repeat(30)),
            Part::List(vec!["item ".repeat(20)]),
            Part::Table { head: words(&["a", "b"]), rows: vec![words(&["1", "2"])] },
        ];
        let text = markdown(&parts);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.starts_with("## Goals\n\nword word"), "{text}");
        assert!(text.contains("\n- item item") && text.contains("\n  item"), "{text}");
        assert!(text.ends_with("| a | b |\n|---|---|\n| 1 | 2 |\n"), "{text}");
    }
}
