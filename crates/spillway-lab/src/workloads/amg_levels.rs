//! The levels of an algebraic multigrid solver: matrices, their aggregation, and what is done to their rows.

use std::ops::Range;

use crate::access::Accesses;
use crate::memory::{AddressSpace, Array};

/// A level with fewer rows is the coarsest.
const COARSEST_ROWS: usize = 64;
const NO_AGGREGATE: u32 = u32::MAX;

/// One level: its equations, the guess at their solution, and which equation of the coarser level each goes
/// into.
pub struct Level {
    offsets: Array<u32>,
    columns: Array<u32>,
    entries: Array<f64>,
    diagonal: Array<f64>,
    aggregates: Array<u32>,
    /// Rows in the order of their aggregates, and where each aggregate's begin: what a coarse row sums.
    members: Array<u32>,
    member_offsets: Array<u32>,
    /// The right side of the level's equations.
    pub right: Array<f64>,
    /// Guess at the solution.
    pub guess: Array<f64>,
    residual: Array<f64>,
}

/// A matrix in compressed rows, before it is instrumented.
struct Matrix {
    offsets: Vec<u32>,
    columns: Vec<u32>,
    entries: Vec<f64>,
}

/// The levels of Poisson's equation on a box of so many unknowns in each direction, the finest first.
pub fn levels(space: &mut AddressSpace, sides: [usize; 3]) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut matrix = Matrix::poisson(sides);
    loop {
        let (aggregates, count) = matrix.aggregate();
        // A matrix whose rows do not come together any more has no coarser level.
        let is_coarsest = matrix.rows() <= COARSEST_ROWS || count == matrix.rows();
        let coarser = (!is_coarsest).then(|| matrix.coarser(&aggregates, count));
        levels.push(Level::new(
            space,
            matrix,
            if is_coarsest { (Vec::new(), 0) } else { (aggregates, count) },
        ));
        match coarser {
            Some(coarser) => matrix = coarser,
            None => return levels,
        }
    }
}

impl Matrix {
    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn row(&self, row: usize) -> impl Iterator<Item = (u32, f64)> {
        let range = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        self.columns[range.clone()].iter().copied().zip(self.entries[range].iter().copied())
    }

    /// Seven points: 6 for an unknown, -1 for each of its neighbours; nothing beyond the faces.
    fn poisson([width, height, depth]: [usize; 3]) -> Self {
        let mut matrix = Self { offsets: vec![0], columns: Vec::new(), entries: Vec::new() };
        let at = |x: usize, y: usize, z: usize| ((z * height + y) * width + x) as u32;
        for z in 0..depth {
            for y in 0..height {
                for x in 0..width {
                    let mut put = |exists: bool, column: u32, entry: f64| {
                        if exists {
                            matrix.columns.push(column);
                            matrix.entries.push(entry);
                        }
                    };
                    let here = at(x, y, z);
                    put(z > 0, here.wrapping_sub((width * height) as u32), -1.0);
                    put(y > 0, here.wrapping_sub(width as u32), -1.0);
                    put(x > 0, here.wrapping_sub(1), -1.0);
                    put(true, here, 6.0);
                    put(x + 1 < width, here + 1, -1.0);
                    put(y + 1 < height, here + width as u32, -1.0);
                    put(z + 1 < depth, here + (width * height) as u32, -1.0);
                    matrix.offsets.push(matrix.columns.len() as u32);
                }
            }
        }
        matrix
    }

    /// Which rows come together: a row whose neighbours are all free takes them; one that is left joins a
    /// neighbour's.
    fn aggregate(&self) -> (Vec<u32>, usize) {
        let mut aggregates = vec![NO_AGGREGATE; self.rows()];
        let mut count = 0;
        for row in 0..self.rows() {
            if self.row(row).all(|(column, _)| aggregates[column as usize] == NO_AGGREGATE) {
                self.row(row).for_each(|(column, _)| aggregates[column as usize] = count);
                count += 1;
            }
        }
        let first = aggregates.clone();
        let left = aggregates.iter_mut().enumerate().filter(|(_, aggregate)| **aggregate == NO_AGGREGATE);
        for (row, aggregate) in left {
            let taken = self.row(row).map(|(column, _)| first[column as usize]).find(|&a| a != NO_AGGREGATE);
            *aggregate = taken.unwrap_or_else(|| {
                count += 1;
                count - 1
            });
        }
        (aggregates, count as usize)
    }

    /// The matrix whose entries are the sums over pairs of aggregates.
    fn coarser(&self, aggregates: &[u32], count: usize) -> Self {
        let (members, offsets) = members(aggregates, count);
        let mut coarser = Self { offsets: vec![0], columns: Vec::new(), entries: Vec::new() };
        let mut place = vec![usize::MAX; count];
        for aggregate in 0..count {
            let start = coarser.columns.len();
            for &row in &members[offsets[aggregate] as usize..offsets[aggregate + 1] as usize] {
                for (column, entry) in self.row(row as usize) {
                    let column = aggregates[column as usize];
                    let at = &mut place[column as usize];
                    if *at == usize::MAX || *at < start {
                        *at = coarser.columns.len();
                        coarser.columns.push(column);
                        coarser.entries.push(0.0);
                    }
                    coarser.entries[*at] += entry;
                }
            }
            coarser.offsets.push(coarser.columns.len() as u32);
        }
        coarser
    }

    fn diagonal(&self) -> Vec<f64> {
        let entry = |row: usize| self.row(row).find(|&(column, _)| column as usize == row);
        (0..self.rows()).map(|row| entry(row).map_or(1.0, |(_, entry)| entry)).collect()
    }
}

/// Rows by aggregate, and where each aggregate's begin.
fn members(aggregates: &[u32], count: usize) -> (Vec<u32>, Vec<u32>) {
    let mut offsets = vec![0u32; count + 1];
    aggregates.iter().for_each(|&aggregate| offsets[aggregate as usize + 1] += 1);
    (0..count).for_each(|aggregate| offsets[aggregate + 1] += offsets[aggregate]);
    let mut next = offsets.clone();
    let mut members = vec![0; aggregates.len()];
    for (row, &aggregate) in (0..).zip(aggregates) {
        members[next[aggregate as usize] as usize] = row;
        next[aggregate as usize] += 1;
    }
    (members, offsets)
}

impl Level {
    fn new(space: &mut AddressSpace, matrix: Matrix, (aggregates, count): (Vec<u32>, usize)) -> Self {
        let rows = matrix.rows();
        let (members, member_offsets) = members(&aggregates, count);
        let diagonal = matrix.diagonal();
        Self {
            offsets: space.array("row offsets", matrix.offsets),
            columns: space.array("columns", matrix.columns),
            entries: space.array("entries", matrix.entries),
            diagonal: space.array("diagonal", diagonal),
            aggregates: space.array("aggregates", aggregates),
            members: space.array("members", members),
            member_offsets: space.array("member offsets", member_offsets),
            right: space.filled("right side", 0.0, rows),
            guess: space.filled("guess", 0.0, rows),
            residual: space.filled("residual", 0.0, rows),
        }
    }

    /// How many equations it has.
    pub fn rows(&self) -> usize {
        self.right.len()
    }

    /// A row of the matrix times a vector; counts its entries.
    pub fn times(
        &self,
        row: usize,
        vector: &Array<f64>,
        entries: &mut usize,
        accesses: &mut Accesses,
    ) -> f64 {
        let end = self.offsets.data()[row + 1] as usize;
        let range = self.offsets.get(row, accesses) as usize..end;
        *entries += range.len();
        let numbers = self.entries.read_run(range.clone(), accesses);
        let columns = self.columns.read_run(range, accesses);
        columns
            .iter()
            .zip(numbers)
            .map(|(&column, number)| number * vector.get(column as usize, accesses))
            .sum()
    }

    /// guess = damping * right side / diagonal.
    pub fn begin(&mut self, run: Range<usize>, damping: f64, accesses: &mut Accesses) -> usize {
        let right = self.right.read_run(run.clone(), accesses);
        let diagonal = self.diagonal.read_run(run.clone(), accesses);
        let guess = self.guess.write_run(run.clone(), accesses);
        for ((guess, right), diagonal) in guess.iter_mut().zip(right).zip(diagonal) {
            *guess = damping * right / diagonal;
        }
        run.len()
    }

    /// residual = right side - matrix * guess.
    pub fn residual(&mut self, run: Range<usize>, accesses: &mut Accesses) -> usize {
        let mut entries = 0;
        for row in run.clone() {
            let image = self.times(row, &self.guess, &mut entries, accesses);
            self.residual.data_mut()[row] = self.right.data()[row] - image;
        }
        self.right.read_run(run.clone(), accesses);
        self.residual.write_run(run, accesses);
        entries
    }

    /// guess += damping * residual / diagonal.
    pub fn smooth(&mut self, run: Range<usize>, damping: f64, accesses: &mut Accesses) -> usize {
        let residual = self.residual.read_run(run.clone(), accesses);
        let diagonal = self.diagonal.read_run(run.clone(), accesses);
        let guess = self.guess.write_run(run.clone(), accesses);
        for ((guess, residual), diagonal) in guess.iter_mut().zip(residual).zip(diagonal) {
            *guess += damping * residual / diagonal;
        }
        run.len()
    }

    /// The right side of a run of `coarser`'s rows = the sums of this level's residual over their aggregates.
    pub fn restrict(&self, coarser: &mut Self, run: Range<usize>, accesses: &mut Accesses) -> usize {
        let mut entries = 0;
        for row in run.clone() {
            let end = self.member_offsets.data()[row + 1] as usize;
            let members = self.member_offsets.get(row, accesses) as usize..end;
            entries += members.len();
            let members = self.members.read_run(members, accesses);
            coarser.right.data_mut()[row] =
                members.iter().map(|&row| self.residual.get(row as usize, accesses)).sum();
        }
        coarser.right.write_run(run, accesses);
        entries
    }

    /// guess += the guess of `coarser` for the aggregate.
    pub fn prolong(&mut self, coarser: &Self, run: Range<usize>, accesses: &mut Accesses) -> usize {
        let aggregates = self.aggregates.read_run(run.clone(), accesses);
        let guess = self.guess.write_run(run.clone(), accesses);
        for (guess, &aggregate) in guess.iter_mut().zip(aggregates) {
            *guess += coarser.guess.get(aggregate as usize, accesses);
        }
        run.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregates_take_every_row_and_coarse_rows_keep_the_sum() {
        let matrix = Matrix::poisson([7, 6, 5]);
        let (aggregates, count) = matrix.aggregate();
        assert!(count < matrix.rows() / 3, "{count}");
        assert!(aggregates.iter().all(|&aggregate| (aggregate as usize) < count));
        let coarser = matrix.coarser(&aggregates, count);
        let sum = |matrix: &Matrix| matrix.entries.iter().sum::<f64>();
        assert!((sum(&matrix) - sum(&coarser)).abs() < 1e-9);
        // Symmetric, as the finer one is.
        for row in 0..coarser.rows() {
            for (column, entry) in coarser.row(row) {
                assert!(
                    coarser.row(column as usize).any(|(back, same)| back as usize == row && same == entry)
                );
            }
        }
    }

    #[test]
    fn levels_shrink_to_the_coarsest() {
        let levels = levels(&mut AddressSpace::default(), [20, 20, 20]);
        assert!(levels.len() >= 3);
        assert!(levels.windows(2).all(|pair| pair[1].rows() < pair[0].rows() / 2));
        assert!(levels.last().unwrap().rows() <= COARSEST_ROWS);
    }
}
