//! Manual pages. Options and commands are clap_mangen's; the texts behind them - examples, exit statuses,
//! notes - are laid out here, as the help has them.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Roff, roman};

/// Writes a page for the command and for each below it.
pub fn write(command: &Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut file = fs::File::create(directory.join(format!("{}.1", page_name(command))))?;
    file.write_all(&page(command)?)?;
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| write(below, directory))
}

/// The name of a command's page, such as `spillway-run`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone()).manual("Spillway").date("");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    for (heading, lines) in sections(&after.unwrap_or_default()) {
        rest.control("SH", [heading]).control("nf", []);
        for line in lines {
            rest.text([roman(line)]);
        }
        rest.control("fi", []);
    }
    let name = page_name(command);
    if let Some((above, _)) = name.rsplit_once('-') {
        rest.control("SH", ["SEE ALSO"]).text([roman(format!("{above}(1)"))]);
    }
    rest.to_writer(&mut text)?;
    Ok(text)
}

/// The paragraphs of a help's last part under the headings of manual pages.
fn sections(text: &str) -> Vec<(&'static str, Vec<&str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let mut lines: Vec<_> = paragraph.lines().collect();
        let heading = match lines[0] {
            first if first.starts_with("Example") => "EXAMPLES",
            first if first.starts_with("Exit status") => "EXIT STATUS",
            _ => "NOTES",
        };
        // The heading says it already.
        if lines[0].ends_with(':') && heading != "NOTES" {
            lines.remove(0);
        }
        match sections.last_mut() {
            Some((last, text)) if *last == heading => {
                text.push("");
                text.append(&mut lines);
            }
            _ => sections.push((heading, lines)),
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_go_under_the_headings_of_manual_pages() {
        let text =
            "Examples:\n  a b\n  c\n\nStores:\n  x\n\nMore.\n\nExit status: the program's own.\n\nEnd.";
        assert_eq!(
            sections(text),
            [
                ("EXAMPLES", vec!["  a b", "  c"]),
                ("NOTES", vec!["Stores:", "  x", "", "More."]),
                ("EXIT STATUS", vec!["Exit status: the program's own."]),
                ("NOTES", vec!["End."]),
            ]
        );
        assert!(sections("").is_empty());
    }

    #[test]
    fn a_page_has_the_options_and_keeps_the_layout_of_examples() {
        let mut command = Command::new("top").subcommand(
            Command::new("below")
                .about("Does what is below")
                .arg(clap::arg!(--speed <US> "How fast"))
                .after_help("Example:\n  top  below '--speed' 3\n.dot"),
        );
        command.build();
        let below = command.find_subcommand("below").unwrap();
        let page = String::from_utf8(page(below).unwrap()).unwrap();
        assert!(page.contains(".TH top-below 1") && page.contains("Does what is below"), "{page}");
        assert!(page.contains("\\-\\-speed") && page.contains(".SH EXAMPLES\n.nf\n"), "{page}");
        // A line that begins with a dot is text, and no control line.
        assert!(!page.contains("\n.dot") && page.contains("top(1)"), "{page}");
    }
}
