//! How a process's fault trace gets out of it: a ring of bytes in memory that the supervisor has mapped too.
//!
//! Who serves faults appends, under the lock of the queues: a copy, no call to the kernel and no allocation.
//! The supervisor takes the bytes out, from another process, so whatever ends the program loses none of them.
//! While the ring is full the writer waits for the supervisor, which needs no lock of the program's. Where
//! that does not help the trace ends, and says so: one with a hole could not be replayed.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Result;
use spillway_policy::fault_trace::Sink;
use spillway_sys::shared_memory::SharedMemory;

use crate::kernel::Kernel;

/// Bytes of the ring: some seconds of the fastest faults.
const BYTES: usize = 16 << 20;
/// Bytes that were ever written.
const WRITTEN: usize = 0;
/// Bytes that were ever taken out.
const TAKEN: usize = 64;
/// How the trace ends, or [`OPEN`].
const STATE: usize = 128;
const DATA: usize = 4096;

const OPEN: u64 = 0;
/// The reader wants no more.
const CLOSED: u64 = 1;
/// The writer had no room.
const OVERFLOWN: u64 = 2;

const PAUSE: Duration = Duration::from_micros(200);
/// Pauses without any room before the trace is given up: some two seconds.
const PATIENCE: u32 = 10_000;

/// A ring with one writer, which holds a lock, and one reader, in two processes.
pub struct TraceRing(SharedMemory);

impl TraceRing {
    /// An empty ring, and the descriptor by which the other process maps it.
    ///
    /// # Errors
    /// ENOMEM where the machine gives no memory.
    pub fn create() -> Result<(OwnedFd, Self)> {
        let (fd, memory) = SharedMemory::create("spillway-fault-trace", DATA + BYTES)?;
        Ok((fd, Self(memory)))
    }

    /// The ring of a descriptor.
    ///
    /// # Errors
    /// The kernel's, where it cannot be mapped.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        let memory = SharedMemory::map(fd)?;
        if memory.bytes() < DATA + BYTES {
            return Err(rustix::io::Errno::INVAL);
        }
        Ok(Self(memory))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.0.atomics_u64(offset, 1)[0]
    }

    /// Appends what there is to `to`. Returns how much that was.
    pub fn take(&self, to: &mut Vec<u8>) -> usize {
        let (written, taken) =
            (self.word(WRITTEN).load(Ordering::Acquire), self.word(TAKEN).load(Ordering::Relaxed));
        // A writer that has gone mad can make the trace nonsense, and no more.
        let count = written.wrapping_sub(taken).min(BYTES as u64) as usize;
        let before = to.len();
        to.resize(before + count, 0);
        let at = taken as usize % BYTES;
        let (first, second) = to[before..].split_at_mut(count.min(BYTES - at));
        self.0.read(DATA + at, first);
        self.0.read(DATA, second);
        self.word(TAKEN).store(taken + count as u64, Ordering::Release);
        count
    }

    /// No more will be taken out: the writer stops.
    pub fn close(&self) {
        let _ = self.word(STATE).compare_exchange(OPEN, CLOSED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The writer gave up for want of room: the trace is shorter than the run.
    #[must_use]
    pub fn has_overflown(&self) -> bool {
        self.word(STATE).load(Ordering::Acquire) == OVERFLOWN
    }

    /// Appends a part of `bytes`, as much as there is room for. Returns how much.
    fn append(&self, bytes: &[u8]) -> usize {
        let (written, taken) =
            (self.word(WRITTEN).load(Ordering::Relaxed), self.word(TAKEN).load(Ordering::Acquire));
        let room = BYTES.saturating_sub(written.wrapping_sub(taken) as usize);
        let bytes = &bytes[..bytes.len().min(room)];
        let at = written as usize % BYTES;
        let (first, second) = bytes.split_at(bytes.len().min(BYTES - at));
        self.0.write(DATA + at, first);
        self.0.write(DATA, second);
        self.word(WRITTEN).store(written + bytes.len() as u64, Ordering::Release);
        bytes.len()
    }
}

/// The end of a ring that a pager writes into.
pub struct RingSink<K> {
    ring: TraceRing,
    kernel: PhantomData<fn() -> K>,
}

impl<K> RingSink<K> {
    /// The writer's end of `ring`.
    #[must_use]
    pub fn new(ring: TraceRing) -> Self {
        Self { ring, kernel: PhantomData }
    }
}

impl<K: Kernel> Sink for RingSink<K> {
    fn put(&mut self, mut bytes: &[u8]) -> bool {
        let mut pauses = 0;
        loop {
            if self.ring.word(STATE).load(Ordering::Relaxed) != OPEN {
                return false;
            }
            let count = self.ring.append(bytes);
            bytes = &bytes[count..];
            if bytes.is_empty() {
                return true;
            }
            pauses = if count > 0 { 0 } else { pauses + 1 };
            if pauses > PATIENCE {
                self.ring.word(STATE).store(OVERFLOWN, Ordering::Release);
                return false;
            }
            K::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::live::LiveKernel;

    fn ring() -> (RingSink<LiveKernel>, TraceRing) {
        let (fd, reader) = TraceRing::create().unwrap();
        (RingSink::new(TraceRing::map(fd).unwrap()), reader)
    }

    #[test]
    fn bytes_come_out_as_they_went_in_also_past_the_end() {
        let (mut writer, reader) = ring();
        let total = 3 * BYTES + 12_345;
        let byte = |at: usize| (at * 31 / 8) as u8;
        let sent = std::thread::spawn(move || {
            let mut at = 0;
            while at < total {
                let end = (at + 1 + at % 4999).min(total);
                assert!(writer.put(&(at..end).map(byte).collect::<Vec<_>>()));
                at = end;
            }
        });
        let mut back = Vec::new();
        while back.len() < total {
            reader.take(&mut back);
        }
        sent.join().unwrap();
        assert!(back.iter().enumerate().all(|(at, &found)| found == byte(at)));
        assert!(back.len() == total && !reader.has_overflown());
    }

    #[test]
    fn a_full_ring_that_nobody_empties_ends_the_trace() {
        let (mut writer, reader) = ring();
        assert!(writer.put(&vec![1; BYTES]));
        assert!(!writer.put(&[2]) && !writer.put(&[3]));
        let mut back = Vec::new();
        assert_eq!((reader.take(&mut back), reader.has_overflown()), (BYTES, true));
        assert!(!writer.put(&[4]), "one with a hole could not be replayed");
    }

    #[test]
    fn a_reader_that_wants_no_more_stops_the_writer() {
        let (mut writer, reader) = ring();
        assert!(writer.put(&[1]));
        reader.close();
        assert!(!writer.put(&[2]) && !reader.has_overflown());
    }
}
