//! A large private reservation of pages: memory is taken page by page as it is written, and given back.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, Result};
use rustix::mm::{
    Advice, MapFlags, MlockFlags, ProtFlags, madvise, mlock_with, mmap_anonymous, munlock, munmap,
};

use crate::page::PAGE_SIZE;

/// Anonymous memory for `pages` pages, of which only those that were written take memory.
///
/// Threads share the arena, so references into it are never given out: bytes are copied in and out. Who may
/// copy which page when is agreed by the user of the arena; a page that one thread writes while another
/// copies it comes out torn.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    pages: u32,
    /// What is written is never swapped.
    is_locked: AtomicBool,
}

// SAFETY: the mapping belongs to the process, not to a thread; access is by raw copies.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves address space for `pages` pages. They are never huge pages, so that one written page takes
    /// one page of memory, and they are left out of core dumps. Fails with `ENOMEM` when the address space or
    /// the kernel's overcommit rule has no room.
    pub fn reserve(pages: u32) -> Result<Self> {
        let bytes = pages as usize * PAGE_SIZE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        let arena = Self { base, pages, is_locked: AtomicBool::new(false) };
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
            // SAFETY: the range is the mapping made above; neither advice changes contents. A kernel without
            // transparent huge pages refuses the first, and needs it not.
            let _ = unsafe { madvise(base.as_ptr().cast(), bytes, advice) };
        }
        Ok(arena)
    }

    /// Has the kernel keep in memory what is written from now on: it is not swapped. Memory is still taken
    /// page by page. Fails where the limit of locked memory is less than the arena, or where the kernel
    /// cannot give locked memory back (before Linux 5.18).
    pub fn lock(&self) -> Result<()> {
        let (base, bytes) = (self.base.as_ptr().cast(), self.pages as usize * PAGE_SIZE);
        // SAFETY: the range is the mapping made by `reserve`; locking changes no contents.
        unsafe { mlock_with(base, bytes, MlockFlags::ONFAULT)? };
        // SAFETY: as in `give_back`, of which this is a trial: nobody has a page yet, or its contents stay
        // what they are, since no byte is given up.
        if let Err(errno) = unsafe { madvise(base, 0, Advice::LinuxDontneedLocked) } {
            // SAFETY: as above.
            let _ = unsafe { munlock(base, bytes) };
            return Err(errno);
        }
        self.is_locked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// How many pages the arena has.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Address of byte `offset` of `page`, of which `bytes` are to be copied; panics when out of range.
    fn at(&self, page: u32, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            page < self.pages && offset <= PAGE_SIZE && bytes <= PAGE_SIZE - offset,
            "beyond page {page} of an arena of {} pages",
            self.pages
        );
        // SAFETY: in range by the assertion.
        unsafe { self.base.as_ptr().add(page as usize * PAGE_SIZE + offset) }
    }

    /// Copies out of a page. Panics when out of range.
    pub fn read(&self, page: u32, offset: usize, to: &mut [u8]) {
        let from = self.at(page, offset, to.len());
        // SAFETY: in range by `at`; `to` is exclusive memory elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Copies into a page. Panics when out of range.
    pub fn write(&self, page: u32, offset: usize, from: &[u8]) {
        let to = self.at(page, offset, from.len());
        // SAFETY: in range by `at`; `from` is memory elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    /// Writes zeros into a page. Panics when out of range.
    pub fn zero(&self, page: u32, offset: usize, bytes: usize) {
        let to = self.at(page, offset, bytes);
        // SAFETY: in range by `at`.
        unsafe { std::ptr::write_bytes(to, 0, bytes) }
    }

    /// Takes memory for `count` pages from `first` on in one call (`MADV_POPULATE_WRITE`), where else each
    /// write would fault. What they hold stays. Panics when out of range; fails where memory is lacking, and
    /// before Linux 5.14.
    pub fn populate(&self, first: u32, count: u32) -> Result<()> {
        self.advise(first, count, Advice::LinuxPopulateWrite)
    }

    /// Gives the memory of `count` pages from `first` on back to the machine; they read as zeros afterwards.
    /// Panics when out of range.
    pub fn give_back(&self, first: u32, count: u32) -> Result<()> {
        let is_locked = self.is_locked.load(Ordering::Relaxed);
        self.advise(first, count, if is_locked { Advice::LinuxDontneedLocked } else { Advice::LinuxDontNeed })
    }

    fn advise(&self, first: u32, count: u32, advice: Advice) -> Result<()> {
        assert!(first.checked_add(count).is_some_and(|end| end <= self.pages), "pages beyond the arena");
        // SAFETY: in range by the assertion; who may use which page is agreed by the arena's user, and no
        // reference into it exists.
        unsafe {
            let start = self.base.as_ptr().add(first as usize * PAGE_SIZE);
            madvise(start.cast(), count as usize * PAGE_SIZE, advice)
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `reserve` and nothing points into it. Failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.pages as usize * PAGE_SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_their_bytes_until_given_back() {
        let arena = Arena::reserve(4).unwrap();
        arena.write(2, 4090, b"abcdef");
        let mut back = [1; 6];
        arena.read(2, 4090, &mut back);
        assert_eq!(&back, b"abcdef");
        arena.zero(2, 4091, 1);
        arena.read(2, 4090, &mut back);
        assert_eq!(&back, b"a\0cdef");
        arena.give_back(1, 2).unwrap();
        arena.read(2, 4090, &mut back);
        assert_eq!(back, [0; 6]);
    }

    #[test]
    fn pages_that_take_memory_keep_what_they_hold() {
        let arena = Arena::reserve(4).unwrap();
        arena.write(1, 0, b"x");
        arena.populate(0, 3).unwrap();
        let mut back = [1; 2];
        (0..2).for_each(|page| arena.read(page, 0, &mut back[page as usize..][..1]));
        assert_eq!(&back, b"\0x");
    }

    #[test]
    fn locked_pages_are_given_back_too() {
        let arena = Arena::reserve(4).unwrap();
        // 16 KiB are within every limit of locked memory that is set.
        arena.lock().unwrap();
        arena.write(1, 0, b"x");
        arena.give_back(0, 4).unwrap();
        let mut back = [1];
        arena.read(1, 0, &mut back);
        assert_eq!(back, [0]);
    }

    #[test]
    #[should_panic(expected = "beyond page 4")]
    fn pages_beyond_the_end_are_caught() {
        Arena::reserve(4).unwrap().write(4, 0, b"x");
    }

    #[test]
    #[should_panic(expected = "beyond page 1")]
    fn bytes_beyond_a_page_are_caught() {
        Arena::reserve(4).unwrap().write(1, 4090, &[0; 7]);
    }
}
