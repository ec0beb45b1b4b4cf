//! Graphs as the papers' workloads use them: rMat and Kronecker edges, in compressed rows, instrumented.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use rand::RngExt;

use super::graph_rows::{GraphKey, Rows, shared_rows};
use super::random::rng;
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, note_lines, note_next};

/// No vertex: the parent of one that was not reached.
pub const NO_VERTEX: u32 = u32::MAX;

/// How far a pass over rows has come in the row at hand: a row with many neighbours takes several steps.
#[derive(Default)]
pub struct RowPlace {
    done: usize,
}

impl RowPlace {
    /// Whether the row at hand is not begun.
    pub fn is_start(&self) -> bool {
        self.done == 0
    }

    /// The next piece of the row, of at most so many neighbours, and whether it is the last.
    #[inline]
    pub fn next_piece(&mut self, row: &Range<usize>, most: usize) -> (Range<usize>, bool) {
        let start = row.start + self.done;
        let end = row.end.min(start + most);
        self.done = if end < row.end { end - row.start } else { 0 };
        (start..end, end == row.end)
    }

    /// Leaves the rest of the row.
    pub fn leave_row(&mut self) {
        self.done = 0;
    }
}

/// A graph in compressed rows. Runs of the same graph share it: nothing changes it.
pub struct Graph {
    rows: Arc<Rows>,
    /// Where the rows' offsets and their neighbours start.
    offsets: u64,
    neighbours: u64,
}

impl Graph {
    /// A graph with its memory.
    pub fn new(space: &mut AddressSpace, key: GraphKey) -> Self {
        Self::of(space, shared_rows(key))
    }

    fn of(space: &mut AddressSpace, rows: Arc<Rows>) -> Self {
        let offsets = space.reserve("offsets", 8 * rows.offsets.len() as u64);
        let neighbours = space.reserve("neighbours", 4 * rows.neighbours.len() as u64);
        Self { rows, offsets, neighbours }
    }

    /// How many vertices it has.
    pub fn vertices(&self) -> usize {
        self.rows.offsets.len() - 1
    }

    /// How many edges its rows hold.
    pub fn edges(&self) -> usize {
        self.rows.neighbours.len()
    }

    /// Where a vertex's row lies: one access, to its two offsets.
    #[inline]
    pub fn row(&self, vertex: u32, accesses: &mut Accesses) -> Range<usize> {
        accesses.push(Access::read(self.offsets + 8 * u64::from(vertex)));
        self.row_unnoted(vertex)
    }

    /// The neighbours in a part of a row.
    #[inline]
    pub fn neighbours(&self, row: Range<usize>, accesses: &mut Accesses) -> &[u32] {
        note_lines(self.address(row.start), self.address(row.end), Access::read, accesses);
        &self.rows.neighbours[row]
    }

    /// One neighbour of a row that may be left early: noted when its line is not the last one noted.
    #[inline]
    pub fn neighbour(&self, index: usize, last_line: &mut u64, accesses: &mut Accesses) -> u32 {
        note_next(self.address(index), last_line, accesses);
        self.rows.neighbours[index]
    }

    #[inline]
    fn address(&self, index: usize) -> u64 {
        self.neighbours + 4 * index as u64
    }

    /// Where a vertex's row lies, unnoted.
    #[inline]
    pub fn row_unnoted(&self, vertex: u32) -> Range<usize> {
        let offsets = &self.rows.offsets;
        offsets[vertex as usize] as usize..offsets[vertex as usize + 1] as usize
    }

    /// A vertex's neighbours, unnoted.
    pub fn neighbours_unnoted(&self, vertex: u32) -> &[u32] {
        &self.rows.neighbours[self.row_unnoted(vertex)]
    }

    /// How many rows each vertex is in.
    pub fn occurrences(&self) -> Vec<u32> {
        let mut occurrences = vec![0; self.vertices()];
        self.rows.neighbours.iter().for_each(|&neighbour| occurrences[neighbour as usize] += 1);
        occurrences
    }

    /// Vertices to start from: such as have edges, drawn at random (Graph500).
    pub fn roots(&self, count: usize, seed: u64) -> Vec<u32> {
        if self.edges() == 0 {
            return Vec::new();
        }
        let mut rng = rng(seed, 2);
        (0..count).map(|_| self.rows.neighbours[rng.random_range(0..self.edges())]).collect()
    }

    /// Whether `parents` is a breadth-first tree: everything that can be reached from `root`, each from a
    /// vertex one level nearer, over an edge that exists.
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

    #[test]
    fn long_rows_come_in_pieces() {
        let mut place = RowPlace::default();
        let row = 10..15;
        let pieces: Vec<_> = (0..4).map(|_| place.next_piece(&row, 2)).collect();
        assert_eq!(pieces, [(10..12, false), (12..14, false), (14..15, true), (10..12, false)]);
        assert!(!place.is_start());
        place.leave_row();
        assert_eq!((place.is_start(), place.next_piece(&(3..3), 2)), (true, (3..3, true)));
    }

    #[test]
    fn a_wrong_tree_is_found_out() {
        let edges = vec![(0, 1), (1, 2), (0, 3), (3, 2), (4, 5)];
        let graph = Graph::of(&mut AddressSpace::default(), Arc::new(Rows::undirected(6, &edges)));
        let right = [0, 0, 1, 0, NO_VERTEX, NO_VERTEX];
        assert_eq!(graph.check_bfs_tree(0, &right), Ok(()));
        for (vertex, parent) in [(2, 0), (2, NO_VERTEX), (0, 1), (4, 5), (3, 2)] {
            let mut wrong = right;
            wrong[vertex] = parent;
            assert!(graph.check_bfs_tree(0, &wrong).is_err(), "{wrong:?}");
        }
    }
}
