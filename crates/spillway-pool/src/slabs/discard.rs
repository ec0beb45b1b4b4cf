//! Memory that no page needs any more goes back to the donors, before it is used again.
//!
//! **What may be discarded.** An extent of a donor's memory is discarded only while it is a place of a slab
//! that is retired, or that no slab names any more; it is another's only after that. A slab is retired only
//! if it was fenced, and a look over all slots that began after the fence found none that names it
//! ([`crate::slabs::census`]). So at that time
//!
//! * no slot has its page there, whoever holds the slot: slots are the whole run's, forked children included;
//! * what was moved away is at every part of its new row: only then its slot names that row
//!   ([`crate::slabs::append`]);
//! * nothing that is written there can count, for the slab is not open;
//! * who found a page there before it was moved may still read it, a repair or another move too, and gets
//!   zeros, or what was written there since. That is never taken for the page: its slot's word is another by
//!   then, and what was read counts only where it is the same ([`crate::slabs::locate::still_counts`]). It is
//!   read anew, from where it is.
//!
//! **What may come late.** A discard that its donor has not answered may come once the place is another's, as
//! a write may. The order: (1) the slab is marked as one to which something may come late; (2) its donors are
//! sent their discards, unless a write may come late already; (3) the slab becomes free, and of its places
//! those that were discarded. The others are named by nobody from then on, and so found by
//! [`crate::slabs::reclaim::Reclaim::sweep`] when nothing can come any more, and discarded then. The mark is
//! for who follows a supervisor that was killed between (2) and (3): it frees the slab without its places.

use std::sync::atomic::Ordering::SeqCst;

use crate::slabs::room::MAX_PARTS;
use crate::slabs::words::{SlabPhase, SlabWord};
use crate::table::Table;
use crate::words::Place;

/// Discards of one slab that are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// The slab, which is retired.
    pub slab: u32,
    /// Its places, which no page needs: all donors that can be reached are to forget what they hold there.
    pub places: [Option<Place>; MAX_PARTS],
}

impl Discard {
    /// The parts, and where they lie.
    pub fn parts(&self) -> impl Iterator<Item = (usize, Place)> + '_ {
        self.places.iter().enumerate().filter_map(|(part, place)| Some((part, (*place)?)))
    }
}

impl Table<'_> {
    /// Begins to give a retired slab's memory back: what its donors are to discard now, before it is freed
    /// ([`Table::free_slab`]). `None` where something may come to it late. For the supervisor alone.
    #[must_use]
    pub fn begin_discard(&self, slab: u32) -> Option<Discard> {
        let seen = self.see_slab(slab);
        let is_quiet = seen.word.is_quiet() || self.planted("late-write-not-awaited");
        if seen.word.phase != SlabPhase::Retired || !is_quiet {
            return None;
        }
        let marked = SlabWord { may_come_late: true, ..seen.word };
        if !self.planted("discard-not-noted") && !self.change_slab(slab, seen.word, marked) {
            return None;
        }
        let places = seen.places.map(|place| place.filter(|place| self.is_current(*place)));
        if self.planted("freed-before-discard") {
            places.iter().flatten().for_each(|place| {
                self.free_place(usize::from(place.donor), place.extent, slab);
            });
        }
        Some(Discard { slab, places })
    }

    /// Makes a retired slab free: what it held is no more. With it those of its places become free that were
    /// discarded, a bit each: every donor of them has answered. For the supervisor alone, which may be killed
    /// at any step of it and do it anew.
    pub fn free_slab(&self, slab: u32, discarded: u16) {
        let word = self.slab(slab);
        if word.phase != SlabPhase::Retired {
            return;
        }
        let generation = match self.planted("generation-kept") {
            true => word.generation,
            false => word.next_generation(),
        };
        let discarded = if self.planted("discard-not-awaited") { u16::MAX } else { discarded };
        for part in 0..self.parts() {
            let named = self.part_word(slab, part);
            let place = Place::unpack(named.load(SeqCst)).filter(|place| self.is_current(*place));
            if let Some(place) = place.filter(|_| discarded >> part & 1 == 1) {
                self.free_place(usize::from(place.donor), place.extent, slab);
            }
            named.store(generation.into(), SeqCst);
        }
        let after = SlabWord {
            generation,
            phase: SlabPhase::Free,
            claimed: 0,
            ended: 0,
            may_come_late: false,
            is_hurt: false,
        };
        // A write that ends at this moment changes the word.
        while !self.change_slab(slab, self.slab(slab), after) {}
    }
}
