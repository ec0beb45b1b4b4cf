//! How fast a memory node is, by a light probe: a few thousand dependent reads, and one pass over a few MiB.

use std::hint::black_box;
use std::time::Instant;

use rustix::io::{Errno, Result};

use crate::memory::Area;

const PROBE_BYTES: usize = 16 << 20;
const LINE_BYTES: usize = 64;
const WORDS_PER_LINE: usize = LINE_BYTES / 8;
const READS: usize = 20_000;

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

/// Measures a node from the CPU that this runs on; takes about 20 ms and 16 MiB of the node.
///
/// # Errors
/// The node is not there, or has no room.
pub fn measure(node: u32) -> Result<Speed> {
    let area = Area::new(PROBE_BYTES)?;
    bind(&area, node)?;
    let words = area.words(0, PROBE_BYTES / 8);
    let lines = PROBE_BYTES / LINE_BYTES;
    // A full-period generator over a power of two visits every line once, in no order that hardware guesses.
    let next = |line: usize| (line.wrapping_mul(0x5DEE_CE65) + 12_345) % lines;
    for line in 0..lines {
        let target = (next(line) * WORDS_PER_LINE) as u64;
        words[line * WORDS_PER_LINE].store(target, std::sync::atomic::Ordering::Relaxed);
    }
    let read = |at: usize| words[at].load(std::sync::atomic::Ordering::Relaxed);
    let start = Instant::now();
    let mut at = 0;
    for _ in 0..READS {
        at = read(at) as usize;
    }
    black_box(at);
    let latency_ns = start.elapsed().as_nanos() as f64 / READS as f64;
    let start = Instant::now();
    black_box(
        words.iter().fold(0, |sum, word| word.load(std::sync::atomic::Ordering::Relaxed).wrapping_add(sum)),
    );
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
}
