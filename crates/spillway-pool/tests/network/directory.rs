//! The directory in which donors register, as one run hears of it. It is away at times: the run learns of
//! nobody who comes then, and of all of them at once later, whatever has become of them meanwhile.

use spillway_pool::placement::Dice;

/// It goes away once in so many steps, and for at most so many.
const MEAN_STAY: usize = 300;
const MOST_AWAY: usize = 1_500;

pub struct Directory {
    /// Its own, so that worlds in which it stays are as they were without it.
    dice: Dice,
    /// It is away at times.
    wavers: bool,
    away_until: u64,
}

impl Directory {
    /// Of a run; where it is away at times it may be from the beginning.
    pub fn draw(seed: u64, wavers: bool) -> Self {
        let mut dice = Dice::new(seed ^ 0xD1EC_7084);
        let away_until = if wavers { dice.below(2 * MOST_AWAY) as u64 } else { 0 };
        Self { dice, wavers, away_until }
    }

    /// A step of the world passes.
    pub fn pass(&mut self, now: u64) {
        if self.wavers && !self.is_away(now) && self.dice.below(MEAN_STAY) == 0 {
            self.away_until = now + self.dice.below(MOST_AWAY) as u64;
        }
    }

    pub fn is_away(&self, now: u64) -> bool {
        now < self.away_until
    }

    /// Whether all who have come are heard of in one look.
    pub fn tells_all(&self) -> bool {
        self.wavers
    }

    /// It is there from now on.
    pub fn stay(&mut self) {
        (self.wavers, self.away_until) = (false, 0);
    }
}
