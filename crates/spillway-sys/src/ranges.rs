//! Ranges of memory, by whose they are.
//!
//! Soundness rules of everything in this crate that changes or reads memory by address:
//!
//! 1. A safe function takes one of these types, or a value that owns its memory. No safe function takes a
//!    bare address and touches what lies there.
//! 2. A [`TargetRange`] is the program's. No Rust reference points into it, so whatever happens there breaks
//!    none. Only `unsafe` makes one: who calls vouches for that.
//! 3. A [`FrameRange`] is the pager's: it borrows the [`Area`](crate::memory::Area) that it lies in, and is
//!    within it. Nobody reads it through a reference while it is changed: who makes such a reference
//!    (`unsafe`) vouches for that.
//! 4. A [`BounceRange`] can be read for as long as it lives.
//!
//! Not defined here: what the program sees when it uses a page at the same moment. That is the page-state
//! machine's business, and a matter of right data, not of soundness.

use std::marker::PhantomData;

use crate::page::PAGE_SIZE;

/// Whole pages of the target program's memory: none of them is Rust's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRange {
    start: usize,
    bytes: usize,
}

impl TargetRange {
    /// The pages of `bytes` from `start` on, both multiples of [`PAGE_SIZE`].
    ///
    /// # Safety
    /// The memory is the program's, or nobody's: no Rust reference points into it while the range is used,
    /// and the program has asked for what is done there, or cannot tell it from what was there before.
    #[must_use]
    pub const unsafe fn new(start: usize, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn start(self) -> usize {
        self.start
    }

    /// Its length, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Its length, in pages.
    #[must_use]
    pub const fn pages(self) -> usize {
        self.bytes / PAGE_SIZE
    }

    /// The `bytes` from `offset` on. Panics where these are not within the range.
    #[must_use]
    pub fn part(self, offset: usize, bytes: usize) -> Self {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a part beyond its range");
        Self { start: self.start + offset, bytes }
    }
}

/// Whole pages of an area of the pager's own: frames, or pages of zeros that are ready.
#[derive(Clone, Copy, Debug)]
pub struct FrameRange<'a> {
    start: usize,
    bytes: usize,
    area: PhantomData<&'a ()>,
}

impl<'a> FrameRange<'a> {
    /// Made by [`Area::pages`](crate::memory::Area::pages), which has checked it.
    pub(crate) const fn within_area(start: usize, bytes: usize) -> Self {
        Self { start, bytes, area: PhantomData }
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn start(self) -> usize {
        self.start
    }

    /// Its length, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Its length, in pages.
    #[must_use]
    pub const fn pages(self) -> usize {
        self.bytes / PAGE_SIZE
    }

    /// The `bytes` from `offset` on. Panics where these are not within the range.
    #[must_use]
    pub fn part(self, offset: usize, bytes: usize) -> Self {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a part beyond its range");
        Self { start: self.start + offset, bytes, ..self }
    }

    /// What its first page holds.
    ///
    /// # Safety
    /// Nobody moves, writes or discards the page while the reference lives: for a frame that is the Writeback
    /// state.
    #[must_use]
    pub unsafe fn page(self) -> &'a [u8; PAGE_SIZE] {
        assert!(self.bytes >= PAGE_SIZE, "no page in an empty range");
        // SAFETY: within the area, which is mapped for reading while it is borrowed; the rest is the caller's
        // word.
        unsafe { &*std::ptr::with_exposed_provenance(self.start) }
    }

    /// Fills the range, as the kernel does when it moves pages there. For a simulated kernel.
    ///
    /// # Safety
    /// No reference made by [`Self::page`] lives.
    pub unsafe fn write(self, from: &[u8]) {
        assert!(from.len() <= self.bytes, "write beyond the range");
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: within the area by the assertion, and nobody reads it by the caller's word.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }
}

/// Whole pages that the kernel may read from while the range lives: fetched pages, zeros.
#[derive(Clone, Copy, Debug)]
pub struct BounceRange<'a> {
    start: *const u8,
    bytes: usize,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> BounceRange<'a> {
    /// Bytes of Rust's, a whole number of pages.
    #[must_use]
    pub fn new(pages: &'a [[u8; PAGE_SIZE]]) -> Self {
        Self { start: pages.as_ptr().cast(), bytes: size_of_val(pages), memory: PhantomData }
    }

    /// Pages that lie one behind the other, each found readable.
    ///
    /// # Safety
    /// All `bytes` from `start` on can be read, and nobody changes them, while the range lives.
    #[must_use]
    pub unsafe fn from_raw(start: *const [u8; PAGE_SIZE], bytes: usize) -> Self {
        Self { start: start.cast(), bytes, memory: PhantomData }
    }

    /// Address of the first byte.
    #[must_use]
    pub fn start(self) -> usize {
        self.start.expose_provenance()
    }

    /// Its length, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// The bytes that lie there.
    #[must_use]
    pub fn contents(self) -> &'a [u8] {
        // SAFETY: readable and unchanged while the range lives, as who made it has promised.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_within_their_ranges() {
        // SAFETY: the range is never used.
        let range = unsafe { TargetRange::new(1 << 20, 3 * PAGE_SIZE) };
        let part = range.part(PAGE_SIZE, 2 * PAGE_SIZE);
        assert_eq!((part.start(), part.pages()), ((1 << 20) + PAGE_SIZE, 2));
        assert!(std::panic::catch_unwind(|| range.part(PAGE_SIZE, 3 * PAGE_SIZE)).is_err());
        assert!(std::panic::catch_unwind(|| range.part(usize::MAX, 2)).is_err());
    }

    #[test]
    fn a_bounce_range_reads_what_it_was_made_of() {
        let pages = [[3_u8; PAGE_SIZE], [4; PAGE_SIZE]];
        let range = BounceRange::new(&pages);
        assert_eq!((range.bytes(), range.contents()[PAGE_SIZE]), (2 * PAGE_SIZE, 4));
    }
}
