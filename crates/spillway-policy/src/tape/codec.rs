//! A tape as bytes: numbers of variable length, each page by its distance from where the run before it ended,
//! and a checksum over all of it.

use std::hash::Hasher;

use thiserror::Error;
use twox_hash::XxHash3_64;

use super::run::{MOST_MAPPINGS, MOST_RUN_PAGES, Name, Run};

/// The first bytes of a tape; the last is the version.
pub const MAGIC: [u8; 8] = *b"SPWTAP\0\x01";
/// Runs of one tape at most.
pub const MOST_RUNS: usize = 2 << 20;
/// Threads that one tape tells apart, at most.
pub const MOST_THREADS: usize = 64;

const CHECKSUM_BYTES: usize = 8;

/// Where the threads of a program faulted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    /// Which program, with which input: whatever tells them apart, hashed.
    pub key: u128,
    /// The mappings that runs speak of, in the order of their names, each once.
    pub mappings: Vec<Name>,
    /// Of each thread, the runs of pages that came, in their order.
    pub threads: Vec<Vec<Run>>,
}

/// Why bytes are no tape.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TapeError {
    /// Other bytes, or another version's.
    #[error("it is no tape of this version")]
    Foreign,
    /// The bytes are not those that were written.
    #[error("its checksum is wrong")]
    Damaged,
    /// Its checksum is right, and it makes no sense.
    #[error("it makes no sense")]
    Malformed,
}

impl Tape {
    /// The bytes of a file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.key.to_le_bytes());
        put(self.mappings.len() as u64, &mut bytes);
        let mut last = 0;
        for name in &self.mappings {
            put(name.to_word().wrapping_sub(last), &mut bytes);
            last = name.to_word();
        }
        put(self.threads.len() as u64, &mut bytes);
        for runs in &self.threads {
            put(runs.len() as u64, &mut bytes);
            let (mut mapping, mut end) = (0, 0);
            for run in runs {
                put_signed(i64::from(run.mapping) - mapping, &mut bytes);
                put_signed(i64::from(run.page) - end, &mut bytes);
                bytes.push(run.pages);
                (mapping, end) = (run.mapping.into(), i64::from(run.page) + i64::from(run.pages));
            }
        }
        let checksum = checksum(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// The tape that `bytes` are. Takes no more memory than some words for each byte, whatever they say.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, TapeError> {
        if bytes.len() < MAGIC.len() + CHECKSUM_BYTES || bytes[..MAGIC.len()] != MAGIC {
            return Err(TapeError::Foreign);
        }
        let (body, end) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if checksum(body).to_le_bytes() != end {
            return Err(TapeError::Damaged);
        }
        Source { bytes: &body[MAGIC.len()..] }.tape().ok_or(TapeError::Malformed)
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = XxHash3_64::with_seed(0);
    hasher.write(bytes);
    hasher.finish()
}

fn put(mut word: u64, bytes: &mut Vec<u8>) {
    while word >= 0x80 {
        bytes.push(word as u8 | 0x80);
        word >>= 7;
    }
    bytes.push(word as u8);
}

fn put_signed(number: i64, bytes: &mut Vec<u8>) {
    put((number << 1 ^ number >> 63).cast_unsigned(), bytes);
}

struct Source<'a> {
    bytes: &'a [u8],
}

impl Source<'_> {
    fn tape(mut self) -> Option<Tape> {
        let (key, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        let mappings = self.mappings()?;
        let mut room = MOST_RUNS;
        let threads = self.number(MOST_THREADS)?;
        let threads = (0..threads).map(|_| self.runs(mappings.len(), &mut room)).collect::<Option<_>>()?;
        self.bytes.is_empty().then_some(Tape { key: u128::from_le_bytes(*key), mappings, threads })
    }

    fn mappings(&mut self) -> Option<Vec<Name>> {
        let count = self.number(MOST_MAPPINGS)?;
        let mut names: Vec<Name> = Vec::with_capacity(count.min(self.bytes.len()));
        for _ in 0..count {
            let last = names.last().map_or(0, |name| name.to_word());
            let distance = self.word().filter(|&distance| distance > 0)?;
            names.push(Name::from_word(last.checked_add(distance)?)?);
        }
        Some(names)
    }

    fn runs(&mut self, mappings: usize, room: &mut usize) -> Option<Vec<Run>> {
        let count = self.number(*room)?;
        *room -= count;
        let mut runs = Vec::with_capacity(count.min(self.bytes.len()));
        let (mut mapping, mut end) = (0_i64, 0_i64);
        for _ in 0..count {
            mapping = mapping.checked_add(self.signed()?)?;
            let page = end.checked_add(self.signed()?)?;
            let pages = self.byte().filter(|&pages| (1..=MOST_RUN_PAGES).contains(&pages.into()))?;
            end = page.checked_add(pages.into())?;
            let number = u32::try_from(mapping).ok().filter(|&number| (number as usize) < mappings)?;
            runs.push(Run { mapping: number, page: page.try_into().ok()?, pages });
        }
        Some(runs)
    }

    fn number(&mut self, most: usize) -> Option<usize> {
        self.word().and_then(|word| usize::try_from(word).ok()).filter(|&number| number <= most)
    }

    fn signed(&mut self) -> Option<i64> {
        let word = self.word()?;
        Some((word >> 1).cast_signed() ^ -((word & 1).cast_signed()))
    }

    fn word(&mut self) -> Option<u64> {
        let mut word = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            word |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(word);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::run::tests::runs;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn tapes() -> impl Strategy<Value = Tape> {
        let names = prop::collection::btree_set((1_u64..1 << 32, 0_u64..1 << 24), 1..20);
        let threads = prop::collection::vec(prop::collection::vec(runs(1 << 20), 0..50), 0..4);
        (any::<u128>(), names, threads).prop_map(|(key, names, mut threads)| {
            let names: BTreeSet<Name> =
                names.into_iter().filter_map(|(pages, ordinal)| Name::new(pages, ordinal)).collect();
            for run in threads.iter_mut().flatten() {
                run.mapping %= names.len() as u32;
            }
            Tape { key, mappings: names.into_iter().collect(), threads }
        })
    }

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let checksum = checksum(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn a_tape_comes_back_as_it_was_written(tape in tapes()) {
            prop_assert_eq!(Tape::decode(&tape.encode()), Ok(tape));
        }

        #[test]
        fn a_byte_that_changed_or_is_missing_is_noticed(
            tape in tapes(), at in any::<prop::sample::Index>(), change in 1_u8..,
        ) {
            let mut bytes = tape.encode();
            let at = at.index(bytes.len());
            prop_assert!(Tape::decode(&bytes[..at]).is_err());
            bytes[at] ^= change;
            prop_assert!(Tape::decode(&bytes).is_err());
        }

        /// With a checksum that is right, as an enemy would make it.
        #[test]
        fn bytes_of_any_kind_are_a_tape_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = sealed([&MAGIC[..], &body].concat());
            if let Ok(tape) = Tape::decode(&bytes) {
                prop_assert_eq!(Tape::decode(&tape.encode()), Ok(tape));
            }
            prop_assert!(Tape::decode(&body).is_err());
        }
    }

    #[test]
    fn another_version_and_numbers_without_bounds_are_refused() {
        let tape = Tape::default();
        let mut bytes = tape.encode();
        bytes[7] = 2;
        assert_eq!(Tape::decode(&bytes), Err(TapeError::Foreign));
        let mut huge = [&MAGIC[..], &[0; 16]].concat();
        put(u64::MAX, &mut huge);
        assert_eq!(Tape::decode(&sealed(huge)), Err(TapeError::Malformed));
        let mut of_no_mapping = Tape::default();
        of_no_mapping.threads.push(vec![Run { mapping: 0, page: 0, pages: 1 }]);
        assert_eq!(Tape::decode(&of_no_mapping.encode()), Err(TapeError::Malformed));
    }
}
