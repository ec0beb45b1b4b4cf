//! Slabs: every order in which writes, moves, and who empties and frees slabs can get in each other's way,
//! tried by loom (`scripts/loom`).

use loom::sync::Arc;
use loom::thread;

use crate::copies_loom::explore;
use crate::new_donor::NewDonor;
use crate::shared::AtomicU64;
use crate::slabs::append::{Append, Item, Outcome, Step};
use crate::slabs::room::{Coding, MOVED_STREAM};
use crate::slabs::slab::Rows;
use crate::slabs::words::{Seat, SlabPhase, SlabWord};
use crate::table::{Table, Terms, words_of};

const CODING: Coding = Coding { data: 2, parity: 1, slabs: 8, slots: 4, rows: 4 };
const TERMS: Terms = Terms { extents: 0, wanted: 3, least: 2, joining: 0, coding: Some(CODING) };
const SLOT: u32 = 1;
const OLD: u32 = 1;
const NEW: u32 = 2;

/// The table of a run.
struct Scene {
    words: Vec<AtomicU64>,
    bug: &'static str,
}

impl Scene {
    fn new(bug: &'static str) -> Self {
        let donor = |domain| NewDonor { capacity: 6, domain, text: String::new() };
        let donors: Vec<NewDonor> = (0..3).map(donor).collect();
        let words: Vec<AtomicU64> = (0..words_of(&donors, TERMS)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, TERMS);
        Self { words, bug }
    }

    fn table(&self) -> Table<'_> {
        Table::known(&self.words).with_bug(self.bug)
    }

    /// Writes the slot's page, or moves it from somewhere; every donor takes its part.
    fn append(&self, stream: usize, check: u32, from: Option<Seat>) -> Outcome {
        let table = self.table();
        let mut append = Append::new(stream, vec![Item { slot: SLOT, check, from }], 3);
        let mut step = append.step(&table, &table.chooser());
        loop {
            step = match step {
                Step::Again | Step::Pause => append.step(&table, &table.chooser()),
                Step::Send(_) => append.sent(&table, true, 0),
                Step::Done(outcome) => return outcome,
            };
        }
    }

    /// The slot's page is stored, in a slab of its own.
    fn with_a_page(bug: &'static str) -> (Self, Seat) {
        let scene = Self::new(bug);
        assert_eq!(scene.append(0, OLD, None), Outcome::Stored { pages: 1 });
        let seat = scene.table().seat(SLOT).unwrap();
        (scene, seat)
    }

    /// What the slot's page hashes to.
    fn page(&self) -> u32 {
        let table = self.table();
        let seat = table.seat(SLOT).unwrap();
        table.check(seat.slab, usize::from(seat.part), seat.row)
    }
}

/// A write to a slab that somebody empties: he sees the page there, or it is not there in the end.
fn write_beside_fence(bug: &'static str) {
    explore(move || {
        let (scene, seat) = Scene::with_a_page(bug);
        let scene = Arc::new(scene);
        let writer = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.append(0, NEW, None))
        };
        let table = scene.table();
        // What was there is dropped first: nothing else lives in it.
        let is_fenced = table.fence(seat.slab, seat.generation);
        let seen = table.seat(SLOT).filter(|now| now.slab == seat.slab && *now != seat);
        let outcome = writer.join().unwrap();
        assert!(is_fenced);
        let now = table.seat(SLOT).filter(|now| now.slab == seat.slab && *now != seat);
        let is_missed = matches!(outcome, Outcome::Stored { .. }) && now.is_some() && seen.is_none();
        assert!(!is_missed, "a page is in a slab that counts as empty");
    });
}

#[test]
fn loom_who_empties_a_slab_sees_the_page_or_the_write_sees_the_fence() {
    write_beside_fence("");
}

#[test]
#[should_panic(expected = "counts as empty")]
fn loom_finds_a_write_that_does_not_look_for_the_fence() {
    write_beside_fence("fence-not-seen");
}

/// A move of a page beside a write of it.
fn move_beside_write(bug: &'static str) {
    explore(move || {
        let (scene, seat) = Scene::with_a_page(bug);
        let scene = Arc::new(scene);
        let mover = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.append(MOVED_STREAM, OLD, Some(seat)))
        };
        assert_eq!(scene.append(0, NEW, None), Outcome::Stored { pages: 1 });
        assert_eq!(mover.join().unwrap(), Outcome::Stored { pages: 1 });
        assert!(scene.page() == NEW, "an older page came over a newer one");
    });
}

#[test]
fn loom_a_move_never_puts_an_older_page_over_a_newer_one() {
    move_beside_write("");
}

#[test]
#[should_panic(expected = "an older page")]
fn loom_finds_a_move_that_does_not_look_whether_the_page_is_still_there() {
    move_beside_write("moved-over-newer");
}

/// Two who want rows of one slab.
fn two_claim_rows(bug: &'static str) {
    explore(move || {
        let (scene, seat) = Scene::with_a_page(bug);
        let scene = Arc::new(scene);
        let claim = move |scene: &Scene| scene.table().claim_rows(seat.slab, seat.generation, 2);
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || claim(&scene))
        };
        let rows: Vec<Rows> = [claim(&scene), other.join().unwrap()].into_iter().flatten().collect();
        let mut all: Vec<u16> = rows.iter().flat_map(|rows| rows.first..rows.first + rows.count).collect();
        all.sort_unstable();
        assert!(all == [1, 2, 3], "rows were given out twice, or lost: {all:?}");
    });
}

#[test]
fn loom_rows_are_given_out_once() {
    two_claim_rows("");
}

#[test]
#[should_panic(expected = "given out twice")]
fn loom_finds_rows_that_are_given_out_twice() {
    two_claim_rows("rows-given-twice");
}

/// Somebody notes that his write may come late, and ends it, while the supervisor frees the slab.
fn late_write_beside_the_end(bug: &'static str) {
    explore(move || {
        let (scene, seat) = Scene::with_a_page(bug);
        let rows = scene.table().claim_rows(seat.slab, seat.generation, 1).unwrap();
        let place = scene.table().see_slab(seat.slab).places[0].unwrap();
        let scene = Arc::new(scene);
        let writer = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || {
                let table = scene.table();
                table.expect_late(seat.slab, seat.generation, 0);
                table.end_rows(&rows);
            })
        };
        let table = scene.table();
        table.forget(SLOT);
        assert!(table.fence(seat.slab, seat.generation));
        loop {
            let word = table.slab(seat.slab);
            if table.change_slab(seat.slab, word, SlabWord { phase: SlabPhase::Retired, ..word }) {
                break;
            }
        }
        // It was waited for the writer for so long that he counts as gone.
        let quiet = table.free_slab(seat.slab);
        writer.join().unwrap();
        assert!(quiet.iter().all(|unnamed| unnamed.place != place), "something may come late to a place");
        // It is the slab's still: nobody else takes it.
        assert_eq!(table.owner_of(usize::from(place.donor), place.extent), Some(seat.slab));
        assert_eq!(table.slab(seat.slab).phase, SlabPhase::Free);
    });
}

#[test]
fn loom_a_place_to_which_a_write_may_come_late_is_not_taken_for_quiet() {
    late_write_beside_the_end("");
}

#[test]
#[should_panic(expected = "may come late to a place")]
fn loom_finds_a_late_write_that_was_not_noted() {
    late_write_beside_the_end("late-write-forgotten");
}
