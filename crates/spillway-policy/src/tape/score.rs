//! A tape as its players read it: fixed words, looked up by position and by page, in place.

use super::codec::{MOST_RUNS, Tape};
use super::run::{Name, Run};

const MAGIC: u64 = 0x5350_574C_5441_5045;
const HEADER_WORDS: usize = 4;

/// A tape of words: the names of its mappings in their order, the runs of its threads one thread behind the
/// other with a 0 behind each, and the positions of all runs by the page that they begin with.
///
/// Whatever the words are, nothing beyond them is read.
#[derive(Clone, Copy, Debug)]
pub struct Score<'a> {
    names: &'a [u64],
    runs: &'a [u64],
    positions: &'a [u64],
}

impl<'a> Score<'a> {
    /// The words of a tape.
    #[must_use]
    pub fn words(tape: &Tape) -> Vec<u64> {
        let mut runs: Vec<u64> = Vec::new();
        for thread in &tape.threads {
            runs.extend(thread.iter().map(|run| run.to_word()));
            runs.push(0);
        }
        let mut positions: Vec<u64> =
            (0..runs.len() as u64).filter(|&position| runs[position as usize] != 0).collect();
        positions.sort_unstable_by_key(|&position| (start(runs[position as usize]), position));
        let header = [MAGIC, tape.mappings.len() as u64, runs.len() as u64, positions.len() as u64];
        let names = tape.mappings.iter().map(|name| name.to_word());
        header.into_iter().chain(names).chain(runs).chain(positions).collect()
    }

    /// The tape that words are; `None` where they are none.
    #[must_use]
    pub fn of(words: &'a [u64]) -> Option<Self> {
        let (&[magic, names, runs, positions], rest) = words.split_first_chunk::<HEADER_WORDS>()?;
        let (names, rest) = rest.split_at_checked(usize::try_from(names).ok()?)?;
        let (runs, rest) = rest.split_at_checked(usize::try_from(runs).ok()?)?;
        let (positions, rest) = rest.split_at_checked(usize::try_from(positions).ok()?)?;
        (magic == MAGIC && rest.is_empty() && runs.len() <= 2 * MOST_RUNS).then_some(Self {
            names,
            runs,
            positions,
        })
    }

    /// How many mappings it speaks of.
    #[must_use]
    pub fn mappings(&self) -> usize {
        self.names.len()
    }

    /// The place of a mapping in the list of names.
    #[must_use]
    pub fn mapping(&self, name: Name) -> Option<u32> {
        self.names.binary_search(&name.to_word()).ok().map(|place| place as u32)
    }

    /// The run at a position; `None` behind the last of a thread's.
    #[must_use]
    pub fn run(&self, position: usize) -> Option<Run> {
        self.runs.get(position).copied().and_then(Run::from_word)
    }

    /// The run nearest to `from` that begins with this page, of two the later, and 0; where none does, the
    /// same of those that begin with the page before it that any begins with, if the nearest reaches so far,
    /// and how far into it the page stands.
    #[must_use]
    pub fn find(&self, mapping: u32, page: u32, from: usize) -> Option<(usize, u8)> {
        let wanted = start(Run { mapping, page, pages: 1 }.to_word());
        let last = self.positions.partition_point(|&position| self.start_at(position) <= wanted);
        let first = self.start_at(*self.positions.get(last.checked_sub(1)?)?);
        let position = self.nearest(first, from)?;
        let run = self.run(position)?;
        let within = page.checked_sub(run.page)?;
        (run.mapping == mapping && within < run.pages.into()).then_some((position, within as u8))
    }

    fn start_at(&self, position: u64) -> u64 {
        self.runs.get(position as usize).map_or(0, |&word| start(word))
    }

    /// Of the runs that begin so, the nearest to `from`.
    fn nearest(&self, wanted: u64, from: usize) -> Option<usize> {
        let first = self.positions.partition_point(|&position| self.start_at(position) < wanted);
        let same = &self.positions[first..];
        let count = same.partition_point(|&position| self.start_at(position) <= wanted);
        let same = &same[..count];
        let next = same.partition_point(|&position| position < from as u64);
        let around = &same[next.saturating_sub(1)..same.len().min(next + 1)];
        let nearest = around.iter().rev().min_by_key(|position| position.abs_diff(from as u64));
        nearest.map(|&position| position as usize)
    }
}

/// A run's word but for its length.
fn start(word: u64) -> u64 {
    word >> 6
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tape(threads: Vec<Vec<(u32, u32)>>) -> Tape {
        let mappings = (0..4).map(|ordinal| Name::new(100, ordinal).unwrap()).collect();
        let run = |(mapping, page)| Run { mapping, page, pages: 1 + (page % 3) as u8 };
        let threads = threads.into_iter().map(|runs| runs.into_iter().map(run).collect()).collect();
        Tape { key: 7, mappings, threads }
    }

    proptest! {
        #[test]
        fn a_page_is_found_where_a_search_from_end_to_end_finds_it(
            threads in prop::collection::vec(prop::collection::vec((0_u32..4, 0_u32..9), 0..40), 0..3),
            mapping in 0_u32..5, page in 0_u32..10, from in 0_usize..130,
        ) {
            let words = Score::words(&tape(threads));
            let score = Score::of(&words).unwrap();
            let runs = || (0..130).filter_map(|position| Some((position, score.run(position)?)));
            let first = runs().filter(|(_, run)| run.mapping == mapping && run.page <= page);
            let first = first.map(|(_, run)| run.page).max();
            let begins = |(_, run): &(usize, Run)| run.mapping == mapping && Some(run.page) == first;
            let nearest =
                runs().filter(begins).min_by_key(|(position, _)| (position.abs_diff(from), *position < from));
            let expected = nearest
                .filter(|(_, run)| page < run.page + u32::from(run.pages))
                .map(|(position, run)| (position, (page - run.page) as u8));
            prop_assert_eq!(score.find(mapping, page, from), expected);
        }

        #[test]
        fn words_of_any_kind_are_read_within_their_bounds(
            mut words in prop::collection::vec(any::<u64>(), 4..60),
            counts in prop::array::uniform3(0_u64..20),
            position in any::<usize>(),
        ) {
            words[0] = MAGIC;
            words[1..4].copy_from_slice(&counts);
            words.truncate(4 + counts.iter().sum::<u64>() as usize);
            if let Some(score) = Score::of(&words) {
                let _ = (score.run(position), score.find(position as u32, 3, position));
                let _ = Name::new(3, 4).map(|name| score.mapping(name));
            }
        }
    }

    #[test]
    fn mappings_are_found_by_name_and_threads_end() {
        let words = Score::words(&tape(vec![vec![(1, 2)], vec![(3, 5), (0, 1)]]));
        let score = Score::of(&words).unwrap();
        assert_eq!((score.mappings(), score.mapping(Name::new(100, 2).unwrap())), (4, Some(2)));
        assert_eq!(score.mapping(Name::new(99, 2).unwrap()), None);
        assert_eq!(score.run(0), Some(Run { mapping: 1, page: 2, pages: 3 }));
        assert_eq!((score.run(1), score.run(5)), (None, None));
        assert!(Score::of(&words[..words.len() - 1]).is_none());
    }
}
