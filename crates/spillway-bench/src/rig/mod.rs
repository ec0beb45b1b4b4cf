//! `spillway bench rig`: the daemon's policies, the kernel's own tiering and no migration, on a real kernel
//! with two memory nodes, without special hardware.
//!
//! An emulator without hardware support boots a kernel with a fast and a slow node; a plugin of its
//! translator models the last-level cache and counts, by physical address, which node serves each miss. Time
//! in the guest passes with its instructions, so that results do not depend on how fast or busy this machine
//! is.
//!
//! - [`plan`]: what is run
//! - [`guest`]: the guest and the emulator's command line, with [`archive`] for the guest's first files; the
//!   programs in C lie under `rig/`
//! - [`outcome`]: what a guest left; [`report`]: rows and goals
//! - [`lab`]: the same runs in the lab, beside those of the rig
//! - [`page`]: the results for people

pub mod archive;
pub mod guest;
pub mod lab;
pub mod outcome;
pub mod page;
pub mod plan;
pub mod report;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::BenchError;
use guest::Guest;
use plan::{Case, Plan};
use report::Row;

/// What happens while guests run.
pub enum Progress<'a> {
    /// So many runs are to be made.
    Begins(usize),
    /// One is done, after so many seconds.
    Ended(&'a Row, f64),
    /// One failed, for the reason given.
    Failed(&'a Case, &'a str),
}

fn keep(console: &str, directory: &std::path::Path, case: &Case) -> Result<(), BenchError> {
    let Case { workload, policy, local_pct, latency_ns, contention_pct, start } = case;
    let neighbour = contention_pct.map_or_else(String::new, |pct| format!("beside-{pct}-"));
    let name = format!("{workload}-{policy}-{local_pct}-{latency_ns}-{neighbour}{start}.txt");
    let path = directory.join(name);
    std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, console)).map_err(|error| {
        BenchError::setup(format!("write {}", path.display()), error, "name another directory")
    })
}

/// Makes the runs; a row a case, in their order, and how many runs failed. `spillway` is the daemon's
/// command. After an interruption there are the rows of the runs before.
///
/// # Errors
/// Nothing can be run, or the user interrupts before the first run is done.
pub fn measure(
    plan: &Plan,
    spillway: &std::path::Path,
    interrupted: &AtomicBool,
    tell: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Result<(Vec<Row>, usize), BenchError> {
    let guest = Guest::prepare(spillway, &plan.kernel)?;
    let cases = plan.cases();
    tell(Progress::Begins(cases.len()));
    let left = Mutex::new(cases.into_iter().enumerate().collect::<VecDeque<_>>());
    let done = Mutex::new((Vec::new(), 0, tell));
    let work = || -> Result<(), BenchError> {
        loop {
            let next = left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
            let Some((at, case)) = next else { return Ok(()) };
            let began = Instant::now();
            let outcome = guest.boot(plan, &case, interrupted);
            if let (Some(directory), Ok((console, _))) = (&plan.consoles, &outcome) {
                keep(console, directory, &case)?;
            }
            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let (rows, failed, tell) = &mut *done;
            match outcome {
                // What is done is kept.
                Err(BenchError::Interrupted) => return Ok(()),
                Err(error) => {
                    *failed += 1;
                    tell(Progress::Failed(&case, &error.to_string()));
                }
                Ok((console, counters)) => match outcome::row(plan, &case, &console, &counters) {
                    Some(row) => {
                        tell(Progress::Ended(&row, began.elapsed().as_secs_f64()));
                        rows.push((at, row));
                    }
                    None => {
                        *failed += 1;
                        tell(Progress::Failed(&case, &format!("the guest printed:\n{console}")));
                    }
                },
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(BenchError::Interrupted)))
    })?;
    let (mut rows, failed, _) = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if rows.is_empty() && interrupted.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let cases = rows.chunk_by(Row::is_of_the_case_of);
    Ok((cases.filter_map(report::median_of_starts).collect(), failed))
}
