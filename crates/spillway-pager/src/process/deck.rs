//! What a process's tape lies in, while it is recorded or played: see [`crate::fault::taped`].

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_policy::tape::{Run, Score};
use spillway_sys::sealed_memory::SealedMemory;

use crate::kernel::Kernel;
use crate::pages::origins::{Origin, Origins};
use crate::run::tape_log::TapeLog;

/// Pages are numbered below this: 47 bits of address.
const PAGE_NUMBERS: u64 = 1 << 35;

/// A tape that is recorded, or played.
pub struct Deck {
    /// Where recordings go, and counts.
    pub(crate) log: TapeLog,
    origins: Mutex<Origins>,
    played: Option<Played>,
}

/// A tape that is there already.
struct Played {
    memory: SealedMemory,
    /// For each of its mappings the page number at which it begins in this process; 0 where it is not there.
    /// A guess for who reads it: the page may be another's by then, and is looked at as any page.
    starts: Box<[AtomicU64]>,
}

impl Deck {
    /// Records into `log`, or plays what is `played`. Words that are no tape are played as none: nothing
    /// comes of them.
    #[must_use]
    pub fn new(log: TapeLog, played: Option<SealedMemory>) -> Self {
        let played = played.map(|memory| {
            let count = Score::of(memory.words()).map_or(0, |score| score.mappings());
            Played { memory, starts: (0..count).map(|_| AtomicU64::new(0)).collect() }
        });
        Self { log, origins: Mutex::new(Origins::default()), played }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.played.is_none()
    }

    /// The tape that is played.
    pub(crate) fn score(&self) -> Option<Score<'_>> {
        Score::of(self.played.as_ref()?.memory.words())
    }

    /// Where the pages of a run lie now.
    pub(crate) fn pages_of(&self, run: Run) -> Option<Range<u64>> {
        let start = self.played.as_ref()?.starts.get(run.mapping as usize)?.load(Ordering::Relaxed);
        let first = start.checked_add(run.page.into())?;
        let pages = first..first + u64::from(run.pages);
        (start != 0 && pages.end <= PAGE_NUMBERS).then_some(pages)
    }

    /// Where a page comes from.
    pub(crate) fn origin_of<K: Kernel>(&self, page_number: u64) -> Option<Origin> {
        K::lock(&self.origins).of(page_number)
    }

    /// A mapping is new, or goes on with one that `grows`.
    pub(crate) fn born<K: Kernel>(&self, range: &Range<u64>, grows: bool) {
        let mut origins = K::lock(&self.origins);
        self.forget_starts(&origins, range);
        let Some(name) = origins.born(range) else { return };
        let number = match &self.played {
            Some(_) => self.score().and_then(|score| score.mapping(name)),
            None => self.log.note(name),
        };
        let Some(number) = number else { return };
        origins.put(range, number, grows);
        self.note_starts(&origins, range);
    }

    /// Pages of a range are there no more.
    pub(crate) fn died<K: Kernel>(&self, range: &Range<u64>) {
        let mut origins = K::lock(&self.origins);
        self.forget_starts(&origins, range);
        origins.died(range);
    }

    /// The mapping of a page is longer now.
    pub(crate) fn grown<K: Kernel>(&self, page_number: u64, end: u64) {
        K::lock(&self.origins).grown(page_number, end);
    }

    /// Pages lie elsewhere now.
    pub(crate) fn moved<K: Kernel>(&self, from: &Range<u64>, to: &Range<u64>) {
        let mut origins = K::lock(&self.origins);
        self.forget_starts(&origins, from);
        origins.moved(from, to);
        self.note_starts(&origins, to);
    }

    fn forget_starts(&self, origins: &Origins, range: &Range<u64>) {
        let Some(played) = &self.played else { return };
        for (mapping, _) in origins.starts(range) {
            if let Some(start) = played.starts.get(mapping as usize) {
                start.store(0, Ordering::Relaxed);
            }
        }
    }

    fn note_starts(&self, origins: &Origins, range: &Range<u64>) {
        let Some(played) = &self.played else { return };
        for (mapping, page_number) in origins.starts(range) {
            if let Some(start) = played.starts.get(mapping as usize) {
                start.store(page_number, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::live::LiveKernel;
    use crate::run::tape_log::TapeCounter;
    use spillway_policy::tape::{Name, Tape};

    type Live = LiveKernel;

    fn run(mapping: u32, page: u32) -> Run {
        Run { mapping, page, pages: 4 }
    }

    fn played(words: &[u64]) -> Deck {
        let memory = SealedMemory::map(SealedMemory::create("test", words).unwrap()).unwrap();
        Deck::new(TapeLog::create().unwrap().1, Some(memory))
    }

    #[test]
    fn pages_are_where_their_mapping_is_now() {
        let mappings = vec![Name::new(50, 1).unwrap(), Name::new(100, 0).unwrap()];
        let deck = played(&Score::words(&Tape { key: 1, mappings, threads: Vec::new() }));
        assert!(!deck.is_recording() && deck.pages_of(run(1, 10)).is_none());
        deck.born::<Live>(&(1000..1100), false);
        deck.born::<Live>(&(2000..2050), false);
        assert_eq!((deck.pages_of(run(1, 10)), deck.pages_of(run(0, 0))), (Some(1010..1014), None));
        deck.born::<Live>(&(3000..3050), false);
        assert_eq!(deck.pages_of(run(0, 2)), Some(3002..3006));
        deck.moved::<Live>(&(1000..1100), &(5000..5200));
        assert_eq!(deck.pages_of(run(1, 10)), Some(5010..5014));
        assert_eq!(deck.origin_of::<Live>(5150).map(|origin| origin.page), Some(150));
        deck.died::<Live>(&(4900..5300));
        assert_eq!((deck.pages_of(run(1, 10)), deck.origin_of::<Live>(5010)), (None, None));
        assert_eq!((deck.pages_of(run(7, 0)), deck.pages_of(run(u32::MAX, 0))), (None, None));
    }

    #[test]
    fn no_page_is_beyond_all_addresses() {
        let mappings = vec![Name::new(100, 0).unwrap()];
        let deck = played(&Score::words(&Tape { key: 1, mappings, threads: Vec::new() }));
        deck.born::<Live>(&(PAGE_NUMBERS - 100..PAGE_NUMBERS), false);
        assert_eq!(deck.pages_of(run(0, 96)), Some(PAGE_NUMBERS - 4..PAGE_NUMBERS));
        assert_eq!((deck.pages_of(run(0, 97)), deck.pages_of(run(0, u32::MAX))), (None, None));
    }

    #[test]
    fn words_that_are_no_tape_play_nothing() {
        let deck = played(&[3, 1, 4, 1, 5, 9]);
        deck.born::<Live>(&(1000..1100), false);
        assert!(deck.score().is_none() && deck.pages_of(run(0, 0)).is_none());
    }

    #[test]
    fn a_recording_has_a_number_for_each_mapping() {
        let deck = Deck::new(TapeLog::create().unwrap().1, None);
        deck.born::<Live>(&(1000..1100), true);
        deck.born::<Live>(&(1100..1120), false);
        deck.born::<Live>(&(2000..2100), false);
        assert!(deck.is_recording() && deck.score().is_none());
        let number = |page_number| deck.origin_of::<Live>(page_number).map(|origin| origin.mapping);
        assert_eq!(
            (number(1000), number(1119), number(2099), number(2100)),
            (Some(0), Some(0), Some(1), None)
        );
        assert_eq!(deck.log.counted(TapeCounter::Names), 2);
    }
}
