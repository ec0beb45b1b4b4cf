//! What moved lately, and why: sums of the last minute, and the last moves one by one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use spillway_core::page::PAGE_BYTES;
use spillway_policy::machine::Tier;

/// Why a page moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The policy marked it, and it was accessed.
    Accessed,
    /// The policy's own work in the background.
    #[default]
    Policy,
    /// It came to lie local, and the policy or the budget wanted it far.
    Placement,
}

const REASONS: [Reason; 3] = [Reason::Accessed, Reason::Policy, Reason::Placement];

/// One page that was moved from tier to tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// When, in nanoseconds since the start.
    pub at_ns: u64,
    /// The process whose page it is.
    pub process: u32,
    /// The first address of the page.
    pub address: u64,
    /// How many pages of 4 KiB it is.
    pub pages: u32,
    /// The tier that it went to.
    pub to: Tier,
    /// Why it was moved.
    pub reason: Reason,
}

/// Pages that moved in the last minute, for one reason in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// The tier that they went to.
    pub to: Tier,
    /// Why they were moved.
    pub reason: Reason,
    /// How many pages of 4 KiB.
    pub pages: u64,
}

/// Moves that are kept one by one.
const MOST_MOVES: usize = 1 << 16;
const SECONDS: usize = 60;
const NS_PER_S: u64 = 1_000_000_000;

/// By tier, then by reason.
type Second = [[u64; REASONS.len()]; 2];

/// The moves of late.
#[derive(Clone, Debug, Default)]
pub struct History {
    moves: VecDeque<Move>,
    /// The sums of each second, with which second it is.
    seconds: VecDeque<(u64, Second)>,
}

impl History {
    /// Notes that a page moved at `at_ns`.
    pub fn push(&mut self, at_ns: u64, process: u32, address: u64, pages: u32, to: Tier, reason: Reason) {
        if self.moves.len() == MOST_MOVES {
            self.moves.pop_front();
        }
        self.moves.push_back(Move { at_ns, process, address, pages, to, reason });
        let second = at_ns / NS_PER_S;
        if self.seconds.back().is_none_or(|(last, _)| *last < second) {
            self.seconds.push_back((second, Second::default()));
        }
        if self.seconds.len() > SECONDS {
            self.seconds.pop_front();
        }
        if let Some((_, sums)) = self.seconds.back_mut() {
            sums[to as usize][reason as usize] += u64::from(pages);
        }
    }

    /// Sums of the minute before `now_ns`; what did not occur is left out.
    #[must_use]
    pub fn last_minute(&self, now_ns: u64) -> Vec<Sum> {
        let oldest = (now_ns / NS_PER_S).saturating_sub(SECONDS as u64 - 1);
        let recent = || self.seconds.iter().filter(|(second, _)| *second >= oldest).map(|(_, sums)| sums);
        let mut found = Vec::new();
        for to in [Tier::Local, Tier::Far] {
            for reason in REASONS {
                let pages = recent().map(|sums| sums[to as usize][reason as usize]).sum();
                if pages > 0 {
                    found.push(Sum { to, reason, pages });
                }
            }
        }
        found
    }

    /// The moves of the page at an address, oldest first, as far as they are kept.
    #[must_use]
    pub fn of(&self, process: u32, address: u64) -> Vec<Move> {
        let of_page = |moved: &&Move| {
            let bytes = u64::from(moved.pages) * PAGE_BYTES;
            moved.process == process && (moved.address..moved.address + bytes).contains(&address)
        };
        self.moves.iter().filter(of_page).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_summed_by_direction_and_reason() {
        let mut history = History::default();
        history.push(0, 7, 0, 1, Tier::Far, Reason::Placement);
        history.push(5 * NS_PER_S, 7, 0, 512, Tier::Far, Reason::Policy);
        for second in 59..62 {
            history.push(second * NS_PER_S, 7, PAGE_BYTES, 1, Tier::Local, Reason::Accessed);
        }
        let sums = history.last_minute(61 * NS_PER_S);
        let expected = [
            Sum { to: Tier::Local, reason: Reason::Accessed, pages: 3 },
            Sum { to: Tier::Far, reason: Reason::Policy, pages: 512 },
        ];
        assert_eq!(sums, expected, "the first was more than a minute ago");
        assert!(history.last_minute(500 * NS_PER_S).is_empty());
    }

    #[test]
    fn a_page_has_its_own_history() {
        let mut history = History::default();
        history.push(1, 7, 2 << 20, 512, Tier::Far, Reason::Policy);
        history.push(2, 8, 2 << 20, 1, Tier::Far, Reason::Policy);
        assert_eq!(history.of(7, (2 << 20) + 5 * PAGE_BYTES).len(), 1, "within the huge page");
        assert!(history.of(7, 4 << 20).is_empty());
        for at_ns in 0..MOST_MOVES as u64 + 5 {
            history.push(at_ns, 9, 0, 1, Tier::Local, Reason::Accessed);
        }
        assert_eq!(history.of(9, 0).len(), MOST_MOVES);
        assert!(history.of(7, 2 << 20).is_empty(), "forgotten");
    }
}
