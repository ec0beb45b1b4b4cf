//! The reference of the commands: what each says with `--help`, as one page of Markdown.

use std::fmt::Write as _;

use clap::Command;

/// The page, with a part for the command and for each below it.
pub fn page(command: &Command) -> String {
    let mut text =
        "# Commands\n\nWhat each command says with `--help`, made by `spillway generate reference`.\n"
            .to_owned();
    let mut commands = Vec::new();
    collect(command, command.get_name().to_owned(), &mut commands);
    text.push('\n');
    for (name, command) in &commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "- [{name}](#{}): {}", name.replace(' ', "-"), about.trim_end_matches('.'));
    }
    for (name, command) in commands {
        let help = command.clone().render_long_help().to_string();
        let lines: Vec<_> = help.trim_end().lines().map(str::trim_end).collect();
        let _ = writeln!(text, "\n## {name}\n\n```text\n{}\n```", lines.join("\n"));
    }
    text
}

fn collect<'a>(command: &'a Command, name: String, found: &mut Vec<(String, &'a Command)>) {
    found.push((name.clone(), command));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(below, format!("{name} {}", below.get_name()), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_is_not_hidden_has_its_part() {
        let hidden = Command::new("hidden").hide(true);
        let inner = Command::new("inner").about("Is within");
        let command =
            Command::new("top").subcommand(Command::new("outer").subcommand(inner)).subcommand(hidden);
        let page = page(&command);
        assert!(page.contains("- [top outer inner](#top-outer-inner): Is within\n"), "{page}");
        assert!(page.contains("## top outer inner\n\n```text\nIs within\n"), "{page}");
        assert!(!page.contains("hidden"), "{page}");
    }
}
