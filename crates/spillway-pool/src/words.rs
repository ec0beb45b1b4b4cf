//! What one word of the table says.

use crate::MAX_COPIES;

/// How a donor is, as far as the run knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// It answers in time.
    Up,
    /// A read was not answered in time: reads go elsewhere, writes still wait for it.
    Suspect,
    /// It cannot be reached, or left a write without an answer.
    Down,
}

/// A donor's word: its condition, which *life* of it counts, and how often it came up. A donor that comes
/// back without what it held begins a new life; copies of an earlier life are no copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DonorWord {
    /// How the donor is.
    pub condition: Condition,
    /// Its lives are counted from 1.
    pub life: u16,
    /// Times that it came up: ways to it that are older are of no use.
    pub epoch: u32,
}

impl DonorWord {
    /// A donor in its first life.
    pub const FIRST: Self = Self { condition: Condition::Up, life: 1, epoch: 1 };

    pub(crate) fn pack(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.life) << 8 | self.condition as u64
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let condition = match word & 0xFF {
            0 => Condition::Up,
            1 => Condition::Suspect,
            _ => Condition::Down,
        };
        Self { condition, life: (word >> 8) as u16, epoch: (word >> 32) as u32 }
    }
}

/// Where one copy of an extent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which donor, from 0.
    pub donor: u8,
    /// Which life of it.
    pub life: u16,
    /// Which extent of the donor's memory.
    pub extent: u32,
}

impl Place {
    pub(crate) fn pack(place: Option<Self>) -> u64 {
        place.map_or(0, |Self { donor, life, extent }| {
            1 << 63 | u64::from(donor) << 48 | u64::from(life) << 32 | u64::from(extent)
        })
    }

    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let place = Self { donor: (word >> 48) as u8 & 0x7F, life: (word >> 32) as u16, extent: word as u32 };
        (word >> 63 != 0).then_some(place)
    }
}

/// What is known of one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Copy {
    /// There is none, or it has missed a write: never read, never written.
    Absent,
    /// The supervisor copies into it, and nobody else writes there.
    Rebuilding,
    /// It has all but what was written in this moment: written, not read.
    Closing,
    /// It has every write that counts: read and written.
    Whole,
}

impl Copy {
    /// A write counts only once such a copy has it.
    #[must_use]
    pub fn takes_writes(self) -> bool {
        self >= Self::Closing
    }
}

/// Whether an extent has its donors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was written yet. Who writes first proposes places.
    Unplaced,
    /// Its places stand from now on.
    Placed,
    /// All of its copies were lost, and the supervisor makes it a new one.
    Clearing,
}

/// An extent's state: one word, so that what is said of all copies is said at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentState {
    /// Whether it has its donors.
    pub phase: Phase,
    /// Its copies, in the order of their places.
    pub copies: [Copy; MAX_COPIES],
    /// Goes up with each change, so that no state comes again.
    pub change: u64,
}

impl ExtentState {
    const CHANGE_SHIFT: u32 = 16;

    pub(crate) fn pack(self) -> u64 {
        let copies = self.copies.iter().rev().fold(0, |word, copy| word << 2 | *copy as u64);
        (self.change << Self::CHANGE_SHIFT) | copies << 2 | self.phase as u64
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let phase = match word & 3 {
            0 => Phase::Unplaced,
            1 => Phase::Placed,
            _ => Phase::Clearing,
        };
        let copies = std::array::from_fn(|index| match word >> (2 + 2 * index) & 3 {
            0 => Copy::Absent,
            1 => Copy::Rebuilding,
            2 => Copy::Closing,
            _ => Copy::Whole,
        });
        Self { phase, copies, change: word >> Self::CHANGE_SHIFT }
    }

    pub(crate) fn with(mut self, copy: usize, state: Copy) -> Self {
        self.copies[copy] = state;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_say_what_was_put_into_them(
            condition in 0..3_u8, life: u16, epoch: u32, donor in 0..128_u8, extent: u32,
            copies: [u8; MAX_COPIES], phase in 0..3_u8, change in 0..1_u64 << 48,
        ) {
            let condition = [Condition::Up, Condition::Suspect, Condition::Down][usize::from(condition)];
            let word = DonorWord { condition, life, epoch };
            prop_assert_eq!(DonorWord::unpack(word.pack()), word);
            let place = Some(Place { donor, life, extent });
            prop_assert_eq!(Place::unpack(Place::pack(place)), place);
            prop_assert_eq!(Place::unpack(Place::pack(None)), None);
            let all = [Copy::Absent, Copy::Rebuilding, Copy::Closing, Copy::Whole];
            let copies = copies.map(|copy| all[usize::from(copy % 4)]);
            let phase = [Phase::Unplaced, Phase::Placed, Phase::Clearing][usize::from(phase)];
            let state = ExtentState { phase, copies, change };
            prop_assert_eq!(ExtentState::unpack(state.pack()), state);
        }
    }
}
