//! Memory files mapped into several processes.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::own_memory;
use crate::page::PAGE_SIZE;

/// A memory file, mapped shared for as long as the value lives. Sparse: memory is taken when written.
///
/// Other processes change the contents at any time, so plain references into it are not given out but for
/// [`Self::page`]: words are seen as atomics, bytes are copied in and out. Who may copy when is agreed by the
/// user of the memory.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; access is by atomics and raw copies.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes a memory file of `bytes` (rounded up by the caller to pages) that is closed on exec.
    pub fn create(name: &str, bytes: usize) -> Result<(OwnedFd, Self)> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, bytes as u64)?;
        let memory = Self::map(&fd)?;
        Ok((fd, memory))
    }

    /// Maps the whole of a memory file that another process made.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        let bytes = usize::try_from(fstat(&fd)?.st_size).map_err(|_| Errno::INVAL)?;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )?
        };
        let base = NonNull::<u8>::new(base.cast()).ok_or(Errno::FAULT)?;
        own_memory::note(base.addr().get(), bytes);
        // A core dump would read it whole, and so take memory for what was never written.
        // SAFETY: changes no contents.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontDump) };
        Ok(Self { base, bytes })
    }

    /// Length of the mapping.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of byte `offset`; panics when it is out of range.
    #[must_use]
    pub fn address(&self, offset: usize) -> usize {
        assert!(offset <= self.bytes, "offset {offset} beyond the mapping of {} bytes", self.bytes);
        self.base.as_ptr() as usize + offset
    }

    fn words<T>(&self, offset: usize, count: usize) -> &[T] {
        let end = count.checked_mul(size_of::<T>()).and_then(|n| n.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.bytes), "words beyond the mapping");
        assert!(offset.is_multiple_of(align_of::<T>()), "words out of line");
        // SAFETY: in range and aligned by the assertions; T is an atomic, for which every bit pattern is
        // valid and which other processes may change; the mapping lives as long as the borrow of self.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast::<T>(), count) }
    }

    /// `count` 64-bit words from byte `offset` on. Panics when out of range or out of line.
    #[must_use]
    pub fn atomics_u64(&self, offset: usize, count: usize) -> &[AtomicU64] {
        self.words(offset, count)
    }

    /// `count` 32-bit words from byte `offset` on. Panics when out of range or out of line.
    #[must_use]
    pub fn atomics_u32(&self, offset: usize, count: usize) -> &[AtomicU32] {
        self.words(offset, count)
    }

    /// `count` 16-bit words from byte `offset` on. Panics when out of range or out of line.
    #[must_use]
    pub fn atomics_u16(&self, offset: usize, count: usize) -> &[AtomicU16] {
        self.words(offset, count)
    }

    /// `count` bytes from byte `offset` on. Panics when out of range.
    #[must_use]
    pub fn atomics_u8(&self, offset: usize, count: usize) -> &[AtomicU8] {
        self.words(offset, count)
    }

    /// Copies from the memory. Torn if somebody writes there meanwhile. Panics when out of range.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset.checked_add(to.len()).is_some_and(|end| end <= self.bytes), "read beyond the mapping");
        // SAFETY: in range by the assertion; `to` is exclusive memory elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), to.as_mut_ptr(), to.len()) }
    }

    /// The page from byte `offset` on, for reading. Panics when out of range or out of line.
    ///
    /// # Safety
    /// No process writes there, or gives the memory back, while the reference lives.
    #[must_use]
    pub unsafe fn page(&self, offset: usize) -> &[u8; PAGE_SIZE] {
        assert!(
            offset.checked_add(PAGE_SIZE).is_some_and(|end| end <= self.bytes),
            "page beyond the mapping"
        );
        assert!(offset.is_multiple_of(PAGE_SIZE), "page out of line");
        // SAFETY: in range; the bytes are valid for reads; by the caller's word they do not change.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    /// Copies into the memory. Panics when out of range.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(
            offset.checked_add(from.len()).is_some_and(|end| end <= self.bytes),
            "write beyond the mapping"
        );
        // SAFETY: in range by the assertion; `from` is memory elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr().add(offset), from.len()) }
    }
}

impl SharedMemory {
    /// Gives the memory behind `bytes` from `offset` on back to the machine; it reads as zeros afterwards, in
    /// every process. Goes by the mapping, so it cannot hit another file when somebody closed ours.
    /// Both must be whole pages. Panics when out of range.
    pub fn give_back(&self, offset: usize, bytes: usize) -> Result<()> {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "give back beyond the mapping"
        );
        // SAFETY: in range by the assertion, so the pages are of this mapping, to which no references but
        // to atomics exist; these read zeros from now on.
        unsafe { madvise(self.base.as_ptr().add(offset).cast(), bytes, Advice::LinuxRemove) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let start = self.base.addr().get();
        own_memory::forget(&(start..start + self.bytes));
        // SAFETY: the mapping was made by `map` and no borrow of it is left. Failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Gives the memory behind `bytes` from `offset` on back to the machine; it reads as zeros afterwards.
pub fn punch_hole(fd: impl AsFd, offset: u64, bytes: u64) -> Result<()> {
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn two_mappings_see_one_memory() {
        let (fd, first) = SharedMemory::create("test", 8192).unwrap();
        let second = SharedMemory::map(&fd).unwrap();
        first.write(4096, b"spillway");
        let mut back = [0; 8];
        second.read(4096, &mut back);
        assert_eq!(&back, b"spillway");
        second.atomics_u64(0, 1)[0].store(7, SeqCst);
        assert_eq!(first.atomics_u64(0, 1)[0].load(SeqCst), 7);
        punch_hole(&fd, 4096, 4096).unwrap();
        first.read(4096, &mut back);
        assert_eq!(back, [0; 8]);
    }

    #[test]
    fn memory_is_given_back() {
        let (fd, memory) = SharedMemory::create("test", 8192).unwrap();
        memory.write(0, &[1; 8192]);
        assert_eq!(fstat(&fd).unwrap().st_blocks, 16);
        memory.give_back(0, 4096).unwrap();
        assert_eq!(fstat(&fd).unwrap().st_blocks, 8);
        let mut back = [7; 8192];
        memory.read(0, &mut back);
        assert!(back[..4096] == [0; 4096] && back[4096..] == [1; 4096]);
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn out_of_range_is_caught() {
        let (_fd, memory) = SharedMemory::create("test", 4096).unwrap();
        memory.write(4090, &[0; 8]);
    }
}
