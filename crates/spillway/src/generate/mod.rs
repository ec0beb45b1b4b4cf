//! `spillway generate`: what is made from the command line's own description: manual pages, completions of
//! the shells, and the reference of the commands. New commands are in it by themselves.
//!
//! - `man`: manual pages
//! - `reference`: one page of Markdown
//! - `build`: the name of the build, which installations keep the library under; hidden

mod man;
mod reference;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use spillway_pager::run::rendezvous::BUILD;

use crate::exit::complain;
use crate::tier::print;

const EXAMPLE: &str = "\
Examples:
  spillway generate man --to man1
  spillway generate completions bash > /etc/bash_completion.d/spillway
  spillway generate reference > docs/reference/commands.md";

/// Make manual pages, shell completions or the reference of the commands.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, arg_required_else_help = true)]
pub struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Manual pages, one for each command
    #[command(after_help = "Example:\n  spillway generate man --to man1 && man man1/spillway-run.1")]
    Man {
        /// The directory that they are written to; it is made where it is not there
        #[arg(long, value_name = "DIRECTORY")]
        to: PathBuf,
    },
    /// Completions of a shell, to standard output
    #[command(after_help = "Example:\n  source <(spillway generate completions bash)")]
    Completions {
        /// The shell that completes
        #[arg(value_enum)]
        shell: Shell,
    },
    /// What every command's help says, as a page of Markdown
    #[command(after_help = "Example:\n  spillway generate reference > docs/reference/commands.md")]
    Reference,
    /// The name of this build, for installations
    #[command(hide = true)]
    Build,
}

/// The command line with the names that its commands are called by.
fn described(command: Command) -> Command {
    // As wide as on a terminal of 80 columns, whatever this one is.
    let mut command = command.term_width(80).disable_help_subcommand(true);
    command.build();
    command
}

/// Makes what was asked for, of this command line.
pub fn run(args: &GenerateArgs, mut command: Command) -> ExitCode {
    let made = match &args.what {
        What::Man { to } => {
            man::write(&described(command), to).map(|()| ExitCode::SUCCESS).map_err(|error| {
                (1, format!("generate: {}: {error}; name a directory to write to", to.display()))
            })
        }
        What::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "spillway", &mut text);
            print(&String::from_utf8_lossy(&text))
        }
        What::Reference => print(&reference::page(&described(command))),
        What::Build => print(&format!("{BUILD}\n")),
    };
    made.unwrap_or_else(|(status, text)| {
        complain(text);
        ExitCode::from(status)
    })
}
