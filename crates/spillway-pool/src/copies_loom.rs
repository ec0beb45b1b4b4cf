//! Copies of an extent: every order in which a write and a rebuild, two who place it first, or two who would
//! each give up the other's copy can get in each other's way, tried by loom (`scripts/loom`).

use std::sync::atomic::Ordering::SeqCst;

use loom::sync::Arc;
use loom::thread;

use crate::new_donor::NewDonor;
use crate::rebuild::{End, Moved, Rebuild};
use crate::shared::AtomicU64;
use crate::table::{Table, Terms, words_of};
use crate::words::{Copy, Phase, Place};
use crate::write::{Outcome, Step, Write};
use crate::{MAX_COPIES, rebuild};

const DONORS: usize = 3;
const EXTENT: u32 = 0;
/// The page that everything is about.
const SLOT: u32 = 0;
const OLD: u64 = 1;
const NEW: u64 = 2;
const TERMS: Terms = Terms { extents: 1, wanted: 2, least: 1, joining: 0, coding: None };

/// A run's table, and what the donors have of the page.
pub(crate) struct Scene {
    words: Vec<AtomicU64>,
    pages: Vec<loom::sync::atomic::AtomicU64>,
    bug: &'static str,
}

pub(crate) fn explore(body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.max_branches = 100_000;
    model.preemption_bound = Some(2);
    model.check(body);
}

impl Scene {
    /// The extent has no donors yet.
    fn new(bug: &'static str) -> Self {
        let donor = |domain| NewDonor { capacity: 2, domain, text: String::new() };
        let donors: Vec<NewDonor> = (0..DONORS as u32).map(donor).collect();
        let words: Vec<AtomicU64> = (0..words_of(&donors, TERMS)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, TERMS);
        let pages = (0..DONORS * 2).map(|_| loom::sync::atomic::AtomicU64::new(0)).collect();
        Self { words, pages, bug }
    }

    fn table(&self) -> Table<'_> {
        Table::known(&self.words).with_bug(self.bug)
    }

    fn page(&self, place: Place) -> &loom::sync::atomic::AtomicU64 {
        &self.pages[usize::from(place.donor) * 2 + place.extent as usize]
    }

    /// Writes the page, as a thread of the program does.
    fn write(&self, value: u64) -> Outcome {
        let table = self.table();
        let mut write = Write::new(EXTENT, std::array::from_fn(|at| u64::from(at == 0)), 5);
        loop {
            match write.step(&table, &table.chooser()) {
                Step::Again | Step::Wait => {}
                Step::Send { place } => {
                    self.page(place).store(value, SeqCst);
                    write.sent(place, true);
                }
                Step::Done(outcome) => return outcome,
            }
        }
    }

    /// Makes a copy anew, as the supervisor does.
    fn rebuild(&self, copy: usize, place: Place) -> End {
        let table = self.table();
        let mut rebuild = Rebuild::new(EXTENT, copy, place);
        loop {
            match rebuild.step(&table) {
                rebuild::Step::Again => {}
                rebuild::Step::Move { from, to, slots } => {
                    if crate::bits::has(&slots, SLOT) {
                        self.page(to).store(self.page(from).load(SeqCst), SeqCst);
                    }
                    rebuild.copied(&table, Moved::All);
                }
                rebuild::Step::Done(end) => return end,
            }
        }
    }

    /// What each whole copy has.
    fn whole(&self) -> Vec<u64> {
        let table = self.table();
        let seen = table.snapshot(EXTENT);
        let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy));
        whole.filter_map(|copy| Some(self.page(seen.places[copy]?).load(SeqCst))).collect()
    }
}

/// A write beside the rebuild of the extent's second copy.
fn write_beside_rebuild(bug: &'static str) {
    explore(move || {
        let scene = Arc::new(Scene::new(bug));
        assert_eq!(scene.write(OLD), Outcome::Stored { copies: 2 });
        let table = scene.table();
        let lost = table.snapshot(EXTENT).places[1].unwrap();
        assert!(table.drop_copy(EXTENT, 1, lost, u8::MAX));
        let donor = (0..DONORS).find(|donor| {
            table.snapshot(EXTENT).places.iter().flatten().all(|place| usize::from(place.donor) != *donor)
        });
        let place = table.take_place(donor.unwrap(), EXTENT).unwrap();
        let writer = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || scene.write(NEW))
        };
        let end = scene.rebuild(1, place);
        assert!(matches!(writer.join().unwrap(), Outcome::Stored { .. }));
        let whole = scene.whole();
        assert_eq!(whole.len(), if end == End::Whole { 2 } else { 1 });
        assert!(whole.iter().all(|page| *page == NEW), "a whole copy has an older page: {whole:?}");
    });
}

#[test]
fn loom_a_write_beside_a_rebuild_is_in_every_whole_copy() {
    write_beside_rebuild("");
}

#[test]
#[should_panic(expected = "a whole copy has an older page")]
fn loom_finds_a_rebuild_that_does_not_look_again_once_it_is_closing() {
    write_beside_rebuild("closing-not-checked");
}

#[test]
#[should_panic(expected = "a whole copy has an older page")]
fn loom_finds_a_write_that_marks_its_slot_only_after_it_has_looked() {
    write_beside_rebuild("dirty-after-recheck");
}

#[test]
fn loom_two_who_place_an_extent_agree_on_its_donors() {
    explore(|| {
        let scene = Arc::new(Scene::new(""));
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || place(&scene, 7))
        };
        let own = place(&scene, 1);
        assert_eq!(own, other.join().unwrap());
        assert_eq!(own.len(), 2);
        assert_ne!(own[0].donor, own[1].donor);
        // What the other has taken in vain is the extent's still: a survey frees it.
        let table = scene.table();
        let owners = (0..DONORS).flat_map(|donor| (0..2).map(move |own| (donor, own)));
        let taken = owners.filter(|(donor, own)| table.owner_of(*donor, *own) == Some(EXTENT)).count();
        assert!((2..=4).contains(&taken), "{taken}");
    });
}

fn place(scene: &Scene, dice: u64) -> Vec<Place> {
    let table = scene.table();
    while let Some(placed) = table.place_next(EXTENT, &table.chooser(), dice) {
        placed.unwrap();
    }
    let seen = table.snapshot(EXTENT);
    assert_eq!(seen.state.phase, Phase::Placed);
    seen.places.into_iter().flatten().collect()
}

/// Two writers, each of whom has not reached the other's donor: each would have the other's copy given up.
fn each_gives_up_the_others_copy(bug: &'static str) {
    explore(move || {
        let scene = Arc::new(Scene::new(bug));
        assert_eq!(scene.write(OLD), Outcome::Stored { copies: 2 });
        let places = scene.table().snapshot(EXTENT).places;
        let drop_copy = move |scene: &Scene, copy: usize| {
            let place = places[copy].unwrap();
            scene.table().drop_copy(EXTENT, copy, place, 1 << (1 - copy))
        };
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || drop_copy(&scene, 0))
        };
        let own = drop_copy(&scene, 1);
        assert!(own != other.join().unwrap(), "both were given up, or none");
        let copies = scene.table().state(EXTENT).copies;
        assert_eq!(copies.iter().filter(|copy| **copy == Copy::Whole).count(), 1);
    });
}

#[test]
fn loom_of_two_who_give_up_each_others_copy_one_may() {
    each_gives_up_the_others_copy("");
}

#[test]
#[should_panic(expected = "both were given up")]
fn loom_finds_the_last_copy_given_up() {
    each_gives_up_the_others_copy("last-copy-dropped");
}

#[test]
fn loom_an_extent_of_a_donor_is_one_owners() {
    explore(|| {
        let scene = Arc::new(Scene::new(""));
        let take = |scene: &Scene, owner: u32| scene.table().take_place(0, owner).map(|place| place.extent);
        let other = {
            let scene = Arc::clone(&scene);
            thread::spawn(move || [take(&scene, 5), take(&scene, 6)])
        };
        let own = take(&scene, 7);
        let [first, second] = other.join().unwrap();
        let mut taken: Vec<u32> = [own, first, second].into_iter().flatten().collect();
        taken.sort_unstable();
        // There are two, and three who want one.
        assert_eq!(taken, [0, 1]);
        assert_eq!(scene.table().room(0), (2, 2));
    });
}
