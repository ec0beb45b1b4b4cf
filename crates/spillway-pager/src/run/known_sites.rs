//! What the first program of a run found in libc's code, for the programs that come after it. Looking for
//! it takes longer than all else that a short program does.
//!
//! Written once. Who is killed while writing leaves it unfinished, and every program then looks for itself;
//! nobody waits. A reader checks all that it gets: against the code that it has, and by a checksum.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_sys::call_stubs::MOST_SITES;

const UNWRITTEN: u64 = 0;
const BEING_WRITTEN: u64 = 1;
const WRITTEN: u64 = 2;

/// Words before the sites.
const STATE_AT: usize = 0;
const LIBRARY_AT: usize = 1;
const COUNT_AT: usize = 2;
const CHECKSUM_AT: usize = 3;
const SITES_AT: usize = 4;

/// Words of shared memory that this takes.
pub(crate) const WORDS: usize = SITES_AT + MOST_SITES;

/// The places of one library's system calls, each a word that only the library's reader understands.
#[derive(Clone, Copy)]
pub struct KnownSites<'a> {
    words: &'a [AtomicU64],
}

/// A library as it is named here: xxh3 of its build ID, against accidents.
#[must_use]
pub fn library_hash(build_id: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(build_id)
}

impl<'a> KnownSites<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        assert_eq!(words.len(), WORDS, "the layout of the run's state");
        Self { words }
    }

    /// The places in a library's code; `None` where another program has noted none, or another
    /// library's.
    #[must_use]
    pub fn find(&self, library: u64) -> Option<Vec<u64>> {
        if self.words[STATE_AT].load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        let word = |at: usize| self.words[at].load(Ordering::Relaxed);
        let count = usize::try_from(word(COUNT_AT)).ok().filter(|&count| count <= MOST_SITES)?;
        let sites: Vec<u64> = (SITES_AT..SITES_AT + count).map(word).collect();
        let is_whole = word(LIBRARY_AT) == library && word(CHECKSUM_AT) == checksum(library, &sites);
        is_whole.then_some(sites)
    }

    /// Notes the places for others, if nobody has yet and there are not too many.
    pub fn note(&self, library: u64, sites: &[u64]) {
        let state = &self.words[STATE_AT];
        let is_first =
            state.compare_exchange(UNWRITTEN, BEING_WRITTEN, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if sites.len() > MOST_SITES || !is_first {
            return;
        }
        let put = |at: usize, word: u64| self.words[at].store(word, Ordering::Relaxed);
        sites.iter().enumerate().for_each(|(index, &site)| put(SITES_AT + index, site));
        put(LIBRARY_AT, library);
        put(COUNT_AT, sites.len() as u64);
        put(CHECKSUM_AT, checksum(library, sites));
        state.store(WRITTEN, Ordering::Release);
    }
}

fn checksum(library: u64, sites: &[u64]) -> u64 {
    let bytes: Vec<u8> = sites.iter().flat_map(|site| site.to_le_bytes()).collect();
    twox_hash::XxHash3_64::oneshot_with_seed(library, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn the_first_that_notes_is_believed_by_who_has_the_same_library() {
        let memory = memory();
        let known = KnownSites::new(&memory);
        assert_eq!(known.find(7), None);
        known.note(7, &[3, 1, 4]);
        known.note(8, &[1, 5]);
        assert_eq!((known.find(7), known.find(8)), (Some(vec![3, 1, 4]), None));
    }

    #[test]
    fn what_is_unfinished_damaged_or_too_long_is_not_believed() {
        let killed = memory();
        killed[STATE_AT].store(BEING_WRITTEN, Ordering::Relaxed);
        KnownSites::new(&killed).note(7, &[1]);
        assert_eq!(KnownSites::new(&killed).find(7), None);
        for (at, word) in [(LIBRARY_AT, 8), (COUNT_AT, 1), (COUNT_AT, u64::MAX), (SITES_AT + 1, 9)] {
            let damaged = memory();
            KnownSites::new(&damaged).note(7, &[1, 2]);
            damaged[at].store(word, Ordering::Relaxed);
            assert_eq!(KnownSites::new(&damaged).find(7), None, "word {at}");
        }
        let full = memory();
        KnownSites::new(&full).note(7, &[1; MOST_SITES + 1]);
        assert_eq!(KnownSites::new(&full).find(7), None);
    }
}
