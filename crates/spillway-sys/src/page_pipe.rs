//! References to pages by way of a pipe: what pages hold can be read after they were dropped, with all that
//! was written to them until then.
//!
//! vmsplice(2) puts references into a pipe, no copies. Once the page table names the pages no more and the
//! CPUs' translations are flushed nobody writes to them, and a read(2) of the pipe gives what they hold. One
//! flush does for all pages that are dropped by one call, wherever they lie; UFFDIO_MOVE flushes for each.
//!
//! That holds only while the page table goes on naming the frames that were referred to. A write to a page
//! that is shared since a fork, or to the page of zeros, puts another frame in its place: so pages are made
//! the process's own first ([`make_own_pages`]). What else may do that is [`FrameChanges`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mm::Advice;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::memory;
use crate::page::PAGE_SIZE;
use crate::ranges::{BounceRange, TargetRange};
use crate::raw;

/// References that a pipe takes at a time.
pub const MOST_REFERENCES: usize = 64;
/// Pages that are read out of it at a time: few enough to be in the CPU's cache when they are used.
pub const READ_PAGES: usize = 16;

/// A pipe that takes references to pages of this process, and gives what they hold.
pub struct PagePipe {
    out: OwnedFd,
    into: OwnedFd,
    buffer: Vec<[u8; PAGE_SIZE]>,
    /// Pages in the buffer that nobody has taken.
    read: usize,
}

impl PagePipe {
    /// The two ends of a pipe with room for [`MOST_REFERENCES`]: where it is read, and where it is written.
    ///
    /// # Errors
    /// EMFILE; EPERM where the user has too many pages in pipes (pipe(7)).
    pub fn ends() -> Result<(OwnedFd, OwnedFd)> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&into, MOST_REFERENCES * PAGE_SIZE)?;
        Ok((out, into))
    }

    /// A pipe of these ends, which nobody else uses.
    #[must_use]
    pub fn new(out: OwnedFd, into: OwnedFd) -> Self {
        Self { out, into, buffer: Vec::with_capacity(READ_PAGES), read: 0 }
    }

    /// Takes references to the first of `pages`, single ones. Returns to how many.
    ///
    /// # Errors
    /// EFAULT where not even the first can be read.
    pub fn refer(&mut self, pages: &[TargetRange]) -> Result<usize> {
        const CALL: usize = libc::SYS_vmsplice as usize;
        let mut ranges = [[0_usize; 2]; MOST_REFERENCES];
        let pages = &pages[..pages.len().min(MOST_REFERENCES)];
        pages.iter().zip(&mut ranges).for_each(|(page, range)| *range = [page.start(), PAGE_SIZE]);
        let into = self.into.as_raw_fd() as usize;
        let at = ranges.as_ptr().expose_provenance();
        let flags = libc::SPLICE_F_NONBLOCK as usize;
        // SAFETY: the kernel reads the ranges, which outlive the call, and of the pages it only takes
        // references.
        let taken = unsafe { raw::syscall(CALL, [into, at, pages.len(), flags, 0, 0]) };
        usize::try_from(taken)
            .map(|bytes| bytes / PAGE_SIZE)
            .map_err(|_| Errno::from_raw_os_error(taken.unsigned_abs() as i32))
    }

    /// What the next `count` pages hold, at most [`READ_PAGES`] and no more than were referred to. The same
    /// again until [`Self::pass`].
    ///
    /// # Errors
    /// EIO where the pipe holds less, which is a mistake of the caller's.
    pub fn peek(&mut self, count: usize) -> Result<BounceRange<'_>> {
        let count = count.min(READ_PAGES);
        self.buffer.resize(READ_PAGES, [0; PAGE_SIZE]);
        while self.read < count {
            let bytes = rustix::io::read(&self.out, self.buffer[self.read..count].as_flattened_mut())?;
            if bytes == 0 || !bytes.is_multiple_of(PAGE_SIZE) {
                return Err(Errno::IO);
            }
            self.read += bytes / PAGE_SIZE;
        }
        Ok(BounceRange::new(&self.buffer[..count]))
    }

    /// Goes on behind the pages that were read.
    pub fn pass(&mut self) {
        self.read = 0;
    }

    /// Lets all pages go that are left.
    pub fn clear(&mut self) {
        self.read = 0;
        self.buffer.resize(READ_PAGES, [0; PAGE_SIZE]);
        while rustix::io::read(&self.out, self.buffer.as_flattened_mut()).is_ok_and(|bytes| bytes > 0) {}
    }
}

/// Gives the process pages of its own at single places (`MADV_POPULATE_WRITE`, by process_madvise(2)): where
/// it shares them since a fork, and where the page of zeros is. `process` is this process. Returns how many
/// of the first are its own now.
pub fn make_own_pages(process: impl AsFd, pages: &[TargetRange]) -> usize {
    memory::advise_pages(process, pages, Advice::LinuxPopulateWrite) / PAGE_SIZE
}

/// What of the kernel's own doing may put another frame in a page's place although somebody refers to it.
///
/// Swap: while a page is on its way to a device that wants it to stay as it is (zram), a write to it goes to
/// a copy. Merging of same pages (KSM): between the moment in which a page is made the process's own and that
/// in which it is referred to. Both are the machine's settings, and can be looked up. All else - migration,
/// huge pages, reclaim of what is clean - leaves pages alone that somebody refers to.
pub struct FrameChanges {
    /// `/sys/kernel/mm/ksm/run`; `None` where the kernel cannot merge pages.
    merging: Option<OwnedFd>,
}

impl FrameChanges {
    /// What there is to look up.
    ///
    /// # Errors
    /// It cannot be known.
    pub fn open() -> Result<Option<OwnedFd>> {
        let open = |path| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        match open("/sys/kernel/mm/ksm/run") {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => open("/sys/kernel/mm").map(|_| None),
            Err(error) => Err(error),
        }
    }

    /// By what [`Self::open`] gave.
    #[must_use]
    pub fn new(merging: Option<OwnedFd>) -> Self {
        Self { merging }
    }

    /// Whether there are any.
    #[must_use]
    pub fn may_happen(&self) -> bool {
        rustix::system::sysinfo().totalswap != 0 || self.merging.as_ref().is_some_and(|fd| is_on(fd.as_fd()))
    }
}

fn is_on(setting: BorrowedFd<'_>) -> bool {
    let mut text = [0; 1];
    !rustix::io::pread(setting, &mut text, 0).is_ok_and(|bytes| bytes == 1 && text[0] == b'0')
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;
    use crate::memory::Area;

    const PAGES: usize = MOST_REFERENCES;

    fn pipe() -> PagePipe {
        let (out, into) = PagePipe::ends().unwrap();
        PagePipe::new(out, into)
    }

    /// Every other page of an area, as if it were the program's.
    fn scattered(area: &Area) -> Vec<TargetRange> {
        let start = area.address();
        // SAFETY: of the area only atomics are used.
        (0..PAGES).map(|page| unsafe { TargetRange::new(start + 2 * page * PAGE_SIZE, PAGE_SIZE) }).collect()
    }

    #[test]
    fn all_that_was_written_until_the_drop_is_read_from_the_pipe() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let area = Area::new(2 * PAGES * PAGE_SIZE).unwrap();
        let pages = scattered(&area);
        let mut pipe = pipe();
        let (counts, stop) = (area.words(0, 2 * PAGES * PAGE_SIZE / 8), AtomicBool::new(false));
        let count = |page: usize| &counts[2 * page * PAGE_SIZE / 8];
        std::thread::scope(|scope| {
            // Nothing is subtracted and nothing is put back, so every addition is either in what was read or
            // in what began anew from zero.
            let writer = scope.spawn(|| {
                let mut added = [0_u64; PAGES];
                while !stop.load(Ordering::Relaxed) {
                    for (page, added) in added.iter_mut().enumerate() {
                        count(page).fetch_add(1, Ordering::Relaxed);
                        *added += 1;
                    }
                }
                added
            });
            let mut taken = [0_u64; PAGES];
            for _ in 0..2_000 {
                assert_eq!(make_own_pages(&own, &pages), PAGES);
                assert_eq!(pipe.refer(&pages), Ok(PAGES));
                assert!(memory::discard_pages(&own, &pages));
                for part in taken.chunks_mut(READ_PAGES) {
                    let read = pipe.peek(part.len()).unwrap().contents();
                    for (taken, page) in part.iter_mut().zip(read.chunks(PAGE_SIZE)) {
                        *taken += u64::from_ne_bytes(page[..8].try_into().unwrap());
                    }
                    pipe.pass();
                }
            }
            stop.store(true, Ordering::Relaxed);
            let added = writer.join().unwrap();
            for (page, (taken, added)) in taken.into_iter().zip(added).enumerate() {
                assert_eq!(taken + count(page).load(Ordering::Relaxed), added, "page {page}");
            }
        });
    }

    #[test]
    fn what_is_left_in_a_pipe_can_be_let_go() {
        let area = Area::new(2 * PAGES * PAGE_SIZE).unwrap();
        let pages = scattered(&area);
        let mut pipe = pipe();
        area.words(0, 1)[0].store(1, Ordering::Relaxed);
        assert_eq!(pipe.refer(&pages), Ok(PAGES));
        assert_eq!(pipe.peek(READ_PAGES).unwrap().contents()[0], 1);
        pipe.clear();
        area.words(0, 1)[0].store(2, Ordering::Relaxed);
        assert_eq!(pipe.refer(&pages[..1]), Ok(1));
        assert_eq!(pipe.peek(1).unwrap().contents()[0], 2);
        pipe.pass();
        assert!(pipe.peek(1).is_err(), "nothing is left");
    }

    #[test]
    fn what_cannot_be_read_cannot_be_referred_to() {
        let area = Area::reserve(2 * PAGES * PAGE_SIZE).unwrap();
        area.commit(0, 4 * PAGE_SIZE).unwrap();
        let pages = scattered(&area);
        assert_eq!(pipe().refer(&pages), Ok(2));
        assert_eq!(pipe().refer(&pages[2..]), Err(Errno::FAULT));
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        assert_eq!(make_own_pages(own, &pages), 2);
    }
}
