//! In which queue of dcm's a page begins that comes in: by chance, or by how long it was away.
//!
//! From "Disaggregated Cloud Memory with Elastic Block Management", section 3.2: epsilon. What a page that
//! comes back soon has is not the paper's.

use spillway_core::page_word::Queue;

/// The coin, and what it is thrown for. One seed, one sequence of choices.
#[derive(Clone)]
pub struct Newcomers {
    random_promotion: f64,
    return_share: f64,
    random: u64,
}

impl Newcomers {
    /// `random_promotion` and `return_share` are dcm's settings of these names
    /// ([`crate::dcm::Config`]).
    #[must_use]
    pub fn new(random_promotion: f64, return_share: f64, seed: u64) -> Self {
        Self { random_promotion, return_share, random: seed | 1 }
    }

    /// The queue in which a page that was fetched or first touched begins.
    pub fn queue_of_newcomer(&mut self) -> Queue {
        // xorshift64*: a few instructions, and good enough for a coin.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let draw = (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64;
        if draw < self.random_promotion { Queue::Proactive } else { Queue::Active }
    }

    /// The queue in which a page begins that comes back after `away_pages` others have left, under a limit of
    /// `local_pages`.
    pub fn queue_of_returner(&mut self, away_pages: u64, local_pages: u64) -> Queue {
        if (away_pages as f64) < local_pages as f64 * self.return_share {
            Queue::Proactive
        } else {
            self.queue_of_newcomer()
        }
    }
}
