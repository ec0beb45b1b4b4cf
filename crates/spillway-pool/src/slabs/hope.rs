//! How long room is waited for where a write has found none. It may be about to come: what is dead is cleared
//! away, a donor comes. So who finds none waits, for a bounded time. But where a wait was in vain, and
//! nothing has happened by which room could come, so would be the next, and a program that goes on would
//! stand still once for every few pages: it is refused at once.
//!
//! Counted as *news* are memory of donors and numbers of slabs that are free again; donors that come, come up
//! with room, or stay after all; a slab that is about to be emptied for what is dead in it; and that room is
//! to come, as the supervisor has found. A wait was in vain if it lasted its time without any; or if the
//! supervisor has looked since, has found all full, and nothing that is worth doing for it.
//!
//! Pages that were forgotten are no news themselves, for a program that reads while stores are full forgets
//! one for each that comes in. They give hope, where they are as many as it takes for a slab to be emptied,
//! until the supervisor has looked what follows from them.

use std::sync::atomic::Ordering::SeqCst;

use crate::slabs::census::{Census, Findings, LEAST_GAIN_PERCENT, Task};
use crate::slabs::make::KEPT_FOR_MOVES;
use crate::slabs::slab::{FORGOTTEN_AT, IN_VAIN_AT, LOOKED_AT, ROOM_NEWS_AT};
use crate::table::Table;

/// A write that may have to wait for room, and what was so when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomWait {
    since_ms: u64,
    news: u64,
    forgotten: u64,
}

impl RoomWait {
    /// Begins, before room is looked for.
    #[must_use]
    pub fn begin(table: &Table<'_>, now_ms: u64) -> Self {
        Self { since_ms: now_ms, news: table.room_news(), forgotten: table.forgotten() }
    }

    /// When it began, by the clock of who waits.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// How long it has lasted.
    #[must_use]
    pub fn waited_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms)
    }

    /// Whether a write that has found no room looks again a moment later: for so long at most, and not where
    /// another wait was in vain since anything happened.
    #[must_use]
    pub fn goes_on(&self, table: &Table<'_>, now_ms: u64, patience_ms: u64) -> bool {
        if !table.is_room_hoped_for() {
            return false;
        }
        let is_patient = self.waited_ms(now_ms) < patience_ms;
        if !is_patient && !table.planted("wait-in-vain-forgotten") {
            table.note_in_vain(self);
        }
        is_patient
    }
}

impl Table<'_> {
    /// Notes that something has happened by which room may come.
    pub fn note_room_news(&self) {
        if !self.planted("room-news-not-noted") {
            self.words()[ROOM_NEWS_AT].fetch_add(1, SeqCst);
        }
    }

    /// The same where a donor has memory for pages that are new. One that leaves has none: if it stays after
    /// all, that is told then.
    pub(crate) fn note_room_of(&self, donor: usize) {
        let (capacity, used) = self.room(donor);
        if capacity > used.saturating_add(KEPT_FOR_MOVES) && !self.is_leaving(donor) {
            self.note_room_news();
        }
    }

    pub(crate) fn room_news(&self) -> u64 {
        self.header(ROOM_NEWS_AT)
    }

    /// How many pages were forgotten, in all.
    pub(crate) fn forgotten(&self) -> u64 {
        self.header(FORGOTTEN_AT)
    }

    /// Notes what follows from a look: these slabs are emptied next. Before that is said whether room is to
    /// come ([`Table::set_room_coming`]). For the supervisor alone.
    pub fn note_looked<'t>(&self, census: &Census, tasks: impl IntoIterator<Item = &'t Task>) {
        if tasks.into_iter().any(Task::makes_room) {
            self.note_room_news();
        }
        self.words()[LOOKED_AT].store(census.forgotten, SeqCst);
    }

    /// Notes that a look has found no room, and nothing to be done for it: who waits for that waits in vain,
    /// unless something has happened since the look began. `is_given_back` where memory of donors is about to
    /// be. Whether it was noted. For the supervisor alone.
    pub fn note_no_room_comes(&self, census: &Census, found: &Findings, is_given_back: bool) -> bool {
        let news = if self.planted("look-over-news") { self.room_news() } else { census.room_news };
        let is_noted = found.brings_no_room(is_given_back) && news == self.room_news();
        if is_noted {
            self.words()[IN_VAIN_AT].store(news + 1, SeqCst);
        }
        is_noted
    }

    /// Whether who finds no room may wait for it.
    #[must_use]
    pub fn is_room_hoped_for(&self) -> bool {
        let is_known = self.header(IN_VAIN_AT) == self.room_news() + 1;
        !is_known || self.forgotten().saturating_sub(self.header(LOOKED_AT)) >= self.worth_a_look()
    }

    /// Forgotten pages that may have a slab emptied.
    fn worth_a_look(&self) -> u64 {
        let pages = u64::from(self.rows()) * self.data_parts() as u64;
        (pages * LEAST_GAIN_PERCENT / 100).max(1)
    }

    fn note_in_vain(&self, wait: &RoomWait) {
        if wait.news == self.room_news() {
            self.words()[IN_VAIN_AT].store(wait.news + 1, SeqCst);
            // Where there is no supervisor nobody looks.
            let looked = wait.forgotten.max(self.header(LOOKED_AT));
            self.words()[LOOKED_AT].store(looked, SeqCst);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::slabs::append::{Append, Item, Outcome, Step};
    use crate::slabs::census::{Reason, judge};
    use crate::slabs::reclaim::Unnamed;
    use crate::slabs::room::Coding;
    use crate::slabs::words::{SlabPhase, SlabWord};
    use crate::table::{Terms, words_of};
    use crate::words::{Condition, Place};

    const PATIENCE_MS: u64 = 2_000;
    const PAUSE_MS: u64 = 10;
    /// Rows of a slab, with two pages each; and what of them is worth a look.
    const ROWS: u16 = 40;
    const WORTH_A_LOOK: u32 = 4;
    const SLOTS: u32 = 400;

    fn new_donor(domain: u32) -> NewDonor {
        NewDonor { capacity: 4, domain, text: String::new() }
    }

    /// Three donors with room for four slabs, of which two are for what is new. They are filled with pages
    /// that live.
    fn full() -> Vec<AtomicU64> {
        let donors: Vec<NewDonor> = (0..3).map(new_donor).collect();
        let coding = Coding { data: 2, parity: 1, slabs: 8, slots: SLOTS, rows: ROWS };
        let terms = Terms { extents: 0, wanted: 3, least: 2, joining: 1, coding: Some(coding) };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors, terms);
        let pages = u32::from(ROWS) * 2;
        for first in [0, pages] {
            assert!(matches!(write(&table, first..first + pages), Outcome::Stored { .. }));
        }
        assert_eq!(write(&table, 2 * pages..SLOTS), Outcome::NoRoom);
        words
    }

    fn write(table: &Table<'_>, slots: std::ops::Range<u32>) -> Outcome {
        let item = |slot| Item { slot, check: 1, from: None };
        let mut append = Append::new(0, slots.map(item).collect(), 3);
        loop {
            match append.step(table, &table.chooser()) {
                Step::Send(_) => _ = append.sent(table, true, 0),
                Step::Done(outcome) => return outcome,
                Step::Again | Step::Pause => {}
            }
        }
    }

    /// How often a write pauses before it is refused, and the clock then.
    fn pauses(table: &Table<'_>, now_ms: &mut u64) -> u64 {
        let wait = RoomWait::begin(table, *now_ms);
        let mut count = 0;
        while wait.goes_on(table, *now_ms, PATIENCE_MS) {
            count += 1;
            *now_ms += PAUSE_MS;
        }
        count
    }

    const TASK: Task = Task { slab: 0, generation: 1, reason: Reason::Sparse, parts_left: 3, live: 1 };

    fn looked(table: &Table<'_>) -> (Census, Findings) {
        let mut census = Census::begin(table);
        while !census.go_on(table, SLOTS) {}
        let found = judge(table, &census, 1, 0);
        (census, found)
    }

    #[test]
    fn of_many_writes_that_find_no_room_the_first_alone_waits() {
        let words = full();
        let (table, mut now_ms) = (Table::known(&words), 1);
        let waits: Vec<u64> = (0..1000).map(|_| pauses(&table, &mut now_ms)).collect();
        assert_eq!((waits[0], waits[1..].iter().sum()), (PATIENCE_MS / PAUSE_MS, 0));
        assert_eq!(now_ms, 1 + PATIENCE_MS);
    }

    #[test]
    fn whatever_may_bring_room_gives_hope_for_one_more_wait() {
        type Deed = fn(&Table<'_>);
        const BACK: &str = "a donor with room is back";
        let deeds: [(&str, Deed); 8] = [
            ("memory is free", |table| {
                let place = Place { donor: 1, life: table.donor(1).life, extent: 0 };
                let slab = table.owner_of(1, 0).unwrap();
                table.free_unnamed(Unnamed { slab, place });
            }),
            ("a slab is free", |table| {
                let before = table.slab(0);
                let retired = SlabWord { phase: SlabPhase::Retired, ..before };
                assert!(table.change_slab(0, before, retired));
                let _ = table.free_slab(0);
            }),
            ("a donor comes", |table| _ = table.join(&new_donor(3)).unwrap()),
            ("a donor has memory anew", |table| table.set_memory(0, 4)),
            (BACK, |table| table.come_up(2, table.donor(2).life)),
            ("a donor with room stays", |table| table.set_leaving(2, false)),
            ("room is to come", |table| table.set_room_coming(9_999, 5_000)),
            ("a slab is emptied", |table| {
                (0..20).for_each(|slot| table.forget(slot));
                let (census, mut found) = looked(table);
                found.tasks.retain(Task::makes_room);
                assert!(!found.tasks.is_empty(), "{found:?}");
                table.note_looked(&census, &found.tasks);
            }),
        ];
        for (what, deed) in deeds {
            let words = full();
            let (table, mut now_ms) = (Table::known(&words), 1);
            // One is away, and leaves unless it is to be of use as soon as it is back; it has room.
            table.set_memory(2, 9);
            table.set_leaving(2, what != BACK);
            table.complain(2, table.donor(2), Condition::Down, 1);
            assert!(pauses(&table, &mut now_ms) > 0 && pauses(&table, &mut now_ms) == 0);
            deed(&table);
            assert_eq!(pauses(&table, &mut now_ms), PATIENCE_MS / PAUSE_MS, "{what}");
            assert_eq!(pauses(&table, &mut now_ms), 0, "{what}");
        }
    }

    #[test]
    fn what_brings_no_room_gives_no_hope() {
        let words = full();
        let (table, mut now_ms) = (Table::known(&words), 1);
        assert!(pauses(&table, &mut now_ms) > 0);
        // A donor that is full goes and comes back; none has left, and no room is to come.
        table.complain(0, table.donor(0), Condition::Suspect, 1);
        table.come_up(0, table.donor(0).life);
        table.set_leaving(0, true);
        table.set_leaving(0, false);
        table.set_leaving(1, false);
        table.set_memory(3, 0);
        table.set_room_coming(0, now_ms);
        // What is kept for pages that are moved is theirs only.
        let place = table.take_place(1, 0).unwrap();
        table.free_unnamed(Unnamed { slab: 0, place });
        let (census, found) = looked(&table);
        table.note_looked(&census, &found.tasks);
        assert_eq!(pauses(&table, &mut now_ms), 0);
    }

    #[test]
    fn room_on_a_donor_that_leaves_gives_no_hope_until_it_stays() {
        let words = full();
        let (table, mut now_ms) = (Table::known(&words), 1);
        assert!(pauses(&table, &mut now_ms) > 0);
        table.set_leaving(0, true);
        // All that it had is given back, and it goes and comes back: it takes nothing new.
        for extent in 0..table.room(0).0 {
            table.owner_of(0, extent).into_iter().for_each(|slab| table.free_place(0, extent, slab));
        }
        table.complain(0, table.donor(0), Condition::Suspect, 1);
        table.come_up(0, table.donor(0).life);
        assert_eq!((table.room(0).1, pauses(&table, &mut now_ms)), (0, 0));
        table.set_leaving(0, false);
        assert_eq!(pauses(&table, &mut now_ms), PATIENCE_MS / PAUSE_MS);
    }

    #[test]
    fn pages_that_are_forgotten_give_hope_until_the_supervisor_has_looked() {
        let words = full();
        let (table, mut now_ms) = (Table::known(&words), 1);
        assert!(pauses(&table, &mut now_ms) > 0);
        (0..WORTH_A_LOOK - 1).for_each(|slot| table.forget(slot));
        // Twice the same page counts once.
        table.forget(0);
        assert_eq!(pauses(&table, &mut now_ms), 0, "too few");
        table.forget(WORTH_A_LOOK);
        assert!(table.is_room_hoped_for());
        let wait = RoomWait::begin(&table, now_ms);
        assert!(wait.goes_on(&table, now_ms, PATIENCE_MS));
        let (census, _) = looked(&table);
        assert!(wait.goes_on(&table, now_ms + 1, PATIENCE_MS), "it does not know yet what follows");
        table.note_looked(&census, []);
        assert!(!wait.goes_on(&table, now_ms + 2, PATIENCE_MS), "nothing follows");
        // Where there is no supervisor, one wait is enough.
        (0..2 * WORTH_A_LOOK).for_each(|slot| table.forget(20 + slot));
        assert_eq!(pauses(&table, &mut now_ms), PATIENCE_MS / PAUSE_MS);
        assert_eq!(pauses(&table, &mut now_ms), 0);
    }

    #[test]
    fn where_a_look_finds_nothing_to_be_done_for_room_a_wait_ends() {
        let words = full();
        let (table, mut now_ms) = (Table::known(&words), 1);
        let wait = RoomWait::begin(&table, now_ms);
        let (census, found) = looked(&table);
        assert!(found.is_full && found.tasks.is_empty(), "{found:?}");
        assert!(!table.note_no_room_comes(&census, &found, true), "what is given back is room");
        let emptied = Findings { tasks: vec![TASK], ..found.clone() };
        assert!(!table.note_no_room_comes(&census, &emptied, false), "a slab is emptied");
        table.note_room_news();
        assert!(!table.note_no_room_comes(&census, &found, false), "something has happened since");
        assert!(wait.goes_on(&table, now_ms, PATIENCE_MS));
        let (census, found) = looked(&table);
        assert!(table.note_no_room_comes(&census, &found, false));
        assert!(!wait.goes_on(&table, now_ms, PATIENCE_MS) && pauses(&table, &mut now_ms) == 0);
        // What has room, or may have when it is back, is not full.
        table.complain(0, table.donor(0), Condition::Suspect, 1);
        assert!(!looked(&table).1.is_full);
        table.come_up(0, table.donor(0).life);
        (0..3).for_each(|donor| table.set_memory(donor, 9));
        assert!(!looked(&table).1.is_full);
    }

    #[test]
    fn a_wait_in_which_something_happened_was_not_in_vain() {
        let words = full();
        let (table, now_ms) = (Table::known(&words), 1);
        let [early, late] = [now_ms, now_ms + PATIENCE_MS - 1].map(|at_ms| {
            let wait = RoomWait::begin(&table, at_ms);
            table.note_room_news();
            wait
        });
        let end_ms = now_ms + PATIENCE_MS;
        assert!(!early.goes_on(&table, end_ms, PATIENCE_MS) && late.goes_on(&table, end_ms, PATIENCE_MS));
        assert_eq!((early.since_ms(), late.waited_ms(end_ms)), (now_ms, 1));
        assert!(table.is_room_hoped_for());
        // Nor does its end take anything back that another has found since.
        let newer = RoomWait::begin(&table, end_ms);
        table.note_in_vain(&newer);
        table.note_in_vain(&early);
        assert!(!table.is_room_hoped_for());
    }
}
