//! What a simulated program has: its mappings, which of its threads uses what, and what devices hold.
//!
//! A program is free of races of its own: what one thread unmaps, moves or protects no other uses meanwhile.
//! So each read has one right answer. Pages that are being discarded may be read, which gives what they held
//! or zeros.

use std::collections::BTreeMap;

use crate::draws::Draws;
use crate::physical::FrameId;
use crate::space::{Pages, Protection};

/// A mapping, or a part of one, whose pages are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The pages that it covers.
    pub pages: Pages,
    /// What the program may do there.
    pub protection: Protection,
    /// It is locked in memory (mlock(2)).
    pub is_locked: bool,
    /// A child gets nothing here.
    pub is_dropped_on_fork: bool,
    /// A child that gets it gets zeros.
    pub is_wiped_on_fork: bool,
}

impl Region {
    /// A fresh mapping, as mmap(2) makes it.
    pub fn new(pages: Pages, protection: Protection) -> Self {
        Self { pages, protection, is_locked: false, is_dropped_on_fork: false, is_wiped_on_fork: false }
    }
}

/// A page that a device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Which of the process's.
    pub page: u64,
    /// The frame that it was then.
    pub frame: FrameId,
    /// It writes there too.
    pub writes: bool,
}

/// What is done to a range that others must not use meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The pages that are claimed.
    pub pages: Pages,
    /// It may be read.
    pub may_be_read: bool,
}

/// One program: what it has mapped, and who is at work there.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The memory that it has mapped.
    pub regions: Vec<Region>,
    /// The pages that devices keep.
    pub pins: Vec<Pin>,
    /// The pages that devices hold for system calls under way.
    pub transfers: Vec<Pin>,
    /// What was managed and is about to be unmapped: local until it is dropped.
    pub unmapping: Vec<Pages>,
    claims: Vec<Claim>,
    /// Readers and writers at work, page by page.
    users: BTreeMap<u64, (u32, u32)>,
    next_page: u64,
    /// Threads that have not ended.
    pub threads: usize,
    /// Where the last operation was, for those that stay near.
    last_page: u64,
}

/// The first page that programs map.
const FIRST_PAGE: u64 = 1 << 20;

fn overlap(one: &Pages, other: &Pages) -> bool {
    one.start < other.end && other.start < one.end
}

impl Program {
    /// A place for a new mapping: near a boundary of 2 MiB, behind the last one, or with a gap.
    pub fn place(&mut self, count: u64, draws: &mut Draws) -> u64 {
        let next = self.next_page.max(FIRST_PAGE);
        let place = match draws.below(4) {
            0 => next,
            1 => (next + count + 8).next_multiple_of(512) - draws.within(0..=count.min(512)),
            _ => next + draws.within(1..=20),
        }
        .max(next);
        self.next_page = place + count;
        place
    }

    /// Pages that are mapped.
    #[must_use]
    pub fn mapped_pages(&self) -> u64 {
        self.regions.iter().map(|region| region.pages.end - region.pages.start).sum()
    }

    /// The region of a page.
    #[must_use]
    pub fn region(&self, page: u64) -> Option<&Region> {
        self.regions.iter().find(|region| region.pages.contains(&page))
    }

    /// Takes a range out of the regions. Returns what was there.
    pub fn carve(&mut self, pages: &Pages) -> Vec<Region> {
        let mut taken = Vec::new();
        for region in std::mem::take(&mut self.regions) {
            let Region { pages: whole, .. } = region.clone();
            let part = |pages: Pages| Region { pages, ..region.clone() };
            if !overlap(&whole, pages) {
                self.regions.push(region);
                continue;
            }
            if whole.start < pages.start {
                self.regions.push(part(whole.start..pages.start));
            }
            if pages.end < whole.end {
                self.regions.push(part(pages.end..whole.end));
            }
            taken.push(part(whole.start.max(pages.start)..whole.end.min(pages.end)));
        }
        taken
    }

    /// Changes the regions of a range.
    pub fn change(&mut self, pages: &Pages, change: impl Fn(&mut Region)) {
        let mut parts = self.carve(pages);
        parts.iter_mut().for_each(change);
        self.regions.append(&mut parts);
    }

    /// A page that a thread may read (or write to), and nobody has claimed.
    pub fn pick_page(&mut self, write: bool, draws: &mut Draws) -> Option<u64> {
        let may = |region: &Region| match region.protection {
            Protection::None => false,
            Protection::Read => !write,
            Protection::Write | Protection::Execute => true,
        };
        for _ in 0..8 {
            let page = self.draw_page(draws)?;
            if self.region(page).is_some_and(may) && !self.is_claimed(page) {
                self.last_page = page;
                return Some(page);
            }
        }
        None
    }

    fn draw_page(&self, draws: &mut Draws) -> Option<u64> {
        let total = self.mapped_pages();
        if total == 0 {
            return None;
        }
        if draws.one_in(3) {
            // Near the last one.
            return Some((self.last_page + draws.below(9)).saturating_sub(4));
        }
        // A tenth of the pages is hot.
        let nth = if draws.one_in(2) { draws.below(total) } else { draws.below(total / 10 + 1) };
        self.nth_page(nth.min(total - 1))
    }

    fn nth_page(&self, mut nth: u64) -> Option<u64> {
        for region in &self.regions {
            let count = region.pages.end - region.pages.start;
            if nth < count {
                return Some(region.pages.start + nth);
            }
            nth -= count;
        }
        None
    }

    /// A range within one region, at most `most` pages.
    pub fn pick_range(&mut self, most: u64, draws: &mut Draws) -> Option<(Region, Pages)> {
        let total = self.mapped_pages();
        let page = self.nth_page(draws.below(total))?;
        let region = self.region(page)?.clone();
        if draws.one_in(6) && region.pages.end - region.pages.start <= 2 * most {
            return Some((region.clone(), region.pages));
        }
        let end = region.pages.end.min(page + 1 + draws.below(most));
        Some((region, page..end))
    }

    /// Whether somebody has claimed a page.
    #[must_use]
    pub fn is_claimed(&self, page: u64) -> bool {
        self.claims.iter().any(|claim| claim.pages.contains(&page))
    }

    /// A page that may be read although it is being discarded.
    pub fn pick_discarded(&self, draws: &mut Draws) -> Option<u64> {
        let claims: Vec<&Claim> = self.claims.iter().filter(|claim| claim.may_be_read).collect();
        if claims.is_empty() {
            return None;
        }
        let pages = &claims[draws.index(claims.len())].pages;
        let page = pages.start + draws.below(pages.end - pages.start);
        self.region(page).is_some_and(|region| region.protection != Protection::None).then_some(page)
    }

    /// Claims a range; false where others use it, or devices hold it.
    pub fn claim(&mut self, pages: &Pages, may_be_read: bool) -> bool {
        let in_use = self
            .users
            .range(pages.clone())
            .any(|(_, &(readers, writers))| writers > 0 || readers > 0 && !may_be_read);
        let taken = self.claims.iter().any(|claim| overlap(&claim.pages, pages));
        let is_pinned = self.pins.iter().any(|pin| pages.contains(&pin.page));
        if in_use || taken || is_pinned {
            return false;
        }
        self.claims.push(Claim { pages: pages.clone(), may_be_read });
        true
    }

    /// Gives a claim back.
    pub fn give_up_claim(&mut self, pages: &Pages) {
        if let Some(index) = self.claims.iter().position(|claim| claim.pages == *pages) {
            self.claims.swap_remove(index);
        }
    }

    /// Notes a use of a page.
    pub fn begin_use(&mut self, page: u64, write: bool) {
        let users = self.users.entry(page).or_default();
        if write { users.1 += 1 } else { users.0 += 1 }
    }

    /// Notes that a use has ended.
    pub fn end_use(&mut self, page: u64, write: bool) {
        if let Some(users) = self.users.get_mut(&page) {
            if write {
                users.1 -= 1
            } else {
                users.0 -= 1
            }
            if *users == (0, 0) {
                self.users.remove(&page);
            }
        }
    }

    /// What a child begins with: all of it but what others of the parent's threads were just changing, which
    /// the child's only thread leaves alone.
    #[must_use]
    pub fn forked(&self) -> Self {
        let mut child = Self {
            regions: self.regions.clone(),
            next_page: self.next_page,
            last_page: self.last_page,
            ..Self::default()
        };
        child.regions.retain(|region| !region.is_dropped_on_fork);
        child.regions.iter_mut().for_each(|region| region.is_locked = false);
        for claim in self.claims.iter().filter(|claim| !claim.may_be_read) {
            child.carve(&claim.pages);
        }
        child
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program {
            regions: vec![Region::new(100..200, Protection::Write), Region::new(300..400, Protection::Read)],
            ..Program::default()
        }
    }

    #[test]
    fn ranges_are_carved_and_changed() {
        let mut program = program();
        program.change(&(150..350), |region| region.is_locked = true);
        let mut pages: Vec<_> =
            program.regions.iter().map(|region| (region.pages.clone(), region.is_locked)).collect();
        pages.sort_by_key(|(pages, _)| pages.start);
        assert_eq!(pages, [(100..150, false), (150..200, true), (300..350, true), (350..400, false)]);
        assert_eq!((program.mapped_pages(), program.carve(&(0..1000)).len()), (200, 4));
        assert!(program.regions.is_empty());
    }

    #[test]
    fn what_one_thread_claims_no_other_uses() {
        let mut program = program();
        let mut draws = Draws::new(1);
        program.begin_use(150, false);
        assert!(!program.claim(&(140..160), false) && program.claim(&(140..160), true));
        assert!(!program.claim(&(159..170), true), "claimed already");
        assert!((0..200).all(|_| {
            program
                .pick_page(true, &mut draws)
                .is_none_or(|page| (100..200).contains(&page) && !(140..160).contains(&page))
        }));
        assert!((140..160).contains(&program.pick_discarded(&mut draws).unwrap()));
        program.end_use(150, false);
        program.give_up_claim(&(140..160));
        assert!(program.claim(&(140..160), false));
        assert_eq!(program.forked().mapped_pages(), 180);
        program.pins.push(Pin { page: 310, frame: 0, writes: true });
        assert!(!program.claim(&(300..311), true));
    }

    #[test]
    fn mappings_do_not_overlap_and_meet_boundaries() {
        let (mut program, mut draws) = (Program::default(), Draws::new(3));
        let mut end = 0;
        let mut crossing = 0;
        for _ in 0..200 {
            let place = program.place(40, &mut draws);
            assert!(place >= end);
            end = place + 40;
            crossing += usize::from(place / 512 != (end - 1) / 512);
        }
        assert!(crossing > 20, "{crossing}");
    }
}
