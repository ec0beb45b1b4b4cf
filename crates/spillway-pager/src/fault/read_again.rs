//! Reads that fail or come wrong are made again, by another way to the store, before a page counts as lost: a
//! bit that flips on its way, an answer that is an error once in a thousand, a server that is about to move
//! elsewhere. The program would end by what a second look mends.
//!
//! It is a bounded number of reads in all: of the page that somebody waits for [`MOST_READS`] more, and one
//! more of pages that come with it, which are left far then and have a fault of their own. Words stay locked
//! meanwhile, as while the first read was under way, and no other lock is held. A page comes only if it is
//! right, as ever.

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
        let (mut good, mut lost) = checked;
        for pause in PAUSES {
            let is_worth_it = |error: &PageError| may_come_right(error) && (good == 0 || pause.is_zero());
            if planted!(K, "failed-read-not-repeated") || !lost.as_ref().is_some_and(is_worth_it) {
                break;
            }
            if let Some(error) = lost.take() {
                self.tell_read_again(&error);
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
        (good, lost)
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
