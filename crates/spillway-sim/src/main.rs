//! Runs seeds of the simulator: many at once, each worker a process of its own, or one with what happens in
//! it.
//!
//! Exit status: 0 where all seeds held, 1 where one failed, 2 where the command line was not understood, 125
//! where the simulator itself could not run.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Parser;
use spillway_sim::config::{Config, Overrides};
use spillway_sim::report::{FailureReport, SeedReport, replay_command};
use spillway_sim::run::run_world;
use spillway_sim::shrink::shrink;
use spillway_sim::world::keep_panics;

/// Seeds that one worker runs: what a world leaves behind goes with its process.
const SEEDS_PER_WORKER: u64 = 100;
/// A seed that takes as long hangs where no turn is taken.
const LONGEST_SEED: Duration = Duration::from_secs(180);
/// Runs to make a failing world smaller.
const SHRINK_TRIES: u32 = 40;
const SIMULATOR_FAILED: u8 = 125;

/// A seeded simulator of the pager: its own code on a simulated kernel. Exit status 1 where a seed fails.
#[derive(Clone, Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Run so many seeds.
    #[arg(long, value_name = "N", default_value_t = 500, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "seed")]
    from: u64,
    /// Run for so long, from the first seed on.
    #[arg(long, value_name = "S", conflicts_with_all = ["seed", "seeds"])]
    seconds: Option<u64>,
    /// Run this seed alone.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Show what happens in it.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Shrink it, if it fails. Seeds that fail among many are shrunk anyway.
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// Threads of the first process, in place of what the seed says.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Operations of each thread, in place of what the seed says.
    #[arg(long, value_name = "N")]
    operations: Option<usize>,
    /// Plant a mistake of the pager's (with feature `planted-bugs`), and stop at the first seed that finds
    /// it.
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// A line of JSON for each seed.
    #[arg(long)]
    json: bool,
    /// Workers at a time; by default as many as there are CPUs.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// For workers: report each seed of this range, as `FROM-TO`.
    #[arg(long, value_name = "RANGE", hide = true)]
    worker: Option<String>,
}

impl Arguments {
    fn overrides(&self) -> Overrides {
        Overrides { threads: self.threads, operations: self.operations, planted: self.plant.clone() }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(range) = &arguments.worker {
        return work(&arguments, range);
    }
    if arguments.plant.is_some() && !cfg!(feature = "planted-bugs") {
        eprintln!("spillway-sim: --plant needs a build with --features planted-bugs");
        return ExitCode::from(2);
    }
    match arguments.seed {
        Some(seed) => run_one(&arguments, seed),
        None => run_many(&arguments),
    }
}

/// Reports each seed of a range on standard output, a line each.
fn work(arguments: &Arguments, range: &str) -> ExitCode {
    let ends: Vec<u64> = range.split('-').filter_map(|end| end.parse().ok()).collect();
    let [from, to] = ends[..] else { return ExitCode::from(2) };
    keep_panics();
    let overrides = arguments.overrides();
    for seed in from..to {
        let mut outcome = run_world(&Config::of_seed(seed, &overrides), false);
        if overrides.planted.is_some() && outcome.failure.is_some() {
            // It counts as found only where nothing is wrong without it.
            let without = Overrides { planted: None, ..overrides.clone() };
            if run_world(&Config::of_seed(seed, &without), false).failure.is_some() {
                outcome.failure = None;
            }
        }
        let shrunk = outcome
            .failure
            .as_ref()
            .filter(|_| overrides.planted.is_none())
            .map(|failure| shrink(seed, &overrides, failure, SHRINK_TRIES));
        let report = SeedReport::new(seed, &outcome, shrunk.as_ref());
        let Ok(line) = serde_json::to_string(&report) else { return ExitCode::from(SIMULATOR_FAILED) };
        if writeln!(std::io::stdout(), "{line}").is_err() {
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::SUCCESS
}

fn run_one(arguments: &Arguments, seed: u64) -> ExitCode {
    keep_panics();
    let mut overrides = arguments.overrides();
    let mut outcome = run_world(&Config::of_seed(seed, &overrides), arguments.trace);
    if let Some(failure) = outcome.failure.as_ref().filter(|_| arguments.shrink) {
        overrides = shrink(seed, &overrides, failure, SHRINK_TRIES).overrides;
        outcome = run_world(&Config::of_seed(seed, &overrides), arguments.trace);
    }
    if arguments.trace {
        println!("{:#?}", Config::of_seed(seed, &overrides));
    }
    outcome.trace.iter().for_each(|line| println!("{line}"));
    let counts: Vec<String> = outcome.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("seed {seed}: {} turns; {}", outcome.steps, counts.join(", "));
    match &outcome.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            println!("seed {seed} failed at turn {} in {}: {}", failure.step, failure.task, failure.what);
            println!("    {}", replay_command(seed, &overrides));
            ExitCode::FAILURE
        }
    }
}

/// A worker, and what it has left to do.
struct Worker {
    child: Child,
    next: u64,
    to: u64,
    heard: Instant,
}

/// What a worker says.
enum Heard {
    Report(usize, Box<SeedReport>),
    End(usize),
}

/// The run of many seeds.
struct Run<'a> {
    arguments: &'a Arguments,
    started: Instant,
    done: u64,
    failed: Vec<SeedReport>,
    ranges: VecDeque<(u64, u64)>,
    /// The first seed that no range covers yet.
    next_seed: u64,
    workers: Vec<Option<Worker>>,
}

fn run_many(arguments: &Arguments) -> ExitCode {
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
    let mut run = Run {
        arguments,
        started: Instant::now(),
        done: 0,
        failed: Vec::new(),
        ranges: VecDeque::new(),
        next_seed: arguments.from,
        workers: (0..jobs.max(1)).map(|_| None).collect(),
    };
    let (sender, receiver) = mpsc::channel();
    if let Err(error) = (0..run.workers.len()).try_for_each(|number| run.start(number, &sender)) {
        eprintln!("spillway-sim: a worker cannot be started: {error}");
        return ExitCode::from(SIMULATOR_FAILED);
    }
    while run.workers.iter().any(Option::is_some) {
        match receiver.recv_timeout(Duration::from_millis(500)) {
            Ok(Heard::Report(number, report)) => run.note(number, *report),
            Ok(Heard::End(number)) => {
                if let Err(error) = run.end(number, &sender) {
                    eprintln!("spillway-sim: a worker cannot be started: {error}");
                    return ExitCode::from(SIMULATOR_FAILED);
                }
            }
            Err(_) => run.end_those_that_hang(),
        }
        run.show_progress();
        if arguments.plant.is_some() && !run.failed.is_empty() {
            run.stop_all();
            break;
        }
    }
    run.conclude()
}

impl Run<'_> {
    fn is_time_over(&self) -> bool {
        self.arguments.seconds.is_some_and(|seconds| self.started.elapsed().as_secs() >= seconds)
    }

    /// The seeds that a worker is to run next.
    fn next_range(&mut self) -> Option<(u64, u64)> {
        if let Some(left) = self.ranges.pop_front() {
            return Some(left);
        }
        let end = match self.arguments.seconds {
            Some(_) if self.is_time_over() => return None,
            Some(_) => self.next_seed + SEEDS_PER_WORKER,
            None => self.arguments.from + self.arguments.seeds,
        };
        let from = self.next_seed;
        // So that all workers end at about the same time.
        let share = (end - from).div_ceil(2 * self.workers.len() as u64).clamp(1, SEEDS_PER_WORKER);
        self.next_seed = end.min(from + share);
        (from < self.next_seed).then_some((from, self.next_seed))
    }

    fn start(&mut self, number: usize, sender: &mpsc::Sender<Heard>) -> std::io::Result<()> {
        let Some((from, to)) = self.next_range() else { return Ok(()) };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--worker").arg(format!("{from}-{to}")).stdin(Stdio::null()).stdout(Stdio::piped());
        let overrides = self.arguments.overrides();
        overrides.threads.iter().for_each(|threads| {
            command.arg(format!("--threads={threads}"));
        });
        overrides.operations.iter().for_each(|operations| {
            command.arg(format!("--operations={operations}"));
        });
        overrides.planted.iter().for_each(|mistake| {
            command.arg(format!("--plant={mistake}"));
        });
        let mut child = command.spawn()?;
        if let Some(output) = child.stdout.take() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Ok(report) = serde_json::from_str(&line) {
                        let _ = sender.send(Heard::Report(number, Box::new(report)));
                    }
                }
                let _ = sender.send(Heard::End(number));
            });
        }
        self.workers[number] = Some(Worker { child, next: from, to, heard: Instant::now() });
        Ok(())
    }

    fn note(&mut self, number: usize, report: SeedReport) {
        if let Some(worker) = &mut self.workers[number] {
            worker.next = report.seed + 1;
            worker.heard = Instant::now();
        }
        self.done += 1;
        if self.arguments.json
            && let Ok(line) = serde_json::to_string(&report)
        {
            println!("{line}");
        }
        if report.failure.is_some() {
            self.failed.push(report);
        }
    }

    /// A worker has ended: by itself, or amid a seed.
    fn end(&mut self, number: usize, sender: &mpsc::Sender<Heard>) -> std::io::Result<()> {
        let Some(mut worker) = self.workers[number].take() else { return Ok(()) };
        let status = worker.child.wait()?;
        if worker.next < worker.to {
            let what = format!("its worker ended ({status})");
            self.note(number, self.without_report(worker.next, what));
            self.ranges.push_back((worker.next + 1, worker.to));
            self.ranges.retain(|(from, to)| from < to);
        }
        if self.is_time_over() && self.arguments.seconds.is_some() {
            return Ok(());
        }
        self.start(number, sender)
    }

    fn without_report(&self, seed: u64, what: String) -> SeedReport {
        let replay = replay_command(seed, &self.arguments.overrides());
        let failure = FailureReport { step: 0, task: String::new(), what, replay };
        SeedReport { seed, steps: 0, digest: 0, failure: Some(failure) }
    }

    fn end_those_that_hang(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            if worker.heard.elapsed() > LONGEST_SEED {
                // Its end is heard of, and counts as the seed's failure.
                let _ = worker.child.kill();
            }
        }
    }

    fn stop_all(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }

    fn show_progress(&self) {
        let elapsed = self.started.elapsed();
        if self.arguments.json || elapsed < Duration::from_secs(3) || !std::io::stderr().is_terminal() {
            return;
        }
        let left = match self.arguments.seconds {
            Some(seconds) => seconds.saturating_sub(elapsed.as_secs()),
            None if self.done == 0 => return,
            None => {
                let rest = self.arguments.seeds.saturating_sub(self.done);
                (elapsed.as_secs_f64() / self.done as f64 * rest as f64) as u64
            }
        };
        eprint!("\r{} seeds, {} failed, {left} s left   ", self.done, self.failed.len());
    }

    fn conclude(mut self) -> ExitCode {
        if std::io::stderr().is_terminal() && self.started.elapsed() > Duration::from_secs(3) {
            eprint!("\r{:60}\r", "");
        }
        self.failed.sort_by_key(|report| report.seed);
        if !self.arguments.json {
            for report in &self.failed {
                if let Some(failure) = &report.failure {
                    println!(
                        "seed {}: {} (turn {}, {})",
                        report.seed, failure.what, failure.step, failure.task
                    );
                    println!("    {}", failure.replay);
                }
            }
            println!("{} seeds, {} failed", self.done, self.failed.len());
        }
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
