//! Algebraic multigrid (INDIGO Table 3; Stueben 1983): solves Poisson's equation on a cube by conjugate
//! gradients with one W-cycle as preconditioner.
//!
//! Levels come from the matrix alone: unknowns are aggregated with their neighbours, a coarse equation is the
//! sum of its aggregate's. Smoother: damped Jacobi, once before and once after. Simplified: aggregation is
//! not smoothed, and the levels stand when the run starts.

use serde::Deserialize;

use super::amg_levels::{Level, levels};
use super::entry::{Registered, WorkloadError, at_least, within};
use super::random::rng;
use crate::access::{Access, Accesses};
use crate::memory::{AddressSpace, Array};
use crate::workload::{Region, Workload};

use rand::RngExt;

const STEP_ROWS: usize = 128;
const DAMPING: f64 = 0.7;
/// Smoothings of the coarsest level.
const COARSEST_SWEEPS: usize = 8;
/// Bytes for an unknown of the finest level, those of the coarser ones for it included.
const UNKNOWN_BYTES: usize = 174;

/// What a run may set of [`Amg`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmgConfig {
    /// The working set to fill, in bytes.
    pub bytes: u64,
    /// Seed of the right side.
    pub seed: u64,
    /// How many tasks share the work.
    pub tasks: usize,
    /// Most iterations before it ends unconverged.
    pub iterations: usize,
    /// It ends when the residual is this small a share of the right side.
    pub tolerance: f64,
    /// Work on an entry of a matrix.
    pub compute_ns_per_entry: u64,
}

impl Default for AmgConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, seed: 1, tasks: 4, iterations: 12, tolerance: 1e-8, compute_ns_per_entry: 1 }
    }
}

/// What all tasks do to the rows of a level, piece by piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    /// guess = damped right side: the first smoothing, from a guess of nothing.
    Begin(usize),
    /// residual = right side - matrix * guess.
    Residual(usize),
    /// guess += damped residual: a smoothing.
    Smooth(usize),
    /// The right side of this level = the sums of the finer one's residual.
    Restrict(usize),
    /// guess += the coarser level's guess.
    Prolong(usize),
    /// Sums residual * preconditioned residual.
    Dot,
    /// direction = preconditioned residual + share * direction.
    Turn,
    /// image = matrix * direction; sums direction * image.
    Apply,
    /// solution += direction, residual -= image, as far as it goes; sums residual * residual.
    Advance,
}

/// Conjugate gradients with algebraic multigrid.
pub struct Amg {
    config: AmgConfig,
    regions: Vec<Region>,
    levels: Vec<Level>,
    /// The right side that was asked for, to verify with.
    asked: Vec<f64>,
    solution: Array<f64>,
    direction: Array<f64>,
    image: Array<f64>,
    program: Vec<Kernel>,
    kernel: usize,
    row: usize,
    sum: f64,
    /// residual * preconditioned residual, of this iteration and the last.
    steepness: [f64; 2],
    stride: f64,
    residual_share: f64,
    iteration: usize,
    is_done: bool,
}

impl Amg {
    /// The residual's share of the right side, as the iteration knows it.
    pub fn residual_share(&self) -> f64 {
        self.residual_share
    }

    /// Does some rows of the current kernel; answers whether it was the last of them.
    fn piece(&mut self, accesses: &mut Accesses) -> bool {
        let kernel = self.program[self.kernel];
        let rows = self.levels[kernel.level()].rows();
        let run = self.row..rows.min(self.row + STEP_ROWS);
        let entries = match kernel {
            Kernel::Begin(level) => self.levels[level].begin(run.clone(), DAMPING, accesses),
            Kernel::Residual(level) => self.levels[level].residual(run.clone(), accesses),
            Kernel::Smooth(level) => self.levels[level].smooth(run.clone(), DAMPING, accesses),
            Kernel::Restrict(level) => {
                let (finer, coarser) = self.levels.split_at_mut(level);
                finer[level - 1].restrict(&mut coarser[0], run.clone(), accesses)
            }
            Kernel::Prolong(level) => {
                let (finer, coarser) = self.levels.split_at_mut(level + 1);
                finer[level].prolong(&coarser[0], run.clone(), accesses)
            }
            Kernel::Dot => self.dot(run.clone(), accesses),
            Kernel::Turn => self.turn(run.clone(), accesses),
            Kernel::Apply => self.apply(run.clone(), accesses),
            Kernel::Advance => self.advance(run.clone(), accesses),
        };
        accesses.push(Access::compute_ns(self.config.compute_ns_per_entry * entries as u64));
        self.row = if run.end < rows { run.end } else { 0 };
        run.end == rows
    }

    fn dot(&mut self, run: std::ops::Range<usize>, accesses: &mut Accesses) -> usize {
        let residual = self.levels[0].right.read_run(run.clone(), accesses);
        let preconditioned = self.levels[0].guess.read_run(run.clone(), accesses);
        self.sum += residual.iter().zip(preconditioned).map(|(a, b)| a * b).sum::<f64>();
        run.len()
    }

    fn turn(&mut self, run: std::ops::Range<usize>, accesses: &mut Accesses) -> usize {
        let share = if self.iteration == 0 { 0.0 } else { self.steepness[0] / self.steepness[1] };
        let preconditioned = self.levels[0].guess.read_run(run.clone(), accesses);
        let direction = self.direction.write_run(run.clone(), accesses);
        direction
            .iter_mut()
            .zip(preconditioned)
            .for_each(|(direction, new)| *direction = new + share * *direction);
        run.len()
    }

    fn apply(&mut self, run: std::ops::Range<usize>, accesses: &mut Accesses) -> usize {
        let mut entries = 0;
        for row in run.clone() {
            let image = self.levels[0].times(row, &self.direction, &mut entries, accesses);
            self.sum += image * self.direction.data()[row];
            self.image.data_mut()[row] = image;
        }
        self.image.write_run(run, accesses);
        entries
    }

    fn advance(&mut self, run: std::ops::Range<usize>, accesses: &mut Accesses) -> usize {
        let direction = self.direction.read_run(run.clone(), accesses);
        let solution = self.solution.write_run(run.clone(), accesses);
        solution
            .iter_mut()
            .zip(direction)
            .for_each(|(solution, direction)| *solution += self.stride * direction);
        let image = self.image.read_run(run.clone(), accesses);
        let residual = self.levels[0].right.write_run(run.clone(), accesses);
        for (residual, image) in residual.iter_mut().zip(image) {
            *residual -= self.stride * image;
            self.sum += *residual * *residual;
        }
        run.len()
    }

    /// A kernel is over: takes its sum, and goes on to the next.
    fn next_kernel(&mut self) {
        let sum = std::mem::take(&mut self.sum);
        match self.program[self.kernel] {
            Kernel::Dot => self.steepness = [sum, self.steepness[0]],
            Kernel::Apply => self.stride = self.steepness[0] / sum,
            Kernel::Advance => {
                self.residual_share = (sum / norm(&self.asked)).sqrt();
                self.iteration += 1;
                self.is_done =
                    self.iteration == self.config.iterations || self.residual_share < self.config.tolerance;
            }
            _ => {}
        }
        self.kernel = (self.kernel + 1) % self.program.len();
    }
}

impl Kernel {
    /// Whose rows it goes over.
    fn level(self) -> usize {
        match self {
            Kernel::Begin(level) | Kernel::Residual(level) | Kernel::Smooth(level) => level,
            Kernel::Restrict(level) | Kernel::Prolong(level) => level,
            Kernel::Dot | Kernel::Turn | Kernel::Apply | Kernel::Advance => 0,
        }
    }
}

/// What one iteration does: a W-cycle, then a step along the direction that it gives.
fn program(levels: usize) -> Vec<Kernel> {
    let mut program = vec![Kernel::Begin(0)];
    cycle(&mut program, 0, levels - 1);
    program.extend([Kernel::Dot, Kernel::Turn, Kernel::Apply, Kernel::Advance]);
    program
}

/// Betters a level's guess, which has been smoothed once, by the coarser level's: two cycles there.
fn cycle(program: &mut Vec<Kernel>, level: usize, coarsest: usize) {
    if level == coarsest {
        (0..COARSEST_SWEEPS).for_each(|_| program.extend([Kernel::Residual(level), Kernel::Smooth(level)]));
        return;
    }
    program.extend([Kernel::Residual(level), Kernel::Restrict(level + 1), Kernel::Begin(level + 1)]);
    cycle(program, level + 1, coarsest);
    if level + 1 < coarsest {
        program.extend([Kernel::Residual(level + 1), Kernel::Smooth(level + 1)]);
        cycle(program, level + 1, coarsest);
    }
    program.extend([Kernel::Prolong(level), Kernel::Residual(level), Kernel::Smooth(level)]);
}

fn norm(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number * number).sum()
}

impl Registered for Amg {
    type Config = AmgConfig;
    const NAME: &'static str = "amg";
    const ABOUT: &'static str = "algebraic multigrid solver for Poisson's equation on a cube";

    fn new(config: AmgConfig) -> Result<Self, WorkloadError> {
        let name = Self::NAME;
        within(name, "tolerance", config.tolerance, 1e-14..=1.0)?;
        at_least(name, config.bytes, 64 << 10)?;
        let unknowns = config.bytes as usize / UNKNOWN_BYTES;
        let side = (1..).take_while(|side| side * side * side <= unknowns).last().unwrap_or(1);
        let mut space = AddressSpace::default();
        let mut levels = levels(&mut space, [side, side, unknowns / (side * side)]);
        let rows = levels[0].rows();
        let mut rng = rng(config.seed, 0);
        let asked: Vec<f64> = (0..rows).map(|_| rng.random::<f64>() - 0.5).collect();
        levels[0].right.data_mut().copy_from_slice(&asked);
        let program = program(levels.len());
        let is_done = config.iterations == 0;
        Ok(Self {
            levels,
            asked,
            solution: space.filled("solution", 0.0, rows),
            direction: space.filled("direction", 0.0, rows),
            image: space.filled("image", 0.0, rows),
            program,
            kernel: 0,
            row: 0,
            sum: 0.0,
            steepness: [0.0; 2],
            stride: 0.0,
            residual_share: 1.0,
            iteration: 0,
            is_done,
            config,
            regions: space.into_regions(),
        })
    }
}

impl Workload for Amg {
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
        if !self.is_done && self.piece(accesses) {
            self.next_kernel();
        }
        !self.is_done
    }

    /// The residual is what the iteration says it is, and small.
    fn verify(&self) -> Result<(), String> {
        let mut none = Accesses::new();
        let wrong = (0..self.asked.len()).map(|row| {
            none.clear();
            self.asked[row] - self.levels[0].times(row, &self.solution, &mut 0, &mut none)
        });
        let share = (norm(&wrong.collect::<Vec<_>>()) / norm(&self.asked)).sqrt();
        let agrees = (share - self.residual_share).abs() < 1e-10 + 1e-6 * share;
        if self.iteration > 0 && !(agrees && share < 0.5) {
            return Err(format!(
                "the residual is {share:e} of the right side, the solver says {:e}",
                self.residual_share
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::testing::run;

    #[test]
    fn solves_and_repeats_with_any_number_of_tasks() {
        let mut solutions = Vec::new();
        for tasks in [1, 4] {
            let config = AmgConfig { bytes: 2 << 20, tasks, iterations: 100, ..AmgConfig::default() };
            let mut amg = Amg::new(config).unwrap();
            run(&mut amg);
            assert_eq!(amg.verify(), Ok(()));
            assert!(
                amg.residual_share() < 1e-8 && amg.iteration < 60,
                "{} {}",
                amg.residual_share(),
                amg.iteration
            );
            solutions.push(amg.solution.data().to_vec());
        }
        assert_eq!(solutions[0], solutions[1]);
    }

    #[test]
    fn multigrid_keeps_the_iterations_few_as_the_cube_grows() {
        let iterations = |bytes| {
            let mut amg = Amg::new(AmgConfig { bytes, iterations: 200, ..AmgConfig::default() }).unwrap();
            run(&mut amg);
            amg.iteration
        };
        let (small, large) = (iterations(128 << 10), iterations(4 << 20));
        // Without multigrid they would grow with the cube's side: more than three times.
        assert!(large < 2 * small, "{small} {large}");
    }
}
