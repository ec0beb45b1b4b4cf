//! Pages on their way between the tiers: gathered while the policy is told what happened, moved together, and
//! counted by what came of each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustix::io::Errno;
use spillway_policy::machine::{PageIndex, Tier};

use super::{Event, LiveMachine, PAGE_BYTES};
use crate::history::Reason;
use crate::pages::bit;

/// Pages that are moved in one call, so that a call does not keep everything waiting.
const MOST_PER_CALL: usize = 1024;

fn other(tier: Tier) -> Tier {
    if tier == Tier::Local { Tier::Far } else { Tier::Local }
}

impl LiveMachine {
    /// A page that could not be moved: the policy thinks that it is gone from where it is.
    fn announce_again(&mut self, page: PageIndex, reason: Errno) {
        let bits = &mut self.pages.bits[page as usize];
        let refused_before = *bits & bit::REFUSED != 0;
        if reason != Errno::AGAIN {
            *bits |= bit::REFUSED;
        }
        if let (false, Some(tier)) = (refused_before, self.pages.tier_of(page)) {
            self.events.push_back(Event::Displaced(page, tier));
        }
    }

    /// A page did not move: it is where it was.
    fn refuse(&mut self, page: PageIndex, reason: Errno) {
        self.counts.refused.count(reason, self.pages.span(page));
        if reason == Errno::NOENT {
            return self.pages.vanish(page);
        }
        self.turn_back(page);
        self.announce_again(page, reason);
    }

    fn turn_back(&mut self, page: PageIndex) {
        if let Some(wanted) = self.pages.tier_of(page) {
            self.pages.relocate(page, other(wanted));
            self.pages.bits[page as usize] &= !bit::FRESH;
        }
    }

    /// A page lies where it was to go.
    fn arrive(&mut self, page: PageIndex, to: Tier, node: u32, reason: Reason) {
        let span = self.pages.span(page);
        self.pages.bits[page as usize] &= !bit::REFUSED;
        self.room[to as usize].change(node, i64::from(span));
        if let Some(from) = self.room[other(to) as usize].best() {
            self.room[other(to) as usize].change(from, -i64::from(span));
        }
        self.moved_bytes += u64::from(span) * PAGE_BYTES;
        match to {
            Tier::Local => self.counts.promotions += u64::from(span),
            Tier::Far => self.counts.demotions += u64::from(span),
        }
        if reason == Reason::Placement {
            self.counts.placements += u64::from(span);
        }
        if let Some((process, address)) = self.pages.place_of(page) {
            self.history.push(self.now_ns, process, address, span, to, reason);
        }
    }

    /// Sends a page on its way, or back if it had not gone yet. Whether it may go.
    pub(super) fn send(&mut self, page: PageIndex, to: Tier) -> bool {
        let span = self.pages.span(page);
        let backlog_bytes = self.moving.len() as u64 * PAGE_BYTES;
        if backlog_bytes > self.limits.migration_bytes_per_s {
            self.counts.capped += u64::from(span);
            self.announce_again(page, Errno::AGAIN);
            return false;
        }
        if self.is_held(page) {
            // Nothing is at its address: who marked it did not mean to move it before its access.
            self.announce_again(page, Errno::AGAIN);
            return false;
        }
        let was_moving = self.pages.bits[page as usize] & bit::MOVING != 0;
        self.pages.relocate(page, to);
        // What it was used for where it lay says nothing of where it will lie.
        self.pages.bits[page as usize] &= !bit::KEPT;
        if !was_moving {
            self.pages.bits[page as usize] |= bit::MOVING;
            self.moving.push_back((page, self.reason));
        }
        true
    }

    /// A page that appeared in local memory is wanted far: it counts as far from now on.
    pub fn place_far(&mut self, page: PageIndex) {
        self.pages.appear(page, Tier::Far);
        self.pages.bits[page as usize] |= bit::MOVING;
        self.moving.push_back((page, Reason::Placement));
    }

    /// Moves what is on its way, as far as the rate cap allows.
    pub fn flush(&mut self) {
        let mut batches = BTreeMap::<(Reverse<u8>, u32), Vec<(PageIndex, Reason)>>::new();
        while let Some(&(page, reason)) = self.moving.front() {
            let to = self.pages.tier_of(page).filter(|_| self.pages.bits[page as usize] & bit::MOVING != 0);
            if let (Some(to), Some((process, _))) = (to, self.pages.place_of(page)) {
                if self.cap.take(self.now_ns, 1, u64::from(self.pages.span(page)) * PAGE_BYTES) == 0 {
                    break;
                }
                // Where it stands in the queue twice, it goes once.
                self.pages.bits[page as usize] &= !bit::MOVING;
                batches.entry((Reverse(to as u8), process)).or_default().push((page, reason));
            }
            self.moving.pop_front();
        }
        // Demotions first: they make room.
        for ((Reverse(to), process), pages) in batches {
            let to = if to == Tier::Local as u8 { Tier::Local } else { Tier::Far };
            pages.chunks(MOST_PER_CALL).for_each(|pages| self.move_batch(process, pages, to));
        }
    }

    fn move_batch(&mut self, process: u32, pages: &[(PageIndex, Reason)], to: Tier) {
        let Some(node) = self.room[to as usize].best() else {
            return pages.iter().for_each(|&(page, _)| self.refuse(page, Errno::NODEV));
        };
        let places = pages.iter().filter_map(|&(page, _)| self.pages.place_of(page));
        let addresses: Vec<u64> = places.map(|(_, address)| address).collect();
        let results = match self.mover.move_pages(process, &addresses, node) {
            Ok(results) => results,
            Err(error) => vec![Err(error); pages.len()],
        };
        for (&(page, reason), result) in pages.iter().zip(results) {
            match result {
                Ok(now_on) if now_on == node => self.arrive(page, to, node, reason),
                Ok(_) => self.refuse(page, Errno::AGAIN),
                Err(error) => self.refuse(page, error),
            }
        }
    }
}
