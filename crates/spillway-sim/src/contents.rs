//! What simulated programs write: each half of a page says whose it is, where it was written and which
//! version it is, from its first byte to its last, so that a page that comes back wrong tells where it comes
//! from.

use spillway_core::page::{PAGE_SIZE, Page};

/// Parts of a page that are written one by one: a write that loses the rest of its page is found.
pub const PARTS: usize = 2;
/// Bytes in a part.
pub const PART_BYTES: usize = PAGE_SIZE / PARTS;
/// What lies in memory that nobody should read any more.
pub const SCRIBBLE: u8 = 0xDD;

const MAGIC: u64 = 0x5349_4D50_4147_4531;
const HEADER_WORDS: usize = 4;
/// Of sparse parts one word in so many is not zero.
const SPARSE: usize = 32;

/// What one part of a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// It was never written, or written with zeros.
    Zeros,
    /// What a program wrote.
    Written {
        /// The process that wrote it.
        owner: u32,
        /// The page's number where it was written.
        page_number: u64,
        /// Which write of the world that was, from 1 on.
        version: u32,
    },
}

/// What a page holds, part by part.
pub type Tags = [Tag; PARTS];

/// A page that was never written.
pub const ZEROS: Tags = [Tag::Zeros; PARTS];

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Zeros => write!(f, "zeros"),
            Self::Written { owner, page_number, version } => {
                write!(f, "version {version} of page {page_number:#x} of process {owner}")
            }
        }
    }
}

/// What a part holds, byte by byte.
fn part_of(part: usize, tag: Tag) -> [u8; PART_BYTES] {
    let mut bytes = [0; PART_BYTES];
    if let Tag::Written { owner, page_number, version } = tag {
        let seed = u64::from(version) ^ page_number << 24 ^ u64::from(owner) << 56;
        let header = [MAGIC, u64::from(owner) << 32 | part as u64, page_number, u64::from(version)];
        let words = bytes.as_chunks_mut().0;
        for (to, word) in words.iter_mut().zip(header) {
            *to = word.to_le_bytes();
        }
        // Mostly zeros, as compressing stores would have it, or random.
        let (first, step) = if seed.is_multiple_of(4) { (HEADER_WORDS, 1) } else { (SPARSE - 1, SPARSE) };
        for (index, to) in words.iter_mut().enumerate().skip(first).step_by(step) {
            *to = ((seed ^ index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).to_le_bytes();
        }
    }
    bytes
}

/// Writes a part of a page.
pub fn write_part(page: &mut Page, part: usize, tag: Tag) {
    page[part * PART_BYTES..(part + 1) * PART_BYTES].copy_from_slice(&part_of(part, tag));
}

/// Whether a part of a page holds what it should.
#[must_use]
pub fn holds(page: &Page, part: usize, tag: Tag) -> bool {
    page[part * PART_BYTES..(part + 1) * PART_BYTES] == part_of(part, tag)
}

/// Whether a whole page holds what it should.
#[must_use]
pub fn page_holds(page: &Page, tags: Tags) -> bool {
    tags.into_iter().enumerate().all(|(part, tag)| holds(page, part, tag))
}

/// Whether a page shows that a program wrote it.
#[must_use]
pub fn is_readable(page: &Page) -> bool {
    (0..PARTS).any(|part| page[part * PART_BYTES..].starts_with(&MAGIC.to_le_bytes()))
}

/// What a part of a page holds, in words, for who should have found something else there.
#[must_use]
pub fn describe(page: &Page, part: usize) -> String {
    let bytes = &page[part * PART_BYTES..(part + 1) * PART_BYTES];
    if bytes.iter().all(|&byte| byte == 0) {
        return "zeros".to_owned();
    }
    if bytes.iter().all(|&byte| byte == SCRIBBLE) {
        return "what was left behind by a move or a discard".to_owned();
    }
    let word = |index: usize| u64::from_le_bytes(bytes.as_chunks().0[index]);
    if word(0) != MAGIC {
        return format!("{:#018x} at its start, which no program wrote", word(0));
    }
    let tag = Tag::Written { owner: (word(1) >> 32) as u32, page_number: word(2), version: word(3) as u32 };
    match holds(page, part, tag) {
        true => tag.to_string(),
        false => format!("{tag}, damaged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_what_was_written() {
        let mut page = [0; PAGE_SIZE];
        assert!(page_holds(&page, ZEROS));
        for version in 1..9 {
            let tag = Tag::Written { owner: 3, page_number: 0x12345, version };
            write_part(&mut page, 1, tag);
            assert!(holds(&page, 1, tag) && holds(&page, 0, Tag::Zeros));
            let older = Tag::Written { owner: 3, page_number: 0x12345, version: version - 1 };
            assert!(!holds(&page, 1, older) && !holds(&page, 0, tag));
            assert_eq!(describe(&page, 1), format!("version {version} of page 0x12345 of process 3"));
        }
        page[PAGE_SIZE - 1] ^= 1;
        assert!(describe(&page, 1).ends_with("damaged"));
        assert!(describe(&[SCRIBBLE; PAGE_SIZE], 0).contains("left behind"));
        assert_eq!(describe(&page, 0), "zeros");
    }
}
