//! Slabs that are used again, and places that nobody names: when they are another's.
//!
//! A place is another's only once no write to it can come any more, and no discard; and its donor has
//! forgotten what was there ([`crate::slabs::discard`]). Two ways lead there:
//!
//! * Where every write to a slab is over, and its donor has answered all that was sent to a part, nothing can
//!   come to that part: the place is *quiet*. It is discarded as soon as its donor answers, and is free then.
//!   A donor that was away meanwhile is asked when it is back.
//! * Of any other place nobody knows this: a process was killed amid a write, a donor left a write or a
//!   discard without an answer, or it is a supervisor that follows another. It waits for a time in which its
//!   donor was well all along, and is discarded after that.
//!
//! What one donor does not answer keeps places of that donor alone: those of the others are free at once.

use std::collections::HashSet;

use crate::MAX_DONORS;
use crate::slabs::words::{SlabPhase, SlabWord};
use crate::table::Table;
use crate::words::{Condition, Place};

/// What is left of the run on a donor that leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftParts {
    /// Parts of slabs that are there, or may be about to.
    pub parts: u32,
}

/// A place of a donor's memory that no slab names, and to which nothing can come any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// The slab that had it last.
    pub slab: u32,
    /// Which it is, in its donor's present life.
    pub place: Place,
}

/// What became of a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The donor has forgotten what was there.
    Forgotten,
    /// The donor was asked and has not answered, or not by each connection: the discard may come late.
    Silent,
    /// The donor could not be asked: nothing was sent.
    NotAsked,
}

/// How long things are waited for, by the clock of who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Of who still writes to a slab in which nothing lives: longer than a write takes.
    pub write_ms: u64,
    /// Of who makes a slab, and of what may come late to a place.
    pub late_ms: u64,
}

impl Patience {
    /// Of who has a slab in this phase; `None` where nobody waits for that.
    fn of(&self, phase: SlabPhase) -> Option<u64> {
        match phase {
            SlabPhase::Making => Some(self.late_ms),
            SlabPhase::Retired => Some(self.write_ms),
            SlabPhase::Free | SlabPhase::Open | SlabPhase::Fenced => None,
        }
    }
}

/// A slab that is waited for, as it was found first.
#[derive(Clone, Copy, Debug)]
struct Waited {
    generation: u32,
    phase: SlabPhase,
    since_ms: u64,
}

/// Looks for slabs and places that can be used again. For the supervisor alone.
#[derive(Debug, Default)]
pub struct Reclaim {
    /// By slab: whoever makes it, or writes to it still, is waited for.
    waited: Vec<Option<Waited>>,
    /// Places that are to be discarded as soon as their donors answer.
    quiet: Vec<Unnamed>,
    /// By donor and extent: since when nobody names it, of those that are not quiet.
    places: Vec<Vec<u64>>,
    /// How often each donor had come up at the last sweep.
    epochs: Vec<u32>,
}

impl Reclaim {
    /// Makes slabs free in which nothing lives ([`Table::free_slab`]); how many. One that somebody still
    /// writes to is waited for first, for a bounded time. One that is being made for too long is retired:
    /// whoever was making it is gone.
    pub fn free_slabs(&mut self, table: &Table<'_>, now_ms: u64, patience: Patience) -> usize {
        self.waited.resize(table.slabs() as usize, None);
        let mut freed = 0;
        for slab in 0..table.slabs() {
            let word = table.slab(slab);
            let waits = match patience.of(word.phase) {
                Some(_) if word.phase == SlabPhase::Retired && word.is_quiet() => 0,
                Some(waits) => waits,
                None => {
                    self.waited[slab as usize] = None;
                    continue;
                }
            };
            let is_same =
                |waited: &Waited| (waited.generation, waited.phase) == (word.generation, word.phase);
            let found = Waited { generation: word.generation, phase: word.phase, since_ms: now_ms };
            let waited = self.waited[slab as usize].filter(is_same).unwrap_or(found);
            self.waited[slab as usize] = Some(waited);
            if now_ms.saturating_sub(waited.since_ms) < waits {
                continue;
            }
            if word.phase == SlabPhase::Making {
                let _ = table.change_slab(slab, word, SlabWord { phase: SlabPhase::Retired, ..word });
            } else {
                self.waited[slab as usize] = None;
                self.quiet.extend(table.free_slab(slab));
                freed += 1;
            }
        }
        freed
    }

    /// Whether there are slabs or places that can be used again so soon, as far as is known: those of donors
    /// that answer, and those to which nothing comes late any more by then.
    #[must_use]
    pub fn gives_back_within(&self, within_ms: u64, now_ms: u64, patience: Patience) -> bool {
        let is_soon = |since_ms: u64, waits_ms: u64| {
            since_ms.saturating_add(waits_ms) <= now_ms.saturating_add(within_ms)
        };
        let is_place_soon = |since_ms: &u64| *since_ms > 0 && is_soon(*since_ms, patience.late_ms);
        let is_slab_soon = |waited: &Waited| {
            patience.of(waited.phase).is_some_and(|waits_ms| is_soon(waited.since_ms, waits_ms))
        };
        !self.quiet.is_empty()
            || self.waited.iter().flatten().any(is_slab_soon)
            || self.places.iter().flatten().any(is_place_soon)
    }

    /// Places that are to be discarded now, at most so many, each of which is then noted by what became of it
    /// ([`Self::note`]) before there is another sweep. Those of donors that are away are kept.
    pub fn take_quiet(&mut self, table: &Table<'_>, most: usize) -> Vec<Unnamed> {
        let is_up = |unnamed: &Unnamed| {
            let donor = usize::from(unnamed.place.donor);
            // The last resort forgets what it holds though it takes no pages.
            table.donor(donor).condition == Condition::Up || table.is_spill(donor)
        };
        let is_left = std::mem::take(&mut self.quiet).into_iter().filter(|unnamed| table.is_left(*unnamed));
        let (mut quiet, mut rest): (Vec<Unnamed>, Vec<Unnamed>) = is_left.partition(is_up);
        rest.extend(quiet.drain(most.min(quiet.len())..));
        self.quiet = rest;
        quiet
    }

    /// Looks for others, that were found unnamed for so long: they are quiet from now on. How many.
    pub fn sweep(&mut self, table: &Table<'_>, now_ms: u64, patience_ms: u64) -> usize {
        let patience_ms = if table.planted("unnamed-taken-for-quiet") { 0 } else { patience_ms };
        let before_count = self.quiet.len();
        self.places.resize(MAX_DONORS, Vec::new());
        let epochs: Vec<u32> = (0..table.donors()).map(|donor| table.donor(donor).epoch).collect();
        let before = std::mem::replace(&mut self.epochs, epochs);
        let quiet: HashSet<(u8, u32)> =
            self.quiet.iter().map(|unnamed| (unnamed.place.donor, unnamed.place.extent)).collect();
        for donor in 0..table.donors() {
            let since = &mut self.places[donor];
            since.resize(table.room(donor).0 as usize, 0);
            let word = table.donor(donor);
            // What it was sent while it was away may come when it is back.
            let is_steady = word.condition == Condition::Up && before.get(donor) == Some(&word.epoch);
            for (own, since_ms) in (0..).zip(since.iter_mut()) {
                let owner = table.owner_of(donor, own).filter(|slab| *slab < table.slabs());
                let is_waiting =
                    |slab: &u32| !quiet.contains(&(donor as u8, own)) && !is_named(table, donor, own, *slab);
                let Some(slab) = owner.filter(is_waiting) else {
                    *since_ms = 0;
                    continue;
                };
                if *since_ms == 0 || !is_steady {
                    *since_ms = now_ms.max(1);
                }
                if is_steady && now_ms.saturating_sub(*since_ms) >= patience_ms {
                    let place = Place { donor: donor as u8, life: word.life, extent: own };
                    self.quiet.push(Unnamed { slab, place });
                }
            }
        }
        self.quiet.len() - before_count
    }

    /// Notes what became of a place's discard: it is free, or waits.
    pub fn note(&mut self, table: &Table<'_>, unnamed: Unnamed, answer: Answer, now_ms: u64) {
        match answer {
            Answer::Silent if table.planted("discard-not-awaited") => table.free_unnamed(unnamed),
            Answer::Silent if table.planted("discard-not-noted") => self.quiet.push(unnamed),
            Answer::Forgotten => table.free_unnamed(unnamed),
            Answer::NotAsked => self.quiet.push(unnamed),
            Answer::Silent => {
                let of_donor = self.places.get_mut(usize::from(unnamed.place.donor));
                let since_ms = of_donor.and_then(|since| since.get_mut(unnamed.place.extent as usize));
                // Where it was never looked at, it is found by the next sweep.
                if let Some(since_ms) = since_ms {
                    *since_ms = now_ms.max(1);
                }
            }
        }
    }
}

/// Whether a slab has this place, or may be about to.
fn is_named(table: &Table<'_>, donor: usize, own: u32, slab: u32) -> bool {
    let seen = table.see_slab(slab);
    let is_it =
        |place: &Place| (usize::from(place.donor), place.extent) == (donor, own) && table.is_current(*place);
    seen.word.phase == SlabPhase::Making || seen.places.iter().flatten().any(is_it)
}

/// What is left on a donor that is leaving. Once it is nothing, it stays nothing: who takes a place there has
/// taken it before the mark, and is seen here as its owner.
#[must_use]
pub fn parts_left_on(table: &Table<'_>, donor: usize) -> LeftParts {
    let owned = (0..table.room(donor).0).filter(|&own| {
        let owner = table.owner_of(donor, own).filter(|slab| *slab < table.slabs());
        owner.is_some_and(|slab| is_named(table, donor, own, slab))
    });
    LeftParts { parts: owned.count() as u32 }
}
