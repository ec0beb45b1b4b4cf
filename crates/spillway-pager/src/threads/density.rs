//! How whole the ranges of 2 MiB are, scanned once a second: the fragmentation index of managed memory, and
//! which ranges are worth a huge page.
//!
//! A range may become a huge page again when all its pages are mapped and none is write-protected, which is
//! also what the kernel demands of memory that is registered for missing pages (`hpage_collapse_scan_pmd` in
//! mm/khugepaged.c): a range with a hole, of high hotness fragmentation (HotBox, section 3.2), never does.
//! Those with most pages that came back come first. It costs milliseconds, and tearing such a page apart
//! again half of one, so it is done only while nothing is evicted.

use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_core::background::Verdict;
use spillway_core::frame_pool::RANGE_FRAMES;
use spillway_core::page_word::Queue;

use crate::kernel::Kernel;
use crate::pages::address::{page_number_of, target};
use crate::process::worker::Worker;
use crate::run::state::Counter;
use crate::threads::background::Background;

const RANGE_PAGES: u64 = RANGE_FRAMES as u64;
/// Scanned in one second: 4 GiB of addresses in use.
const RANGES_PER_SCAN: usize = 2048;

/// Where the scans are, and what is to be done about what they found.
#[derive(Default)]
pub(crate) struct Density {
    next_page: u64,
    /// Pages that had left when the last scan began.
    departures: u64,
    /// Dense ranges, by their first page, with how many of their pages had come back.
    dense: Vec<(usize, u64)>,
}

/// What a range holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RangeUse {
    local: usize,
    /// Mapped and not write-protected.
    open: usize,
    came_back: usize,
}

impl<K: Kernel> Worker<K> {
    /// Scans the next ranges of managed memory.
    pub(crate) fn scan_density(&self, density: &mut Density) {
        let departures = self.engine.departures.count();
        let is_quiet = std::mem::replace(&mut density.departures, departures) == departures;
        let wants_huge = is_quiet && self.at.settings.pool.huge_pages && !self.is_short();
        density.dense.clear();
        let mut local_pages = 0;
        let mut whole_pages = 0;
        for range in self.next_ranges(&mut density.next_page) {
            let held = self.range_use(&range);
            local_pages += held.local;
            whole_pages += if held.local == RANGE_FRAMES { RANGE_FRAMES } else { 0 };
            if wants_huge && held.open == RANGE_FRAMES && self.was_not_tried(range.start, departures) {
                density.dense.push((held.came_back, range.start));
            }
        }
        self.at.run.count(Counter::LocalPagesSeen, local_pages as u64);
        self.at.run.count(Counter::WholePagesSeen, whole_pages as u64);
        density.dense.sort_unstable_by_key(|(came_back, start)| (std::cmp::Reverse(*came_back), *start));
    }

    /// The ranges of 2 MiB from `next_page` on that hold managed memory; notes where to go on.
    fn next_ranges(&self, next_page: &mut u64) -> Vec<Range<u64>> {
        let regions = self.engine.regions();
        let mut found: Vec<Range<u64>> = Vec::new();
        for (region, _) in regions.iter() {
            let (from, to) = (page_number_of(region.start).max(*next_page), page_number_of(region.end));
            let mut start = from - from % RANGE_PAGES;
            while start < to && from < to {
                if found.last().is_none_or(|last| last.start < start) {
                    found.push(start..start + RANGE_PAGES);
                }
                start += RANGE_PAGES;
                if found.len() == RANGES_PER_SCAN {
                    *next_page = start;
                    return found;
                }
            }
        }
        *next_page = 0;
        found
    }

    fn range_use(&self, range: &Range<u64>) -> RangeUse {
        let mut held = RangeUse::default();
        for (_, word) in self.engine.table.range(range.start, range.end) {
            let info = word.peek();
            held.local += usize::from(info.is_local());
            held.open += usize::from(info.is_mapped() && info.protected_in().is_none());
            held.came_back += usize::from(info.queue() == Some(Queue::Proactive));
        }
        held
    }

    /// Something has left since the range was made huge, or could not be.
    fn was_not_tried(&self, first_page: u64, departures: u64) -> bool {
        let tried = self.engine.table.huge_try_of(first_page);
        tried.is_some_and(|tried| tried.load(Ordering::Relaxed) != departures + 1)
    }

    /// Makes dense ranges huge pages, as long as the budget lasts and no fault comes.
    pub(crate) fn form_huge_pages(&self, density: &mut Density, background: &mut Background) {
        const MOVED_BYTES: usize = 2 << 20;
        for (_, first_page) in density.dense.drain(..) {
            let Some(_pass) = self.engine.enter() else { return };
            if self.engine.gate.is_shared() || background.ask(K::now_ns(), MOVED_BYTES) != Verdict::Go {
                return;
            }
            if let Some(tried) = self.engine.table.huge_try_of(first_page) {
                tried.store(density.departures + 1, Ordering::Relaxed);
            }
            if self.at.kernel.collapse(target(first_page, RANGE_FRAMES)).is_ok() {
                self.at.run.count(Counter::HugePagesFormed, 1);
            }
        }
    }
}
