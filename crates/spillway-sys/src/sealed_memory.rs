//! Memory files that nobody can change any more, mapped to be read.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::own_memory;

/// Neither its bytes nor its length change any more.
const SEALED: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Words of a memory file that is sealed: nobody can write to it, not even who made it.
#[derive(Debug)]
pub struct SealedMemory {
    base: NonNull<u64>,
    words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and nobody writes to it.
unsafe impl Send for SealedMemory {}
// SAFETY: as above.
unsafe impl Sync for SealedMemory {}

impl SealedMemory {
    /// Makes a memory file of `words` and seals it. It is closed on exec.
    ///
    /// # Errors
    /// The kernel's, where it gives no memory.
    pub fn create(name: &str, words: &[u64]) -> Result<OwnedFd> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // SAFETY: any word is eight bytes, and the borrow of `words` outlives this one.
        let mut bytes =
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
        while !bytes.is_empty() {
            let written = rustix::io::write(&fd, bytes)?;
            bytes = &bytes[written..];
        }
        fcntl_add_seals(&fd, SEALED)?;
        Ok(fd)
    }

    /// Maps a file that another process made and sealed.
    ///
    /// # Errors
    /// EINVAL where it is not sealed, or empty; the kernel's, where it cannot be mapped.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        if !fcntl_get_seals(&fd)?.contains(SEALED) {
            return Err(Errno::INVAL);
        }
        let bytes = usize::try_from(fstat(&fd)?.st_size).map_err(|_| Errno::INVAL)?;
        let words = bytes / size_of::<u64>();
        if words == 0 {
            return Err(Errno::INVAL);
        }
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, &fd, 0)? };
        let base = NonNull::<u64>::new(base.cast()).ok_or(Errno::FAULT)?;
        own_memory::note(base.addr().get(), bytes);
        // SAFETY: changes no contents.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontDump) };
        Ok(Self { base, words })
    }

    /// What the file holds.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        // SAFETY: so many words are mapped, on a page boundary, for as long as the value lives; by its seals
        // the file neither changes nor shrinks.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

impl Drop for SealedMemory {
    fn drop(&mut self) {
        let (start, bytes) = (self.base.addr().get(), self.words * size_of::<u64>());
        own_memory::forget(&(start..start + bytes));
        // SAFETY: the mapping was made by `map` and no borrow of it is left. Failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_memory::SharedMemory;

    #[test]
    fn what_was_sealed_is_read_and_cannot_be_written() {
        let words: Vec<u64> = (0..5_000).map(|word| word * 3).collect();
        let fd = SealedMemory::create("test", &words).unwrap();
        let first = SealedMemory::map(&fd).unwrap();
        assert_eq!(first.words(), words);
        assert_eq!(rustix::io::write(&fd, b"change"), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&fd, 8), Err(Errno::PERM));
        assert!(SharedMemory::map(&fd).is_err(), "to be written");
    }

    #[test]
    fn what_is_not_sealed_or_empty_is_refused() {
        let (open, _memory) = SharedMemory::create("test", 4096).unwrap();
        assert_eq!(SealedMemory::map(&open).err(), Some(Errno::INVAL));
        let empty = SealedMemory::create("test", &[]).unwrap();
        assert_eq!(SealedMemory::map(&empty).err(), Some(Errno::INVAL));
    }
}
