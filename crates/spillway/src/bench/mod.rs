//! `spillway bench`: Spillway beside what a user would take instead, and what memory itself costs.

mod ablation;
mod access;
mod command;
mod dcm;
mod paging;
mod physical;
mod pool;
mod programs;
mod report;
mod rig;
pub mod session;

use std::process::ExitCode;

use clap::{Args, Subcommand};

const EXAMPLE: &str = "\
Example:
  spillway bench paging --quick
  spillway bench physical --quick --html memory.html";

/// Measure Spillway beside Linux swap, and what physical memory costs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Paging(paging::PagingArgs),
    Command(command::CommandArgs),
    Programs(programs::ProgramsArgs),
    Dcm(dcm::DcmArgs),
    Ablation(ablation::AblationArgs),
    Physical(physical::PhysicalArgs),
    Pool(pool::PoolArgs),
    Rig(rig::RigArgs),
    Report(report::ReportArgs),
    #[command(hide = true)]
    Access(access::AccessArgs),
    #[command(hide = true)]
    PoolReads(pool::ReadsArgs),
}

/// Runs the benchmark that was asked for.
pub fn run(args: BenchArgs) -> ExitCode {
    match args.bench {
        Bench::Paging(args) => paging::run(&args),
        Bench::Command(args) => command::run(&args),
        Bench::Programs(args) => programs::run(&args),
        Bench::Dcm(args) => dcm::run(&args),
        Bench::Ablation(args) => ablation::run(&args),
        Bench::Physical(args) => physical::run(&args),
        Bench::Pool(args) => pool::run(&args),
        Bench::PoolReads(args) => pool::run_reads(&args),
        Bench::Rig(args) => rig::run(&args),
        Bench::Report(args) => report::run(&args),
        Bench::Access(args) => access::run(&args),
    }
}
