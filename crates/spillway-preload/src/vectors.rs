//! A list of ranges (`struct iovec`) that is worked off in parts.

use std::ops::Range;

use crate::program_memory::read;

/// More than this are refused (`UIO_MAXIOV`).
const MOST_VECTORS: usize = 1024;
const VECTOR_BYTES: usize = 16;
/// What the kernel transfers at most in one call (`MAX_RW_COUNT`).
const MOST_BYTES: usize = 0x7FFF_F000;

/// What is left of a list of ranges.
pub struct Vectors {
    ranges: Vec<[usize; 2]>,
    /// Bytes that are left in the ranges.
    pub left: usize,
}

impl Vectors {
    /// The program's list of `count` ranges. `None` where the kernel would refuse it.
    pub fn of_program(address: usize, count: usize) -> Option<Self> {
        if count > MOST_VECTORS {
            return None;
        }
        let mut bytes = vec![0; count * VECTOR_BYTES];
        if count > 0 {
            read(address, &mut bytes).ok()?;
        }
        let words: Vec<usize> = bytes.as_chunks().0.iter().copied().map(usize::from_ne_bytes).collect();
        let ranges = words.as_chunks::<2>().0.to_vec();
        if ranges.iter().any(|[_, bytes]| *bytes > isize::MAX as usize) {
            return None;
        }
        let left = ranges.iter().fold(0_usize, |sum, [_, bytes]| sum.saturating_add(*bytes)).min(MOST_BYTES);
        Some(Self { ranges, left })
    }

    /// The first bytes that are left, no more than `most`.
    pub fn first(&self, most: usize) -> Vec<[usize; 2]> {
        let mut room = most.min(self.left);
        let mut part = Vec::new();
        for &[start, bytes] in &self.ranges {
            if room == 0 {
                break;
            }
            if bytes > 0 {
                part.push([start, bytes.min(room)]);
                room -= bytes.min(room);
            }
        }
        part
    }

    /// So many bytes are done.
    pub fn advance(&mut self, mut bytes: usize) {
        self.left -= bytes;
        let mut whole = 0;
        for [start, length] in &mut self.ranges {
            let done = bytes.min(*length);
            (*start, *length) = (*start + done, *length - done);
            bytes -= done;
            if *length > 0 {
                break;
            }
            whole += 1;
        }
        self.ranges.drain(..whole);
    }
}

/// The ranges, each from its first address to its end.
pub fn addresses(vectors: &[[usize; 2]]) -> impl Iterator<Item = Range<usize>> + '_ {
    vectors.iter().map(|&[start, bytes]| start..start.saturating_add(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_to_the_end() {
        let mut vectors = Vectors { ranges: vec![[100, 5], [7, 0], [200, 10], [300, 1]], left: 16 };
        assert_eq!(vectors.first(3), [[100, 3]]);
        assert_eq!(vectors.first(8), [[100, 5], [200, 3]]);
        vectors.advance(8);
        assert_eq!((vectors.left, vectors.first(100)), (8, vec![[203, 7], [300, 1]]));
        vectors.advance(7);
        assert_eq!(vectors.first(100), [[300, 1]]);
        vectors.advance(1);
        assert_eq!((vectors.left, vectors.first(100)), (0, vec![]));
    }
}
