//! Batches of file I/O by io_uring. Of vectored transfers all of a batch are in flight together, and none is
//! when the call returns. Reads can be posted too: they come into memory that the ring owns.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use io_uring::types::Fixed;
use io_uring::{IoUring, opcode, squeue};
use rustix::io::{Errno, Result};
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};

use crate::page::PAGE_SIZE;

/// Buffers of one transfer are limited by the kernel (UIO_MAXIOV).
pub const MAX_BUFFERS: usize = 1024;

/// Times that a busy kernel is asked again before the ring is given up.
const BUSY_TRIES: u32 = 1000;

/// One vectored read or write, at one place of the file.
pub struct Transfer<'a, B> {
    /// Byte of the file where it begins.
    pub offset: u64,
    /// The memory, in the order of the file; at most [`MAX_BUFFERS`].
    pub buffers: &'a mut [B],
    /// Bytes transferred, which may be fewer than asked for. Set by [`Ring::run`].
    pub outcome: Result<usize>,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::io::IoSlice<'_> {}
    impl Sealed for std::io::IoSliceMut<'_> {}
}

/// Memory to write from ([`IoSlice`]) or to read into ([`IoSliceMut`]).
pub trait Buffer: sealed::Sealed {
    /// The request to the kernel.
    #[doc(hidden)]
    fn entry(transfer: &mut Transfer<'_, Self>) -> squeue::Entry
    where
        Self: Sized;
}

impl Buffer for IoSlice<'_> {
    fn entry(transfer: &mut Transfer<'_, Self>) -> squeue::Entry {
        // IoSlice is an iovec, says its documentation.
        opcode::Writev::new(Fixed(0), transfer.buffers.as_ptr().cast(), transfer.buffers.len() as u32)
            .offset(transfer.offset)
            .build()
    }
}

impl Buffer for IoSliceMut<'_> {
    fn entry(transfer: &mut Transfer<'_, Self>) -> squeue::Entry {
        opcode::Readv::new(Fixed(0), transfer.buffers.as_mut_ptr().cast(), transfer.buffers.len() as u32)
            .offset(transfer.offset)
            .build()
    }
}

/// An io_uring for one open file. The file stays open in the ring, whatever becomes of its descriptor.
pub struct Ring {
    uring: IoUring,
    entries: usize,
    broken: bool,
    posted: PostedReads,
}

/// A page where direct I/O wants it.
#[derive(Clone)]
#[repr(align(4096))]
struct AlignedPage([u8; PAGE_SIZE]);

/// Tells completions of posted reads from those of a batch.
const IS_POSTED: u64 = 1 << 63;

/// Reads under way, or complete. While `in_flight` is not 0, the kernel may write to the pages.
#[derive(Default)]
struct PostedReads {
    pages: Vec<AlignedPage>,
    /// Of each read, its first page, how many pages it has, and what became of it.
    reads: Vec<(usize, usize, Result<usize>)>,
    in_flight: usize,
}

impl Ring {
    /// Makes a ring that keeps up to `entries` transfers of `file` in flight. Fails where the kernel has no
    /// io_uring, or does not permit it.
    pub fn open(entries: u32, file: impl AsFd) -> Result<Self> {
        let build = |cooperative: bool| {
            let mut builder = IoUring::builder();
            if cooperative {
                // No interrupt of this thread at a completion: it waits anyhow. Linux 5.19.
                builder.setup_coop_taskrun();
            }
            builder.build(entries)
        };
        let uring = build(true).or_else(|_| build(false)).map_err(|error| errno_of(&error))?;
        uring.submitter().register_files(&[file.as_fd().as_raw_fd()]).map_err(|error| errno_of(&error))?;
        let entries = uring.params().sq_entries() as usize;
        Ok(Self { uring, entries, broken: false, posted: PostedReads::default() })
    }

    /// Begins to read so many pages of 4 KiB from each place (bytes) of the file, and returns at once. What
    /// was posted before is forgotten. An error means that nothing is posted.
    pub fn post_reads(&mut self, places: &[(u64, usize)]) -> Result<()> {
        self.await_posted()?;
        if self.broken || places.len() > self.entries {
            return Err(Errno::INVAL);
        }
        let PostedReads { pages, reads, .. } = &mut self.posted;
        let wanted = places.iter().map(|(_, pages)| pages).sum();
        if pages.len() < wanted {
            pages.resize(wanted, AlignedPage([0; PAGE_SIZE]));
        }
        reads.clear();
        let mut first = 0;
        for (number, &(offset, count)) in places.iter().enumerate() {
            let memory = &mut pages[first..first + count];
            let entry = opcode::Read::new(
                Fixed(0),
                memory.as_mut_ptr().cast(),
                u32::try_from(count * PAGE_SIZE).map_err(|_| Errno::INVAL)?,
            );
            let entry = entry.offset(offset).build().user_data(IS_POSTED | number as u64);
            // SAFETY: the pages are the ring's own. They are neither touched nor moved until nothing is in
            // flight, and outlive the ring where something still is when it is dropped.
            if unsafe { self.uring.submission().push(&entry) }.is_err() {
                self.broken = true; // Cannot be, as in `run_together`. What is queued is never submitted.
                return Err(Errno::BUSY);
            }
            reads.push((first, count, Err(Errno::INPROGRESS)));
            first += count;
        }
        self.posted.in_flight = places.len();
        // What the kernel does not take now, it takes when it is waited for.
        let _ = self.uring.submit();
        Ok(())
    }

    /// Waits for what was posted, and hands over each page that has come whole, in their order; the error of
    /// the read that the others were part of.
    pub fn complete_reads(&mut self) -> Result<Vec<Result<&[u8; PAGE_SIZE]>>> {
        self.await_posted()?;
        let PostedReads { pages, reads, .. } = &self.posted;
        let whole = |&(first, count, outcome): &(usize, usize, Result<usize>)| {
            pages[first..first + count].iter().enumerate().map(move |(index, page)| match outcome {
                Ok(bytes) if bytes >= (index + 1) * PAGE_SIZE => Ok(&page.0),
                Ok(_) => Err(Errno::IO),
                Err(errno) => Err(errno),
            })
        };
        Ok(reads.iter().flat_map(whole).collect())
    }

    /// Returns when no posted read is in flight. On an error some may be: the ring is broken then.
    fn await_posted(&mut self) -> Result<()> {
        let mut busy = 0;
        while self.posted.in_flight > 0 {
            if self.broken {
                return Err(Errno::INVAL);
            }
            let outcome = self.uring.submit_and_wait(self.posted.in_flight);
            self.reap::<IoSlice<'_>>(&mut []);
            match outcome.map_err(|error| errno_of(&error)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) if busy < BUSY_TRIES => {
                    busy += 1;
                    pause();
                }
                Err(errno) => {
                    self.broken = true;
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Runs all transfers and waits for them. An error means that the ring is of no use any more and the
    /// outcomes say nothing; the transfers can be made anew by other means.
    pub fn run<B: Buffer>(&mut self, transfers: &mut [Transfer<'_, B>]) -> Result<()> {
        // One kind at a time: the queue has room for either.
        self.await_posted()?;
        transfers.chunks_mut(self.entries).try_for_each(|chunk| self.run_together(chunk))
    }

    fn run_together<B: Buffer>(&mut self, transfers: &mut [Transfer<'_, B>]) -> Result<()> {
        if self.broken || transfers.iter().any(|transfer| transfer.buffers.len() > MAX_BUFFERS) {
            return Err(Errno::INVAL);
        }
        for (number, transfer) in transfers.iter_mut().enumerate() {
            transfer.outcome = Err(Errno::INPROGRESS);
            let entry = B::entry(transfer).user_data(number as u64);
            // SAFETY: the buffers, and the array that names them, are borrowed (for reads: exclusively) until
            // this function returns, and it returns only when every request that the kernel took is complete.
            // What it did not take is never submitted later: the ring is then broken.
            if unsafe { self.uring.submission().push(&entry) }.is_err() {
                self.broken = true; // Cannot be: the queue was empty and has room for a chunk.
                return Err(Errno::BUSY);
            }
        }
        let submitted = self.submit_and_wait(transfers);
        self.broken |= submitted.is_err();
        submitted
    }

    /// Returns when nothing is in flight. An error means that some transfers never were.
    fn submit_and_wait<B>(&mut self, transfers: &mut [Transfer<'_, B>]) -> Result<()> {
        let mut complete = 0;
        let mut busy = 0;
        while complete < transfers.len() {
            let outcome = self.uring.submit_and_wait(transfers.len() - complete);
            complete += self.reap(transfers);
            match outcome.map_err(|error| errno_of(&error)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) if busy < BUSY_TRIES => {
                    busy += 1;
                    pause();
                }
                Err(errno) => {
                    let never_submitted = self.uring.submission().len();
                    while complete + never_submitted < transfers.len() {
                        pause();
                        complete += self.reap(transfers);
                    }
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Takes what is complete; returns how many.
    fn reap<B>(&mut self, transfers: &mut [Transfer<'_, B>]) -> usize {
        let mut count = 0;
        for completion in self.uring.completion() {
            let (result, number) = (completion.result(), completion.user_data());
            let outcome =
                usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.wrapping_neg()));
            if number & IS_POSTED != 0 {
                self.posted.in_flight = self.posted.in_flight.saturating_sub(1);
                if let Some(read) = self.posted.reads.get_mut((number & !IS_POSTED) as usize) {
                    read.2 = outcome;
                }
                continue;
            }
            count += 1;
            if let Some(transfer) = transfers.get_mut(number as usize) {
                transfer.outcome = outcome;
            }
        }
        count
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.await_posted().is_err() {
            // The kernel may still write there.
            std::mem::forget(std::mem::take(&mut self.posted.pages));
        }
        // The kernel takes a ring apart at its leisure; the file should be free at once.
        let _ = self.uring.submitter().unregister_files();
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A millisecond, in which the kernel can finish what it has begun.
fn pause() {
    let pause = Timespec::try_from(Duration::from_millis(1)).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
    let _: NanosleepRelativeResult = nanosleep(&pause);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn transfer<B>(offset: u64, buffers: &mut [B]) -> Transfer<'_, B> {
        Transfer { offset, buffers, outcome: Ok(0) }
    }

    #[test]
    fn a_batch_larger_than_the_ring_goes_through() {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let mut ring = Ring::open(4, &file).unwrap();
        let data: Vec<[u8; 100]> = (0..50).map(|number| [number; 100]).collect();
        let mut slices: Vec<_> =
            data.iter().map(|bytes| [IoSlice::new(&bytes[..30]), IoSlice::new(&bytes[30..])]).collect();
        let mut writes: Vec<_> =
            slices.iter_mut().zip(0..).map(|(pair, number)| transfer(number * 100, &mut pair[..])).collect();
        ring.run(&mut writes).unwrap();
        assert!(writes.iter().all(|write| write.outcome == Ok(100)));

        let mut back = [[0; 5000], [7; 5000]];
        let mut slices: Vec<_> = back.iter_mut().map(|bytes| [IoSliceMut::new(bytes)]).collect();
        let mut reads: Vec<_> =
            slices.iter_mut().zip(0..).map(|(one, number)| transfer(number * 4000, &mut one[..])).collect();
        ring.run(&mut reads).unwrap();
        assert_eq!([reads[0].outcome, reads[1].outcome], [Ok(5000), Ok(1000)]);
        assert_eq!(back[0], *data.as_flattened());
        assert_eq!(back[1][..1000], data.as_flattened()[4000..]);
        assert_eq!(back[1][1000..], [7; 4000]);
    }

    #[test]
    fn posted_reads_come_beside_other_transfers() {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let pages: Vec<[u8; 4096]> = (1..=4).map(|number| [number; 4096]).collect();
        file.write_all_at(pages.as_flattened(), 0).unwrap();
        let mut ring = Ring::open(4, &file).unwrap();
        ring.post_reads(&[(2 * 4096, 2), (0, 1)]).unwrap();
        let mut slice = [IoSlice::new(&[9; 4096])];
        ring.run(&mut [transfer(4096, &mut slice)]).unwrap();
        let back = ring.complete_reads().unwrap();
        assert_eq!(back, [Ok(&pages[2]), Ok(&pages[3]), Ok(&pages[0])]);
        // The file ends within the second page: that one does not come.
        file.set_len(3 * 4096 + 1).unwrap();
        ring.post_reads(&[(4096, 1)]).unwrap();
        ring.post_reads(&[(2 * 4096, 2)]).unwrap();
        assert_eq!(ring.complete_reads().unwrap(), [Ok(&pages[2]), Err(Errno::IO)]);
        assert_eq!(ring.post_reads(&[(0, 1); 5]), Err(Errno::INVAL), "more than the ring has room for");
        assert_eq!(ring.complete_reads().unwrap().len(), 2, "and what was there is there still");
        ring.post_reads(&[(0, 1)]).unwrap();
    }

    #[test]
    fn errors_are_those_of_their_transfer() {
        let path = std::env::current_exe().unwrap();
        let file = File::open(path).unwrap();
        let mut ring = Ring::open(4, &file).unwrap();
        let mut page = [IoSlice::new(&[1; 10])];
        let mut writes = [transfer(0, &mut page)];
        ring.run(&mut writes).unwrap();
        assert_eq!(writes[0].outcome, Err(Errno::BADF), "the file is open for reading only");
    }

    #[test]
    fn the_file_stays_open_in_the_ring() {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(b"far", 0).unwrap();
        let mut ring = Ring::open(4, &file).unwrap();
        drop(file);
        let mut bytes = [0; 3];
        let mut slices = [IoSliceMut::new(&mut bytes)];
        ring.run(&mut [transfer(0, &mut slices)]).unwrap();
        assert_eq!(&bytes, b"far");
    }
}
