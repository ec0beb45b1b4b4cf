//! Graph500's shortest paths from one vertex on a Kronecker graph with weights between 0 and 1 (INDIGO Table
//! 3).
//!
//! Delta-stepping with two piles: vertices nearer than a bound are relaxed until none is left, farther ones
//! wait in a pile; then the bound moves on by delta and the pile is sifted. Simplified: the graph stands when
//! the run starts.

use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::graph::{Graph, NO_VERTEX, RowPlace};
use super::graph_rows::{GraphKey, GraphKind};
use super::random::mix;
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

const STEP_EDGES: usize = 512;
const STEP_VERTICES: usize = 4096;
const STEP_FAR: usize = 512;

/// Bits of `waiting`: in which pile a vertex waits.
const IN_NEAR: u8 = 1;
const IN_FAR: u8 = 2;

/// What a run may set of [`Graph500Sssp`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Graph500SsspConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// Edges for each vertex (Graph500: 16), stored in both directions.
    pub edge_factor: usize,
    /// Searches, each from another vertex.
    pub searches: usize,
    /// By how much the bound moves on.
    pub delta: f32,
    /// Work on an edge.
    pub compute_ns_per_edge: u64,
}

impl Default for Graph500SsspConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 4,
            edge_factor: 16,
            searches: 2,
            delta: 0.1,
            compute_ns_per_edge: 1,
        }
    }
}

/// Shortest paths from one vertex.
pub struct Graph500Sssp {
    config: Graph500SsspConfig,
    regions: Vec<Region>,
    graph: Graph,
    weights: Array<f32>,
    distances: Array<f32>,
    parents: Array<u32>,
    waiting: Array<u8>,
    place: RowPlace,
    near: [Array<u32>; 2],
    far: [Array<u32>; 2],
    /// Which of the two near piles, and of the two far ones, is worked off; the other is filled.
    near_now: usize,
    far_now: usize,
    near_len: usize,
    near_next_len: usize,
    far_len: usize,
    far_next_len: usize,
    bound: f32,
    roots: Vec<u32>,
    search: usize,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    Reset(usize),
    /// Relaxes the edges of the near pile, from this entry on.
    Near(usize),
    /// Moves what is near by now out of the far pile, from this entry on.
    Sift(usize),
    Done,
}

impl Graph500Sssp {
    fn reset(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.distances.len().min(from + STEP_VERTICES);
        self.distances.write_run(from..end, accesses).fill(f32::INFINITY);
        self.parents.write_run(from..end, accesses).fill(NO_VERTEX);
        if end < self.distances.len() {
            return Phase::Reset(end);
        }
        let root = self.roots[self.search];
        self.distances.set(root as usize, 0.0, accesses);
        self.parents.set(root as usize, root, accesses);
        self.near[self.near_now].set(0, root, accesses);
        (self.near_len, self.bound) = (1, self.config.delta);
        Phase::Near(0)
    }

    fn near(&mut self, mut entry: usize, accesses: &mut Accesses) -> Phase {
        let mut edges = 0;
        while entry < self.near_len && edges < STEP_EDGES {
            let vertex = self.near[self.near_now].get(entry, accesses);
            if self.place.is_start() {
                self.waiting.update(vertex as usize, accesses, |waiting| waiting & !IN_NEAR);
            }
            let (relaxed, is_last) = self.relax_row(vertex, accesses);
            edges += relaxed;
            entry += usize::from(is_last);
        }
        if entry < self.near_len {
            return Phase::Near(entry);
        }
        self.near_now = 1 - self.near_now;
        (self.near_len, self.near_next_len) = (self.near_next_len, 0);
        if self.near_len > 0 { Phase::Near(0) } else { self.move_bound() }
    }

    /// Relaxes a piece of a vertex's edges: answers how many, and whether they were the last.
    fn relax_row(&mut self, vertex: u32, accesses: &mut Accesses) -> (usize, bool) {
        let distance = self.distances.get(vertex as usize, accesses);
        let row = self.graph.row(vertex, accesses);
        let (piece, is_last) = self.place.next_piece(&row, STEP_EDGES);
        let edges = piece.len();
        accesses.push(Access::compute_ns(self.config.compute_ns_per_edge * edges as u64));
        let (mut neighbours_line, mut weights_line) = (u64::MAX, u64::MAX);
        for index in piece {
            let neighbour = self.graph.neighbour(index, &mut neighbours_line, accesses);
            let through = distance + self.weights.get_next(index, &mut weights_line, accesses);
            if through < self.distances.get(neighbour as usize, accesses) {
                self.distances.set(neighbour as usize, through, accesses);
                self.parents.set(neighbour as usize, vertex, accesses);
                self.put(neighbour, through, accesses);
            }
        }
        (edges, is_last)
    }

    /// Puts a vertex on the pile that its distance wants, unless it waits there.
    fn put(&mut self, vertex: u32, distance: f32, accesses: &mut Accesses) {
        let pile = if distance < self.bound { IN_NEAR } else { IN_FAR };
        let waiting = self.waiting.get(vertex as usize, accesses);
        if waiting & pile != 0 {
            return;
        }
        self.waiting.set(vertex as usize, waiting | pile, accesses);
        if pile == IN_NEAR {
            self.near[1 - self.near_now].set(self.near_next_len, vertex, accesses);
            self.near_next_len += 1;
        } else {
            self.far[1 - self.far_now].set(self.far_next_len, vertex, accesses);
            self.far_next_len += 1;
        }
    }

    /// The near pile is empty: the far one is next, or the next search.
    fn move_bound(&mut self) -> Phase {
        if self.far_next_len > 0 {
            self.bound += self.config.delta;
            self.far_now = 1 - self.far_now;
            (self.far_len, self.far_next_len) = (self.far_next_len, 0);
            return Phase::Sift(0);
        }
        if self.search + 1 < self.roots.len() {
            self.search += 1;
            return Phase::Reset(0);
        }
        Phase::Done
    }

    fn sift(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.far_len.min(from + STEP_FAR);
        let mut line = u64::MAX;
        for entry in from..end {
            let vertex = self.far[self.far_now].get_next(entry, &mut line, accesses);
            let distance = self.distances.get(vertex as usize, accesses);
            self.waiting.update(vertex as usize, accesses, |waiting| waiting & !IN_FAR);
            // One that came nearer than the last bound has been relaxed since.
            if distance >= self.bound - self.config.delta {
                self.put(vertex, distance, accesses);
            }
        }
        if end < self.far_len {
            return Phase::Sift(end);
        }
        self.near_now = 1 - self.near_now;
        (self.near_len, self.near_next_len) = (self.near_next_len, 0);
        if self.near_len > 0 { Phase::Near(0) } else { self.move_bound() }
    }
}

/// A weight between 0 and 1 for each edge, the same in both directions.
fn weights(graph: &Graph, seed: u64) -> Vec<f32> {
    let mut weights = Vec::with_capacity(graph.edges());
    for vertex in 0..graph.vertices() as u32 {
        for &neighbour in graph.neighbours_unnoted(vertex) {
            let (low, high) = (vertex.min(neighbour), vertex.max(neighbour));
            weights.push(unit(mix(seed ^ mix(u64::from(low) << 32 | u64::from(high)))));
        }
    }
    weights
}

/// A number from 0 up to 1, from the upper bits of a random one.
fn unit(random: u64) -> f32 {
    (random >> 40) as f32 / (1 << 24) as f32
}

impl Registered for Graph500Sssp {
    type Config = Graph500SsspConfig;
    const NAME: &'static str = "graph500-sssp";
    const ABOUT: &'static str = "Graph500 single-source shortest paths on a Kronecker graph";

    fn new(config: Graph500SsspConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "edge_factor", config.edge_factor, 1..=256)?;
        within(name, "delta", config.delta, 0.001..=1000.0)?;
        at_least(name, config.bytes, 64 << 10)?;
        let vertices = config.bytes as usize / (8 + 4 + 4 + 1 + 16 + 16 * config.edge_factor);
        let edges = vertices * config.edge_factor;
        let graph = GraphKey { kind: GraphKind::Kronecker, vertices, edges, seed: config.seed };
        let mut space = AddressSpace::default();
        let graph = Graph::new(&mut space, graph);
        let weights = space.array("weights", weights(&graph, config.seed));
        let mut pile = |name| space.filled(name, 0u32, vertices);
        let near = [pile("near"), pile("near next")];
        let far = [pile("far"), pile("far next")];
        let roots = graph.roots(config.searches, config.seed);
        let phase = if roots.is_empty() { Phase::Done } else { Phase::Reset(0) };
        Ok(Self {
            graph,
            weights,
            distances: space.filled("distances", f32::INFINITY, vertices),
            parents: space.filled("parents", NO_VERTEX, vertices),
            place: RowPlace::default(),
            waiting: space.filled("waiting", 0, vertices),
            near,
            far,
            near_now: 0,
            far_now: 0,
            near_len: 0,
            near_next_len: 0,
            far_len: 0,
            far_next_len: 0,
            bound: config.delta,
            roots,
            search: 0,
            phase,
            config,
            regions: space.into_regions(),
        })
    }
}

impl Workload for Graph500Sssp {
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
            Phase::Near(entry) => self.near(entry, accesses),
            Phase::Sift(entry) => self.sift(entry, accesses),
            Phase::Done => Phase::Done,
        };
        !matches!(self.phase, Phase::Done)
    }

    /// No edge shortens a path, and each path is as long as its last edge and the path before it.
    fn verify(&self) -> Result<(), String> {
        let Some(&root) = self.roots.last() else { return Ok(()) };
        let distances = self.distances.data();
        for vertex in 0..self.graph.vertices() as u32 {
            let distance = distances[vertex as usize];
            let parent = self.parents.data()[vertex as usize];
            let mut has_path = distance.is_infinite() || vertex == root && distance == 0.0;
            for index in self.graph.row_unnoted(vertex) {
                let neighbour =
                    self.graph.neighbours_unnoted(vertex)[index - self.graph.row_unnoted(vertex).start];
                let through = distances[neighbour as usize] + self.weights.data()[index];
                if through < distance {
                    return Err(format!(
                        "vertex {vertex} is at {distance}, through {neighbour} at {through}"
                    ));
                }
                has_path |= neighbour == parent && through == distance;
            }
            if !has_path {
                return Err(format!("vertex {vertex} is at {distance}, but not through {parent}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;
    use crate::workloads::testing::run;

    fn dijkstra(sssp: &Graph500Sssp, root: u32) -> Vec<f32> {
        let mut distances = vec![f32::INFINITY; sssp.graph.vertices()];
        distances[root as usize] = 0.0;
        // Distances are not negative, so their bits are in their order.
        let mut heap = BinaryHeap::from([Reverse((0u32, root))]);
        while let Some(Reverse((bits, vertex))) = heap.pop() {
            let distance = f32::from_bits(bits);
            if distance > distances[vertex as usize] {
                continue;
            }
            for index in sssp.graph.row_unnoted(vertex) {
                let neighbour = sssp.graph.neighbours_unnoted(vertex)
                    [index - sssp.graph.row_unnoted(vertex).start] as usize;
                let through = distance + sssp.weights.data()[index];
                if through < distances[neighbour] {
                    distances[neighbour] = through;
                    heap.push(Reverse((through.to_bits(), neighbour as u32)));
                }
            }
        }
        distances
    }

    #[test]
    fn finds_dijkstras_distances_with_any_delta() {
        for (tasks, delta, seed) in [(1, 0.1, 1), (4, 0.02, 2), (2, 10.0, 3)] {
            let config =
                Graph500SsspConfig { bytes: 1 << 20, tasks, delta, seed, ..Graph500SsspConfig::default() };
            let mut sssp = Graph500Sssp::new(config).unwrap();
            run(&mut sssp);
            assert_eq!(sssp.verify(), Ok(()));
            let root = *sssp.roots.last().unwrap();
            assert_eq!(sssp.distances.data(), dijkstra(&sssp, root));
        }
    }

    #[test]
    fn a_wrong_distance_is_found_out() {
        let mut sssp =
            Graph500Sssp::new(Graph500SsspConfig { bytes: 1 << 20, ..Graph500SsspConfig::default() })
                .unwrap();
        run(&mut sssp);
        let vertex =
            (0..sssp.graph.vertices()).find(|&vertex| (0.1..9.0).contains(&sssp.distances.data()[vertex]));
        sssp.distances.data_mut()[vertex.unwrap()] *= 0.9;
        assert!(sssp.verify().is_err());
    }
}
