//! A page on its way out of local memory.

use spillway_core::page::Page;
use spillway_store::StoreError;
use spillway_sys::memory;

use crate::engine::address_of;
use crate::frames::Frames;

/// A page that must leave local memory.
pub(crate) struct Leaving {
    pub(crate) page_number: u64,
    pub(crate) place: Place,
    /// The slot that it had.
    pub(crate) old_slot: Option<u32>,
    /// How it is kept from now on: a slot, or nothing for a page of zeros.
    pub(crate) kept: Result<Option<u32>, StoreError>,
    pub(crate) checksum: u128,
    pub(crate) must_write: bool,
}

/// Where a leaving page lies.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Unmapped, in Writeback.
    Frame(u32),
    /// Where the program has it; its word is locked. Only [`crate::alone`] makes such.
    Mapped,
}

impl Leaving {
    pub(crate) fn new(page_number: u64, place: Place, old_slot: Option<u32>) -> Self {
        Self { page_number, place, old_slot, kept: Ok(None), checksum: 0, must_write: false }
    }

    pub(crate) fn address(&self, frames: &Frames) -> usize {
        match self.place {
            Place::Frame(frame) => frames.address(frame),
            Place::Mapped => address_of(self.page_number),
        }
    }

    /// What it holds. Nothing changes it while it leaves.
    #[allow(unsafe_code)]
    pub(crate) fn contents<'a>(&self, frames: &'a Frames) -> &'a Page {
        match self.place {
            Place::Frame(frame) => frames.page(frame),
            // SAFETY: `alone` sees to it that it can be read and that nobody writes or unmaps it.
            Place::Mapped => unsafe { memory::page_at(address_of(self.page_number)) },
        }
    }
}
