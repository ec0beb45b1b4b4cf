//! Slabs that are used again, and places that nobody names.
//!
//! A place is another's only once no write to it can come any more, and no discard. Where every write to a
//! slab is over, and each donor has answered it, that is once each has answered the discard as well
//! ([`crate::slabs::discard`]). Where a process was killed amid a write, or a donor left one without an
//! answer, the slab becomes free without its places: like any that nobody names they are discarded, and
//! become free, after a time in which their donor was well.

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

/// Looks for slabs and places that can be used again. For the supervisor alone.
#[derive(Debug, Default)]
pub struct Reclaim {
    /// By slab: since when it is being made, and in which generation.
    making: Vec<Option<(u32, u64)>>,
    /// By donor and extent: since when nobody names it.
    places: Vec<Vec<u64>>,
}

impl Reclaim {
    /// Slabs that can become free now ([`Table::free_slab`]). One that is being made for `patience_ms` is
    /// retired: whoever was making it is gone.
    pub fn due(&mut self, table: &Table<'_>, now_ms: u64, patience_ms: u64) -> Vec<u32> {
        let mut due = Vec::new();
        self.making.resize(table.slabs() as usize, None);
        for (slab, making) in (0..).zip(&mut self.making) {
            let word = table.slab(slab);
            if word.phase == SlabPhase::Retired {
                due.push(slab);
            }
            let since = making.filter(|(generation, _)| *generation == word.generation);
            *making = match since {
                _ if word.phase != SlabPhase::Making => None,
                Some((_, since_ms)) if now_ms.saturating_sub(since_ms) >= patience_ms => {
                    let _ = table.change_slab(slab, word, SlabWord { phase: SlabPhase::Retired, ..word });
                    None
                }
                Some(since) => Some(since),
                None => Some((word.generation, now_ms)),
            };
        }
        due
    }

    /// Places that were found unnamed for `patience_ms`: they are to be discarded, and then freed
    /// ([`Table::free_unnamed`]), or kept for longer ([`Self::keep`]).
    pub fn sweep(&mut self, table: &Table<'_>, now_ms: u64, patience_ms: u64) -> Vec<Unnamed> {
        let mut due = Vec::new();
        self.places.resize(MAX_DONORS, Vec::new());
        for donor in 0..table.donors() {
            let since = &mut self.places[donor];
            since.resize(table.room(donor).0 as usize, 0);
            let word = table.donor(donor);
            let is_well = word.condition == Condition::Up;
            for (own, since_ms) in (0..).zip(since.iter_mut()) {
                let owner = table.owner_of(donor, own).filter(|slab| *slab < table.slabs());
                let Some(slab) = owner.filter(|slab| !is_named(table, donor, own, *slab)) else {
                    *since_ms = 0;
                    continue;
                };
                if *since_ms == 0 || !is_well {
                    *since_ms = now_ms.max(1);
                } else if now_ms.saturating_sub(*since_ms) >= patience_ms {
                    let place = Place { donor: donor as u8, life: word.life, extent: own };
                    due.push(Unnamed { slab, place });
                }
            }
        }
        due
    }

    /// A discard of this place was left without an answer, and may come late: it waits anew.
    pub fn keep(&mut self, unnamed: Unnamed, now_ms: u64) {
        let of_donor = self.places.get_mut(usize::from(unnamed.place.donor));
        if let Some(since_ms) = of_donor.and_then(|since| since.get_mut(unnamed.place.extent as usize)) {
            *since_ms = now_ms.max(1);
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

impl Table<'_> {
    /// Frees a place that no slab names and that was discarded. For the supervisor alone.
    pub fn free_unnamed(&self, unnamed: Unnamed) {
        let Unnamed { slab, place } = unnamed;
        let donor = usize::from(place.donor);
        if self.is_current(place) && !is_named(self, donor, place.extent, slab) {
            self.free_place(donor, place.extent, slab);
        }
    }
}
