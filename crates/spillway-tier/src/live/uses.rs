//! What a scan found of a page's use: what the policy is told of it, and when.
//!
//! An *early* scan comes for the sake of local memory ([`crate::pace`]). Far memory is scanned at a steady
//! rate (HotBox, section 5.2): what an early scan finds of it is kept until the next steady one, as if the
//! accessed bit had not been looked at. But for marked pages: the policy waits for their next access. Uses
//! are counted by steady scans only, so that both tiers are counted alike.

use spillway_policy::machine::{PageIndex, Tier};

use super::{Event, LiveMachine};
use crate::pages::bit;

/// What is made of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sifted {
    /// Whether the page was used, as far as the policy is told now; none where it is told nothing.
    pub(super) told: Option<bool>,
    /// It counts as one use.
    pub(super) counts: bool,
}

impl LiveMachine {
    /// The next scan is early.
    pub fn set_early(&mut self, early: bool) {
        self.early = early;
    }

    /// What of a use is told and counted now; the rest is kept.
    pub(super) fn sift(&mut self, page: PageIndex, accessed: bool, tier: Tier) -> Sifted {
        let bits = &mut self.pages.bits[page as usize];
        let kept = *bits & bit::KEPT != 0;
        let is_told = tier == Tier::Local || *bits & (bit::ARMED | bit::TOUCHED) != bit::TOUCHED;
        if self.early {
            if accessed && *bits & bit::TOUCHED != 0 {
                *bits |= bit::KEPT;
            }
            return Sifted { told: is_told.then_some(accessed), counts: false };
        }
        *bits &= !bit::KEPT;
        let told = accessed || (kept && tier == Tier::Far);
        Sifted { told: Some(told), counts: accessed || kept }
    }

    /// A scan found a page in use.
    pub(super) fn count_use(&mut self, page: PageIndex, tier: Tier) {
        let span = u64::from(self.pages.span(page));
        self.accessed[tier as usize] += span;
        match tier {
            Tier::Local => self.counts.local_uses += span,
            Tier::Far => self.counts.far_uses += span,
        }
    }

    /// A page that the policy knows was used since the last scan that told of it, or not.
    pub(super) fn note_use(&mut self, page: PageIndex, accessed: bool, tier: Tier) {
        let span = u64::from(self.pages.span(page));
        let bits = &mut self.pages.bits[page as usize];
        if *bits & bit::TAKEN != 0 {
            *bits &= !(bit::TAKEN | bit::ACCESSED);
        }
        *bits &= !bit::RECENT;
        if !accessed {
            return;
        }
        *bits |= bit::RECENT;
        if *bits & bit::FRESH != 0 {
            *bits &= !bit::FRESH;
            self.counts.promotions_used += span;
        }
        let tells = *bits & bit::HELD != 0 || (self.kernel_marks_far && tier == Tier::Far);
        if *bits & bit::ARMED != 0 && !tells {
            // The access goes on when the policy has been told.
            self.events.push_back(Event::Accessed(page));
        } else {
            *bits |= bit::ACCESSED;
        }
    }
}
