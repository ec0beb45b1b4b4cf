//! Ligra's PageRankDelta on an rMat graph (HotBox section 6.2): only vertices whose rank still changes give
//! on, so that the working set shrinks from round to round.
//!
//! The rule is the one of Shun and Blelloch (PPoPP 2013, section 5.4): a vertex is in the next frontier when
//! what it gathered is more than `change` of its rank. The graph has each edge in both directions; a vertex
//! without edges keeps what each vertex is given.

use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::graph::{Graph, RowPlace};
use super::graph_rows::{GraphKey, GraphKind};
use super::ligra::{Convert, Frontier};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

const STEP_EDGES: usize = 256;
const STEP_VERTICES: usize = 1024;

/// What a run may set of [`LigraPageRank`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LigraPageRankConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work (HotBox: 4).
    pub tasks: usize,
    /// Edges for each vertex (HotBox: 400 M for 40 M), stored in both directions.
    pub edge_factor: usize,
    /// Rounds at most (Ligra: 100).
    pub rounds: usize,
    /// Damping factor (Ligra: 0.85).
    pub damping: f64,
    /// A vertex goes on while its rank changes by more than this share (Ligra: 0.01).
    pub change: f64,
    /// It ends when the changes of a round sum to less than this (Ligra: 1e-7).
    pub tolerance: f64,
    /// Work on an edge.
    pub compute_ns_per_edge: u64,
}

impl Default for LigraPageRankConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 4,
            edge_factor: 10,
            rounds: 100,
            damping: 0.85,
            change: 0.01,
            tolerance: 1e-7,
            compute_ns_per_edge: 1,
        }
    }
}

/// PageRank that passes on changes only.
pub struct LigraPageRank {
    config: LigraPageRankConfig,
    regions: Vec<Region>,
    graph: Graph,
    ranks: Array<f64>,
    deltas: Array<f64>,
    sums: Array<f64>,
    place: RowPlace,
    frontier: Frontier,
    phase: Phase,
    round: usize,
    changed: f64,
    frontiers: Vec<usize>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Everything is in the first frontier, from this vertex on.
    Begin(usize),
    Convert(Convert, bool),
    /// The list's vertices give along their edges, from this entry on.
    Sparse(usize),
    /// All vertices gather along their edges, from this one on.
    Dense(usize),
    /// What was gathered changes the ranks, from this vertex on.
    Apply(usize),
    Done,
}

impl LigraPageRank {
    /// How many vertices each round's frontier had.
    pub fn frontiers(&self) -> &[usize] {
        &self.frontiers
    }

    fn begin(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let vertices = self.ranks.len();
        let end = vertices.min(from + STEP_VERTICES);
        self.ranks.write_run(from..end, accesses).fill(0.0);
        self.sums.write_run(from..end, accesses).fill(0.0);
        self.deltas.write_run(from..end, accesses).fill(1.0 / vertices as f64);
        self.frontier.write_flags(from, &vec![1; end - from], 0, accesses);
        if end < vertices {
            return Phase::Begin(end);
        }
        self.frontiers.push(self.frontier.advance().0);
        Phase::Dense(0)
    }

    fn sparse(&mut self, mut entry: usize, accesses: &mut Accesses) -> Phase {
        let mut edges = 0;
        while entry < self.frontier.len() && edges < STEP_EDGES {
            let vertex = self.frontier.entry(entry, accesses);
            let row = self.graph.row(vertex, accesses);
            let (piece, is_last) = self.place.next_piece(&row, STEP_EDGES);
            entry += usize::from(is_last);
            edges += piece.len() + 1;
            accesses.push(Access::compute_ns(self.config.compute_ns_per_edge * piece.len() as u64));
            let share = self.deltas.get(vertex as usize, accesses) / row.len() as f64;
            for &neighbour in self.graph.neighbours(piece, accesses) {
                self.sums.update(neighbour as usize, accesses, |sum| sum + share);
            }
        }
        if entry < self.frontier.len() { Phase::Sparse(entry) } else { Phase::Apply(0) }
    }

    fn dense(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let vertices = self.ranks.len();
        let (mut vertex, mut edges) = (from, 0);
        while vertex < vertices && edges < STEP_EDGES {
            let row = self.graph.row(vertex as u32, accesses);
            let (piece, is_last) = self.place.next_piece(&row, STEP_EDGES);
            edges += piece.len() + 1;
            accesses.push(Access::compute_ns(self.config.compute_ns_per_edge * piece.len() as u64));
            let mut sum = 0.0;
            for &neighbour in self.graph.neighbours(piece, accesses) {
                if self.frontier.has(neighbour, accesses) {
                    let degree = self.graph.row(neighbour, accesses).len();
                    sum += self.deltas.get(neighbour as usize, accesses) / degree as f64;
                }
            }
            self.sums.update(vertex, accesses, |before| before + sum);
            vertex += usize::from(is_last);
        }
        if vertex < vertices { Phase::Dense(vertex) } else { Phase::Apply(0) }
    }

    fn apply(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let vertices = self.ranks.len();
        let end = vertices.min(from + STEP_VERTICES);
        let first = 1.0 / vertices as f64;
        let given = (1.0 - self.config.damping) * first;
        let sums = self.sums.write_run(from..end, accesses);
        let deltas = self.deltas.write_run(from..end, accesses);
        let ranks = self.ranks.write_run(from..end, accesses);
        let mut members = vec![0; end - from];
        let mut edges = 0;
        for (index, ((sum, delta), rank)) in sums.iter_mut().zip(deltas).zip(ranks).enumerate() {
            let gathered = self.config.damping * *sum;
            // The first round turns the first guess, the same for all, into a rank: the change is what is
            // beyond the guess.
            let change = if self.round == 0 { gathered + given - first } else { gathered };
            let is_member = change.abs() > self.config.change * if self.round == 0 { first } else { *rank };
            if self.round == 0 {
                *rank = gathered + given;
            } else if is_member {
                *rank += change;
            }
            self.changed += change.abs();
            (*sum, *delta) = (0.0, change);
            members[index] = u8::from(is_member);
            edges += if is_member { self.graph.row_unnoted((from + index) as u32).len() } else { 0 };
        }
        accesses.push(Access::compute_ns(4 * (end - from) as u64));
        self.frontier.write_flags(from, &members, edges, accesses);
        if end < vertices { Phase::Apply(end) } else { self.next_round() }
    }

    fn next_round(&mut self) -> Phase {
        self.round += 1;
        let (vertices, edges) = self.frontier.advance();
        self.frontiers.push(vertices);
        if vertices == 0 || self.round == self.config.rounds || self.changed < self.config.tolerance {
            return Phase::Done;
        }
        self.changed = 0.0;
        let dense = Frontier::is_dense(&self.graph, vertices, edges);
        Self::converted(Frontier::conversion(true, dense), dense)
    }

    fn converted(convert: Convert, dense: bool) -> Phase {
        match (convert, dense) {
            (Convert::Done, true) => Phase::Dense(0),
            (Convert::Done, false) => Phase::Sparse(0),
            (convert, dense) => Phase::Convert(convert, dense),
        }
    }
}

impl Registered for LigraPageRank {
    type Config = LigraPageRankConfig;
    const NAME: &'static str = "ligra-pagerank";
    const ABOUT: &'static str = "Ligra PageRankDelta on an rMat graph";

    fn new(config: LigraPageRankConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "edge_factor", config.edge_factor, 1..=256)?;
        within(name, "damping", config.damping, 0.0..=0.999)?;
        at_least(name, config.bytes, 64 << 10)?;
        let vertex_bytes = 8 + 3 * 8 + Frontier::VERTEX_BYTES + 8 * config.edge_factor;
        let vertices = config.bytes as usize / vertex_bytes;
        let edges = vertices * config.edge_factor;
        let graph = GraphKey { kind: GraphKind::Rmat, vertices, edges, seed: config.seed };
        let mut space = AddressSpace::default();
        let graph = Graph::new(&mut space, graph);
        let ranks = space.filled("ranks", 0.0, vertices);
        let deltas = space.filled("deltas", 0.0, vertices);
        let sums = space.filled("sums", 0.0, vertices);
        let frontier = Frontier::new(&mut space, vertices);
        let phase = if config.rounds == 0 { Phase::Done } else { Phase::Begin(0) };
        let regions = space.into_regions();
        Ok(Self {
            config,
            regions,
            graph,
            ranks,
            deltas,
            sums,
            place: RowPlace::default(),
            frontier,
            phase,
            round: 0,
            changed: 0.0,
            frontiers: Vec::new(),
        })
    }
}

impl Workload for LigraPageRank {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.config.tasks
    }

    fn step(&mut self, _task: usize, accesses: &mut Accesses) -> bool {
        self.phase = match self.phase {
            Phase::Begin(from) => self.begin(from, accesses),
            Phase::Convert(convert, dense) => {
                Self::converted(self.frontier.convert(convert, accesses), dense)
            }
            Phase::Sparse(entry) => self.sparse(entry, accesses),
            Phase::Dense(from) => self.dense(from, accesses),
            Phase::Apply(from) => self.apply(from, accesses),
            Phase::Done => Phase::Done,
        };
        !matches!(self.phase, Phase::Done)
    }

    /// The ranks sum to 1, less what vertices without edges were given and cannot give on, give or take what
    /// the algorithm drops as too small a change.
    fn verify(&self) -> Result<(), String> {
        let vertices = self.graph.vertices();
        let lonely = (0..vertices as u32).filter(|&vertex| self.graph.row_unnoted(vertex).is_empty()).count();
        let expected = 1.0 - self.config.damping * lonely as f64 / vertices as f64;
        let sum: f64 = self.ranks.data().iter().sum();
        if self.round > 0 && (sum - expected).abs() > 0.05 {
            return Err(format!("the ranks sum to {sum}, not to {expected}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn sums_to_one_while_the_frontier_shrinks() {
        for tasks in [1, 4] {
            let config = LigraPageRankConfig { bytes: 1 << 20, tasks, ..LigraPageRankConfig::default() };
            let mut pagerank = LigraPageRank::new(config).unwrap();
            run(&mut pagerank);
            assert_eq!(pagerank.verify(), Ok(()));
            let frontiers = pagerank.frontiers();
            assert!(frontiers.len() > 4, "{frontiers:?}");
            assert!(frontiers[frontiers.len() / 2] < frontiers[0] / 2, "{frontiers:?}");
        }
    }

    #[test]
    fn comes_to_the_ranks_that_stand_still() {
        let config = LigraPageRankConfig {
            bytes: 256 << 10,
            change: 1e-9,
            tolerance: 1e-13,
            ..LigraPageRankConfig::default()
        };
        let mut pagerank = LigraPageRank::new(LigraPageRankConfig { rounds: 1000, ..config }).unwrap();
        run(&mut pagerank);
        let (graph, ranks) = (&pagerank.graph, pagerank.ranks.data());
        for vertex in 0..graph.vertices() as u32 {
            let neighbours = graph.neighbours_unnoted(vertex).iter();
            let gathered: f64 =
                neighbours.map(|&from| ranks[from as usize] / graph.row_unnoted(from).len() as f64).sum();
            let rank = 0.15 / graph.vertices() as f64 + 0.85 * gathered;
            assert!((rank - ranks[vertex as usize]).abs() < 1e-8, "{rank} {}", ranks[vertex as usize]);
        }
    }
}
