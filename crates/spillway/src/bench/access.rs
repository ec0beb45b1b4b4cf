//! The measured process, which `bench paging` starts.

use std::process::ExitCode;

use clap::Args;
use spillway_bench::access::{AccessPlan, measure};

use super::session::{failure, print_json};

#[derive(Debug, Args)]
pub struct AccessArgs {
    #[arg(long)]
    plan: String,
}

pub fn run(args: &AccessArgs) -> ExitCode {
    match serde_json::from_str::<AccessPlan>(&args.plan) {
        Ok(plan) => print_json(&measure(&plan)),
        Err(error) => failure(format!("--plan: {error}; 'bench paging --json' shows whole commands")),
    }
}
