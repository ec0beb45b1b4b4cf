//! `spillway bench`: Spillway beside what a user would take instead.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use clap::{Args, Subcommand};
use signal_hook::consts::signal::{SIGINT, SIGTERM};
use spillway_bench::access::{AccessPlan, Pattern, measure};
use spillway_bench::paging::{Extent, StoreKind, compare, usual_cells};
use spillway_bench::table;
use spillway_core::size::Size;

use crate::complain;

const EXAMPLE: &str = "\
Example:
  spillway bench paging --quick
  spillway bench paging --pattern random_read --store ram --repeat 5 --json

It needs root, makes swap devices on a RAM disk and on zram and a memory
control group, and takes them down at the end, also when it is interrupted.";

/// Measure Spillway beside Linux swap.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Paging(PagingArgs),
    #[command(hide = true)]
    Access(AccessArgs),
}

/// Compare paging with Linux swap: same process, pattern and local limit.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
struct PagingArgs {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Measure little: 256M, one second each, the most telling cells
    #[arg(long)]
    quick: bool,
    /// Memory of the measured process [default: 1G, or 256M with --quick]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// How often each comparison is repeated [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    repeat: Option<usize>,
    /// Only these patterns
    #[arg(long, value_name = "PATTERN", value_enum)]
    pattern: Vec<Pattern>,
    /// Only these stores: ram, compressed, shm, nbd_tcp, nbd_unix
    #[arg(long, value_name = "STORE", value_parser = store_kind)]
    store: Vec<StoreKind>,
    /// Only with so many threads
    #[arg(long, value_name = "N")]
    threads: Vec<usize>,
    /// Only with so much of the memory local, in percent
    #[arg(long, value_name = "PERCENT")]
    local: Vec<u64>,
    /// Only with this read-ahead of swap, as a power of two of pages
    #[arg(long, value_name = "N")]
    page_cluster: Vec<u32>,
}

/// The measured process.
#[derive(Debug, Args)]
struct AccessArgs {
    #[arg(long)]
    plan: String,
}

fn store_kind(text: &str) -> Result<StoreKind, String> {
    match text {
        "ram" => Ok(StoreKind::Ram),
        "compressed" => Ok(StoreKind::Compressed),
        "shm" => Ok(StoreKind::Shm),
        "nbd_tcp" => Ok(StoreKind::NbdTcp),
        "nbd_unix" => Ok(StoreKind::NbdUnix),
        _ => Err("write ram, compressed, shm, nbd_tcp or nbd_unix".to_owned()),
    }
}

/// Runs the benchmark.
pub fn run(args: BenchArgs) -> ExitCode {
    match args.bench {
        Bench::Paging(args) => paging(&args),
        Bench::Access(args) => access(&args),
    }
}

fn access(args: &AccessArgs) -> ExitCode {
    let plan: AccessPlan = match serde_json::from_str(&args.plan) {
        Ok(plan) => plan,
        Err(error) => {
            complain(format!("bench: --plan: {error}; 'bench paging --json' shows whole commands"));
            return ExitCode::FAILURE;
        }
    };
    print_json(&measure(&plan))
}

fn print_json(value: &impl serde::Serialize) -> ExitCode {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format!("bench: cannot print: {error}"));
            ExitCode::FAILURE
        }
    }
}

impl PagingArgs {
    fn extent(&self) -> Extent {
        let mut cells = usual_cells(self.quick);
        fn wanted<T: PartialEq>(only: &[T], value: &T) -> bool {
            only.is_empty() || only.contains(value)
        }
        cells.retain(|cell| {
            wanted(&self.pattern, &cell.pattern)
                && wanted(&self.store, &cell.store)
                && wanted(&self.threads, &cell.threads)
                && wanted(&self.local, &cell.local_pct)
        });
        let clusters = if self.page_cluster.is_empty() { vec![0, 3] } else { self.page_cluster.clone() };
        Extent {
            memory_bytes: self.memory.map_or(if self.quick { 256 << 20 } else { 1 << 30 }, Size::bytes),
            measured_ms: if self.quick { 1000 } else { 2000 },
            repetitions: self.repeat.unwrap_or(if self.quick { 1 } else { 3 }).max(1),
            cells,
            page_clusters: clusters,
            run_arguments: Vec::new(),
        }
    }
}

fn paging(args: &PagingArgs) -> ExitCode {
    let extent = args.extent();
    if extent.cells.is_empty() {
        complain("bench: no cell has this pattern, store, local share and number of threads; name fewer");
        return ExitCode::from(crate::EXIT_USAGE);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    let spillway = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            complain(format!("bench: cannot find itself: {error}; call it by its path"));
            return ExitCode::FAILURE;
        }
    };
    let show_progress = std::io::stderr().is_terminal();
    let started = Instant::now();
    if !args.json {
        println!("{}", table::HEAD);
    }
    let report = compare(&spillway, &extent, &interrupted, |row, done, total| {
        if !args.json {
            println!("{}", table::line(row));
        }
        if show_progress {
            let left_s = started.elapsed().as_secs_f64() / done as f64 * (total - done) as f64;
            eprint!("\r{done} of {total}, {left_s:.0} s left \r");
        }
    });
    match report {
        Ok(report) if args.json => print_json(&report),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format!("bench: {error}"));
            ExitCode::FAILURE
        }
    }
}
