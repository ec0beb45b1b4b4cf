//! `spillway bench paging`: its arguments, and how its results look.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use spillway_bench::access::{Data, Pattern};
use spillway_bench::cells::{FaultMode, StoreKind, Wanted, groups};
use spillway_bench::paging::{Extent, Progress, compare};
use spillway_bench::table;
use spillway_core::size::Size;

use super::session::{Results, failure, interruption, print_json, progress_bar, this_command};

const EXAMPLE: &str = "\
Example:
  spillway bench paging --quick
  spillway bench paging --pattern random_read --store ram --repeat 5 --json

It needs root, makes swap devices on a RAM disk and on zram and a memory
control group, and takes them down at the end, also when it is interrupted.
Where the kernel's nbd is loaded and nbd-client is installed, a donor by TCP is
compared with swap over nbd to that donor too.";

/// After so long a quick run begins nothing new.
const QUICK_LIMIT: Duration = Duration::from_secs(300);

/// Compare paging with Linux swap: same process, pattern and local limit.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct PagingArgs {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Measure little: 256M, one second each, the most telling cells, for five minutes
    #[arg(long)]
    quick: bool,
    /// Memory of the measured process [default: 1G, or 256M with --quick]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// How often each comparison is repeated [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    repeat: Option<usize>,
    /// These patterns in place of the usual ones
    #[arg(long, value_name = "PATTERN", value_enum)]
    pattern: Vec<Pattern>,
    /// These stores in place of the usual ones
    #[arg(long, value_name = "STORE", value_enum)]
    store: Vec<StoreKind>,
    /// These numbers of threads in place of the usual ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Vec<u64>,
    /// So much of the memory local, in percent, in place of the usual shares
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=99))]
    local: Vec<u64>,
    /// What the pages hold [default: random, or compressible on compressed RAM]
    #[arg(long, value_name = "DATA", value_enum)]
    data: Option<DataArg>,
    /// Who serves faults, where the store allows it [default: each in turn]
    #[arg(long, value_name = "MODE", value_enum)]
    fault_mode: Vec<FaultMode>,
    /// Only this read-ahead of swap, as a power of two of pages [default: 0 and 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=9))]
    page_cluster: Vec<u32>,
    /// An option that 'spillway run' is given too, such as --run-option=--json
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    run_option: Vec<String>,
}

/// What the pages hold.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DataArg {
    /// Contents that nothing can compress
    Random,
    /// What compresses to about a third
    Compressible,
    /// One after the other
    Both,
}

impl PagingArgs {
    fn wanted(&self) -> Wanted {
        let data = match self.data {
            None => vec![],
            Some(DataArg::Random) => vec![Data::Random],
            Some(DataArg::Compressible) => vec![Data::Compressible],
            Some(DataArg::Both) => vec![Data::Random, Data::Compressible],
        };
        Wanted {
            patterns: self.pattern.clone(),
            stores: self.store.clone(),
            threads: self.threads.iter().map(|&threads| threads as usize).collect(),
            local_pcts: self.local.clone(),
            data,
        }
    }

    fn extent(&self) -> Extent {
        let page_clusters = if self.page_cluster.is_empty() { vec![0, 3] } else { self.page_cluster.clone() };
        let fault_modes = if self.fault_mode.is_empty() {
            FaultMode::value_variants().to_vec()
        } else {
            self.fault_mode.clone()
        };
        Extent {
            memory_bytes: self.memory.map_or(if self.quick { 256 << 20 } else { 1 << 30 }, Size::bytes),
            measured_ms: if self.quick { 1000 } else { 2000 },
            repetitions: self.repeat.unwrap_or(if self.quick { 1 } else { 3 }).max(1),
            groups: groups(self.quick, &self.wanted()),
            fault_modes,
            page_clusters,
            run_options: self.run_option.clone(),
            time_limit: self.quick.then_some(QUICK_LIMIT),
        }
    }
}

/// Runs the benchmark; the exit status says whether all was measured.
pub fn run(args: &PagingArgs) -> ExitCode {
    let spillway = match this_command() {
        Ok(path) => path,
        Err(error) => return failure(error),
    };
    let interrupted = interruption();
    let bar = progress_bar();
    let results = Results::new();
    let say = |text: String| {
        if !args.json {
            bar.suspend(|| results.print(text + "\n"));
        }
    };
    let report = compare(&spillway, &args.extent(), &interrupted, &mut |progress| match progress {
        Progress::Setting(setting) => say(table::head(setting)),
        Progress::Row(row) => say(table::line(row)),
        Progress::Measured(done, total) => {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    });
    bar.finish_and_clear();
    match report {
        Ok(report) if args.json => print_json(&report),
        Ok(report) => {
            if report.settings_left_out > 0 {
                let many = report.settings_left_out;
                say(format!("\nNo time was left for {many} settings; without --quick all are measured."));
            }
            results.ended()
        }
        Err(error) => failure(error),
    }
}
