//! Graph500's breadth-first search on a Kronecker graph (HotBox section 6.2; INDIGO Table 3: edge factor 16,
//! several searches).
//!
//! Level by level from the top: the vertices of a level lie in a queue, of which tasks take pieces; what a
//! piece finds goes to the queue's end. Simplified: the graph stands when the run starts, its construction is
//! not timed.

use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::graph::{Graph, NO_VERTEX, RowPlace};
use super::graph_rows::{GraphKey, GraphKind};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

/// Edges after which a step ends.
const STEP_EDGES: usize = 512;
/// Vertices that a step sets to not reached.
const STEP_RESET: usize = 8192;

/// What a run may set of [`Graph500Bfs`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Graph500BfsConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work (HotBox: 4).
    pub tasks: usize,
    /// Edges for each vertex (Graph500: 16), stored in both directions.
    pub edge_factor: usize,
    /// Searches, each from another vertex.
    pub searches: usize,
    /// Work on an edge.
    pub compute_ns_per_edge: u64,
}

impl Default for Graph500BfsConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 4, edge_factor: 16, searches: 4, compute_ns_per_edge: 1 }
    }
}

/// Breadth-first search from the top.
pub struct Graph500Bfs {
    config: Graph500BfsConfig,
    regions: Vec<Region>,
    graph: Graph,
    parents: Array<u32>,
    queue: Array<u32>,
    place: RowPlace,
    roots: Vec<u32>,
    search: usize,
    phase: Phase,
}

enum Phase {
    /// Forgets the last search, from this vertex on.
    Reset(usize),
    /// Searches from the vertices of a level, `next..end` of the queue; what is found goes to `tail`.
    Level {
        next: usize,
        end: usize,
        tail: usize,
    },
    Done,
}

impl Graph500Bfs {
    fn reset(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.parents.len().min(from + STEP_RESET);
        self.parents.write_run(from..end, accesses).fill(NO_VERTEX);
        if end < self.parents.len() {
            return Phase::Reset(end);
        }
        let root = self.roots[self.search];
        self.parents.set(root as usize, root, accesses);
        self.queue.set(0, root, accesses);
        Phase::Level { next: 0, end: 1, tail: 1 }
    }

    fn level(&mut self, mut next: usize, end: usize, mut tail: usize, accesses: &mut Accesses) -> Phase {
        let mut edges = 0;
        while next < end && edges < STEP_EDGES {
            let vertex = self.queue.get(next, accesses);
            let row = self.graph.row(vertex, accesses);
            let (piece, is_last) = self.place.next_piece(&row, STEP_EDGES);
            next += usize::from(is_last);
            edges += piece.len();
            accesses.push(Access::compute_ns(self.config.compute_ns_per_edge * piece.len() as u64));
            for &neighbour in self.graph.neighbours(piece, accesses) {
                if self.parents.get(neighbour as usize, accesses) == NO_VERTEX {
                    self.parents.set(neighbour as usize, vertex, accesses);
                    self.queue.set(tail, neighbour, accesses);
                    tail += 1;
                }
            }
        }
        if next < end {
            Phase::Level { next, end, tail }
        } else if tail > end {
            Phase::Level { next: end, end: tail, tail }
        } else if self.search + 1 < self.roots.len() {
            self.search += 1;
            Phase::Reset(0)
        } else {
            Phase::Done
        }
    }
}

impl Registered for Graph500Bfs {
    type Config = Graph500BfsConfig;
    const NAME: &'static str = "graph500-bfs";
    const ABOUT: &'static str = "Graph500 breadth-first search on a Kronecker graph";

    fn new(config: Graph500BfsConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "edge_factor", config.edge_factor, 1..=256)?;
        at_least(name, config.bytes, 64 << 10)?;
        let vertex_bytes = 8 + 4 + 4 + 8 * config.edge_factor;
        let vertices = config.bytes as usize / vertex_bytes;
        let edges = vertices * config.edge_factor;
        let graph = GraphKey { kind: GraphKind::Kronecker, vertices, edges, seed: config.seed };
        let mut space = AddressSpace::default();
        let graph = Graph::new(&mut space, graph);
        let parents = space.filled("parents", NO_VERTEX, vertices);
        let queue = space.filled("queue", 0, vertices);
        let roots = graph.roots(config.searches, config.seed);
        let phase = if roots.is_empty() { Phase::Done } else { Phase::Reset(0) };
        Ok(Self {
            config,
            regions: space.into_regions(),
            graph,
            parents,
            queue,
            place: RowPlace::default(),
            roots,
            search: 0,
            phase,
        })
    }
}

impl Workload for Graph500Bfs {
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
            Phase::Level { next, end, tail } => self.level(next, end, tail, accesses),
            Phase::Done => Phase::Done,
        };
        !matches!(self.phase, Phase::Done)
    }

    fn verify(&self) -> Result<(), String> {
        match self.roots.last() {
            Some(&root) => self.graph.check_bfs_tree(root, self.parents.data()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn finds_a_tree_with_any_number_of_tasks() {
        for (tasks, seed) in [(1, 1), (4, 2), (7, 3)] {
            let config = Graph500BfsConfig { bytes: 1 << 20, tasks, seed, ..Graph500BfsConfig::default() };
            let mut bfs = Graph500Bfs::new(config).unwrap();
            let ran = run(&mut bfs);
            assert_eq!(bfs.verify(), Ok(()));
            let reached = bfs.parents.data().iter().filter(|&&parent| parent != NO_VERTEX).count();
            assert!(reached > bfs.graph.vertices() / 3, "{reached}");
            // Each search looks at every edge of what it reaches.
            assert!(ran.accesses > 4 * bfs.graph.edges() as u64 * 9 / 10);
        }
    }
}
