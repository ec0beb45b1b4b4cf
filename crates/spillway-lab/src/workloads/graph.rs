//! Graphs as the papers' workloads use them: rMat and Kronecker edges, in compressed rows.

use std::collections::VecDeque;
use std::ops::Range;

use rand::RngExt;
use rand::seq::SliceRandom;

use super::random::rng;
use crate::access::Accesses;
use crate::memory::{AddressSpace, Array};

/// No vertex: the parent of one that was not reached.
pub const NO_VERTEX: u32 = u32::MAX;

/// Probabilities of the quadrants of an rMat graph, of 65536; the fourth takes the rest.
const A: u16 = 37356; // 0.57
const B: u16 = 12452; // 0.19
const C: u16 = 12452; // 0.19

/// Edges between vertices 0 to n - 1.
pub type Edges = Vec<(u32, u32)>;

/// An rMat graph with A = 0.57, B = C = 0.19 (HotBox section 6.2): low numbers have the most edges, as Ligra's own
/// generator leaves them. A recursion that leaves the vertices is done again.
pub fn rmat(vertices: usize, edges: usize, seed: u64) -> Edges {
    let levels = vertices.next_power_of_two().trailing_zeros();
    let mut rng = rng(seed, 0);
    let mut end = || loop {
        let (mut from, mut to) = (0u32, 0u32);
        let mut bits = 0u64;
        for level in 0..levels {
            if level % 4 == 0 {
                bits = rng.random();
            }
            let draw = bits as u16;
            bits >>= 16;
            from = from << 1 | u32::from(draw >= A + B);
            to = to << 1 | u32::from((A..A + B).contains(&draw) || draw >= A + B + C);
        }
        if (from as usize) < vertices && (to as usize) < vertices {
            return (from, to);
        }
    };
    (0..edges).map(|_| end()).collect()
}

/// A Kronecker graph as Graph500 specifies it: rMat edges between vertices whose numbers are shuffled.
pub fn kronecker(vertices: usize, edges: usize, seed: u64) -> Edges {
    let mut numbers: Vec<u32> = (0..vertices as u32).collect();
    numbers.shuffle(&mut rng(seed, 1));
    let renumber = |(from, to): (u32, u32)| (numbers[from as usize], numbers[to as usize]);
    rmat(vertices, edges, seed).into_iter().map(renumber).collect()
}

/// A graph in compressed rows, instrumented.
pub struct Graph {
    offsets: Array<u64>,
    neighbours: Array<u32>,
}

impl Graph {
    /// The rows of both directions of `edges`, without loops.
    pub fn undirected(space: &mut AddressSpace, vertices: usize, edges: &Edges) -> Self {
        let both = |&(from, to): &(u32, u32)| [(from, to), (to, from)];
        Self::build(space, vertices, edges.iter().filter(|(from, to)| from != to).flat_map(both))
    }

    /// For each vertex the ones that have an edge to it.
    pub fn incoming(space: &mut AddressSpace, vertices: usize, edges: &Edges) -> Self {
        Self::build(space, vertices, edges.iter().map(|&(from, to)| (to, from)))
    }

    fn build(
        space: &mut AddressSpace,
        vertices: usize,
        edges: impl Iterator<Item = (u32, u32)> + Clone,
    ) -> Self {
        let mut offsets = vec![0u64; vertices + 1];
        for (from, _) in edges.clone() {
            offsets[from as usize + 1] += 1;
        }
        for vertex in 0..vertices {
            offsets[vertex + 1] += offsets[vertex];
        }
        let mut next = offsets.clone();
        let mut neighbours = vec![0; offsets[vertices] as usize];
        for (from, to) in edges {
            neighbours[next[from as usize] as usize] = to;
            next[from as usize] += 1;
        }
        Self { offsets: space.array("offsets", offsets), neighbours: space.array("neighbours", neighbours) }
    }

    /// How many vertices it has.
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    /// How many edges its rows hold.
    pub fn edges(&self) -> usize {
        self.neighbours.len()
    }

    /// Where a vertex's row lies: one access, to its two offsets.
    #[inline]
    pub fn row(&self, vertex: u32, accesses: &mut Accesses) -> Range<usize> {
        let end = self.offsets.data()[vertex as usize + 1];
        self.offsets.get(vertex as usize, accesses) as usize..end as usize
    }

    /// The neighbours in a part of a row.
    #[inline]
    pub fn neighbours(&self, row: Range<usize>, accesses: &mut Accesses) -> &[u32] {
        self.neighbours.read_run(row, accesses)
    }

    /// One neighbour of a row that may be left early; see [`Array::get_next`].
    #[inline]
    pub fn neighbour(&self, index: usize, last_line: &mut u64, accesses: &mut Accesses) -> u32 {
        self.neighbours.get_next(index, last_line, accesses)
    }

    /// Where a vertex's row lies, unnoted.
    pub fn row_unnoted(&self, vertex: u32) -> Range<usize> {
        let offsets = self.offsets.data();
        offsets[vertex as usize] as usize..offsets[vertex as usize + 1] as usize
    }

    /// A vertex's neighbours, unnoted.
    pub fn neighbours_unnoted(&self, vertex: u32) -> &[u32] {
        &self.neighbours.data()[self.row_unnoted(vertex)]
    }

    /// Vertices to start from: such as have edges, drawn at random (Graph500).
    pub fn roots(&self, count: usize, seed: u64) -> Vec<u32> {
        if self.edges() == 0 {
            return Vec::new();
        }
        let mut rng = rng(seed, 2);
        (0..count).map(|_| self.neighbours.data()[rng.random_range(0..self.edges())]).collect()
    }

    /// Whether `parents` is a breadth-first tree: everything that can be reached from `root`, each from a vertex one level
    /// nearer, over an edge that exists.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_bfs_tree(&self, root: u32, parents: &[u32]) -> Result<(), String> {
        let levels = self.levels(root);
        for (vertex, (&parent, &level)) in (0u32..).zip(parents.iter().zip(&levels)) {
            let right = if level == u32::MAX {
                parent == NO_VERTEX
            } else if vertex == root {
                parent == root
            } else {
                parent != NO_VERTEX
                    && levels[parent as usize] + 1 == level
                    && self.neighbours_unnoted(vertex).contains(&parent)
            };
            if !right {
                return Err(format!("vertex {vertex} at level {level} has parent {parent}"));
            }
        }
        Ok(())
    }

    fn levels(&self, root: u32) -> Vec<u32> {
        let mut levels = vec![u32::MAX; self.vertices()];
        levels[root as usize] = 0;
        let mut queue = VecDeque::from([root]);
        while let Some(vertex) = queue.pop_front() {
            for &neighbour in self.neighbours_unnoted(vertex) {
                if levels[neighbour as usize] == u32::MAX {
                    levels[neighbour as usize] = levels[vertex as usize] + 1;
                    queue.push_back(neighbour);
                }
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(vertices: usize, edges: &Edges) -> Vec<u32> {
        let mut degrees = vec![0; vertices];
        for &(from, to) in edges {
            degrees[from as usize] += 1;
            degrees[to as usize] += 1;
        }
        degrees
    }

    #[test]
    fn rmat_is_skewed_to_low_numbers_and_kronecker_is_not() {
        let vertices = 3000;
        let rmat = degrees(vertices, &rmat(vertices, 48_000, 1));
        assert_eq!(rmat.iter().max(), Some(&rmat[0]));
        let kronecker = degrees(vertices, &kronecker(vertices, 48_000, 1));
        let low = |degrees: &[u32]| degrees[..vertices / 2].iter().sum::<u32>();
        assert!(low(&rmat) > 70_000, "{}", low(&rmat));
        assert!((40_000..56_000).contains(&low(&kronecker)), "{}", low(&kronecker));
        let (mut one, mut other) = (rmat, kronecker);
        one.sort_unstable();
        other.sort_unstable();
        assert_eq!(one, other);
    }

    #[test]
    fn rows_hold_both_directions() {
        let edges = vec![(0, 1), (1, 2), (3, 3), (0, 2)];
        let graph = Graph::undirected(&mut AddressSpace::default(), 4, &edges);
        assert_eq!(graph.neighbours_unnoted(0), [1, 2]);
        assert_eq!(graph.neighbours_unnoted(2), [1, 0]);
        assert!(graph.neighbours_unnoted(3).is_empty());
        let graph = Graph::incoming(&mut AddressSpace::default(), 4, &edges);
        assert_eq!(graph.neighbours_unnoted(2), [1, 0]);
        assert!(graph.neighbours_unnoted(0).is_empty());
    }

    #[test]
    fn a_wrong_tree_is_found_out() {
        let edges = vec![(0, 1), (1, 2), (0, 3), (3, 2), (4, 5)];
        let graph = Graph::undirected(&mut AddressSpace::default(), 6, &edges);
        let right = [0, 0, 1, 0, NO_VERTEX, NO_VERTEX];
        assert_eq!(graph.check_bfs_tree(0, &right), Ok(()));
        for (vertex, parent) in [(2, 0), (2, NO_VERTEX), (0, 1), (4, 5), (3, 2)] {
            let mut wrong = right;
            wrong[vertex] = parent;
            assert!(graph.check_bfs_tree(0, &wrong).is_err(), "{wrong:?}");
        }
    }
}
