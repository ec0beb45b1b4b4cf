//! How fast a memory node is: once, by a few thousand dependent reads and one pass over a few MiB
//! ([`measure`]); again and again, by a few reads that no cache answers ([`Probe`]).

use std::arch::x86_64::{_mm_clflush, _mm_mfence};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::io::{Errno, Result};

use crate::memory::Area;
use crate::migration::nodes_of;
use crate::page::PAGE_SIZE;

const PROBE_BYTES: usize = 16 << 20;
const LINE_BYTES: usize = 64;
const WORDS_PER_LINE: usize = LINE_BYTES / 8;
const READS: usize = 20_000;
/// Memory of a [`Probe`]: as many pages as the smallest first-level TLB translates.
const KEPT_BYTES: usize = 64 * PAGE_SIZE;
/// Reads of one measurement of a [`Probe`]: long enough for a clock, short enough to be seldom interrupted.
const PROBE_READS: usize = 16;

const POLICY_BIND: i32 = 2;
/// Bits of the node mask that is passed.
const MASK_BITS: usize = 1024;

/// What was measured of a node's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// A read that depends on the one before, in nanoseconds.
    pub latency_ns: f64,
    /// Reading on and on by one thread.
    pub bytes_per_s: f64,
}

/// Has the pages of an area come from a node.
fn bind(area: &Area, node: u32) -> Result<()> {
    let mut mask = [0_u64; MASK_BITS / 64];
    *mask.get_mut(node as usize / 64).ok_or(Errno::NODEV)? |= 1 << (node % 64);
    // SAFETY: the area is ours and holds nothing yet; the mask lives through the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            area.address(),
            area.bytes(),
            POLICY_BIND,
            mask.as_ptr(),
            MASK_BITS + 1,
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// The line after one of `lines`, a power of two: a full-period generator visits every line once, in no order
/// that hardware guesses.
fn line_after(line: usize, lines: usize) -> usize {
    (line.wrapping_mul(0x5DEE_CE65) + 12_345) % lines
}

/// Writes into each line where the next one begins.
fn chain(words: &[AtomicU64]) {
    let lines = words.len() / WORDS_PER_LINE;
    for line in 0..lines {
        let target = (line_after(line, lines) * WORDS_PER_LINE) as u64;
        words[line * WORDS_PER_LINE].store(target, Ordering::Relaxed);
    }
}

/// A little memory of a node, of which a few lines are read now and then.
#[derive(Debug)]
pub struct Probe {
    area: Area,
    /// The word that is read next.
    at: usize,
}

impl Probe {
    /// Takes 256 KiB of a node, for as long as it lives.
    ///
    /// # Errors
    /// The node is not there, or the memory does not lie there: EXDEV.
    pub fn new(node: u32) -> Result<Self> {
        let area = Area::new(KEPT_BYTES)?;
        bind(&area, node)?;
        chain(area.words(0, KEPT_BYTES / 8));
        let pages = (0..KEPT_BYTES / PAGE_SIZE).map(|page| (area.address() + page * PAGE_SIZE) as u64);
        let lie_there = nodes_of(std::process::id(), &pages.collect::<Vec<_>>())?;
        if lie_there.iter().any(|found| *found != Ok(node)) {
            return Err(Errno::XDEV);
        }
        Ok(Self { area, at: 0 })
    }

    /// How long one read took, in nanoseconds: of a few that depend on each other, none of them answered by a
    /// cache. Takes some microseconds.
    pub fn latency_ns(&mut self) -> f64 {
        let words = self.area.words(0, KEPT_BYTES / 8);
        let lines = words.len() / WORDS_PER_LINE;
        let mut line = self.at / WORDS_PER_LINE;
        for _ in 0..PROBE_READS {
            // SAFETY: within our own mapping; its content stays as it is.
            unsafe { _mm_clflush(words[line * WORDS_PER_LINE].as_ptr().cast()) };
            line = line_after(line, lines);
        }
        // SAFETY: no operands; reads after it do not begin before the lines are out of the caches.
        unsafe { _mm_mfence() };
        let start = Instant::now();
        for _ in 0..PROBE_READS {
            self.at = words[self.at].load(Ordering::Relaxed) as usize;
        }
        black_box(self.at);
        start.elapsed().as_nanos() as f64 / PROBE_READS as f64
    }
}

/// Measures a node from the CPU that this runs on; takes about 20 ms and 16 MiB of the node.
///
/// # Errors
/// The node is not there, or has no room.
pub fn measure(node: u32) -> Result<Speed> {
    let area = Area::new(PROBE_BYTES)?;
    bind(&area, node)?;
    let words = area.words(0, PROBE_BYTES / 8);
    chain(words);
    let read = |at: usize| words[at].load(Ordering::Relaxed);
    let start = Instant::now();
    let mut at = 0;
    for _ in 0..READS {
        at = read(at) as usize;
    }
    black_box(at);
    let latency_ns = start.elapsed().as_nanos() as f64 / READS as f64;
    let start = Instant::now();
    black_box(words.iter().fold(0, |sum, word| word.load(Ordering::Relaxed).wrapping_add(sum)));
    let bytes_per_s = PROBE_BYTES as f64 / start.elapsed().as_secs_f64();
    Ok(Speed { latency_ns, bytes_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_speed_and_one_that_is_not_there_has_none() {
        let speed = measure(0).unwrap();
        assert!(speed.latency_ns > 1.0 && speed.bytes_per_s > 1e6, "{speed:?}");
        assert!(measure(1000).is_err() && measure(1 << 20).is_err());
    }

    #[test]
    fn a_probe_reads_memory_and_no_cache_and_comes_by_every_line() {
        let mut probe = Probe::new(0).unwrap();
        let mut probes: Vec<f64> = (0..200).map(|_| probe.latency_ns()).collect();
        probes.sort_by(f64::total_cmp);
        // A first-level cache answers in less than 3 ns; emulators answer in no time of their own.
        assert!(probes[100] > 1.0 && probes[100] < 1e6, "{}", probes[100]);
        let lines = KEPT_BYTES / LINE_BYTES;
        let mut seen = vec![false; lines];
        let mut line = 0;
        while !std::mem::replace(&mut seen[line], true) {
            line = line_after(line, lines);
        }
        assert!(line == 0 && seen.iter().all(|seen| *seen), "the chain has a shorter circle");
        assert!(Probe::new(1000).is_err() && Probe::new(1 << 20).is_err());
    }
}
