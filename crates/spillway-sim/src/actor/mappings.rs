//! What a thread does to its mappings: it maps, unmaps, moves, protects, locks and discards them.

use spillway_core::page::PAGE_SHIFT;
use spillway_pager::kernel::ForkAdvice;
use spillway_pager::threads::calls::Operation;

use crate::actor::{Actor, MOST_PAGES, arguments};
use crate::program::Region;
use crate::space::{Entry, Mapped, Pages, Protection};
use crate::world::{World, turn, with};

impl Actor {
    pub(super) fn discard(&self) {
        let claimed = with(|world| {
            let claimed = world.claim_range(self.process, true, |region| !region.is_locked)?;
            world.processes[self.process].shadow.begin_discard(claimed.1.clone());
            Some(claimed.1)
        });
        if let Some(pages) = claimed {
            self.discard_claimed(&pages);
        }
    }

    /// Discards these pages, if they are all in one region and nobody else works with them.
    pub(super) fn discard_these(&self, pages: &Pages) {
        let is_claimed = with(|world| {
            let process = &mut world.processes[self.process];
            let region = process.program.region(pages.start);
            let fits = region.is_some_and(|region| !region.is_locked && pages.end <= region.pages.end);
            let is_claimed = fits && process.program.claim(pages, true);
            if is_claimed {
                process.shadow.begin_discard(pages.clone());
            }
            is_claimed
        });
        if is_claimed {
            self.discard_claimed(pages);
        }
    }

    fn discard_claimed(&self, pages: &Pages) {
        let done = self.call(Operation::Discard, pages);
        with(|world| {
            let process = &mut world.processes[self.process];
            if done != arguments(pages)[1] {
                let _ = process.space.discard(&mut world.physical, pages.clone());
            }
            process.shadow.forget(pages.clone());
            world.give_up_claim(self.process, pages);
        });
    }

    /// A system call that no hook sees: what is mapped is gone at once, what is not there stays what it is.
    pub(super) fn discard_past_hooks(&self) {
        if self.pager.inline.is_some() {
            return;
        }
        with(|world| {
            let Some((_, pages)) = world.claim_range(self.process, false, |region| !region.is_locked) else {
                return;
            };
            if world.has_shared_in_hand(self.process, &pages) {
                return world.give_up_claim(self.process, &pages);
            }
            let process = &mut world.processes[self.process];
            // Memory that is not managed has nobody who keeps more than the kernel does.
            let is_gone =
                |mapped: &Mapped| mapped.entry.is_present() || mapped.attributes.registered.is_none();
            let gone: Vec<u64> =
                pages.clone().filter(|&page| process.space.get(page).is_some_and(is_gone)).collect();
            let _ = process.space.discard(&mut world.physical, pages.clone());
            gone.iter().for_each(|&page| process.shadow.forget(page..page + 1));
            world.note(91, pages.start, || format!("discards {pages:x?} past the hooks"));
            world.give_up_claim(self.process, &pages);
        });
        turn();
    }

    pub(super) fn map_some(&self) {
        let pages = with(|world| {
            let mapped = world.processes[self.process].program.mapped_pages();
            let most = (2 * world.config.program_pages).saturating_sub(mapped);
            world.draws.within(1..=MOST_PAGES * 2).min(most)
        });
        if pages > 0 {
            self.map(pages);
        }
    }

    /// Maps so many pages, as mmap(2) does, and tells the pager.
    pub fn map(&self, count: u64) {
        let (pages, may_be_native) = with(|world| {
            let process = &mut world.processes[self.process];
            let start = process.program.place(count, &mut world.draws);
            let pages = start..start + count;
            // What is merged with its neighbour, the kernel decides.
            let mapping = if world.draws.one_in(2) { 0 } else { start as u32 };
            process.space.map(&mut world.physical, pages.clone(), Protection::Write, mapping);
            (pages, world.config.native && world.draws.one_in(2))
        });
        let [start, length] = arguments(&pages);
        let _ = self.pager.call(Operation::Map, [start, length, usize::from(may_be_native), 0]);
        with(|world| {
            let process = &mut world.processes[self.process];
            process.shadow.forget(pages.clone());
            process.program.regions.push(Region::new(pages, Protection::Write));
        });
    }

    pub(super) fn unmap(&self) {
        let Some((_, pages)) = with(|world| world.claim_range(self.process, false, |_| true)) else { return };
        // Mapped over, as MAP_FIXED does, or left.
        let again = with(|world| {
            let again = world.draws.one_in(3);
            let regions = self.pager.engine.regions_now();
            let is_managed = |page: u64| {
                regions.as_ref().is_some_and(|regions| regions.contains((page as usize) << PAGE_SHIFT))
            };
            if !again && pages.clone().all(is_managed) {
                world.processes[self.process].program.unmapping.push(pages.clone());
            }
            again
        });
        let [start, length] = arguments(&pages);
        let _ = self.pager.call(Operation::Forget, [start, length, usize::from(!again), 0]);
        with(|world| {
            let process = &mut world.processes[self.process];
            process.program.unmapping.retain(|going| *going != pages);
            process.program.carve(&pages);
            process.space.unmap(&mut world.physical, pages.clone());
            process.shadow.forget(pages.clone());
        });
        if again {
            with(|world| {
                let process = &mut world.processes[self.process];
                process.space.map(&mut world.physical, pages.clone(), Protection::Write, 0);
            });
            let _ = self.call(Operation::Map, &pages);
        }
        with(|world| {
            if again {
                let region = Region::new(pages.clone(), Protection::Write);
                world.processes[self.process].program.regions.push(region);
            }
            world.give_up_claim(self.process, &pages);
        });
    }

    /// mremap(2) to another place, longer or shorter or neither.
    pub(super) fn remap(&self) {
        let drawn = with(|world| {
            let claimed = world.claim_range(self.process, false, |region| !region.is_locked)?;
            let count = claimed.1.end - claimed.1.start;
            let mapped = world.processes[self.process].program.mapped_pages();
            let may_grow = mapped + 40 < 2 * world.config.program_pages;
            let new_count = match world.draws.below(4) {
                0 if may_grow => count + world.draws.within(1..=30),
                1 => world.draws.within(1..=count),
                _ => count,
            };
            let process = &mut world.processes[self.process];
            let to = process.program.place(new_count, &mut world.draws);
            Some((claimed.0, claimed.1, to..to + new_count))
        });
        let Some((region, old, new)) = drawn else { return };
        let [start, length] = arguments(&old);
        let [to, new_length] = arguments(&new);
        let _ = self.call(Operation::RemapBegin, &old);
        let moved = with(|world| world.move_mapping(self.process, &old, &new));
        let _ = self.pager.call(Operation::RemapEnd, [start, length, if moved { to } else { 0 }, new_length]);
        with(|world| {
            let process = &mut world.processes[self.process];
            if moved {
                process.program.carve(&old);
                process.program.regions.push(Region { pages: new, ..region });
            }
            world.give_up_claim(self.process, &old);
        });
    }

    /// mprotect(2), which no hook sees.
    pub(super) fn protect(&self) {
        with(|world| {
            let Some((_, pages)) = world.claim_range(self.process, false, |_| true) else { return };
            let protection = world.draws.pick(&[
                Protection::Write,
                Protection::Write,
                Protection::Read,
                Protection::None,
                Protection::Execute,
            ]);
            let process = &mut world.processes[self.process];
            let _ = process.space.change(pages.clone(), |attributes| attributes.protection = protection);
            process.program.change(&pages, |region| region.protection = protection);
            world.give_up_claim(self.process, &pages);
        });
        turn();
    }

    /// Locks a range in memory, or unlocks it: mlock(2), or munlock(2).
    pub(super) fn lock(&self) {
        let claimed = with(|world| {
            // Only a part of what the limit has room for.
            let locked: u64 = world.locked_pages(self.process);
            let may_lock = locked < 40;
            let fits =
                |region: &Region| region.is_locked || may_lock && region.protection == Protection::Write;
            world.claim_range(self.process, false, fits)
        });
        let Some((region, pages)) = claimed else { return };
        if !region.is_locked {
            let _ = self.call(Operation::Unmanage, &pages);
        }
        with(|world| {
            world.had_pins = true;
            let process = &mut world.processes[self.process];
            let lock = !region.is_locked;
            let _ = process.space.change(pages.clone(), |attributes| attributes.is_locked = lock);
            process.program.change(&pages, |region| region.is_locked = lock);
        });
        if !region.is_locked {
            // The kernel brings locked pages in.
            for page in pages.clone() {
                let _ = crate::kernel::access_by_kernel(self.process, page, true);
            }
        }
        with(|world| world.give_up_claim(self.process, &pages));
    }

    pub(super) fn advise_on_fork(&self) {
        let advices = [ForkAdvice::Inherit, ForkAdvice::Keep, ForkAdvice::Wipe, ForkAdvice::Drop];
        let drawn = with(|world| {
            let claimed = world.claim_range(self.process, false, |_| true)?;
            Some((claimed.1, world.draws.pick(&advices)))
        });
        let Some((pages, advice)) = drawn else { return };
        let [start, length] = arguments(&pages);
        let _ = self.pager.call(Operation::AdviseOnFork, [start, length, advice as usize, 0]);
        with(|world| {
            let program = &mut world.processes[self.process].program;
            program.change(&pages, |region| match advice {
                ForkAdvice::Inherit => region.is_dropped_on_fork = false,
                ForkAdvice::Drop => region.is_dropped_on_fork = true,
                ForkAdvice::Keep => region.is_wiped_on_fork = false,
                ForkAdvice::Wipe => region.is_wiped_on_fork = true,
            });
            world.give_up_claim(self.process, &pages);
        });
    }
}

impl World {
    /// Whether the pager has a page in hand that is shared since a fork. Making it the process's own, it
    /// would wait for ever at a page that is discarded past the hooks in that very moment: a known limit of
    /// the pager's.
    fn has_shared_in_hand(&self, process: usize, pages: &Pages) -> bool {
        let process = &self.processes[process];
        let is_shared =
            |page: u64| matches!(process.space.entry(page), Entry::Frame { is_exclusive: false, .. });
        process.pager.is_some_and(|pager| {
            let is_in_hand = |page| pager.engine.table.find(page).is_some_and(|word| word.is_locked());
            pages.clone().any(|page| is_in_hand(page) && is_shared(page))
        })
    }

    fn locked_pages(&self, process: usize) -> u64 {
        let locked = self.processes[process].program.regions.iter().filter(|region| region.is_locked);
        locked.map(|region| region.pages.end - region.pages.start).sum()
    }

    /// mremap(2). False where it fails: not all of the old range is one mapping.
    fn move_mapping(&mut self, process: usize, old: &Pages, new: &Pages) -> bool {
        let (old_count, new_count) = (old.end - old.start, new.end - new.start);
        let process = &mut self.processes[process];
        let Some(attributes) = process.space.one_mapping(old.clone()) else { return false };
        let kept = old_count.min(new_count);
        process.space.map(&mut self.physical, new.clone(), attributes.protection, attributes.mapping);
        let _ = process.space.change(new.clone(), |new| {
            *new = crate::space::Attributes { registered: None, ..attributes };
        });
        process.space.move_pages(&mut self.physical, old.start..old.start + kept, new.start);
        process.space.unmap(&mut self.physical, old.clone());
        process.shadow.forget(new.clone());
        process.move_lines(old.start..old.start + kept);
        process.shadow.move_pages(old.start..old.start + kept, new.start);
        process.shadow.forget(old.clone());
        self.note(94, new.start, || format!("mremap {old:x?} to {new:x?}"));
        true
    }
}
