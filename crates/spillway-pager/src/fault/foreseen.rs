//! Pages that no stream brings and that a thread is expected to fault on next, for it steps through memory in
//! strides, backwards or in rounds ([`spillway_policy::strides`]): they come with the page that it faults on
//! now, as a block does.
//!
//! They are followers like a block's, but lie scattered: far, on the same store, locked where nobody has
//! them, charged where there is room, read in one batch, checked one by one. A wrong guess costs a fetch,
//! never data.
//!
//! Only faults that go on with no stream are looked at, so that a stream beside it hides no stride. A thread
//! has one fault at a time; where another handler still works with what is known of it, nothing is foreseen.
//! Who follows a thread never waits, and allocates nothing.

use std::sync::atomic::Ordering;

use spillway_core::page_word::PageInfo;
use spillway_policy::fault_trace::{Event, Foreseen as Noted, Runs};
use spillway_policy::strides::{Foresight, MOST_AHEAD_PAGES};

use crate::fault::followed::Foreseen;
use crate::kernel::Kernel;
use crate::process::worker::Worker;
use crate::run::state::Counter;
use crate::run::tape_log::TapeCounter;

/// What a follower was told of pages: whether they were far, a bit each. It asks of those that it expected,
/// and of those that it expects now.
#[derive(Default)]
struct Told {
    pages: u32,
    far: u64,
}

impl Told {
    fn note(&mut self, is_far: bool) {
        self.far |= u64::from(is_far) << (self.pages % u64::BITS);
        self.pages += 1;
    }

    fn runs(&self) -> Runs {
        let mut runs = Runs::default();
        (0..self.pages).for_each(|page| runs.push((self.far >> page & 1) as u8));
        runs
    }
}

impl<K: Kernel> Worker<K> {
    /// The pages to fetch with one of a store that goes on with no stream.
    pub(crate) fn foresee(&self, page_number: u64, store: usize) -> Foreseen {
        let foresight = self.at.settings.fetch.strides.over(self.lanes[store].can_post());
        let most = (self.at.max_block_pages - 1).min(MOST_AHEAD_PAGES);
        // A system call's pages are asked for by nobody in particular.
        if foresight == Foresight::Off || self.faulting_thread == 0 || most == 0 || self.engine.is_taping() {
            return Foreseen::default();
        }
        let index = self.engine.followers.place_of(self.faulting_thread);
        let place = &self.engine.followers.places[index];
        let Ok(mut followed) = place.followed.try_lock() else { return Foreseen::default() };
        let is_new = followed.begin(self.faulting_thread);
        let mut told = Told::default();
        let used = followed.follower.fault(foresight, page_number, most, |page| {
            let is_far = self.is_far(page);
            told.note(is_far);
            is_far
        });
        let asked = followed.follower.asked();
        self.engine.note(|| {
            let (place, most, used, asked) = (index as u8, most as u64, used as u64, asked.to_vec());
            let far = told.runs();
            Event::Foreseen(Noted { place, is_new, foresight, page_number, most, far, used, asked })
        });
        let came = if is_new { 0 } else { place.came.load(Ordering::Relaxed) };
        place.came.store(0, Ordering::Relaxed);
        let used_pages = (came & ((1 << used) - 1)).count_ones();
        self.at.run.count(Counter::PagesAheadUsed, used_pages.into());
        self.at.run.count(Counter::PagesForeseenUsed, used_pages.into());
        Foreseen::new(index, asked)
    }

    /// Notes which of the foreseen pages are about to come. Before the fault is answered, as for blocks.
    pub(crate) fn note_foreseen(&self, foreseen: &Foreseen, followers: &[(u64, PageInfo)]) {
        if foreseen.is_empty() {
            return;
        }
        let comes = |page: &u64| followers.iter().any(|(follower, _)| follower == page);
        let bits = foreseen.pages().iter().enumerate().map(|(i, page)| u64::from(comes(page)) << i);
        let place = &self.engine.followers.places[foreseen.place];
        let came = if foreseen.is_by_tape { &place.came_by_tape } else { &place.came };
        came.store(bits.sum(), Ordering::Relaxed);
        let came_pages = followers.len() as u64;
        match self.engine.deck().filter(|_| foreseen.is_by_tape) {
            None => self.at.run.count(Counter::PagesForeseen, came_pages),
            Some(deck) => {
                deck.log.count(TapeCounter::PagesBrought, came_pages);
                self.at.run.count(Counter::PagesByTape, came_pages);
            }
        }
    }
}
