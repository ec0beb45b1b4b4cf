//! Collaborative filtering by alternating least squares, with ratings like MovieLens' (dcm Table 1: movielens
//! on Spark).
//!
//! Users and items have vectors of 8 numbers; in turn each side's vectors are solved for, from the other
//! side's and the ratings (Zhou et al., AAIM 2008). Items are rated as often as a Zipf rank says. Ratings
//! come from vectors drawn at random, with noise, so that there is something to be found.

use std::mem;

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::Deserialize;

use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::{rng, zipf};
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

/// Numbers in a vector: half a cache line of them (Spark's default is 10).
const RANK: usize = 8;
type Factors = [f32; RANK];

/// Bytes of a vector and of where its ratings start.
const VECTOR_BYTES: usize = 4 * RANK + 8;
const RATINGS_PER_USER: usize = 48;
const USERS_PER_ITEM: usize = 4;
/// Ratings that one step takes in.
const STEP_RATINGS: usize = 128;
const NOISE: f32 = 0.1;
/// How long a task waits before it looks again whether the others are done.
const WAIT_NS: u64 = 1000;

/// What a run may set of [`Als`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlsConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// The seed that all lots are drawn from.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// How often both sides are solved for.
    pub iterations: usize,
    /// Zipf exponent of how often an item is rated.
    pub skew: f64,
    /// Weight of the regularisation in the least squares.
    pub lambda: f32,
    /// Work on a rating; solving for a vector takes ten times as much.
    pub compute_ns_per_rating: u64,
}

impl Default for AlsConfig {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            seed: 1,
            tasks: 4,
            iterations: 3,
            skew: 0.8,
            lambda: 0.02,
            compute_ns_per_rating: 40,
        }
    }
}

/// One side: its vectors, and its ratings by row.
struct Side {
    factors: Array<Factors>,
    offsets: Array<u64>,
    /// Who or what, and how it was rated.
    ratings: Array<(u32, f32)>,
}

/// The normal equations of one row, as far as its ratings are taken in.
struct Row {
    row: usize,
    next: usize,
    end: usize,
    matrix: [Factors; RANK],
    right: Factors,
}

/// Alternating least squares over a matrix of ratings.
pub struct Als {
    config: AlsConfig,
    regions: Vec<Region>,
    /// The users' side and the items' side.
    sides: [Side; 2],
    /// Which side is solved for.
    solving: usize,
    iteration: usize,
    next_row: usize,
    rows_done: usize,
    rows: Vec<Option<Row>>,
}

impl Als {
    /// Root mean square of what the vectors are wrong by, and of the ratings.
    pub fn errors(&self) -> (f64, f64) {
        let [users, items] = &self.sides;
        let (mut wrong, mut all) = (0.0, 0.0);
        for user in 0..users.factors.len() {
            for &(item, rating) in users.row_unnoted(user) {
                let guess = dot(&users.factors.data()[user], &items.factors.data()[item as usize]);
                wrong += f64::from(rating - guess).powi(2);
                all += f64::from(rating).powi(2);
            }
        }
        let ratings = users.ratings.len().max(1) as f64;
        ((wrong / ratings).sqrt(), (all / ratings).sqrt())
    }

    /// The next row for a task; None when all are given out.
    fn take_row(&mut self, accesses: &mut Accesses) -> Option<Row> {
        let side = &self.sides[self.solving];
        if self.next_row == side.factors.len() {
            return None;
        }
        let row = self.next_row;
        self.next_row += 1;
        let next = side.offsets.get(row, accesses) as usize;
        let end = side.offsets.data()[row + 1] as usize;
        let mut matrix = [[0.0; RANK]; RANK];
        // Regularised by how many ratings there are.
        (0..RANK).for_each(|i| matrix[i][i] = self.config.lambda * (end - next).max(1) as f32);
        Some(Row { row, next, end, matrix, right: [0.0; RANK] })
    }

    fn take_in(&self, row: &mut Row, accesses: &mut Accesses) {
        let (side, other) = (&self.sides[self.solving], &self.sides[1 - self.solving]);
        let end = row.end.min(row.next + STEP_RATINGS);
        for &(of, rating) in side.ratings.read_run(row.next..end, accesses) {
            let factors = other.factors.get(of as usize, accesses);
            for i in 0..RANK {
                row.right[i] += rating * factors[i];
                for j in 0..RANK {
                    row.matrix[i][j] += factors[i] * factors[j];
                }
            }
        }
        accesses.push(Access::compute_ns(self.config.compute_ns_per_rating * (end - row.next) as u64));
        row.next = end;
    }

    fn finish_row(&mut self, row: Row, accesses: &mut Accesses) {
        let factors = solve(row.matrix, row.right);
        self.sides[self.solving].factors.set(row.row, factors, accesses);
        accesses.push(Access::compute_ns(10 * self.config.compute_ns_per_rating));
        self.rows_done += 1;
        if self.rows_done == self.sides[self.solving].factors.len() {
            self.iteration += self.solving;
            self.solving = 1 - self.solving;
            (self.next_row, self.rows_done) = (0, 0);
        }
    }
}

impl Side {
    fn new(
        space: &mut AddressSpace,
        names: [&'static str; 3],
        rows: usize,
        ratings: &[(u32, u32, f32)],
        seed: u64,
    ) -> Self {
        let mut offsets = vec![0u64; rows + 1];
        ratings.iter().for_each(|&(row, _, _)| offsets[row as usize + 1] += 1);
        (0..rows).for_each(|row| offsets[row + 1] += offsets[row]);
        let mut next = offsets.clone();
        let mut by_row = vec![(0, 0.0); ratings.len()];
        for &(row, of, rating) in ratings {
            by_row[next[row as usize] as usize] = (of, rating);
            next[row as usize] += 1;
        }
        let mut rng = rng(seed, 1);
        let factors = (0..rows).map(|_| [(); RANK].map(|()| rng.random::<f32>() - 0.5)).collect();
        Self {
            factors: space.array(names[0], factors),
            offsets: space.array(names[1], offsets),
            ratings: space.array(names[2], by_row),
        }
    }

    fn row_unnoted(&self, row: usize) -> &[(u32, f32)] {
        let offsets = self.offsets.data();
        &self.ratings.data()[offsets[row] as usize..offsets[row + 1] as usize]
    }
}

/// Who rated what how, in no order. Each user rates, by chance, more or less than the mean.
fn draw_ratings(users: usize, items: usize, config: &AlsConfig) -> Vec<(u32, u32, f32)> {
    // Vectors of few numbers: what is to be found is simpler than what it is looked for with.
    const TRUE_RANK: usize = 4;
    let mut rng = rng(config.seed, 0);
    let mut vectors = |count: usize| -> Vec<[f32; TRUE_RANK]> {
        (0..count).map(|_| [(); TRUE_RANK].map(|()| 2.0 * rng.random::<f32>() - 1.0)).collect()
    };
    let (user_vectors, item_vectors) = (vectors(users), vectors(items));
    let mut names: Vec<u32> = (0..items as u32).collect();
    names.shuffle(&mut rng);
    let Some(ranks) = zipf(items, config.skew) else { return Vec::new() };
    (0..users * RATINGS_PER_USER)
        .map(|_| {
            let user = rng.random_range(0..users);
            let item = names[rng.sample(&ranks)];
            let pairs = user_vectors[user].iter().zip(&item_vectors[item as usize]);
            let noise = NOISE * (2.0 * rng.random::<f32>() - 1.0);
            (user as u32, item, pairs.map(|(a, b)| a * b).sum::<f32>() + noise)
        })
        .collect()
}

fn dot(a: &Factors, b: &Factors) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Solves a symmetric positive definite system by Cholesky's decomposition.
fn solve(mut matrix: [Factors; RANK], mut right: Factors) -> Factors {
    for i in 0..RANK {
        for j in 0..=i {
            let sum = matrix[i][j] - (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum::<f32>();
            matrix[i][j] = if i == j { sum.max(1e-12).sqrt() } else { sum / matrix[j][j] };
        }
        right[i] = (right[i] - (0..i).map(|k| matrix[i][k] * right[k]).sum::<f32>()) / matrix[i][i];
    }
    for i in (0..RANK).rev() {
        right[i] = (right[i] - (i + 1..RANK).map(|k| matrix[k][i] * right[k]).sum::<f32>()) / matrix[i][i];
    }
    right
}

impl Registered for Als {
    type Config = AlsConfig;
    const NAME: &'static str = "als";
    const ABOUT: &'static str = "collaborative filtering by alternating least squares";

    fn new(config: AlsConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "skew", config.skew, 0.0..=4.0)?;
        within(name, "lambda", config.lambda, 1e-6..=10.0)?;
        at_least(name, config.bytes, 64 << 10)?;
        let user_bytes = RATINGS_PER_USER * 16 + VECTOR_BYTES + VECTOR_BYTES / USERS_PER_ITEM;
        let users = config.bytes as usize / user_bytes;
        let items = users / USERS_PER_ITEM;
        let ratings = draw_ratings(users, items, &config);
        let flipped: Vec<_> = ratings.iter().map(|&(user, item, rating)| (item, user, rating)).collect();
        let mut space = AddressSpace::default();
        let sides = [
            Side::new(
                &mut space,
                ["user vectors", "user offsets", "ratings by user"],
                users,
                &ratings,
                config.seed,
            ),
            Side::new(
                &mut space,
                ["item vectors", "item offsets", "ratings by item"],
                items,
                &flipped,
                !config.seed,
            ),
        ];
        let rows = (0..config.tasks).map(|_| None).collect();
        let regions = space.into_regions();
        Ok(Self { config, regions, sides, solving: 0, iteration: 0, next_row: 0, rows_done: 0, rows })
    }
}

impl Workload for Als {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    fn tasks(&self) -> usize {
        self.rows.len()
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        if self.iteration == self.config.iterations {
            return false;
        }
        let Some(mut row) = mem::take(&mut self.rows[task]).or_else(|| self.take_row(accesses)) else {
            accesses.push(Access::compute_ns(WAIT_NS));
            return true;
        };
        self.take_in(&mut row, accesses);
        if row.next < row.end {
            self.rows[task] = Some(row);
        } else {
            self.finish_row(row, accesses);
        }
        self.iteration < self.config.iterations
    }

    /// The vectors explain most of the ratings; after one or two iterations, some.
    fn verify(&self) -> Result<(), String> {
        let (wrong, all) = self.errors();
        let most = if self.iteration < 3 { all } else { all / 2.0 };
        if self.iteration > 0 && (wrong.is_nan() || wrong > most) {
            return Err(format!("the vectors are wrong by {wrong:.3}, where ratings are {all:.3}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn comes_nearer_to_the_ratings_with_each_iteration() {
        let error = |iterations, tasks| {
            let config = AlsConfig { bytes: 1 << 20, iterations, tasks, ..AlsConfig::default() };
            let mut als = Als::new(config).unwrap();
            let ran = run(&mut als);
            assert!(ran.longest_step < 400, "{}", ran.longest_step);
            assert_eq!(als.verify(), Ok(()));
            als.errors().0
        };
        let (one, five) = (error(1, 1), error(5, 4));
        // The noise is 0.058, of which the vectors learn a part.
        assert!(five < one / 2.0 && five < 0.1, "{one} {five}");
    }

    #[test]
    fn solves_equations() {
        let mut rng = rng(1, 0);
        let mut matrix = [[0.0; RANK]; RANK];
        for _ in 0..40 {
            let vector = [(); RANK].map(|()| rng.random::<f32>() - 0.5);
            (0..RANK).for_each(|i| (0..RANK).for_each(|j| matrix[i][j] += vector[i] * vector[j]));
        }
        let wanted = [(); RANK].map(|()| rng.random::<f32>());
        let right = matrix.map(|row| dot(&row, &wanted));
        let found = solve(matrix, right);
        assert!(wanted.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-3), "{wanted:?} {found:?}");
    }
}
