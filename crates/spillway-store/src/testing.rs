//! What every store must do, as a test that takes a URI: [`check_store`]. In this crate's own tests, and
//! under feature `testing` for crates that bring the other end of a store.
#![allow(clippy::expect_used, clippy::missing_panics_doc)]

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use spillway_core::page::{PAGE_SIZE, Page};

use crate::{Lane, ReadRequest, SharedParts, Store, StoreError, StoreSpec, WriteRequest};

/// Slots that the random batches play with.
const SLOTS: u32 = 96;

/// Prepares a store and opens it once.
pub fn open_store(uri: &str) -> (SharedParts, Arc<dyn Store>) {
    let spec: StoreSpec = uri.parse().expect(uri);
    let parts = spec.prepare("test").expect(uri);
    let store = open_again(&spec, &parts);
    (parts, store)
}

/// Opens a prepared store once more, as a further process of the run does.
pub fn open_again(spec: &StoreSpec, parts: &SharedParts) -> Arc<dyn Store> {
    let copy = |fd: &Option<std::os::fd::OwnedFd>| {
        fd.as_ref().map(|fd| fd.try_clone().expect("a copy of the descriptor"))
    };
    let (fd, spill) = (copy(&parts.fd), copy(&parts.spill));
    let parts =
        SharedParts { capacity_slots: parts.capacity_slots, fd, held: Vec::new(), spill, notice: None };
    spec.open(parts, "test").expect("the store opens again")
}

/// A page that `seed` alone determines: random, text, sparse or half random bytes, never all zeros.
#[must_use]
pub fn page_of(seed: u64) -> Page {
    let mut page = [0; PAGE_SIZE];
    let mut state = seed;
    let mut next = || {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    for (at, word) in page.chunks_exact_mut(8).enumerate() {
        let random = next();
        let value = match seed % 4 {
            0 => random,
            1 => {
                u64::from_le_bytes(*[b"the page", b"is local", b" or far ", b"and kept"][random as usize % 4])
            }
            2 if at % 32 == 0 => random | 1,
            3 if at >= PAGE_SIZE / 16 => random,
            _ => 0,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    page
}

/// Incompressible pages, different for every `seed`.
#[must_use]
pub fn pages(count: usize, seed: u64) -> Vec<Page> {
    (0..count as u64).map(|number| page_of((seed << 32 | number) * 4)).collect()
}

/// Writes `pages` to `slots` in one batch and returns the outcomes.
pub fn write(lane: &mut dyn Lane, slots: &[u32], pages: &[Page]) -> Vec<Result<(), StoreError>> {
    let mut batch: Vec<_> = slots
        .iter()
        .zip(pages)
        .map(|(slot, page)| WriteRequest { slot: *slot, page, outcome: Ok(()) })
        .collect();
    lane.write(&mut batch);
    batch.into_iter().map(|request| request.outcome).collect()
}

/// Writes `pages` to `slots` a few at a time until the store is full; returns how many it took, from the
/// first on. Any other failure panics.
pub fn fill(lane: &mut dyn Lane, slots: &[u32], pages: &[Page]) -> usize {
    let mut taken = 0;
    for (slots, pages) in slots.chunks(7).zip(pages.chunks(7)) {
        for outcome in write(lane, slots, pages) {
            match outcome {
                Ok(()) => taken += 1,
                Err(StoreError::Full { .. }) => return taken,
                Err(error) => panic!("{error}"),
            }
        }
    }
    taken
}

/// Reads `slots` in one batch.
pub fn read(lane: &mut dyn Lane, slots: &[u32]) -> Vec<Result<Page, StoreError>> {
    fetch(slots, |batch| lane.read(batch))
}

/// Completes the read of `slots`, which was posted.
pub fn complete(lane: &mut dyn Lane, slots: &[u32]) -> Vec<Result<Page, StoreError>> {
    fetch(slots, |batch| lane.complete_reads(batch))
}

fn fetch(slots: &[u32], read: impl FnOnce(&mut [ReadRequest<'_>])) -> Vec<Result<Page, StoreError>> {
    let mut pages = vec![[0xEE; PAGE_SIZE]; slots.len()];
    let mut batch: Vec<_> = slots
        .iter()
        .zip(&mut pages)
        .map(|(slot, page)| ReadRequest { slot: *slot, page, outcome: Ok(()) })
        .collect();
    read(&mut batch);
    let outcomes: Vec<_> = batch.into_iter().map(|request| request.outcome).collect();
    outcomes.into_iter().zip(pages).map(|(outcome, page)| outcome.map(|()| page)).collect()
}

/// Panics unless each of `slots` holds its page.
pub fn expect_pages(lane: &mut dyn Lane, slots: &[u32], pages: &[Page]) {
    for ((slot, page), back) in slots.iter().zip(pages).zip(read(lane, slots)) {
        assert!(back.expect("a page that was written") == *page, "slot {slot} holds another page");
    }
}

/// Checks a store that has room for at least 96 pages against everything that [`Store`] and [`Lane`] promise.
pub fn check_store(uri: &str) {
    check_random_batches(uri);
    check_lanes_side_by_side(uri);
    check_two_openings(uri);
    check_wrong_slots(uri);
    check_posted_reads(uri);
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(u32, u64)>),
    Read(Vec<u32>),
    Discard(Vec<u32>),
    /// Posts a read, does something beside it, and completes the read of what that did not change.
    Post(Vec<u32>, Box<Step>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slots = || prop::collection::btree_set(0..SLOTS, 0..40).prop_map(Vec::from_iter).prop_shuffle();
    let step = prop_oneof![
        3 => (slots(), any::<u64>()).prop_map(|(slots, seed)| {
            Step::Write(slots.into_iter().map(|slot| (slot, seed.wrapping_add(u64::from(slot)))).collect())
        }),
        2 => slots().prop_map(Step::Read),
        1 => slots().prop_map(Step::Discard),
    ];
    let step = (step, prop::option::of(slots())).prop_map(|(step, posted)| match posted {
        Some(slots) => Step::Post(slots, Box::new(step)),
        None => step,
    });
    prop::collection::vec(step, 1..40)
}

/// Random batches give what a plain map gives.
pub fn check_random_batches(uri: &str) {
    let (_parts, store) = open_store(uri);
    assert!(store.capacity_slots() >= SLOTS, "{uri} has {} slots", store.capacity_slots());
    assert_eq!(store.uri().parse::<StoreSpec>(), uri.parse());
    let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&steps(), |steps| {
        let mut lane = store.open_lane().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut model = HashMap::new();
        for step in steps {
            run_step(&mut *lane, &mut model, step)?;
        }
        expect_model(&mut *lane, &model, &(0..SLOTS).collect::<Vec<_>>())?;
        lane.discard(&(0..SLOTS).collect::<Vec<_>>());
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, steps)) => panic!("{uri}: {reason}\nafter {steps:?}"),
        Err(TestError::Abort(reason)) => panic!("{uri}: {reason}"),
    }
}

fn run_step(lane: &mut dyn Lane, model: &mut HashMap<u32, u64>, step: Step) -> Result<(), TestCaseError> {
    match step {
        Step::Write(writes) => {
            let slots: Vec<_> = writes.iter().map(|(slot, _)| *slot).collect();
            let pages: Vec<_> = writes.iter().map(|(_, seed)| page_of(*seed)).collect();
            for ((slot, seed), outcome) in writes.into_iter().zip(write(lane, &slots, &pages)) {
                match outcome {
                    Ok(()) => model.insert(slot, seed),
                    Err(StoreError::Full { .. }) => model.remove(&slot),
                    Err(error) => return Err(TestCaseError::fail(error.to_string())),
                };
            }
        }
        Step::Read(slots) => expect_model(lane, model, &slots)?,
        Step::Discard(slots) => {
            lane.discard(&slots);
            model.retain(|slot, _| !slots.contains(slot));
        }
        Step::Post(slots, beside) => {
            let held: Vec<_> = slots.into_iter().filter(|slot| model.contains_key(slot)).collect();
            let before = model.clone();
            lane.post_reads(&held);
            run_step(lane, model, *beside)?;
            for (slot, back) in held.iter().zip(complete(lane, &held)) {
                if model.get(slot) == before.get(slot) {
                    let seed = before.get(slot).copied().unwrap_or(0);
                    prop_assert!(back == Ok(page_of(seed)), "slot {} is wrong", slot);
                }
            }
        }
    }
    Ok(())
}

fn expect_model(lane: &mut dyn Lane, model: &HashMap<u32, u64>, slots: &[u32]) -> Result<(), TestCaseError> {
    let held: Vec<_> = slots.iter().copied().filter(|slot| model.contains_key(slot)).collect();
    for (slot, back) in held.iter().zip(read(lane, &held)) {
        let back = back.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(model.get(slot).is_some_and(|seed| back == page_of(*seed)), "slot {} is wrong", slot);
    }
    Ok(())
}

/// Several threads, each with its lane and its slots, all at once.
pub fn check_lanes_side_by_side(uri: &str) {
    const LANES: u32 = 4;
    let (_parts, store) = open_store(uri);
    std::thread::scope(|scope| {
        for number in 0..LANES {
            let store = &store;
            scope.spawn(move || {
                let mut lane = store.open_lane().expect("a lane");
                let slots: Vec<_> = (0..SLOTS).filter(|slot| slot % LANES == number).collect();
                for round in 0..40 {
                    let seed = |slot: &u32| round << 32 | u64::from(slot * 5);
                    let pages: Vec<_> = slots.iter().map(|slot| page_of(seed(slot))).collect();
                    assert_eq!(fill(&mut *lane, &slots, &pages), slots.len());
                    expect_pages(&mut *lane, &slots, &pages);
                    if round % 3 == 0 {
                        lane.discard(&slots);
                    }
                }
            });
        }
    });
}

/// What one process wrote, another reads, and the other way round.
pub fn check_two_openings(uri: &str) {
    let spec: StoreSpec = uri.parse().expect(uri);
    let (parts, here) = open_store(uri);
    let there = open_again(&spec, &parts);
    assert_eq!(here.capacity_slots(), there.capacity_slots());
    let (mut one, mut other) = (here.open_lane().expect("a lane"), there.open_lane().expect("a lane"));
    let slots: Vec<_> = (0..SLOTS).rev().collect();
    for round in 0..4 {
        let pages: Vec<_> = slots.iter().map(|slot| page_of(round * 1000 + u64::from(*slot))).collect();
        assert_eq!(fill(&mut *one, &slots, &pages), slots.len());
        expect_pages(&mut *other, &slots, &pages);
        std::mem::swap(&mut one, &mut other);
    }
    drop((one, here));
    let pages: Vec<_> = slots.iter().map(|slot| page_of(3000 + u64::from(*slot))).collect();
    let mut last = open_again(&spec, &parts).open_lane().expect("a lane");
    expect_pages(&mut *last, &slots, &pages);
}

/// A slot that does not exist is an error of that request alone.
pub fn check_wrong_slots(uri: &str) {
    let (_parts, store) = open_store(uri);
    let mut lane = store.open_lane().expect("a lane");
    let good = page_of(1);
    for wrong in [store.capacity_slots(), u32::MAX] {
        let outcomes = write(&mut *lane, &[5, wrong, 6], &[good; 3]);
        assert!(outcomes.iter().map(Result::is_ok).eq([true, false, true]), "{outcomes:?}");
        let outcomes = read(&mut *lane, &[wrong, 5, 6]);
        assert!(outcomes.iter().map(Result::is_ok).eq([false, true, true]));
        lane.discard(&[wrong]);
        expect_pages(&mut *lane, &[5, 6], &[good; 2]);
    }
    lane.write(&mut []);
    lane.read(&mut []);
    lane.post_reads(&[]);
    lane.complete_reads(&mut []);
    lane.discard(&[]);
}

/// What is posted comes, whatever the lane is asked for meanwhile, and nothing else comes in its place.
pub fn check_posted_reads(uri: &str) {
    let (_parts, store) = open_store(uri);
    let mut lane = store.open_lane().expect("a lane");
    let slots: Vec<_> = (0..SLOTS).collect();
    let (old, new) = (pages(slots.len(), 1), pages(slots.len(), 2));
    let expect = |back: Vec<Result<Page, StoreError>>, pages: &[Page]| {
        assert!(back.iter().zip(pages).all(|(back, page)| back.as_ref() == Ok(page)), "another page");
    };
    assert_eq!(fill(&mut *lane, &slots, &old), slots.len());
    // Posted one after the other: the last counts.
    lane.post_reads(&slots[..7]);
    lane.post_reads(&slots[3..60]);
    assert_eq!(fill(&mut *lane, &slots[60..], &new[60..]), slots.len() - 60);
    lane.discard(&slots[..3]);
    expect(complete(&mut *lane, &slots[3..60]), &old[3..60]);
    // Completed twice, or as other slots, or not at all: read anew.
    assert_eq!(fill(&mut *lane, &slots[3..9], &new[3..9]), 6);
    expect(complete(&mut *lane, &slots[3..60]), &[&new[3..9], &old[9..60]].concat());
    lane.post_reads(&slots[9..12]);
    expect(complete(&mut *lane, &slots[60..70]), &new[60..70]);
    lane.post_reads(&slots[9..12]);
    expect(read(&mut *lane, &slots[10..13]), &old[10..13]);
    assert_eq!(fill(&mut *lane, &slots[9..12], &new[9..12]), 3);
    lane.post_reads(&slots[3..12]);
    expect(complete(&mut *lane, &slots[3..12]), &new[3..12]);
    // A slot that does not exist is an error of that request alone.
    let mixed = [5, store.capacity_slots(), 6];
    lane.post_reads(&mixed);
    let back = complete(&mut *lane, &mixed);
    assert!(back.iter().map(Result::is_ok).eq([true, false, true]));
}
