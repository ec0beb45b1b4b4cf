//! `spillway pool`: the donors of a pool and its runs, for who looks after them.

mod drain;
mod reach;
mod runs;
mod status;
mod watched;

pub use status::Looked;
pub use watched::{Pools, PoolsArgs};

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::exit::complain;

const EXAMPLE: &str = "\
Examples:
  spillway pool status etcd://10.0.0.9:2379/lab
  spillway pool status 10.0.0.2:10809,10.0.0.3:10809 --json
  spillway pool drain 10.0.0.2:10809";

/// See how the donors and runs of a pool stand, and move everything off a donor.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct PoolArgs {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    Status(status::StatusArgs),
    Drain(drain::DrainArgs),
}

/// Does what was asked for.
pub fn run(args: &PoolArgs) -> ExitCode {
    let outcome = match &args.command {
        PoolCommand::Status(args) => status::status(args),
        PoolCommand::Drain(args) => drain::drain(args),
    };
    outcome.unwrap_or_else(|(status, text)| {
        complain(format!("pool: {text}"));
        ExitCode::from(status)
    })
}
