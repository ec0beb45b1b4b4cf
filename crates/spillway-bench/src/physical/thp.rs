//! How programs fare under the four modes of transparent huge pages.

use spillway_report::claim::Asks;
use spillway_report::distribution::Distribution;

use super::bfs::{Edges, Graph};
use super::bytes::size;
use super::experiment::Experiment;
use super::memcached::{ENTRY_BYTES, Memcached};
use super::pages::{HUGE_BYTES, Pages};
use super::report::{ExperimentReport, Panel, times};
use super::settings;
use super::stage::Stage;
use crate::BenchError;

/// The experiment behind `bench physical thp`.
pub const EXPERIMENT: Experiment = Experiment {
    paper: "4.8, Fig. 11, 12",
    about: "BFS and memcached under transparent huge pages never, madvise, defer, always",
    does,
    run: measure,
};

/// Title of the panel of BFS.
pub const BFS: &str = "BFS: one round";
/// Title of the panel of memcached.
pub const MEMCACHED: &str = "memcached: one request";

const DIRECTORY: &str = "/sys/kernel/mm/transparent_hugepage";

/// A mode of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    name: &'static str,
    enabled: &'static str,
    defrag: &'static str,
    /// Whether programs ask for huge pages.
    asks: bool,
}

const MODES: [Mode; 4] = [
    Mode { name: "never", enabled: "never", defrag: "never", asks: false },
    Mode { name: "madvise", enabled: "madvise", defrag: "madvise", asks: true },
    Mode { name: "defer", enabled: "always", defrag: "defer", asks: false },
    Mode { name: "always", enabled: "always", defrag: "always", asks: false },
];

impl Mode {
    fn set(self, stage: &Stage<'_>) -> Result<(), BenchError> {
        stage.settings.set(format!("{DIRECTORY}/enabled"), self.enabled)?;
        stage.settings.set(format!("{DIRECTORY}/defrag"), self.defrag)?;
        let own = format!("{DIRECTORY}/hugepages-{}kB/enabled", HUGE_BYTES >> 10);
        if settings::read(&own).is_ok() { stage.settings.set(own, "inherit") } else { Ok(()) }
    }

    fn pages(self) -> Pages {
        if self.asks { Pages::Transparent(HUGE_BYTES) } else { Pages::Any }
    }
}

fn does(stage: &Stage<'_>) -> String {
    let bytes = Edges::rmat(4).bytes() << (scale(stage) - 4);
    format!(
        "sets transparent huge pages to each mode in turn, for the whole machine, for some seconds each; \
         runs BFS on {} of memory and memcached with {}",
        size(2 * bytes),
        size(entries(stage) * ENTRY_BYTES)
    )
}

fn scale(stage: &Stage<'_>) -> u32 {
    stage.amount(16, 20) as u32
}

fn entries(stage: &Stage<'_>) -> u64 {
    stage.amount(16 << 10, 128 << 10)
}

fn measure(stage: &Stage<'_>, report: &mut ExperimentReport) -> Result<(), BenchError> {
    let repetitions = stage.amount(2, 5) as usize;
    let total = 2 * MODES.len() * repetitions;
    let edges = Edges::rmat(scale(stage));
    stage.memory(2 * edges.bytes(), 1, 2 * edges.bytes())?;
    let mut rounds: [Vec<u64>; MODES.len()] = Default::default();
    let mut reached = None;
    for repetition in 0..repetitions {
        for (at, mode) in MODES.iter().enumerate() {
            stage.step(&format!("BFS, {}", mode.name), repetition * MODES.len() + at, total)?;
            mode.set(stage)?;
            let done = bfs(stage, &edges, *mode)?;
            rounds[at].extend(done.round_ns);
            if *reached.get_or_insert(done.reached) != done.reached {
                let reason = format!("BFS reaches {} vertices, and others before", done.reached);
                return Err(BenchError::Measured { command: "BFS".to_owned(), reason });
            }
        }
    }
    report.panels.push(panel(BFS, rounds));
    let mut requests: [Vec<u64>; MODES.len()] = Default::default();
    for repetition in 0..repetitions {
        for (at, mode) in MODES.iter().enumerate() {
            stage.step(
                &format!("memcached, {}", mode.name),
                (repetitions + repetition) * MODES.len() + at,
                total,
            )?;
            mode.set(stage)?;
            let answered = memcached(stage, *mode);
            match report.attempt("memcached", answered)? {
                Some(answered) => requests[at].extend(answered),
                None => break,
            }
        }
    }
    if !requests[0].is_empty() {
        report.panels.push(panel(MEMCACHED, requests));
    }
    claim(report);
    Ok(())
}

fn bfs(stage: &Stage<'_>, edges: &Edges, mode: Mode) -> Result<super::bfs::Rounds, BenchError> {
    let mut graph = Graph::build(stage, edges, mode.pages())?;
    graph.search(stage, mode.pages(), stage.amount(5, 20) as usize)
}

fn memcached(stage: &Stage<'_>, mode: Mode) -> Result<Vec<u64>, BenchError> {
    let mut server = Memcached::start(entries(stage), mode.asks)?;
    server.fill(stage, entries(stage))?;
    server.ask(stage, entries(stage), stage.amount(10_000, 100_000))
}

fn panel(title: &str, times_ns: [Vec<u64>; MODES.len()]) -> Panel {
    let mut panel = Panel::new(title, "ns");
    for (mode, times_ns) in MODES.iter().zip(times_ns).filter(|(_, times_ns)| !times_ns.is_empty()) {
        panel.distribution("this machine", mode.name, &[], Distribution::of(times_ns));
    }
    panel
}

fn claim(report: &mut ExperimentReport) {
    for (title, what) in [(BFS, "BFS"), (MEMCACHED, "memcached")] {
        let Some(panel) = report.panel(title).cloned() else { continue };
        let by_median =
            |one: &&super::report::Row, other: &&super::report::Row| one.value.total_cmp(&other.value);
        let best = panel.rows.iter().min_by(by_median).map(|row| row.point.clone());
        let worst = panel.rows.iter().max_by(by_median).map(|row| row.point.clone());
        report.beside(&format!("best mode for {what}"), Some("defer"), Some("always"), best);
        let over =
            |mode: &str, other: &str| times(panel.at("this machine", mode), panel.at("this machine", other));
        let text = format!("{what}: 'always' over 'defer', times");
        report.claim(&text, "'defer' is best on DRAM", Asks::NoLess(1.0), over("always", "defer"));
        if what == "BFS" {
            let text = "BFS: 'never' over 'defer', times";
            report.claim(text, "'never' is worst on DRAM", Asks::Larger, over("never", "defer"));
        }
        let (dram, optane) =
            if what == "BFS" { (Some("never"), Some("defer")) } else { (None, Some("defer")) };
        report.beside(&format!("worst mode for {what}"), dram, optane, worst);
    }
    report.notes.push(
        "where whole 2 MiB of memory are free, 'defer' gives them at the first touch as 'always' does: the \
         two differ where memory is fragmented"
            .to_owned(),
    );
}
