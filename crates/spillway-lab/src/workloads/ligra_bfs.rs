//! Ligra's breadth-first search on an rMat graph (HotBox section 6.2): from the frontier outwards while it is
//! small, from the vertices not reached inwards while it is large.
//!
//! Simplified: the graph has each edge in both directions and stands when the run starts (the paper leaves
//! its loading out).

use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::graph::{Graph, NO_VERTEX, RowPlace};
use super::graph_rows::{GraphKey, GraphKind};
use super::ligra::{Convert, Frontier};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

const STEP_EDGES: usize = 512;
const STEP_VERTICES: usize = 512;
const STEP_RESET: usize = 8192;

/// Where a search begins (Ligra's default).
const ROOT: u32 = 0;

/// What a run may set of [`LigraBfs`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LigraBfsConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work (HotBox: 4).
    pub tasks: usize,
    /// Edges for each vertex (HotBox: 400 M for 40 M), stored in both directions.
    pub edge_factor: usize,
    /// Searches, all from vertex 0 (Ligra's defaults: one that warms up, and three rounds).
    pub searches: usize,
    /// Work on an edge.
    pub compute_ns_per_edge: u64,
}

impl Default for LigraBfsConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 4, edge_factor: 10, searches: 4, compute_ns_per_edge: 1 }
    }
}

/// Breadth-first search in both directions.
pub struct LigraBfs {
    config: LigraBfsConfig,
    regions: Vec<Region>,
    graph: Graph,
    parents: Array<u32>,
    frontier: Frontier,
    place: RowPlace,
    search: usize,
    phase: Phase,
    dense_rounds: u64,
}

#[derive(Clone, Copy)]
enum Phase {
    Reset(usize),
    /// Brings the frontier into the shape that the round wants.
    Convert(Convert, bool),
    /// Goes over the frontier's list, from this entry on.
    Sparse(usize),
    /// Goes over all vertices, from this one on.
    Dense(usize),
    Done,
}

impl LigraBfs {
    fn reset(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.parents.len().min(from + STEP_RESET);
        self.parents.write_run(from..end, accesses).fill(NO_VERTEX);
        if end < self.parents.len() {
            return Phase::Reset(end);
        }
        self.parents.set(ROOT as usize, ROOT, accesses);
        self.frontier.append(ROOT, self.graph.row(ROOT, accesses).len(), accesses);
        self.next_round(false)
    }

    fn sparse(&mut self, mut entry: usize, accesses: &mut Accesses) -> Phase {
        let mut edges = 0;
        while entry < self.frontier.len() && edges < STEP_EDGES {
            let vertex = self.frontier.entry(entry, accesses);
            let row = self.graph.row(vertex, accesses);
            let (piece, is_last) = self.place.next_piece(&row, STEP_EDGES);
            entry += usize::from(is_last);
            edges += piece.len();
            accesses.push(Access::compute_ns(self.config.compute_ns_per_edge * piece.len() as u64));
            for &neighbour in self.graph.neighbours(piece, accesses) {
                if self.parents.get(neighbour as usize, accesses) == NO_VERTEX {
                    self.parents.set(neighbour as usize, vertex, accesses);
                    let degree = self.graph.row(neighbour, accesses).len();
                    self.frontier.append(neighbour, degree, accesses);
                }
            }
        }
        if entry < self.frontier.len() { Phase::Sparse(entry) } else { self.next_round(false) }
    }

    fn dense(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let vertices = self.parents.len();
        let (mut vertex, mut looked, mut found) = (from, 0, 0);
        let mut members = Vec::with_capacity(STEP_VERTICES);
        let mut parents_line = u64::MAX;
        while vertex < vertices && vertex < from + STEP_VERTICES && looked < STEP_EDGES {
            let reached = self.parents.get_next(vertex, &mut parents_line, accesses) != NO_VERTEX;
            let parent = if reached { None } else { self.find_parent(vertex as u32, &mut looked, accesses) };
            if !self.place.is_start() {
                // The rest of the row is for the next step.
                break;
            }
            if let Some(parent) = parent {
                self.parents.set(vertex, parent, accesses);
                found += self.graph.row_unnoted(vertex as u32).len();
            }
            members.push(u8::from(parent.is_some()));
            vertex += 1;
        }
        accesses.push(Access::compute_ns(self.config.compute_ns_per_edge * looked as u64));
        self.frontier.write_flags(from, &members, found, accesses);
        if vertex < vertices {
            return Phase::Dense(vertex);
        }
        self.dense_rounds += 1;
        self.next_round(true)
    }

    /// Looks for a neighbour in the frontier, in the next piece of the vertex's row.
    fn find_parent(&mut self, vertex: u32, looked: &mut usize, accesses: &mut Accesses) -> Option<u32> {
        let mut last_line = u64::MAX;
        let row = self.graph.row(vertex, accesses);
        let (piece, _) = self.place.next_piece(&row, STEP_EDGES);
        for index in piece {
            *looked += 1;
            let neighbour = self.graph.neighbour(index, &mut last_line, accesses);
            if self.frontier.has(neighbour, accesses) {
                self.place.leave_row();
                return Some(neighbour);
            }
        }
        None
    }

    fn next_round(&mut self, is_dense: bool) -> Phase {
        let (vertices, edges) = self.frontier.advance();
        if vertices > 0 {
            let wanted_dense = Frontier::is_dense(&self.graph, vertices, edges);
            return Self::begin(Frontier::conversion(is_dense, wanted_dense), wanted_dense);
        }
        if self.search + 1 < self.config.searches {
            self.search += 1;
            return Phase::Reset(0);
        }
        Phase::Done
    }

    fn begin(convert: Convert, dense: bool) -> Phase {
        match (convert, dense) {
            (Convert::Done, true) => Phase::Dense(0),
            (Convert::Done, false) => Phase::Sparse(0),
            (convert, dense) => Phase::Convert(convert, dense),
        }
    }
}

impl Registered for LigraBfs {
    type Config = LigraBfsConfig;
    const NAME: &'static str = "ligra-bfs";
    const ABOUT: &'static str = "Ligra breadth-first search on an rMat graph";

    fn new(config: LigraBfsConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "edge_factor", config.edge_factor, 1..=256)?;
        at_least(name, config.bytes, 64 << 10)?;
        let vertex_bytes = 8 + 4 + Frontier::VERTEX_BYTES + 8 * config.edge_factor;
        let vertices = config.bytes as usize / vertex_bytes;
        let edges = vertices * config.edge_factor;
        let graph = GraphKey { kind: GraphKind::Rmat, vertices, edges, seed: config.seed };
        let mut space = AddressSpace::default();
        let graph = Graph::new(&mut space, graph);
        let parents = space.filled("parents", NO_VERTEX, vertices);
        let frontier = Frontier::new(&mut space, vertices);
        let phase = if config.searches == 0 { Phase::Done } else { Phase::Reset(0) };
        let regions = space.into_regions();
        Ok(Self {
            config,
            regions,
            graph,
            parents,
            frontier,
            place: RowPlace::default(),
            search: 0,
            phase,
            dense_rounds: 0,
        })
    }
}

impl Workload for LigraBfs {
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
            Phase::Reset(from) => self.reset(from, accesses),
            Phase::Convert(convert, dense) => Self::begin(self.frontier.convert(convert, accesses), dense),
            Phase::Sparse(entry) => self.sparse(entry, accesses),
            Phase::Dense(from) => self.dense(from, accesses),
            Phase::Done => Phase::Done,
        };
        !matches!(self.phase, Phase::Done)
    }

    fn verify(&self) -> Result<(), String> {
        match self.config.searches {
            0 => Ok(()),
            _ => self.graph.check_bfs_tree(ROOT, self.parents.data()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn finds_a_tree_by_both_directions() {
        for (tasks, seed) in [(1, 1), (4, 2)] {
            let config = LigraBfsConfig { bytes: 1 << 20, tasks, seed, ..LigraBfsConfig::default() };
            let mut bfs = LigraBfs::new(config).unwrap();
            let ran = run(&mut bfs);
            assert_eq!(bfs.verify(), Ok(()));
            assert!(bfs.dense_rounds >= 4, "{}", bfs.dense_rounds);
            // From the vertices not reached inwards a search looks at a part of the edges only.
            assert!(ran.accesses < 4 * bfs.graph.edges() as u64);
        }
    }
}
