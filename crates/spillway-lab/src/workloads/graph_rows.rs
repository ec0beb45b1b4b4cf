//! Makes graphs: edges drawn as their papers say, and the rows that hold them. Runs in one process share
//! them, since a sweep runs the same graph under many policies.

use std::sync::{Arc, Mutex, PoisonError};

use rand::RngExt;
use rand::seq::SliceRandom;

use super::random::rng;

/// Probabilities of the quadrants of an rMat graph, of 65536; the fourth takes the rest.
const A: u64 = 37356; // 0.57
const B: u64 = 12452; // 0.19
const C: u64 = 12452; // 0.19
const WHOLE: u64 = 65536;

/// Shared graphs are kept while they take less than this together.
const SHARED_BYTES: usize = 1 << 30;

/// How the vertices of an rMat graph are numbered, and which way its rows go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraphKind {
    /// As Ligra's generator leaves them, low numbers with the most edges (HotBox section 6.2); both
    /// directions.
    Rmat,
    /// Shuffled, as Graph500 specifies; both directions.
    Kronecker,
    /// Shuffled; for each vertex the ones that have an edge to it.
    KroneckerIncoming,
}

/// Which graph: equal keys are equal graphs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphKey {
    /// How it is drawn.
    pub kind: GraphKind,
    /// How many vertices the graph has.
    pub vertices: usize,
    /// Edges that are drawn; a loop is in no row of both directions.
    pub edges: usize,
    /// The seed that the edges are drawn from.
    pub seed: u64,
}

/// For each vertex its neighbours, one row after the other.
#[derive(Debug, PartialEq, Eq)]
pub struct Rows {
    /// Where each row starts; one more than vertices.
    pub offsets: Vec<u64>,
    /// The neighbours of all vertices, row after row.
    pub neighbours: Vec<u32>,
}

type Edges = Vec<(u32, u32)>;

static SHARED: Mutex<Vec<(GraphKey, Arc<Rows>)>> = Mutex::new(Vec::new());

/// The rows of a graph; made when no run before had them.
pub fn shared_rows(key: GraphKey) -> Arc<Rows> {
    let find = |shared: &[(GraphKey, Arc<Rows>)]| {
        shared.iter().find(|(held, _)| *held == key).map(|(_, rows)| Arc::clone(rows))
    };
    if let Some(rows) = find(&SHARED.lock().unwrap_or_else(PoisonError::into_inner)) {
        return rows;
    }
    let rows = Arc::new(Rows::make(key));
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.push((key, Arc::clone(&rows)));
    while shared.len() > 1 && shared.iter().map(|(_, rows)| rows.bytes()).sum::<usize>() > SHARED_BYTES {
        shared.remove(0);
    }
    rows
}

impl Rows {
    fn make(key: GraphKey) -> Self {
        let mut edges = rmat(key);
        if key.kind != GraphKind::Rmat {
            let mut numbers: Vec<u32> = (0..key.vertices as u32).collect();
            numbers.shuffle(&mut rng(key.seed, 1));
            edges.iter_mut().for_each(|(from, to)| {
                (*from, *to) = (numbers[*from as usize], numbers[*to as usize]);
            });
        }
        match key.kind {
            GraphKind::KroneckerIncoming => Self::incoming(key.vertices, &edges),
            GraphKind::Rmat | GraphKind::Kronecker => Self::undirected(key.vertices, &edges),
        }
    }

    /// The rows of both directions of `edges`, without loops.
    pub fn undirected(vertices: usize, edges: &Edges) -> Self {
        let both = |&(from, to): &(u32, u32)| [(from, to), (to, from)];
        Self::build(vertices, edges.iter().filter(|(from, to)| from != to).flat_map(both))
    }

    /// For each vertex the ones that have an edge to it.
    fn incoming(vertices: usize, edges: &Edges) -> Self {
        Self::build(vertices, edges.iter().map(|&(from, to)| (to, from)))
    }

    fn build(vertices: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        // Counted one place on, so that filling in moves each row's start to where it belongs.
        let mut offsets = vec![0u64; vertices + 2];
        for (from, _) in edges.clone() {
            offsets[from as usize + 2] += 1;
        }
        for vertex in 2..offsets.len() {
            offsets[vertex] += offsets[vertex - 1];
        }
        let mut neighbours = vec![0; offsets[vertices + 1] as usize];
        for (from, to) in edges {
            let next = &mut offsets[from as usize + 1];
            neighbours[*next as usize] = to;
            *next += 1;
        }
        offsets.pop();
        Self { offsets, neighbours }
    }

    fn bytes(&self) -> usize {
        8 * self.offsets.len() + 4 * self.neighbours.len()
    }
}

/// Draws rMat edges with A = 0.57, B = C = 0.19, two levels of the recursion at a time. An edge that leaves
/// the vertices is drawn again.
fn rmat(key: GraphKey) -> Edges {
    let levels = key.vertices.next_power_of_two().trailing_zeros();
    let quadrants = quadrant_pairs();
    let mut rng = rng(key.seed, 0);
    let mut edge = || loop {
        let (mut from, mut to, mut level) = (0u32, 0u32, 0);
        while level < levels {
            let mut bits: u64 = rng.random();
            for _ in 0..4 {
                let pair = u32::from(quadrants[bits as usize & 0xffff]);
                bits >>= 16;
                from = from << 2 | pair >> 2;
                to = to << 2 | pair & 3;
                level += 2;
                if level >= levels {
                    break;
                }
            }
        }
        // Two levels were drawn where one was left.
        (from, to) = (from >> (level - levels), to >> (level - levels));
        if (from as usize) < key.vertices && (to as usize) < key.vertices {
            return (from, to);
        }
    };
    (0..key.edges).map(|_| edge()).collect()
}

/// For 16 random bits the quadrants of two levels: two bits of the row, then two of the column.
fn quadrant_pairs() -> Vec<u8> {
    let share = [A, B, C, WHOLE - A - B - C];
    let mut pairs = Vec::with_capacity(WHOLE as usize);
    let (mut sum, all) = (0, WHOLE * WHOLE);
    for (first, second) in (0..4).flat_map(|first| (0..4).map(move |second| (first, second))) {
        sum += share[first] * share[second];
        let pair = (first >> 1) << 3 | (second >> 1) << 2 | (first & 1) << 1 | second & 1;
        pairs.resize((sum * WHOLE / all) as usize, pair as u8);
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: GraphKind) -> GraphKey {
        GraphKey { kind, vertices: 3000, edges: 48_000, seed: 1 }
    }

    fn degrees(kind: GraphKind) -> Vec<u64> {
        shared_rows(key(kind)).offsets.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn rmat_is_skewed_to_low_numbers_and_kronecker_is_not() {
        let (mut rmat, mut kronecker) = (degrees(GraphKind::Rmat), degrees(GraphKind::Kronecker));
        assert_eq!(rmat.iter().max(), Some(&rmat[0]));
        let low = |degrees: &[u64]| degrees[..1500].iter().sum::<u64>();
        assert!(low(&rmat) > 68_000, "{}", low(&rmat));
        assert!((40_000..56_000).contains(&low(&kronecker)), "{}", low(&kronecker));
        rmat.sort_unstable();
        kronecker.sort_unstable();
        assert_eq!(rmat, kronecker);
    }

    #[test]
    fn quadrants_are_as_likely_as_they_should_be() {
        let edges = rmat(GraphKey { kind: GraphKind::Rmat, vertices: 1 << 11, edges: 100_000, seed: 3 });
        let share = |from: u32, to: u32, shift: u32| {
            let here = edges.iter().filter(|edge| (edge.0 >> shift & 1, edge.1 >> shift & 1) == (from, to));
            here.count() as f64 / edges.len() as f64
        };
        for shift in [10, 9, 5, 0] {
            for (from, to, expected) in [(0, 0, 0.57), (0, 1, 0.19), (1, 0, 0.19), (1, 1, 0.05)] {
                let share = share(from, to, shift);
                assert!((share - expected).abs() < 0.01, "level {shift}: ({from}, {to}) {share}");
            }
        }
    }

    #[test]
    fn rows_hold_both_directions() {
        let edges = vec![(0, 1), (1, 2), (3, 3), (0, 2)];
        let rows = Rows::undirected(4, &edges);
        assert_eq!((rows.offsets, rows.neighbours), (vec![0, 2, 4, 6, 6], vec![1, 2, 0, 2, 1, 0]));
        let rows = Rows::incoming(4, &edges);
        assert_eq!((rows.offsets, rows.neighbours), (vec![0, 0, 1, 3, 4], vec![0, 1, 0, 3]));
    }

    #[test]
    fn runs_share_what_is_equal() {
        let (one, same) = (shared_rows(key(GraphKind::Kronecker)), shared_rows(key(GraphKind::Kronecker)));
        assert!(Arc::ptr_eq(&one, &same) || one == same);
        assert_ne!(one, shared_rows(GraphKey { seed: 2, ..key(GraphKind::Kronecker) }));
    }
}
