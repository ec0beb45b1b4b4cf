//! Tapes ([`spillway_policy::tape`]): the pages that came to a thread's faults are written down, and a later
//! run of the same program fetches those that stand behind the one that faults.
//!
//! *Recording*: each fault that fetches appends its page, and the rest of its stream's block. Nothing is
//! foreseen meanwhile, so that no wrong guess gets onto the tape.
//!
//! *Playing*: a thread's fault is looked for on the tape, a little way on from the last one. What stands
//! behind it and is far comes along, as foreseen pages do ([`crate::fault::foreseen`]): on the same store,
//! locked where nobody has them, charged where there is room, checked one by one. So a wrong tape costs a
//! fetch, never data. How many come the window says. A thread that is not found for some faults is lost: it
//! is looked for on all of the tape, by an index, and gets nothing until it has been found.
//!
//! Pages go by their mapping and their place in it ([`crate::pages::origins`]). Nothing here allocates, or
//! waits for more than a look at the mappings.

use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_policy::fault_trace::{Event, Taped};
use spillway_policy::streams::Direction;
use spillway_policy::tape::window::MOST_ASKED_PAGES;
use spillway_policy::tape::{MOST_RUN_PAGES, Met, Run, Score};

use crate::fault::elastic::HeldBlock;
use crate::fault::followed::{Foreseen, Place};
use crate::fault::player::{Player, Spot};
use crate::kernel::Kernel;
use crate::process::deck::Deck;
use crate::process::worker::Worker;
use crate::run::state::Counter;
use crate::run::tape_log::TapeCounter;

/// Runs behind the last fault's among which the next is looked for.
const NEAR_RUNS: usize = 256;
/// Pages that a fault looks at behind its own, local ones included.
const AHEAD_PAGES: usize = 512;
/// Pages that a thread has passed are looked at, at most.
const PASSED_PAGES: u64 = 128;

impl<K: Kernel> Worker<K> {
    /// Writes down that a fault brings a page, and the rest of its block in the order in which it will be
    /// used.
    pub(crate) fn record_on_tape(&self, page_number: u64, block: &HeldBlock) {
        let Some(deck) = self.engine.deck().filter(|deck| deck.is_recording()) else { return };
        deck.log.count(TapeCounter::Fetches, 1);
        if self.faulting_thread == 0 {
            return;
        }
        match block.direction {
            Direction::Up => self.record_run(deck, page_number..block.pages.end),
            Direction::Down => {
                block.pages.clone().rev().for_each(|page| self.record_run(deck, page..page + 1));
            }
        }
    }

    fn record_run(&self, deck: &Deck, pages: Range<u64>) {
        let Some(origin) = deck.origin_of::<K>(pages.start) else { return };
        let count = (pages.end - pages.start).clamp(1, MOST_RUN_PAGES.min(origin.pages)) as u8;
        let thread = self.engine.followers.place_of(self.faulting_thread) as u32;
        deck.log.append(thread, Run { mapping: origin.mapping, page: origin.page, pages: count });
    }

    /// The pages that the tape has behind this one, worth a fetch with it; `None` where no tape is played, or
    /// this page is not on it where its thread is.
    pub(crate) fn foresee_by_tape(&self, page_number: u64) -> Option<Foreseen> {
        let deck = self.engine.deck()?;
        let score = deck.score()?;
        let most = (self.at.max_block_pages - 1).min(MOST_ASKED_PAGES);
        // A system call's pages are asked for by nobody in particular.
        if self.faulting_thread == 0 || most == 0 {
            return None;
        }
        let index = self.engine.followers.place_of(self.faulting_thread);
        let place = &self.engine.followers.places[index];
        let mut followed = place.followed.try_lock().ok()?;
        let is_new = followed.begin(self.faulting_thread);
        let player = &mut followed.player;
        let found = self.find_on_tape(deck, score, player, page_number);
        let met = found.map_or(Met::Nowhere, |(_, met)| met);
        self.count_used(deck, place, is_new, met);
        let wanted = player.window.fault(met, most);
        let mut foreseen = Foreseen::by_tape(index);
        if let Some((spot, _)) = found {
            player.next = Spot { within: spot.within + 1, ..spot };
            player.count = 0;
            self.ask_of_tape(deck, score, player, wanted, &mut foreseen);
        }
        player.window.ask(foreseen.pages().len());
        self.engine.note(|| {
            let (place, asked) = (index as u8, foreseen.pages().to_vec());
            let (most, wanted) = (most as u64, wanted as u64);
            Event::Taped(Taped { place, is_new, page_number, met, most, wanted, asked })
        });
        found.map(|_| foreseen)
    }

    /// Counts the fault, and which of the pages that came by the last one were used.
    fn count_used(&self, deck: &Deck, place: &Place, is_new: bool, met: Met) {
        deck.log.count(TapeCounter::Fetches, 1);
        if matches!(met, Met::Nowhere) {
            return;
        }
        deck.log.count(TapeCounter::FetchesOnTape, 1);
        self.at.run.count(Counter::FaultsOnTape, 1);
        let came = if is_new { 0 } else { place.came_by_tape.swap(0, Ordering::Relaxed) };
        if let Met::Next { used, .. } = met {
            let used_pages = (came & ((1 << used) - 1)).count_ones().into();
            deck.log.count(TapeCounter::PagesUsed, used_pages);
            self.at.run.count(Counter::PagesAheadUsed, used_pages);
            self.at.run.count(Counter::PagesByTapeUsed, used_pages);
        }
    }

    fn find_on_tape(
        &self,
        deck: &Deck,
        score: Score<'_>,
        player: &Player,
        page_number: u64,
    ) -> Option<(Spot, Met)> {
        if !player.window.is_lost()
            && let Some(spot) = near(deck, score, player.next, page_number)
        {
            let used = player.asked_before(spot) as u64;
            let (passed, passed_far) = self.passed(deck, score, player.next, spot);
            return Some((spot, Met::Next { used, passed, passed_far }));
        }
        if !player.window.is_looked_for() {
            return None;
        }
        let origin = deck.origin_of::<K>(page_number)?;
        let (position, within) = score.find(origin.mapping, origin.page, player.next.position)?;
        Some((Spot { position, within }, Met::Elsewhere))
    }

    /// How many pages stand on the tape from one place to another, as far as they are looked at, and how many
    /// of them are far.
    fn passed(&self, deck: &Deck, score: Score<'_>, from: Spot, to: Spot) -> (u64, u64) {
        let (mut passed, mut far) = (0, 0);
        let mut spot = from;
        while spot < to && passed < PASSED_PAGES {
            let Some(run) = score.run(spot.position) else { break };
            let pages = rest(deck, run, spot.within);
            let end = if spot.position == to.position { to.within } else { run.pages };
            for page in pages.take(usize::from(end.saturating_sub(spot.within))) {
                passed += 1;
                far += u64::from(self.is_far(page));
            }
            spot = Spot { position: spot.position + 1, within: 0 };
        }
        (passed, far)
    }

    /// Adds the far pages that stand next on the tape.
    fn ask_of_tape(
        &self,
        deck: &Deck,
        score: Score<'_>,
        player: &mut Player,
        wanted: usize,
        foreseen: &mut Foreseen,
    ) {
        let (mut spot, mut looked) = (player.next, 0);
        while looked < AHEAD_PAGES && player.count < wanted {
            let Some(run) = score.run(spot.position) else { return };
            for (i, page) in rest(deck, run, spot.within).enumerate() {
                let is_asked = foreseen.pages().contains(&page);
                if !is_asked && self.is_far(page) && player.count < wanted && foreseen.push(page) {
                    player.asked[player.count] = Spot { within: spot.within + i as u8, ..spot };
                    player.count += 1;
                }
                looked += 1;
            }
            looked += 1;
            spot = Spot { position: spot.position + 1, within: 0 };
        }
    }
}

/// The pages of a run from one of them on.
fn rest(deck: &Deck, run: Run, within: u8) -> Range<u64> {
    let pages = deck.pages_of(run).unwrap_or_default();
    pages.start + u64::from(within).min(pages.end - pages.start)..pages.end
}

/// Where a page stands next on the tape.
fn near(deck: &Deck, score: Score<'_>, from: Spot, page_number: u64) -> Option<Spot> {
    let mut within = from.within;
    for position in from.position..from.position.saturating_add(NEAR_RUNS) {
        let run = score.run(position)?;
        let pages = deck.pages_of(run).unwrap_or_default();
        if pages.contains(&page_number) && page_number - pages.start >= within.into() {
            return Some(Spot { position, within: (page_number - pages.start) as u8 });
        }
        within = 0;
    }
    None
}
