//! A page on its way out of local memory.

use spillway_store::StoreError;

use crate::pages::address::address_of;
use crate::pages::frames::Frames;

/// A page that must leave local memory.
pub(crate) struct Victim {
    pub(crate) page_number: u64,
    pub(crate) place: Place,
    /// The slot that it had.
    pub(crate) old_slot: Option<u32>,
    /// How it is kept from now on: a slot, or nothing for a page of zeros.
    pub(crate) kept: Result<Option<u32>, StoreError>,
    pub(crate) checksum: u128,
    pub(crate) must_write: bool,
    /// The page was touched before its write began.
    pub(crate) is_cancelled: bool,
}

/// Where a victim lies.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Unmapped, in the Writeback state, in this frame.
    Frame(u32),
    /// Where the program has it; its word is locked. Only [`crate::evict::in_place`] makes such.
    Mapped,
}

impl Victim {
    pub(crate) fn new(page_number: u64, place: Place, old_slot: Option<u32>) -> Self {
        Self {
            page_number,
            place,
            old_slot,
            kept: Ok(None),
            checksum: 0,
            must_write: false,
            is_cancelled: false,
        }
    }

    /// Where it lies, for the page map.
    pub(crate) fn address(&self, frames: &Frames) -> usize {
        match self.place {
            Place::Frame(frame) => frames.range(frame, 1).start(),
            Place::Mapped => address_of(self.page_number),
        }
    }
}
