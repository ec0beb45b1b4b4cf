//! The memory that a lane and its donor share.
//!
//! | bytes | holds | written by |
//! |---|---|---|
//! | 0 | doorbell: how many requests were submitted | client |
//! | 64 | doorbell: how many of them are completed | donor |
//! | 4096 + 16 i | request i: operation, slot | client |
//! | 4096 + 16 i + 8 | its status | donor |
//! | 8192 + 4096 i | its page | client for a write, donor for a read |
//!
//! Request number n uses entry n modulo [`ENTRIES`]; requests are completed in the order in which they were
//! submitted. An entry belongs to the client until it is submitted and again once it is completed. Either
//! side may find anything there if the other misbehaves: what is read is read once, and checked.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, Result};
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_sys::shared_memory::SharedMemory;

/// Requests that can be under way on one lane.
pub const ENTRIES: u32 = 128;

const SUBMITTED_AT: usize = 0;
const COMPLETED_AT: usize = 64;
const REQUESTS_AT: usize = PAGE_SIZE;
const REQUEST_WORDS: usize = 4;
const PAGES_AT: usize = 2 * PAGE_SIZE;
const RING_BYTES: usize = PAGES_AT + ENTRIES as usize * PAGE_SIZE;
const _: () = assert!(ENTRIES as usize * REQUEST_WORDS * 4 <= PAGE_SIZE);

/// The size can never change, so that neither side can make the other fault.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fetch the slot's page.
    Read,
    /// Store the page in the slot.
    Write,
    /// Forget the slot.
    Discard,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok,
    /// The donor's memory is spent.
    Full,
    /// The request makes no sense to the donor.
    Invalid,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Discard];
}

impl Status {
    const ALL: [Self; 3] = [Self::Ok, Self::Full, Self::Invalid];
}

/// One side's view of the shared memory.
#[derive(Debug)]
pub struct Ring {
    memory: SharedMemory,
}

impl Ring {
    /// Makes the shared memory: the donor's part.
    pub fn create() -> Result<(OwnedFd, Self)> {
        let fd = memfd_create("spillway-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, RING_BYTES as u64)?;
        fcntl_add_seals(&fd, SEALS)?;
        let memory = SharedMemory::map(&fd)?;
        Ok((fd, Self { memory }))
    }

    /// Maps what the donor made. `EINVAL` where its size is another, or might change.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        let sealed = fcntl_get_seals(&fd)?.contains(SEALS);
        if !sealed || fstat(&fd)?.st_size != RING_BYTES as i64 {
            return Err(Errno::INVAL);
        }
        Ok(Self { memory: SharedMemory::map(fd)? })
    }

    /// The doorbell of submitted requests.
    #[must_use]
    pub fn submitted(&self) -> &AtomicU32 {
        &self.memory.atomics_u32(SUBMITTED_AT, 1)[0]
    }

    /// The doorbell of completed requests.
    #[must_use]
    pub fn completed(&self) -> &AtomicU32 {
        &self.memory.atomics_u32(COMPLETED_AT, 1)[0]
    }

    fn words(&self, number: u32) -> &[AtomicU32] {
        let entry = (number % ENTRIES) as usize;
        self.memory.atomics_u32(REQUESTS_AT + entry * REQUEST_WORDS * 4, REQUEST_WORDS)
    }

    fn page_at(number: u32) -> usize {
        PAGES_AT + (number % ENTRIES) as usize * PAGE_SIZE
    }

    /// Writes down a request. It counts once the doorbell is rung.
    pub fn put_request(&self, number: u32, operation: Operation, slot: u32) {
        let words = self.words(number);
        words[0].store(operation as u32, Ordering::Relaxed);
        words[1].store(slot, Ordering::Relaxed);
    }

    /// A submitted request; `None` for the operation where it is none.
    #[must_use]
    pub fn request(&self, number: u32) -> (Option<Operation>, u32) {
        let words = self.words(number);
        let operation = Operation::ALL.get(words[0].load(Ordering::Relaxed) as usize).copied();
        (operation, words[1].load(Ordering::Relaxed))
    }

    /// Writes down how a request ended. It counts once the doorbell is rung.
    pub fn put_status(&self, number: u32, status: Status) {
        self.words(number)[2].store(status as u32, Ordering::Relaxed);
    }

    /// How a completed request ended; `Invalid` also for what is no status.
    #[must_use]
    pub fn status(&self, number: u32) -> Status {
        let status = self.words(number)[2].load(Ordering::Relaxed) as usize;
        Status::ALL.get(status).copied().unwrap_or(Status::Invalid)
    }

    /// Copies a request's page into the ring.
    pub fn write_page(&self, number: u32, page: &Page) {
        self.memory.write(Self::page_at(number), page);
    }

    /// Copies a request's page out of the ring.
    pub fn read_page(&self, number: u32, page: &mut Page) {
        self.memory.read(Self::page_at(number), page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_requests_pages_and_statuses() {
        let (fd, donor) = Ring::create().unwrap();
        let client = Ring::map(&fd).unwrap();
        let number = ENTRIES + 5; // entry 5, second time around
        client.put_request(number, Operation::Write, 77);
        client.write_page(number, &[9; PAGE_SIZE]);
        assert_eq!(donor.request(5), (Some(Operation::Write), 77));
        let mut page = [0; PAGE_SIZE];
        donor.read_page(5, &mut page);
        assert_eq!(page, [9; PAGE_SIZE]);
        donor.put_status(5, Status::Full);
        assert_eq!(client.status(number), Status::Full);
    }

    #[test]
    fn nonsense_is_recognised() {
        let (_fd, ring) = Ring::create().unwrap();
        ring.words(0)[0].store(3, Ordering::Relaxed);
        ring.words(0)[2].store(u32::MAX, Ordering::Relaxed);
        assert_eq!(ring.request(0).0, None);
        assert_eq!(ring.status(0), Status::Invalid);
    }

    #[test]
    fn the_size_cannot_change_and_other_files_are_refused() {
        let (fd, _ring) = Ring::create().unwrap();
        assert_eq!(ftruncate(&fd, 0), Err(Errno::PERM));
        let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&other, RING_BYTES as u64).unwrap();
        assert_eq!(Ring::map(&other).unwrap_err(), Errno::INVAL);
    }
}
