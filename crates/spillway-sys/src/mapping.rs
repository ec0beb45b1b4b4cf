//! Memory to measure: mapped in the way that is asked for, and touched, advised and dropped piece by piece.

use std::fs::File;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::memory::MADV_COLLAPSE;
use crate::page::PAGE_SIZE;
use crate::ranges::TargetRange;

/// A mapping starts at a multiple of this: the size of a huge page.
pub const ALIGNMENT: usize = 2 << 20;

/// What a mapping is made of.
#[derive(Clone, Copy, Debug)]
pub enum Backing<'a> {
    /// Private anonymous memory.
    Anonymous,
    /// Huge pages of so many bytes, from the pool that was reserved for them (`MAP_HUGETLB`).
    Reserved(u64),
    /// A file, shared: on tmpfs or DAX its pages are the memory itself.
    File(&'a File),
}

/// What is asked of the kernel for a range (madvise(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advise {
    /// Huge pages, please (`MADV_HUGEPAGE`).
    Huge,
    /// None (`MADV_NOHUGEPAGE`).
    Small,
    /// Huge pages now, by copying (`MADV_COLLAPSE`, Linux 6.1).
    Collapse,
    /// Not used soon (`MADV_COLD`); on a part of a huge page it splits the page.
    Cold,
}

/// Memory of this process, for reading and writing.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; what is shared is accessed by atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes`, which a multiple of the page size of the backing must be.
    ///
    /// # Errors
    /// ENOMEM where no address space or no reserved huge page is left; EINVAL where the kernel has no such
    /// page size.
    pub fn new(backing: Backing<'_>, bytes: usize) -> Result<Self> {
        let at: *mut std::ffi::c_void = match backing {
            // Aligned by the kernel.
            Backing::Reserved(_) => std::ptr::null_mut(),
            _ => reserve_aligned(bytes)?.as_ptr().cast(),
        };
        let fixed = if at.is_null() { MapFlags::empty() } else { MapFlags::FIXED };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses or over a reservation that nobody else
        // knows.
        let mapped = unsafe {
            match backing {
                Backing::Anonymous => mmap_anonymous(at, bytes, access, fixed | MapFlags::PRIVATE),
                Backing::Reserved(page_bytes) => {
                    let size =
                        MapFlags::from_bits_retain(page_bytes.trailing_zeros() << libc::MAP_HUGE_SHIFT);
                    mmap_anonymous(at, bytes, access, size | MapFlags::PRIVATE | MapFlags::HUGETLB)
                }
                Backing::File(file) => mmap(at, bytes, access, fixed | MapFlags::SHARED, file.as_fd(), 0),
            }
        };
        if mapped.is_err() && !at.is_null() {
            // SAFETY: the reservation is ours and unused.
            let _ = unsafe { munmap(at, bytes) };
        }
        Ok(Self { base: NonNull::new(mapped?.cast()).ok_or(Errno::FAULT)?, bytes })
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes one byte: the page that holds it is there afterwards. Panics beyond the end.
    #[inline]
    pub fn touch(&self, offset: usize) {
        assert!(offset < self.bytes, "touch beyond the mapping");
        // SAFETY: in range; atomics may be shared, and zeroed memory is a valid atomic.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }.store(1, Ordering::Relaxed);
    }

    /// Reads one byte: of private memory that is not there this gives the page of zeros that all share.
    /// Panics beyond the end.
    #[inline]
    pub fn look(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes, "look beyond the mapping");
        // SAFETY: as for `touch`.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }.load(Ordering::Relaxed)
    }

    /// All of it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped for reading and writing, zero or written before, and borrowed from nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// All of it as words.
    pub fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as for `bytes_mut`; the start is aligned to pages.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().cast(), self.bytes / 4) }
    }

    /// Drops a range: its pages are freed, and zero when they are touched again.
    pub fn discard(&self, offset: usize, bytes: usize) -> Result<()> {
        self.advise_by(offset, bytes, Advice::LinuxDontNeed)
    }

    /// Tells the kernel what is wanted for a range.
    pub fn advise(&self, offset: usize, bytes: usize, advise: Advise) -> Result<()> {
        let advice = match advise {
            Advise::Huge => Advice::LinuxHugepage,
            Advise::Small => Advice::LinuxNoHugepage,
            Advise::Cold => Advice::LinuxCold,
            Advise::Collapse => {
                let start = self.range(offset, bytes).expose_provenance();
                // SAFETY: collapsing changes no contents.
                let done = unsafe {
                    crate::raw::syscall(libc::SYS_madvise as usize, [start, bytes, MADV_COLLAPSE, 0, 0, 0])
                };
                return if done == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(-done as i32)) };
            }
        };
        self.advise_by(offset, bytes, advice)
    }

    fn advise_by(&self, offset: usize, bytes: usize, advice: Advice) -> Result<()> {
        // SAFETY: in range; dropping gives zeros, which `touch` does not mind, and a slice borrows the
        // mapping mutably.
        unsafe { madvise(self.range(offset, bytes).cast(), bytes, advice) }
    }

    /// Drops single pages of 4 KiB, with few calls for many.
    pub fn discard_pages(&self, process: impl AsFd, offsets: impl Iterator<Item = usize>) -> bool {
        let page = |offset| {
            let address = self.range(offset, PAGE_SIZE).addr();
            // SAFETY: within the mapping, whose bytes are borrowed mutably where they are seen as a slice.
            unsafe { TargetRange::new(address, PAGE_SIZE) }
        };
        let pages: Vec<TargetRange> = offsets.map(page).collect();
        crate::memory::discard_pages(process, &pages)
    }

    /// Has pages that are not there yet come from one node (mbind(2) with `MPOL_BIND`).
    ///
    /// # Errors
    /// EINVAL where there is no such node or it has no memory.
    pub fn bind(&self, node: u32) -> Result<()> {
        const MPOL_BIND: usize = 2;
        let mut nodes = [0_u64; 16];
        let word = nodes.get_mut(node as usize / 64).ok_or(Errno::INVAL)?;
        *word = 1 << (node % 64);
        let mask = nodes.as_ptr().expose_provenance();
        let bits = nodes.len() * 64 + 1;
        let start = self.base.as_ptr().expose_provenance();
        // SAFETY: sets a policy for our own range; the mask is as long as said and outlives the call.
        let done = unsafe {
            crate::raw::syscall(libc::SYS_mbind as usize, [start, self.bytes, MPOL_BIND, mask, bits, 0])
        };
        if done == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(-done as i32)) }
    }

    fn range(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "range beyond the mapping");
        // SAFETY: in range.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no borrow of it is left. Failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Address space of `bytes` that starts at a multiple of [`ALIGNMENT`] and has no memory.
fn reserve_aligned(bytes: usize) -> Result<NonNull<u8>> {
    let whole = bytes.checked_add(ALIGNMENT).ok_or(Errno::NOMEM)?;
    // SAFETY: a new mapping at an address that the kernel chooses; what is unmapped again is a part of it.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let start: *mut u8 = mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags)?.cast();
        let before = start.align_offset(ALIGNMENT);
        if before > 0 {
            munmap(start.cast(), before)?;
        }
        let kept = bytes.next_multiple_of(PAGE_SIZE);
        if whole > before + kept {
            munmap(start.add(before + kept).cast(), whole - before - kept)?;
        }
        NonNull::new(start.add(before)).ok_or(Errno::FAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_aligned_zero_and_dropped_piece_by_piece() {
        let mut mapping = Mapping::new(Backing::Anonymous, 3 << 20).unwrap();
        assert_eq!(mapping.bytes_mut().as_ptr().addr() % ALIGNMENT, 0);
        mapping.bind(0).unwrap();
        assert!(mapping.bind(5000).is_err());
        mapping.advise(0, 3 << 20, Advise::Small).unwrap();
        (0..mapping.bytes()).step_by(4096).for_each(|offset| mapping.touch(offset));
        mapping.discard(4096, 4096).unwrap();
        assert_eq!((mapping.look(0), mapping.look(4096)), (1, 0));
        let own =
            rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
        assert!(mapping.discard_pages(own.unwrap(), [8192, 16384].into_iter()));
        let first = |page: usize| usize::from(!matches!(page, 1 | 2 | 4));
        assert!(
            mapping
                .bytes_mut()
                .chunks(4096)
                .enumerate()
                .all(|(page, bytes)| bytes[0] as usize == first(page))
        );
    }

    #[test]
    fn files_are_shared_and_sizes_that_the_kernel_has_not_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut mapping = Mapping::new(Backing::File(&file), 8192).unwrap();
        mapping.touch(4096);
        let mut other = Mapping::new(Backing::File(&file), 8192).unwrap();
        assert_eq!((other.bytes_mut()[4096], mapping.words_mut()[1024]), (1, 1));
        assert!(Mapping::new(Backing::Reserved(8192), 8192).is_err());
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn nothing_is_touched_beyond_the_end() {
        Mapping::new(Backing::Anonymous, 4096).unwrap().touch(4096);
    }
}
