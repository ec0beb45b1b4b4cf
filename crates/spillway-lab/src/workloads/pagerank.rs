//! PageRank on a power-law graph (dcm Table 1: graph analytics, twitter): each vertex gathers what its
//! in-neighbours give, until the ranks stand.
//!
//! The graph is rMat with shuffled numbers, so that well-known vertices lie anywhere, as users of a network
//! do. Ranks of vertices without out-edges are given to all, so that the ranks always sum to 1.

use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::graph::{Graph, RowPlace};
use super::graph_rows::{GraphKey, GraphKind};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

const STEP_EDGES: usize = 512;
const STEP_VERTICES: usize = 2048;

/// What a run may set of [`PageRank`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PageRankConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// Edges for each vertex.
    pub edge_factor: usize,
    /// Most iterations before it ends unconverged.
    pub iterations: usize,
    /// The damping factor of PageRank.
    pub damping: f64,
    /// It ends when the ranks change by less than this in sum.
    pub tolerance: f64,
    /// Work on an edge.
    pub compute_ns_per_edge: u64,
}

impl Default for PageRankConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 4,
            edge_factor: 16,
            iterations: 10,
            damping: 0.85,
            tolerance: 1e-6,
            compute_ns_per_edge: 1,
        }
    }
}

/// PageRank in which each vertex gathers from its neighbours.
pub struct PageRank {
    config: PageRankConfig,
    regions: Vec<Region>,
    incoming: Graph,
    out_degrees: Array<u32>,
    ranks: Array<f64>,
    shares: Array<f64>,
    place: RowPlace,
    /// What the vertex at hand has gathered.
    gathered: f64,
    phase: Phase,
    iteration: usize,
    /// Rank of vertices without out-edges, in this iteration.
    dangling: f64,
    /// How much the ranks changed, in this iteration.
    change: f64,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Works out what each vertex gives along each of its edges, from this vertex on.
    Share(usize),
    /// Gathers, from this vertex on.
    Gather(usize),
    Done,
}

impl PageRank {
    /// The rank of each vertex.
    pub fn ranks(&self) -> &[f64] {
        self.ranks.data()
    }

    fn share(&mut self, from: usize, accesses: &mut Accesses) -> Phase {
        let end = self.ranks.len().min(from + STEP_VERTICES);
        let ranks = self.ranks.read_run(from..end, accesses);
        let degrees = self.out_degrees.read_run(from..end, accesses);
        let shares = self.shares.write_run(from..end, accesses);
        for ((share, &rank), &degree) in shares.iter_mut().zip(ranks).zip(degrees) {
            if degree == 0 {
                self.dangling += rank;
                *share = 0.0;
            } else {
                *share = rank / f64::from(degree);
            }
        }
        accesses.push(Access::compute_ns(2 * (end - from) as u64));
        if end < self.ranks.len() { Phase::Share(end) } else { Phase::Gather(0) }
    }

    fn gather(&mut self, mut vertex: usize, accesses: &mut Accesses) -> Phase {
        let vertices = self.ranks.len();
        let given = (1.0 - self.config.damping + self.config.damping * self.dangling) / vertices as f64;
        let mut edges = 0;
        while vertex < vertices && edges < STEP_EDGES {
            let row = self.incoming.row(vertex as u32, accesses);
            let (piece, is_last) = self.place.next_piece(&row, STEP_EDGES);
            edges += piece.len() + 1;
            accesses.push(Access::compute_ns(self.config.compute_ns_per_edge * piece.len() as u64));
            for &neighbour in self.incoming.neighbours(piece, accesses) {
                self.gathered += self.shares.get(neighbour as usize, accesses);
            }
            if !is_last {
                continue;
            }
            let rank = given + self.config.damping * std::mem::take(&mut self.gathered);
            self.change += (rank - self.ranks.data()[vertex]).abs();
            self.ranks.set(vertex, rank, accesses);
            vertex += 1;
        }
        if vertex < vertices { Phase::Gather(vertex) } else { self.next_iteration() }
    }

    fn next_iteration(&mut self) -> Phase {
        self.iteration += 1;
        if self.iteration == self.config.iterations || self.change < self.config.tolerance {
            return Phase::Done;
        }
        self.dangling = 0.0;
        self.change = 0.0;
        Phase::Share(0)
    }
}

impl Registered for PageRank {
    type Config = PageRankConfig;
    const NAME: &'static str = "pagerank";
    const ABOUT: &'static str = "PageRank on a power-law graph";

    fn new(config: PageRankConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "edge_factor", config.edge_factor, 1..=256)?;
        within(name, "damping", config.damping, 0.0..=0.999)?;
        at_least(name, config.bytes, 64 << 10)?;
        let vertices = config.bytes as usize / (8 + 4 + 8 + 8 + 4 * config.edge_factor);
        let edges = vertices * config.edge_factor;
        let graph = GraphKey { kind: GraphKind::KroneckerIncoming, vertices, edges, seed: config.seed };
        let mut space = AddressSpace::default();
        let incoming = Graph::new(&mut space, graph);
        let out_degrees = space.array("out degrees", incoming.occurrences());
        let ranks = space.filled("ranks", 1.0 / vertices as f64, vertices);
        let shares = space.filled("shares", 0.0, vertices);
        let phase = if config.iterations == 0 { Phase::Done } else { Phase::Share(0) };
        let regions = space.into_regions();
        Ok(Self {
            config,
            regions,
            incoming,
            out_degrees,
            ranks,
            shares,
            place: RowPlace::default(),
            gathered: 0.0,
            phase,
            iteration: 0,
            dangling: 0.0,
            change: 0.0,
        })
    }
}

impl Workload for PageRank {
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
            Phase::Share(from) => self.share(from, accesses),
            Phase::Gather(from) => self.gather(from, accesses),
            Phase::Done => Phase::Done,
        };
        !matches!(self.phase, Phase::Done)
    }

    fn verify(&self) -> Result<(), String> {
        let sum: f64 = self.ranks.data().iter().sum();
        if (sum - 1.0).abs() > 1e-9 {
            return Err(format!("the ranks sum to {sum}, not to 1"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn sums_to_one_and_repeats_with_any_number_of_tasks() {
        let mut ranks: Option<Vec<f64>> = None;
        for tasks in [1, 4] {
            let config = PageRankConfig { bytes: 1 << 20, tasks, ..PageRankConfig::default() };
            let mut pagerank = PageRank::new(config).unwrap();
            run(&mut pagerank);
            assert_eq!(pagerank.verify(), Ok(()));
            assert_eq!(*ranks.get_or_insert_with(|| pagerank.ranks().to_vec()), pagerank.ranks());
        }
    }

    #[test]
    fn ranks_stand_still_at_the_end() {
        let config = PageRankConfig {
            bytes: 256 << 10,
            iterations: 1000,
            tolerance: 1e-13,
            ..PageRankConfig::default()
        };
        let mut pagerank = PageRank::new(config).unwrap();
        run(&mut pagerank);
        assert!(pagerank.iteration < 1000);
        let vertices = pagerank.ranks().len();
        let dangling: f64 =
            (0..vertices).filter(|&v| pagerank.out_degrees.data()[v] == 0).map(|v| pagerank.ranks()[v]).sum();
        for vertex in 0..vertices {
            let gathered: f64 = pagerank
                .incoming
                .neighbours_unnoted(vertex as u32)
                .iter()
                .map(|&from| {
                    pagerank.ranks()[from as usize] / f64::from(pagerank.out_degrees.data()[from as usize])
                })
                .sum();
            let rank = (0.15 + 0.85 * dangling) / vertices as f64 + 0.85 * gathered;
            assert!((rank - pagerank.ranks()[vertex]).abs() < 1e-12);
        }
    }
}
