//! What policies are tuned on, and what they are judged by: two sets of cells that share none.
//!
//! A cell is one program, or some at once, with so much local memory, so far from it, beside a neighbour or
//! none. The judgement's are the workloads as the figures have them. The training's are others where a
//! workload has settings that make it another (denser graphs, other keys), and have other seeds, sizes, local
//! limits and latencies in any case.

use serde::Serialize;

use crate::figures::lab::Change;
use crate::run::{LocalSize, RunSpec};
use crate::train::cells::other_form;

/// Seed of the judgement.
const JUDGED_SEED: u64 = 1;
/// Seeds of the training begin here.
const TRAINING_SEED: u64 = 7001;

/// Working set of a program that is judged, in bytes.
const JUDGED_BYTES: u64 = 64 << 20;
/// The same of a quick judgement.
const QUICK_BYTES: u64 = 8 << 20;
/// And of the training.
pub(crate) const TRAINING_BYTES: u64 = 6 << 20;

/// Workloads of a quick judgement: one of a kind.
const QUICK: [&str; 8] = [
    "graph500-bfs",
    "ligra-pagerank",
    "tpcc",
    "memcached-etc",
    "uniform-kv",
    "hash-join",
    "transformer",
    "amg",
];
/// Those that a full one has beside them.
const MORE: [&str; 8] = ["graph500-sssp", "ligra-bfs", "pagerank", "redis", "als", "snap", "bimodal", "scan"];
/// Programs that run at once.
const TOGETHER: [[&str; 3]; 3] = [
    ["graph500-bfs", "memcached-etc", "hash-join"],
    ["tpcc", "uniform-kv", "ligra-pagerank"],
    ["memcached-etc", "memcached-etc", "amg"],
];
/// Workloads of the training.
const TRAINING: [&str; 7] =
    ["graph500-sssp", "ligra-bfs", "pagerank", "memcached-etc", "tpcc", "hash-join", "bimodal"];

/// Programs at once, and what they run on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// One run for each program, without its policy.
    pub programs: Vec<RunSpec>,
}

impl Cell {
    fn new(workloads: &[&str], bytes: u64, seed: u64, local: f64, far_ns: f64, contention: f64) -> Self {
        let program = |(at, workload): (usize, &&str)| {
            let spec = RunSpec { workload: (*workload).into(), bytes, contention, ..RunSpec::default() };
            RunSpec { seed: seed + at as u64, ..spec.local(local).far_ns(far_ns) }
        };
        Self { programs: workloads.iter().enumerate().map(program).collect() }
    }

    /// Working set of each program, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.programs.first().map_or(0, |spec| spec.bytes)
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.programs.iter().map(RunSpec::workload_name).collect();
        let Some(first) = self.programs.first() else { return String::new() };
        let local = match first.local {
            LocalSize::Share(share) => format!("{:.0}%", share * 100.0),
            LocalSize::Bytes(bytes) => format!("{bytes} bytes"),
        };
        let far_ns = first.platform_settings.get("far_ns").map(ToString::to_string).unwrap_or_default();
        let taken = if first.contention > 0.0 { ", contended" } else { "" };
        format!("{}, {local} local, {far_ns} ns{taken}", names.join(" + "))
    }
}

/// Where a program runs: its local share, the latency of far memory in nanoseconds, and what a neighbour
/// takes.
type Surroundings = (f64, f64, f64);

/// Those of a quick judgement: each share of local memory near and far, each beside a neighbour and alone.
const QUICKLY: [Surroundings; 6] = [
    (0.1, 250.0, 0.0),
    (0.1, 1500.0, 0.5),
    (0.3, 750.0, 0.0),
    (0.3, 1500.0, 0.0),
    (0.8, 250.0, 0.5),
    (0.8, 1500.0, 0.0),
];
/// Those of programs at once.
const AT_ONCE: [Surroundings; 2] = [(0.1, 750.0, 0.0), (0.4, 750.0, 0.5)];

fn everywhere(locals: &[f64], latencies_ns: &[f64]) -> Vec<Surroundings> {
    let mut all = Vec::new();
    for &local in locals {
        for &far_ns in latencies_ns {
            all.extend([0.0, 0.5].map(|taken| (local, far_ns, taken)));
        }
    }
    all
}

fn grid(workloads: &[&[&str]], bytes: u64, seed: u64, all: &[Surroundings]) -> Vec<Cell> {
    let cell = |names: &&[&str], &(local, far_ns, taken): &Surroundings| {
        Cell::new(names, bytes, seed, local, far_ns, taken)
    };
    workloads.iter().flat_map(|names| all.iter().map(move |one| cell(names, one))).collect()
}

/// The cells by which policies are judged.
#[must_use]
pub fn judgement(quick: bool) -> Vec<Cell> {
    let alone: Vec<[&str; 1]> =
        QUICK.iter().chain(MORE.iter().filter(|_| !quick)).map(|&name| [name]).collect();
    let alone: Vec<&[&str]> = alone.iter().map(<[&str; 1]>::as_slice).collect();
    let pairs: Vec<&[&str]> = TOGETHER.iter().map(|names| &names[..2]).collect();
    let triples: Vec<&[&str]> = TOGETHER.iter().map(<[&str; 3]>::as_slice).collect();
    if quick {
        let mut cells = grid(&alone, QUICK_BYTES, JUDGED_SEED, &QUICKLY);
        cells.extend(grid(&triples, QUICK_BYTES, JUDGED_SEED, &AT_ONCE));
        return cells;
    }
    let locals = [0.1, 0.2, 0.4, 0.8];
    let mut cells = grid(&alone, JUDGED_BYTES, JUDGED_SEED, &everywhere(&locals, &[250.0, 750.0, 1500.0]));
    for together in [pairs, triples] {
        cells.extend(grid(&together, JUDGED_BYTES / 2, JUDGED_SEED, &everywhere(&locals, &[750.0])));
    }
    cells
}

/// The cells on which settings are searched.
#[must_use]
pub fn training() -> Vec<Cell> {
    training_of(TRAINING_BYTES)
}

/// The same with working sets of another size, in bytes.
pub(crate) fn training_of(bytes: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (at, name) in TRAINING.into_iter().enumerate() {
        let seed = TRAINING_SEED + 10 * at as u64;
        for (local, far_ns, taken) in [(0.15, 1000.0, 0.0), (0.5, 400.0, 0.3)] {
            let mut cell = Cell::new(&[name], bytes, seed, local, far_ns, taken);
            for program in &mut cell.programs {
                program.workload_settings = other_form(name);
            }
            cells.push(cell);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::check;

    #[test]
    fn no_program_of_the_training_is_judged() {
        let of = |cells: Vec<Cell>| cells.into_iter().flat_map(|cell| cell.programs).collect::<Vec<_>>();
        for judged in [judgement(true), judgement(false)].map(of) {
            let sizes = [1, 2, 3].map(|part| training_of(TRAINING_BYTES / part));
            for trained in of(sizes.into_iter().flatten().collect()) {
                let alike = |spec: &RunSpec| {
                    spec.workload == trained.workload
                        && (spec.seed == trained.seed
                            || spec.bytes == trained.bytes
                            || spec.local == trained.local)
                };
                assert!(!judged.iter().any(alike), "{trained:?}");
            }
        }
    }

    #[test]
    fn every_cell_can_be_run_and_has_a_name_of_its_own() {
        let small = training_of(TRAINING_BYTES / 3);
        for cells in [training(), small, judgement(true), judgement(false)] {
            let mut names: Vec<String> = cells.iter().map(Cell::name).collect();
            for spec in cells.into_iter().flat_map(|cell| cell.programs) {
                let spec = RunSpec { policy: "first-touch".into(), ..spec };
                check(&spec).map_err(|error| error.to_string()).unwrap();
            }
            let all = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
