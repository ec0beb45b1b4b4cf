//! What one word of a slab, or of a slot, says.

/// What a slab is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlabPhase {
    /// Nobody has it yet.
    Free,
    /// Somebody gives it its donors.
    Making,
    /// Rows are given out and read.
    Open,
    /// Rows are read; nothing comes to it any more.
    Fenced,
    /// Nothing in it lives; it becomes free when nothing can come late.
    Retired,
}

/// A slab's state: one word, so that what is said of it is said at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabWord {
    /// Goes up each time that it becomes free: what it held before is no more. 30 bits.
    pub generation: u32,
    /// What it is at.
    pub phase: SlabPhase,
    /// Rows that were given out.
    pub claimed: u16,
    /// Of these, rows whose write is over, however it ended.
    pub ended: u16,
    /// A page of it came wrong: what lives in it is to be moved.
    pub is_hurt: bool,
}

/// Bit of a part's word, beside its place: what was sent there may come late, since its donor has not
/// answered it, or not by each connection by which it was sent.
pub(crate) const LATE: u64 = 1 << 62;

/// Bits of each count of rows.
const COUNT_BITS: u32 = 12;
/// Most rows that can be counted.
const MOST_ROWS: u16 = (1 << COUNT_BITS) - 1;
/// Generations are counted in so many bits.
const GENERATION_BITS: u32 = 30;

impl SlabWord {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.generation) << 34
            | u64::from(self.is_hurt) << 33
            | (self.phase as u64) << 24
            | u64::from(self.claimed) << COUNT_BITS
            | u64::from(self.ended)
    }

    pub(crate) fn unpack(word: u64) -> Self {
        let phase = match word >> 24 & 7 {
            0 => SlabPhase::Free,
            1 => SlabPhase::Making,
            2 => SlabPhase::Open,
            3 => SlabPhase::Fenced,
            _ => SlabPhase::Retired,
        };
        Self {
            generation: (word >> 34) as u32,
            phase,
            claimed: (word >> COUNT_BITS) as u16 & MOST_ROWS,
            ended: word as u16 & MOST_ROWS,
            is_hurt: word >> 33 & 1 == 1,
        }
    }

    /// Whether nobody is at a write to it any more. What was sent may come late still: to which parts, each
    /// part's word says ([`LATE`]).
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.ended == self.claimed
    }

    /// The generation after this one.
    #[must_use]
    pub fn next_generation(&self) -> u32 {
        self.generation.wrapping_add(1) & ((1 << GENERATION_BITS) - 1)
    }
}

/// Where a slot's page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    /// In which generation of the slab.
    pub generation: u32,
    /// In which slab, below [`crate::slabs::room::MAX_SLABS`].
    pub slab: u32,
    /// In which of its parts.
    pub part: u8,
    /// In which of its rows.
    pub row: u16,
}

impl Seat {
    pub(crate) fn pack(seat: Option<Self>) -> u64 {
        seat.map_or(0, |Self { generation, slab, part, row }| {
            1 << 63
                | u64::from(generation) << 32
                | u64::from(slab) << 12
                | u64::from(part) << 9
                | u64::from(row)
        })
    }

    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let seat = Self {
            generation: (word >> 32) as u32 & ((1 << GENERATION_BITS) - 1),
            slab: (word >> 12) as u32 & 0xF_FFFF,
            part: (word >> 9) as u8 & 7,
            row: word as u16 & 0x1FF,
        };
        (word >> 63 != 0).then_some(seat)
    }
}

/// The word of a slot whose page is lost, with these donors, a bit each.
pub(crate) fn pack_lost(donors: u32) -> u64 {
    1 << 62 | u64::from(donors)
}

/// The donors with which a slot's page was lost, if it was.
pub(crate) fn unpack_lost(word: u64) -> Option<u32> {
    (word >> 62 == 1).then_some(word as u32)
}

/// Which slab of which generation a stream writes to; both fit one word.
pub(crate) fn pack_stream(slab: u32, generation: u32) -> u64 {
    1 << 63 | u64::from(generation) << 20 | u64::from(slab)
}

pub(crate) fn unpack_stream(word: u64) -> Option<(u32, u32)> {
    let generation = (word >> 20) as u32 & ((1 << GENERATION_BITS) - 1);
    (word >> 63 != 0).then_some((word as u32 & 0xF_FFFF, generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_say_what_was_put_into_them(
            generation in 0..1_u32 << 30, phase in 0..5_u8, claimed in 0..=512_u16, ended in 0..=512_u16,
            is_hurt: bool, slab in 0..1_u32 << 20, part in 0..8_u8, row in 0..512_u16,
        ) {
            let all = [
                SlabPhase::Free, SlabPhase::Making, SlabPhase::Open, SlabPhase::Fenced, SlabPhase::Retired,
            ];
            let phase = all[usize::from(phase)];
            let word = SlabWord { generation, phase, claimed, ended, is_hurt };
            prop_assert_eq!(SlabWord::unpack(word.pack()), word);
            let seat = Some(Seat { generation, slab, part, row });
            prop_assert_eq!(Seat::unpack(Seat::pack(seat)), seat);
            prop_assert_eq!(Seat::unpack(Seat::pack(None)), None);
            prop_assert_eq!(unpack_lost(Seat::pack(seat)).or(unpack_lost(0)), None);
            prop_assert_eq!(unpack_lost(pack_lost(generation)), Some(generation));
            prop_assert_eq!(Seat::unpack(pack_lost(u32::MAX)), None);
            prop_assert_eq!(unpack_stream(pack_stream(slab, generation)), Some((slab, generation)));
        }
    }
}
