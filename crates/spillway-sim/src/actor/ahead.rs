//! A stream whose next range changes while it may lie ready: its pages are discarded, written and pushed out
//! again before the stream goes on.

use spillway_pager::kernel::Kernel;

use super::Actor;
use crate::process::SimKernel;
use crate::space::Pages;
use crate::world::with;

const RANGE_PAGES: u64 = SimKernel::HUGE_PAGES as u64;
/// Ranges that the stream walks through before the one that changes, at most.
const MOST_RANGES: u64 = 6;
/// Distances of walks that come upon the range from behind it.
const DISTANCES: [u64; 3] = [1, 2, 3];

/// What becomes of pages of the range that comes next.
#[derive(Clone, Copy, Debug)]
enum Change {
    Discarded,
    DiscardedAndWritten,
    Written,
    /// What lies behind it is walked through backwards, so that pages of it come as those that are foreseen.
    WalkedUponAndWritten,
    None,
}

impl Actor {
    /// A stream, a change ahead of it, a walk elsewhere in which what was changed leaves, and the stream's
    /// end.
    pub(super) fn change_ahead(&self) {
        let Some(start) = self.pick_readable() else { return };
        let next = with(|world| {
            let ranges = world.draws.within(1..=MOST_RANGES);
            (start / RANGE_PAGES + ranges + 1) * RANGE_PAGES
        });
        let before = with(|world| world.draws.below(3));
        self.walk(start..next - before);
        let (pages, change, percent) = with(|world| {
            let from = next + world.draws.below(RANGE_PAGES);
            let to = (from + world.draws.within(1..=4)).min(next + RANGE_PAGES);
            let change = world.draws.pick(&[
                Change::Discarded,
                Change::DiscardedAndWritten,
                Change::DiscardedAndWritten,
                Change::Written,
                Change::WalkedUponAndWritten,
                Change::WalkedUponAndWritten,
                Change::None,
            ]);
            (from..to, change, world.draws.pick(&[0, 60, 110, 160]))
        });
        self.change(&pages, change);
        if let Some(elsewhere) = self.pick_readable() {
            let count = with(|world| world.config.limit_pages) * percent / 100;
            self.walk(elsewhere..elsewhere + count);
        }
        self.walk(next - before..next + 2 * RANGE_PAGES);
    }

    fn pick_readable(&self) -> Option<u64> {
        with(|world| world.processes[self.process].program.pick_page(false, &mut world.draws))
    }

    fn change(&self, pages: &Pages, change: Change) {
        match change {
            Change::None => return,
            Change::Discarded => return self.discard_these(pages),
            Change::DiscardedAndWritten => self.discard_these(pages),
            Change::WalkedUponAndWritten => {
                let (distance, steps) =
                    with(|world| (world.draws.pick(&DISTANCES), world.draws.within(3..=8)));
                let behind = (pages.end / RANGE_PAGES + 1) * RANGE_PAGES;
                for step in (1..=steps).rev() {
                    self.use_if_may(behind + step * distance, false);
                }
            }
            Change::Written => {}
        }
        for page in pages.clone() {
            self.use_if_may(page, true);
        }
    }

    /// Uses pages one after the other, past those that it may not use. What was never written is never far.
    fn walk(&self, pages: Pages) {
        let is_write = with(|world| world.draws.one_in(2));
        pages.for_each(|page| self.use_if_may(page, is_write));
    }

    fn use_if_may(&self, page: u64, is_write: bool) {
        if let Some(how) = self.use_of(page, is_write) {
            self.use_one(page, how);
        }
    }
}
