//! Every order in which two or three lanes can get in each other's way, tried by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p spillway-store --release loom`.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::classes::{CLASSES, Class};
use super::spans::{BITMAP_WORDS, Homes, NO_HOMES, Object, Spans, Word, hint_words};

impl Word for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn put(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn replace(&self, current: u64, new: u64) -> Result<(), u64> {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn set(&self, bits: u64) -> u64 {
        self.fetch_or(bits, Ordering::AcqRel)
    }

    fn clear(&self, bits: u64) -> u64 {
        self.fetch_and(!bits, Ordering::AcqRel)
    }
}

/// Pages that are stored as they are: 16 objects to a span.
fn class() -> Class {
    Class::holding(4096).unwrap()
}

/// A few spans, and next to each object whether somebody owns it.
struct Arena {
    states: Vec<AtomicU64>,
    bitmaps: Vec<AtomicU64>,
    free_hints: Vec<AtomicU64>,
    room_hints: Vec<AtomicU64>,
    warm: Vec<AtomicU64>,
    fresh: AtomicU64,
    owners: Vec<AtomicU64>,
}

impl Arena {
    fn new(spans: usize, warm: usize) -> Arc<Self> {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            states: words(spans),
            bitmaps: words(spans * BITMAP_WORDS),
            free_hints: words(hint_words(spans)),
            room_hints: words(hint_words(spans) * CLASSES),
            warm: words(warm),
            fresh: AtomicU64::new(0),
            owners: words(spans * 16),
        })
    }

    fn spans(&self) -> Spans<'_, AtomicU64> {
        Spans {
            states: &self.states,
            bitmaps: &self.bitmaps,
            free_hints: &self.free_hints,
            room_hints: &self.room_hints,
            warm: &self.warm,
            fresh: &self.fresh,
        }
    }

    fn owner(&self, object: Object) -> &AtomicU64 {
        &self.owners[object.span as usize * 16 + usize::from(object.index)]
    }

    fn allocate(&self, homes: &mut Homes) -> Option<Object> {
        let object = self.spans().allocate(class(), homes)?;
        assert_eq!(object.class, class());
        // Relaxed: it is for the allocator to order the owners.
        assert_eq!(self.owner(object).load(Ordering::Relaxed), 0, "{object:?} has two owners");
        self.owner(object).store(1, Ordering::Relaxed);
        Some(object)
    }

    fn free(&self, object: Object) {
        self.owner(object).store(0, Ordering::Relaxed);
        let freed = self.spans().free(object, |span| {
            for index in 0..16 {
                let owner = self.owner(Object { span, index, class: class() });
                assert_eq!(owner.load(Ordering::Relaxed), 0, "an object's memory was given back");
            }
        });
        assert!(freed);
    }

    fn take(&self, count: usize) -> Vec<Object> {
        let mut homes = NO_HOMES;
        (0..count).map(|_| self.allocate(&mut homes).unwrap()).collect()
    }

    /// Nobody is at work: what can be allocated is what is not owned, by hints alone.
    fn expect_room(&self, expected: usize) {
        let mut homes = NO_HOMES;
        let found: Vec<_> = std::iter::from_fn(|| self.allocate(&mut homes)).collect();
        assert_eq!(found.len(), expected);
        for object in found {
            self.free(object);
        }
    }
}

/// Tries all orders of `test`, without a warm place and with one.
fn model(test: impl Fn(usize) + Sync + Send + Copy + 'static) {
    for warm in [0, 1] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.max_branches = 20_000;
        builder.check(move || test(warm));
    }
}

#[test]
fn loom_the_last_object_has_one_owner() {
    model(|warm| {
        let arena = Arena::new(1, warm);
        let held = arena.take(15);
        let other = thread::spawn({
            let arena = arena.clone();
            move || arena.allocate(&mut NO_HOMES.clone())
        });
        let here = arena.allocate(&mut NO_HOMES.clone());
        let there = other.join().unwrap();
        assert!(here.is_some() != there.is_some(), "{here:?} and {there:?}");
        for object in held.into_iter().chain(here).chain(there) {
            arena.free(object);
        }
        assert_eq!(arena.spans().spans_in_use(), 0);
    });
}

#[test]
fn loom_a_span_that_empties_is_not_used_meanwhile() {
    model(|warm| {
        let arena = Arena::new(1, warm);
        let [last] = arena.take(1)[..] else { unreachable!() };
        let other = thread::spawn({
            let arena = arena.clone();
            move || {
                if let Some(object) = arena.allocate(&mut NO_HOMES.clone()) {
                    arena.free(object);
                }
            }
        });
        arena.free(last);
        other.join().unwrap();
        assert_eq!(arena.spans().spans_in_use(), 0);
        arena.expect_room(16);
    });
}

#[test]
fn loom_two_lanes_write_and_free() {
    model(|warm| {
        let arena = Arena::new(2, warm);
        let other = thread::spawn({
            let arena = arena.clone();
            move || {
                let object = arena.allocate(&mut NO_HOMES.clone()).expect("there is room");
                arena.free(object);
            }
        });
        let object = arena.allocate(&mut NO_HOMES.clone()).expect("there is room");
        arena.free(object);
        other.join().unwrap();
        assert_eq!(arena.spans().spans_in_use(), 0);
        arena.expect_room(32);
    });
}

#[test]
fn loom_room_made_in_a_span_that_fills_is_hinted() {
    model(|warm| {
        let arena = Arena::new(1, warm);
        let held = arena.take(15);
        let other = thread::spawn({
            let arena = arena.clone();
            move || arena.allocate(&mut NO_HOMES.clone()).expect("there is room")
        });
        arena.free(held[0]);
        other.join().unwrap();
        let words = hint_words(1);
        let hints = &arena.room_hints[class().number() * words];
        assert_eq!(hints.get(), 1, "the room is forgotten");
        arena.expect_room(1);
    });
}

#[test]
fn loom_a_warm_span_has_one_taker() {
    model(|warm| {
        let arena = Arena::new(2, warm);
        for object in arena.take(1) {
            arena.free(object);
        }
        let lane = |arena: Arc<Arena>| move || arena.allocate(&mut NO_HOMES.clone()).expect("there is room");
        let other = thread::spawn(lane(arena.clone()));
        let here = lane(arena.clone())();
        let there = other.join().unwrap();
        arena.free(here);
        arena.free(there);
        assert_eq!(arena.spans().spans_in_use(), 0);
        arena.expect_room(32);
    });
}
