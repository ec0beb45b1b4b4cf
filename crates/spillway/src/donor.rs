//! `spillway donor`: lends this machine's idle memory.

use std::process::ExitCode;

use clap::Args;

/// Lend this machine's idle memory to others.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  spillway donor --memory 4G --listen 127.0.0.1:10809")]
pub struct DonorArgs {}

/// Runs the command.
pub fn run(args: DonorArgs) -> ExitCode {
    let _ = args;
    crate::complain("donor: not built yet; there is no remedy");
    ExitCode::from(70)
}
