//! What compaction costs, and what it reaches: pages are written anew in whatever order, and slabs are
//! emptied as the supervisor does it that has time for it. No donors, no contents: the table alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::AtomicU64;

use spillway_pool::new_donor::NewDonor;
use spillway_pool::placement::{Chooser, Dice};
use spillway_pool::slabs::append::{Append, Item, Outcome, Sending, Step};
use spillway_pool::slabs::census::{Census, Findings, Reason, judge, slots_in};
use spillway_pool::slabs::reclaim::{Answer, Patience, Reclaim};
use spillway_pool::slabs::room::{Coding, MOVED_STREAM};
use spillway_pool::table::{Table, Terms, words_of};
use spillway_pool::words::{Condition, Place};

const DATA: usize = 4;
const PARITY: usize = 2;
const ROWS: u16 = 64;
const SLAB_PAGES: u32 = ROWS as u32 * DATA as u32;
/// Slots, all of which are in use.
const SLOTS: u32 = 40 * SLAB_PAGES;
/// Pages that are written, or moved, at once, as in a run.
const BATCH: usize = 64;
/// Pages that are written between two looks.
const BETWEEN_LOOKS: u32 = SLAB_PAGES;

struct Pool {
    words: Vec<AtomicU64>,
    chooser: Chooser,
    reclaim: Reclaim,
    dice: Dice,
    written: u64,
    moved: u64,
    was_short: bool,
    /// A donor that leaves what it is sent without an answer.
    silent: Option<usize>,
}

fn new_donor(capacity: u32, number: usize) -> NewDonor {
    NewDonor { capacity, domain: number as u32, text: String::new() }
}

impl Pool {
    /// Of six donors that lend so many extents each.
    fn new(extents: u32) -> Self {
        Self::of(DATA + PARITY, extents, 2 * extents)
    }

    /// Of so many donors, with so many numbers for slabs.
    fn of(donors: usize, extents: u32, slabs: u32) -> Self {
        let donors: Vec<NewDonor> = (0..donors).map(|number| new_donor(extents, number)).collect();
        let coding = Coding { data: DATA, parity: PARITY, slabs, slots: SLOTS, rows: ROWS };
        let terms =
            Terms { extents: 0, wanted: DATA + PARITY, least: DATA, joining: 0, coding: Some(coding) };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let chooser = Table::create(&words, &donors, terms).chooser();
        let (reclaim, dice) = (Reclaim::default(), Dice::new(7));
        Self { words, chooser, reclaim, dice, written: 0, moved: 0, was_short: false, silent: None }
    }

    fn table(&self) -> Table<'_> {
        Table::known(&self.words)
    }

    /// Writes or moves all of these; how many of them have found room.
    fn append(&mut self, stream: usize, mut items: Vec<Item>) -> usize {
        let mut stored = 0;
        while !items.is_empty() {
            let dice = self.dice.next_u64();
            let (table, mut append) = (Table::known(&self.words), Append::new(stream, items.clone(), dice));
            let mut step = append.step(&table, &self.chooser);
            let outcome = loop {
                step = match step {
                    Step::Again | Step::Pause => append.step(&table, &self.chooser),
                    Step::Send(sending) => {
                        let late = self.late_parts(&sending);
                        append.sent(&table, late == 0, late)
                    }
                    Step::Done(Outcome::Again) => break Outcome::Stored { pages: 0 },
                    Step::Done(outcome) => break outcome,
                }
            };
            let Outcome::Stored { pages } = outcome else { break };
            items.drain(..pages);
            stored += pages;
        }
        stored
    }

    /// Parts that lie on the silent donor, which is found to be away.
    fn late_parts(&self, sending: &Sending) -> u16 {
        let table = self.table();
        let Some(silent) = self.silent else { return 0 };
        let is_silent = |place: &Place| usize::from(place.donor) == silent;
        let of_part = |part: usize| u16::from(sending.places[part].as_ref().is_some_and(is_silent)) << part;
        let late = (0..sending.places.len()).fold(0, |all, part| all | of_part(part));
        if late != 0 {
            table.complain(silent, table.donor(silent), Condition::Down, 0);
        }
        late
    }

    fn write(&mut self, slots: impl Iterator<Item = u32>) {
        let slots: Vec<u32> = slots.collect();
        for slots in slots.chunks(BATCH) {
            let items = slots.iter().map(|&slot| Item { slot, check: 1, from: None }).collect();
            self.written += self.append(0, items) as u64;
        }
    }

    fn look(&mut self) -> Findings {
        let table = Table::known(&self.words);
        let mut census = Census::begin(&table);
        while !census.go_on(&table, SLOTS) {}
        census.retire(&table);
        self.reclaim.free_slabs(&table, 1, Patience { write_ms: 1, late_ms: 1 });
        for unnamed in self.reclaim.take_quiet(&table, usize::MAX) {
            self.reclaim.note(&table, unnamed, Answer::Forgotten, 1);
        }
        judge(&table, &census, 1, 1)
    }

    /// Empties slabs until that is not worth it any more.
    fn compact(&mut self) -> Findings {
        loop {
            let found = self.look();
            self.was_short |= found.is_short;
            if found.tasks.is_empty() {
                return found;
            }
            for task in &found.tasks {
                assert_eq!(task.reason, Reason::Sparse);
                assert!(self.table().fence(task.slab, task.generation));
                let slots = slots_in(&self.table(), 0..SLOTS, task.slab, task.generation);
                for slots in slots.chunks(BATCH) {
                    let from = |slot| self.table().seat(slot);
                    let items: Vec<Item> =
                        slots.iter().map(|&slot| Item { slot, check: 1, from: from(slot) }).collect();
                    let moved = self.append(MOVED_STREAM, items);
                    assert_eq!(moved, slots.len(), "it has begun to empty a slab that has no room elsewhere");
                    self.moved += moved as u64;
                }
            }
        }
    }

    /// Empties what is to be emptied, as far as there is room, until nothing is.
    fn mend(&mut self) {
        for _ in 0..100 {
            let found = self.look();
            if found.tasks.is_empty() {
                return;
            }
            for task in &found.tasks {
                assert!(self.table().fence(task.slab, task.generation));
                let slots = slots_in(&self.table(), 0..SLOTS, task.slab, task.generation);
                for slots in slots.chunks(BATCH) {
                    let item = |&slot| Item { slot, check: 1, from: self.table().seat(slot) };
                    let items = slots.iter().map(item).collect();
                    self.append(MOVED_STREAM, items);
                }
            }
        }
        panic!("there is no end to it");
    }

    /// Writes pages as `choose` says, and compacts meanwhile: how many were moved for one that was written,
    /// and how many were dead for a hundred that lived, at most.
    fn run(&mut self, mut choose: impl FnMut(&mut Dice) -> u32) -> (f64, u64) {
        self.write(0..SLOTS);
        let mut most_dead_percent = 0;
        for round in 0..8 * SLOTS / BETWEEN_LOOKS {
            let slots: Vec<u32> = (0..BETWEEN_LOOKS).map(|_| choose(&mut self.dice)).collect();
            self.write(slots.into_iter());
            let found = self.compact();
            if round == 3 * SLOTS / BETWEEN_LOOKS {
                (self.written, self.moved) = (0, 0);
            }
            let dead = found.held_pages - found.live_pages;
            most_dead_percent = most_dead_percent.max((dead * 100).div_ceil(found.live_pages));
        }
        (self.moved as f64 / self.written as f64, most_dead_percent)
    }
}

#[test]
fn at_most_a_tenth_is_dead_and_what_that_moves_is_bounded() {
    let (moved, dead_percent) = Pool::new(96).run(|dice| dice.below(SLOTS as usize) as u32);
    eprintln!(
        "any page: {moved:.2} pages are moved for one that is written, {dead_percent}% are dead at most"
    );
    assert!(dead_percent <= 10 && moved < 5.5, "{dead_percent}% {moved}");
    // Nine of ten writes are of a tenth of the pages.
    let (moved, dead_percent) = Pool::new(96).run(|dice| {
        let of = if dice.below(10) == 0 { SLOTS } else { SLOTS / 10 };
        dice.below(of as usize) as u32
    });
    eprintln!("most of a tenth: {moved:.2} pages for one, {dead_percent}% dead at most");
    assert!(dead_percent <= 10 && moved < 5.0, "{dead_percent}% {moved}");
}

#[test]
fn where_room_is_short_it_is_made_without_using_it_up() {
    // Seven eighths of what the slabs can hold beside one for each stream, and one that is emptied.
    let extents = SLOTS.div_ceil(SLAB_PAGES) * 8 / 7 + 5;
    let mut pool = Pool::new(extents);
    let (moved, _) = pool.run(|dice| dice.below(SLOTS as usize) as u32);
    let found = pool.look();
    eprintln!("short of room: {moved:.2} pages are moved for one that is written");
    // Short again and again: with all that is dead moved out of the way there is room for a while.
    assert!(pool.was_short && found.live_pages == u64::from(SLOTS), "{found:?}");
    let rounds = 8 - 3;
    assert!(pool.written >= u64::from(rounds * SLOTS - BETWEEN_LOOKS), "all found room: {}", pool.written);
}

#[test]
fn donors_that_are_silent_one_after_the_other_keep_no_room_of_the_others() {
    // As many pages as 32 MiB are where 48 were asked for, on eight donors; and no time passes, so what may
    // come late stays where it is.
    let (donors, extents, numbers) = (8, 11, 17);
    let live = 4 * SLAB_PAGES;
    let mut pool = Pool::of(donors, extents, numbers);
    pool.write(0..live);
    let any = |pool: &mut Pool, count: u32| -> Vec<u32> {
        (0..count).map(|_| pool.dice.below(live as usize) as u32).collect()
    };
    for harm in 0..24 {
        let victim = harm % donors;
        pool.silent = Some(victim);
        let slots = any(&mut pool, SLAB_PAGES);
        pool.write(slots.into_iter());
        pool.mend();
        pool.silent = None;
        // It had been stopped, and has what it had.
        let life = pool.table().donor(victim).life;
        pool.table().come_up(victim, life);
        pool.mend();
        let (before, slots) = (pool.written, any(&mut pool, SLAB_PAGES));
        pool.write(slots.into_iter());
        assert_eq!(pool.written - before, u64::from(SLAB_PAGES), "harm {harm}: no room");
        pool.mend();
    }
}
