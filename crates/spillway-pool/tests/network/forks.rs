//! The processes of a run as they fork. A child begins with what its parent had in memory, its numbers that
//! look like chance among it: what both draw next is the same. It has no connections yet, and it has the same
//! slots, of which each reads pages as long as nobody writes them anew.

use spillway_pool::placement::Dice;

/// A process forks once in so many steps, until there are so many.
const MEAN_LIFE: usize = 300;
const MOST_PROCESSES: usize = 7;

pub struct Forks {
    /// When and who: its own, so that worlds without forks are as they were.
    dice: Dice,
    /// Each process has its own.
    own: Vec<Dice>,
}

impl Forks {
    /// Of a run that begins with so many processes.
    pub fn draw(seed: u64, processes: usize) -> Self {
        let mut dice = Dice::new(seed ^ 0xF0_4B5);
        // All are children of one.
        let first = Dice::new(dice.next_u64());
        Self { dice, own: vec![first; processes] }
    }

    /// Whether a process forks in this step; then there is one more.
    pub fn has_forked(&mut self) -> bool {
        let is_time = self.own.len() < MOST_PROCESSES && self.dice.below(MEAN_LIFE) == 0;
        if is_time {
            let parent = self.dice.below(self.own.len());
            self.own.push(self.own[parent]);
        }
        is_time
    }

    /// The next number of a process.
    pub fn next_of(&mut self, process: usize) -> u64 {
        self.own[process].next_u64()
    }
}
