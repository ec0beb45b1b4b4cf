//! Which mappings of this process are the pager's own and not the program's: what the program does to its
//! whole address space must pass them by. A table of atomics, since it is asked and changed where no lock
//! may be taken.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

const MOST: usize = 8192;

struct Entry {
    start: AtomicUsize,
    end: AtomicUsize,
}

static TABLE: [Entry; MOST] =
    [const { Entry { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0) } }; MOST];
/// Entries from here on were never in use.
static USED: AtomicUsize = AtomicUsize::new(0);

const FREE: usize = 0;
const CLAIMED: usize = 1;

fn used() -> &'static [Entry] {
    &TABLE[..USED.load(Ordering::Acquire).min(MOST)]
}

/// A mapping of the pager's own was made. Beyond 8192 of them they are no longer told from the program's.
pub fn note(start: usize, bytes: usize) {
    let claim = |entry: &Entry| {
        entry.start.load(Ordering::Relaxed) == FREE
            && entry.start.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    if let Some(index) = TABLE.iter().position(claim) {
        TABLE[index].end.store(start + bytes, Ordering::Relaxed);
        TABLE[index].start.store(start, Ordering::Release);
        USED.fetch_max(index + 1, Ordering::AcqRel);
    }
}

/// A range is about to be unmapped: mappings of the pager's own in it, or parts of them at one of their ends.
pub fn forget(range: &Range<usize>) {
    for entry in used() {
        let (start, end) = (entry.start.load(Ordering::Acquire), entry.end.load(Ordering::Relaxed));
        if start <= CLAIMED || end <= range.start || range.end <= start {
            continue;
        }
        match (start < range.start, range.end < end) {
            (true, _) => entry.end.store(range.start, Ordering::Relaxed),
            (false, true) => entry.start.store(range.end, Ordering::Release),
            (false, false) => entry.start.store(FREE, Ordering::Release),
        }
    }
}

/// The parts of a range that are not the pager's, in order of address.
#[must_use]
pub fn parts_of_program(range: &Range<usize>) -> Vec<Range<usize>> {
    let mut own: Vec<Range<usize>> = used()
        .iter()
        .map(|entry| entry.start.load(Ordering::Acquire)..entry.end.load(Ordering::Relaxed))
        .filter(|own| own.start > CLAIMED && own.start < range.end && range.start < own.end)
        .collect();
    own.sort_unstable_by_key(|own| own.start);
    let (mut parts, mut from) = (Vec::new(), range.start);
    for own in own {
        if from < own.start {
            parts.push(from..own.start);
        }
        from = from.max(own.end);
    }
    if from < range.end {
        parts.push(from..range.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that no mapping of a test can have.
    const AT: usize = 1 << 60;

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        std::iter::once(range).collect()
    }

    #[test]
    fn the_programs_parts_lie_around_ours() {
        assert_eq!(parts_of_program(&(AT..AT + 100)), one(AT..AT + 100));
        note(AT + 50, 10);
        note(AT + 10, 20);
        note(AT + 90, 50);
        assert_eq!(parts_of_program(&(AT..AT + 100)), [AT..AT + 10, AT + 30..AT + 50, AT + 60..AT + 90]);
        assert_eq!(parts_of_program(&(AT + 12..AT + 28)), []);
        assert_eq!(parts_of_program(&(AT + 20..AT + 55)), one(AT + 30..AT + 50));
        forget(&(AT + 15..AT + 40));
        assert_eq!(parts_of_program(&(AT..AT + 55)), [AT..AT + 10, AT + 15..AT + 50]);
        forget(&(AT + 5..AT + 60));
        assert_eq!(parts_of_program(&(AT..AT + 100)), one(AT..AT + 90));
        forget(&(AT + 80..AT + 100));
        assert_eq!(parts_of_program(&(AT..AT + 200)), [AT..AT + 100, AT + 140..AT + 200]);
        forget(&(AT..AT + 200));
    }

    #[test]
    fn threads_note_theirs_side_by_side() {
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                scope.spawn(move || {
                    for index in 0..200 {
                        let start = AT + (thread << 32) + index * 100;
                        note(start, 50);
                        assert_eq!(parts_of_program(&(start..start + 100)), one(start + 50..start + 100));
                        forget(&(start..start + 50));
                        assert_eq!(parts_of_program(&(start..start + 100)), one(start..start + 100));
                    }
                });
            }
        });
    }
}
