//! Breadth-first search on an rMat graph, as Ligra does it: its arrays are new in every round.

use std::time::Instant;

use super::pages::{BASE_BYTES, Pages};
use super::stage::Stage;
use super::tier::Region;
use crate::BenchError;
use crate::access::mix;

const NONE: u32 = u32::MAX;
/// Edges for each vertex.
const DEGREE: usize = 16;

/// Edges of a graph, from which every run builds its memory anew.
pub struct Edges {
    scale: u32,
    ends: Vec<(u32, u32)>,
}

impl Edges {
    /// Of a graph with `2^scale` vertices: each edge falls into a quarter of the matrix by chance (rMat:
    /// 0.57, 0.19, 0.19).
    #[must_use]
    pub fn rmat(scale: u32) -> Self {
        let edge = |number: usize| {
            let mut random = mix(number as u64 + 1);
            let (mut from, mut to) = (0, 0);
            for level in 0..scale {
                if level % 6 == 5 {
                    random = mix(random);
                }
                let percent = (random >> (level % 6 * 10)) % 1024 * 100 / 1024;
                let (down, right) = match percent {
                    0..57 => (0, 0),
                    57..76 => (0, 1),
                    76..95 => (1, 0),
                    _ => (1, 1),
                };
                from = from << 1 | down;
                to = to << 1 | right;
            }
            (from, to)
        };
        Self { scale, ends: (0..DEGREE << scale).map(edge).collect() }
    }

    fn vertices(&self) -> usize {
        1 << self.scale
    }

    /// Memory of a run.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        4 * (3 * self.vertices() + 2 * self.ends.len()) as u64
    }
}

/// A graph in compressed rows, in memory of its own.
pub struct Graph {
    offsets: Region,
    neighbours: Region,
    vertices: usize,
}

/// What rounds have taken.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Each round, its memory included.
    pub round_ns: Vec<u64>,
    /// Vertices reached in all rounds: the same under all settings.
    pub reached: u64,
}

fn words(stage: &Stage<'_>, pages: Pages, count: usize) -> Result<Region, BenchError> {
    stage.tiers[0].map(pages, (4 * count as u64).next_multiple_of(BASE_BYTES))
}

impl Graph {
    /// Builds it; edges count in both directions.
    pub fn build(stage: &Stage<'_>, edges: &Edges, pages: Pages) -> Result<Self, BenchError> {
        let vertices = edges.vertices();
        let mut offsets = words(stage, pages, vertices + 1)?;
        let mut neighbours = words(stage, pages, 2 * edges.ends.len())?;
        let starts = offsets.mapping.words_mut();
        for &(from, to) in &edges.ends {
            starts[from as usize + 1] += 1;
            starts[to as usize + 1] += 1;
        }
        (0..vertices).for_each(|vertex| starts[vertex + 1] += starts[vertex]);
        let row = neighbours.mapping.words_mut();
        let mut next = starts[..vertices].to_vec();
        let mut put = |from: u32, to: u32| {
            row[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        };
        for &(from, to) in &edges.ends {
            put(from, to);
            put(to, from);
        }
        Ok(Self { offsets, neighbours, vertices })
    }

    /// Searches from another vertex in each round.
    pub fn search(&mut self, stage: &Stage<'_>, pages: Pages, rounds: usize) -> Result<Rounds, BenchError> {
        let mut done = Rounds::default();
        for round in 0..rounds {
            stage.check()?;
            let started = Instant::now();
            done.reached += self.round(stage, pages, round as u64)?;
            done.round_ns.push(started.elapsed().as_nanos() as u64);
        }
        Ok(done)
    }

    /// The root has edges.
    fn root(&mut self, round: u64) -> u32 {
        let vertices = self.vertices;
        let edges = self.offsets.mapping.words_mut()[vertices] as u64;
        self.neighbours.mapping.words_mut()[(mix(round + 7) % edges) as usize]
    }

    fn round(&mut self, stage: &Stage<'_>, pages: Pages, round: u64) -> Result<u64, BenchError> {
        let root = self.root(round);
        let mut parents = words(stage, pages, self.vertices)?;
        let mut queue = words(stage, pages, self.vertices)?;
        let (parents, queue) = (parents.mapping.words_mut(), queue.mapping.words_mut());
        let (offsets, neighbours) = (self.offsets.mapping.words_mut(), self.neighbours.mapping.words_mut());
        parents[..self.vertices].fill(NONE);
        parents[root as usize] = root;
        queue[0] = root;
        let (mut at, mut end) = (0, 1);
        while at < end {
            let vertex = queue[at];
            at += 1;
            let row = offsets[vertex as usize] as usize..offsets[vertex as usize + 1] as usize;
            for &neighbour in &neighbours[row] {
                if parents[neighbour as usize] == NONE {
                    parents[neighbour as usize] = vertex;
                    queue[end] = neighbour;
                    end += 1;
                }
            }
        }
        Ok(end as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::tests::quick_stage;
    use super::*;

    #[test]
    fn every_search_reaches_what_hangs_together() {
        quick_stage(|stage| {
            let edges = Edges { scale: 3, ends: vec![(0, 1), (1, 2), (2, 3), (5, 6)] };
            let mut graph = Graph::build(stage, &edges, Pages::Base).unwrap();
            for round in 0..20 {
                let root = graph.root(round);
                let expected = if root < 4 { 4 } else { 2 };
                assert_eq!(graph.round(stage, Pages::Base, round).unwrap(), expected, "from {root}");
            }
        });
    }

    #[test]
    fn rmat_edges_are_uneven_and_within_the_graph() {
        let edges = Edges::rmat(8);
        assert_eq!(edges.ends.len(), 16 << 8);
        assert!(edges.ends.iter().all(|&(from, to)| from < 256 && to < 256));
        let low = edges.ends.iter().filter(|(from, _)| *from < 128).count();
        assert!(low * 3 > edges.ends.len() * 2, "{low}");
    }
}
