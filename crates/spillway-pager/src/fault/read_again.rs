//! Reads that fail or come wrong are made again, by another way to the store, before a page counts as lost: a
//! bit that flips on its way, an answer that is an error once in a thousand, a server that is about to move
//! elsewhere. The program would end by what a second look mends.
//!
//! It is a bounded number of reads in all: of the page that somebody waits for [`MOST_READS`] more, and one
//! more of pages that come with it, which are left far then and have a fault of their own. Words stay locked
//! meanwhile, as while the first read was under way, and no other lock is held. A page comes only if it is
//! right, as ever. Of a page that does not come the reason is named that came most often: a store that has
//! lost it may fail for a moment too, and were it at the last read.

use std::time::Duration;

use spillway_store::{Notice, NoticeKind, ReadRequest, StoreError};

use crate::kernel::{Kernel, planted};
use crate::pages::error::PageError;
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// Further reads before a page is given up.
const MOST_READS: usize = 4;
/// Before each of them, for what passes by itself.
const PAUSES: [Duration; MOST_READS] =
    [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20)];

const WARNED_READ_AGAIN: u32 = 2;

impl<K: Kernel> Worker<K> {
    /// Reads again what did not come right into the bounce pages: `checked` says how many did, from the first
    /// on, and what is wrong with the next. Returns the same of what is there then.
    pub(crate) fn read_again(
        &mut self,
        store: usize,
        pages: &[(u64, u32)],
        checked: (usize, Option<PageError>),
    ) -> (usize, Option<PageError>) {
        if checked.1.is_none() {
            return checked;
        }
        let (mut good, mut lost) = checked;
        let mut reasons = Reasons::default();
        for pause in PAUSES {
            let is_worth_it = |error: &PageError| may_come_right(error) && (good == 0 || pause.is_zero());
            if planted!(K, "failed-read-not-repeated") || !lost.as_ref().is_some_and(is_worth_it) {
                break;
            }
            if let Some(error) = lost.take() {
                self.tell_read_again(&error);
                reasons.note(good, error);
            }
            if !pause.is_zero() {
                K::sleep(pause);
            }
            let outcomes = self.read_rest(store, pages, good);
            (good, lost) = match planted!(K, "repeated-read-unchecked") {
                true => (pages.len(), None),
                false => self.check(store, pages, good, Some(outcomes)),
            };
        }
        (good, lost.and_then(|last| reasons.lasting(good, last)))
    }

    /// Reads the pages from the `first` on once more, into their bounce pages.
    fn read_rest(&mut self, store: usize, pages: &[(u64, u32)], first: usize) -> Vec<Result<(), StoreError>> {
        let first_slot = self.at.stores[store].range.start;
        self.at.run.count(Counter::PagesReadAgain, (pages.len() - first) as u64);
        let rest = pages.iter().zip(&mut self.bounce).skip(first);
        let mut batch: Vec<ReadRequest<'_>> = rest
            .map(|((_, slot), page)| ReadRequest {
                slot: slot - first_slot,
                page: &mut page.0,
                outcome: Ok(()),
            })
            .collect();
        self.lanes[store].read_again(&mut batch);
        batch.into_iter().map(|request| request.outcome).collect()
    }

    fn tell_read_again(&self, error: &PageError) {
        if self.at.run.first_time(WARNED_READ_AGAIN) {
            let reason = error.to_string();
            let text = format!("{reason}; it is asked again (pages_read_again in --stats counts how often)");
            self.tell(&Notice::new(NoticeKind::PageReadAgain, &text).because(&reason));
        }
    }
}

/// What the reads of one page came to. Each has its place: nothing is allocated where a fault waits.
#[derive(Default)]
struct Reasons {
    /// Which page it is of those that are read together.
    of: usize,
    seen: [Option<Reason>; 1 + MOST_READS],
}

struct Reason {
    error: PageError,
    times: usize,
}

impl Reasons {
    /// One more read, of the page that has this place. What other pages came to is of no use any more.
    fn note(&mut self, of: usize, error: PageError) {
        if self.of != of {
            *self = Self { of, ..Self::default() };
        }
        for place in &mut self.seen {
            match place {
                Some(reason) if reason.error == error => {
                    reason.times += 1;
                    return;
                }
                Some(_) => {}
                None => {
                    *place = Some(Reason { error, times: 1 });
                    return;
                }
            }
        }
    }

    /// The reason that lasts, where this one came last: what no further read would mend, or else what came
    /// most often. Of equals that which speaks of the page itself, then the earlier.
    fn lasting(mut self, of: usize, last: PageError) -> Option<PageError> {
        if !may_come_right(&last) {
            return Some(last);
        }
        self.note(of, last);
        let seen = self.seen.into_iter().flatten().rev();
        seen.max_by_key(|reason| (reason.times, is_of_the_page(&reason.error))).map(|reason| reason.error)
    }
}

/// The store has answered, with something else than the page.
fn is_of_the_page(error: &PageError) -> bool {
    matches!(error, PageError::Checksum { .. } | PageError::Store(StoreError::WrongSeal { .. }))
}

/// Another read may bring what this one did not.
fn may_come_right(error: &PageError) -> bool {
    matches!(
        error,
        PageError::Checksum { .. }
            | PageError::Store(
                StoreError::Io { .. } | StoreError::Full { .. } | StoreError::WrongSeal { .. }
            )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: &str) -> PageError {
        StoreError::Io { store: "s".to_owned(), reason: reason.to_owned() }.into()
    }

    fn wrong() -> PageError {
        PageError::Checksum { store: "s".to_owned() }
    }

    fn gone() -> PageError {
        StoreError::Gone { store: "s".to_owned(), reason: "closed".to_owned() }.into()
    }

    /// What is named after these reads, each of the page that has this place.
    fn named<const N: usize>(reads: [(usize, PageError); N]) -> PageError {
        let mut reasons = Reasons::default();
        let mut reads = reads.into_iter().rev();
        let (of, last) = reads.next().unwrap();
        reads.rev().for_each(|(of, error)| reasons.note(of, error));
        reasons.lasting(of, last).unwrap()
    }

    #[test]
    fn a_failure_that_passes_hides_no_reason_that_lasts() {
        let empty = || failed("holds no page");
        for passing in 0..=MOST_READS {
            let of = |read| (0, if read == passing { failed("busy") } else { empty() });
            assert_eq!(named([of(0), of(1), of(2), of(3), of(4)]), empty(), "at read {passing}");
        }
        assert_eq!(named([(0, wrong())]), wrong());
    }

    #[test]
    fn of_equals_it_is_what_speaks_of_the_page_then_the_earlier() {
        assert_eq!(named([(0, failed("busy")), (0, wrong())]), wrong());
        assert_eq!(named([(0, wrong()), (0, failed("busy"))]), wrong());
        assert_eq!(named([(0, failed("one")), (0, failed("two"))]), failed("one"));
    }

    #[test]
    fn what_no_read_would_mend_is_named_at_once() {
        assert_eq!(named([(0, wrong()), (0, wrong()), (0, gone())]), gone());
        assert_eq!(named([(0, wrong()), (0, wrong()), (0, PageError::ForeignSlot)]), PageError::ForeignSlot);
    }

    #[test]
    fn each_page_has_reasons_of_its_own() {
        assert_eq!(named([(0, wrong()), (0, wrong()), (1, failed("busy"))]), failed("busy"));
    }
}
