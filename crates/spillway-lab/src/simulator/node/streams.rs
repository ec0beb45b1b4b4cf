//! The lines that a core missed last: what follows one of them is a stream that hardware runs ahead of.

use wide::u32x8;

/// Streams that a core's prefetcher follows (Ivy Bridge: 32, one a page; fewer are enough to tell scans from
/// the rest).
const STREAMS: usize = 8;

/// No line: nothing follows it.
const NO_LINE: u32 = u32::MAX - 1;

/// The streams of a core.
pub struct Streams {
    last_lines: [u32; STREAMS],
    oldest: usize,
}

impl Default for Streams {
    fn default() -> Self {
        Self { last_lines: [NO_LINE; STREAMS], oldest: 0 }
    }
}

impl Streams {
    /// Whether a missed line, a number below the cache's `MAX_LINES`, goes on with a stream.
    #[inline]
    pub fn follows(&mut self, line: u64) -> bool {
        let line = line as u32;
        let before = u32x8::splat(line.wrapping_sub(1));
        let matches = u32x8::new(self.last_lines).simd_eq(before).to_bitmask();
        let found = matches != 0;
        let at = if found { matches.trailing_zeros() as usize } else { self.oldest };
        self.last_lines[at % STREAMS] = line;
        self.oldest = (self.oldest + usize::from(!found)) % STREAMS;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_streams_are_followed_and_the_oldest_is_forgotten() {
        let mut streams = Streams::default();
        for stream in 0..9 {
            assert!(!streams.follows(stream * 100));
        }
        assert!((1..9).all(|stream| streams.follows(stream * 100 + 1)));
        assert!(!streams.follows(1), "the ninth took its place");
        assert!(!streams.follows(102 + 1), "a line was left out");
    }
}
