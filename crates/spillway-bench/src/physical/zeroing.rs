//! How much of the time of programs the kernel spends zeroing memory.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spillway_report::claim::Asks;
use spillway_sys::process::die_with_parent;

use super::bfs::{Edges, Graph};
use super::experiment::Experiment;
use super::memcached::{ENTRY_BYTES, Memcached};
use super::pages::Pages;
use super::profile::{Counts, Whose, profile};
use super::report::{ExperimentReport, Panel};
use super::stage::Stage;
use crate::BenchError;
use crate::measured::{Ended, wait};

/// The experiment behind `bench physical zeroing`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "5.1, Table 2",
    about: "the share of programs' time that the kernel spends zeroing memory",
    does,
    run: measure,
};

/// Title of the panel.
pub const SHARE: &str = "Share of run time spent zeroing";
/// The series of this machine.
pub const HERE: &str = "this machine";
const DRAM: &str = "paper, DRAM";
const OPTANE: &str = "paper, Optane";

/// Graph of the search, unless in a hurry: 1.1 GiB. What the paper's took was many times as much.
const BFS_SCALE: u64 = 23;
const SEARCHES: usize = 5;
/// What memcached is filled with, likewise.
const FILLED_BYTES: u64 = 5 << 28;

const LONGEST: Duration = Duration::from_secs(60);

/// A program of the table, with the paper's shares where it has the same.
struct Program {
    name: &'static str,
    run: fn(&Stage<'_>) -> Result<Counts, BenchError>,
    dram: Option<f64>,
    optane: Option<f64>,
}

#[allow(clippy::approx_constant, reason = "3.14% is the share of BFS")]
const PROGRAMS: [Program; 4] = [
    Program { name: "BFS", run: bfs, dram: Some(3.14), optane: Some(16.29) },
    Program { name: "memcached, filling", run: memcached, dram: Some(36.43), optane: Some(52.31) },
    Program { name: "Node.js, many short runs", run: node, dram: Some(1.40), optane: Some(19.38) },
    Program { name: "many small processes", run: processes, dram: None, optane: None },
];

fn does(stage: &Stage<'_>) -> String {
    format!(
        "runs BFS, fills memcached, and starts Node.js {} times and a small program {} times; samples \
         meanwhile what they do",
        node_runs(stage),
        process_runs(stage)
    )
}

fn node_runs(stage: &Stage<'_>) -> u64 {
    stage.amount(5, 40)
}

fn process_runs(stage: &Stage<'_>) -> u64 {
    stage.amount(300, 3000)
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    report.method =
        Some("sampled every 100 us of the programs' CPU time, in user space and in the kernel".to_owned());
    let mut panel = Panel::new(SHARE, "% of CPU time");
    for (at, program) in PROGRAMS.iter().enumerate() {
        stage.step(program.name, at, PROGRAMS.len())?;
        let Some(counts) = report.attempt(program.name, (program.run)(stage))? else { continue };
        let percent = counts.zeroing_percent();
        panel.value(HERE, program.name, &[("samples", counts.all)], percent);
        for (series, paper) in [(DRAM, program.dram), (OPTANE, program.optane)] {
            if let Some(paper) = paper {
                panel.value(series, program.name, &[], paper);
            }
        }
        let text = |paper: Option<f64>| paper.map(|percent| format!("{percent}%"));
        let (dram, optane) = (text(program.dram), text(program.optane));
        report.beside(program.name, dram.as_deref(), optane.as_deref(), Some(format!("{percent:.2}%")));
        if let (Some(dram), Some(text)) = (program.dram, dram) {
            let what = format!("{}: share of zeroing, %", program.name);
            report.claim(&what, &format!("{text} on DRAM"), Asks::AtLeast(dram), Some(percent));
        }
    }
    report.sized(
        "zeroing's share of filling memcached over that of BFS, times",
        "11.6 on DRAM",
        Asks::Larger,
        // The paper's shares, in hundredths of a percent.
        3643.0 / 314.0,
        super::report::times(panel.at(HERE, "memcached, filling"), panel.at(HERE, "BFS")),
    );
    if !panel.rows.is_empty() {
        report.panels.push(panel);
    }
    let reason = "a guest without hardware help (QEMU's TCG) would measure the translator; 'many small \
                  processes' stands in its place";
    report.leave_out("many small VMs", reason);
    Ok(())
}

fn bfs(stage: &Stage<'_>) -> Result<Counts, BenchError> {
    let edges = Edges::rmat(stage.amount(16, BFS_SCALE) as u32);
    profile(stage, Whose::Ours, || {
        let mut graph = Graph::build(stage, &edges, Pages::Any)?;
        graph.search(stage, Pages::Any, SEARCHES)
    })
    .map(|(_, counts)| counts)
}

fn memcached(stage: &Stage<'_>) -> Result<Counts, BenchError> {
    let entries = stage.amount(16 << 10, FILLED_BYTES / ENTRY_BYTES);
    profile(stage, Whose::Children, || Memcached::start(entries, false)?.fill(stage, entries))
        .map(|(_, counts)| counts)
}

fn node(stage: &Stage<'_>) -> Result<Counts, BenchError> {
    let mut command = Command::new("node");
    command.args([
        "-e",
        "let a = []; for (let i = 0; i < 1e5; i++) a.push({ i }); if (a.length != 1e5) process.exit(1)",
    ]);
    profile(stage, Whose::Children, || runs(stage, command, node_runs(stage))).map(|(_, counts)| counts)
}

fn processes(stage: &Stage<'_>) -> Result<Counts, BenchError> {
    let command = Command::new("/bin/true");
    profile(stage, Whose::Children, || runs(stage, command, process_runs(stage))).map(|(_, counts)| counts)
}

/// One after the other.
fn runs(stage: &Stage<'_>, mut command: Command, count: u64) -> Result<(), BenchError> {
    let line = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    die_with_parent(&mut command);
    let started = Instant::now();
    for _ in 0..count {
        let child = command.spawn().map_err(|error| {
            BenchError::setup(format!("run {line}"), error, "install it: apt-get install nodejs coreutils")
        })?;
        let status = wait(&mut Ended(child), &line, LONGEST, stage.interrupted)?;
        if !status.success() {
            return Err(BenchError::Measured { command: line, reason: status.to_string() });
        }
        if started.elapsed() > LONGEST {
            break;
        }
    }
    Ok(())
}
