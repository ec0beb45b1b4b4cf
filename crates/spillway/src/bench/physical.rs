//! `spillway bench physical`: its arguments, and how its results look.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Args;
use spillway_bench::BenchError;
use spillway_bench::page::html;
use spillway_bench::physical::report::PhysicalReport;
use spillway_bench::physical::stage::Progress;
use spillway_bench::physical::{Kind, Plan, measure, pool, text};
use spillway_core::size::Size;
use spillway_report::whole_file;

use super::session::{expect_place, failure, interruption, print_json, printed, progress_bar};

const EXAMPLE: &str = "\
Example:
  spillway bench physical alloc free --quick
  spillway bench physical --html memory.html
  spillway bench physical --pool /etc/spillway/run.toml

Each experiment says what it will do to the machine, leaves a tenth of the
memory to others, and sets everything back, also when it is interrupted:
then it reports what had been measured, and writes no file for --pool.
An ordinary user gets less: what is left out is listed with the reason.";

/// Measure what Linux's management of physical memory costs.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct PhysicalArgs {
    /// Only these experiments [default: all]
    #[arg(value_name = "EXPERIMENT", value_enum)]
    experiment: Vec<Kind>,
    /// Measure the memory of these nodes [default: all that have memory]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    node: Vec<u32>,
    /// Measure the memory of this mount too: DAX or tmpfs
    #[arg(long, value_name = "MOUNT")]
    path: Vec<PathBuf>,
    /// Print the results as JSON, for 'bench report'
    #[arg(long)]
    json: bool,
    /// Write a page with all results into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write what follows for the frames of 'spillway run' into this file (TOML)
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
    /// Measure little, in a few minutes
    #[arg(long)]
    quick: bool,
    /// Take at most so much memory at a time; 'capacity' needs all that is free
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
}

/// Runs the benchmark; the exit status says whether all was measured.
pub fn run(args: &PhysicalArgs) -> ExitCode {
    if let Err(reason) = args.html.iter().chain(&args.pool).try_for_each(|file| expect_place(file)) {
        return failure(reason);
    }
    let plan = Plan {
        quick: args.quick,
        memory_bytes: args.memory.map(Size::bytes),
        nodes: args.node.clone(),
        mounts: args.path.clone(),
        experiments: args.experiment.clone(),
    };
    let interrupted = interruption();
    let bar = progress_bar();
    // Results alone go to the standard output.
    let tell = |text: &str| {
        bar.suspend(|| {
            let _ = write!(std::io::stderr(), "{text}");
        });
    };
    let show = |text: &str| {
        bar.suspend(|| {
            let _ = write!(std::io::stdout(), "{text}");
        });
    };
    let report = measure(&plan, &interrupted, &mut |progress| match progress {
        Progress::Begins(name, does) => {
            bar.reset();
            tell(&text::wrapped(&format!("{name} {does}."), ""));
        }
        Progress::Step(what, done, total) => {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(what.to_owned());
        }
        Progress::Ended(measured) if !args.json => show(&text::experiment(measured)),
        Progress::Ended(_) => {}
        Progress::Note(note) => tell(&text::wrapped(&format!("spillway: bench: {note}"), "")),
    });
    bar.finish_and_clear();
    match report {
        Ok(report) if interrupted.load(Ordering::Relaxed) => {
            // What frames should be like does not follow from half of the measurements.
            finish(&PhysicalArgs { pool: None, ..args.clone() }, &report);
            failure(BenchError::Interrupted)
        }
        Ok(report) => finish(args, &report),
        Err(error) => failure(error),
    }
}

fn finish(args: &PhysicalArgs, report: &PhysicalReport) -> ExitCode {
    if let Some(path) = &args.html
        && let Err(error) = html::write(report, path)
    {
        return failure(error);
    }
    if let Some(path) = &args.pool
        && let Err(error) = whole_file::write(path, pool::toml(report))
    {
        return failure(format!("cannot write {}: {error}; name a file that can be written", path.display()));
    }
    let printed = if args.json {
        print_json(report)
    } else {
        printed(write!(std::io::stdout(), "{}", text::ending(report)))
    };
    if report.experiments.is_empty() { ExitCode::FAILURE } else { printed }
}
