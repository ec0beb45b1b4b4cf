//! Scans of accessed bits: the evictor notes for each page how it was used, and clears its bit. Which pages
//! leave hangs on it ([`spillway_policy::use_forecast`]), and nothing else does: a wrong bit is a page that
//! leaves too early.
//!
//! Needs a process that may read its page tables ([`spillway_sys::accesses`]), or whose supervisor may
//! ([`crate::run::told_uses`]). Where neither may, the order of arrival and the returns
//! ([`spillway_policy::dcm`]) are all that is known.

use std::ops::Range;
use std::sync::atomic::Ordering;

use spillway_core::page::PAGE_SIZE;
use spillway_policy::fault_trace::{Event, Runs};
use spillway_policy::scan_clock::Arrivals;
use spillway_policy::use_forecast::UseForecast;

use crate::evict::write_back::BATCH_PAGES;
use crate::kernel::{Kernel, Look, planted};
use crate::pages::address::{page_number_of, target};
use crate::process::worker::Worker;
use crate::run::state::{Counter, MAX_PROCESSES};
use crate::run::told_uses::MOST_PAGES;

/// Scanned in one go, before the evictor's other work has its turn.
const PIECE_BYTES: usize = MOST_PAGES * PAGE_SIZE;
/// The part of one CPU's time that scans may take, at most: one in so many.
const TIME_ONE_IN: u64 = 10;

/// Other processes asked at a time for what they do not use.
const MOST_ASKED: usize = 8;

/// In a fault trace, beside 1 and 0 for pages that are.
const NOT_MAPPED: u8 = 2;

/// Where the evictor's scan is.
#[derive(Default)]
pub(crate) struct UseScan {
    /// Where it goes on; `None` between two scans.
    next: Option<usize>,
    /// Others asked for what it finds unused.
    is_asked: bool,
    /// This process's arrivals called for it.
    is_own: bool,
    /// Of some memory it was not told.
    has_gaps: bool,
    used_pages: u64,
    unused_pages: u64,
    cost_ns: u64,
    not_before_ns: u64,
    /// What came of pages with each history, over many scans.
    forecast: UseForecast,
}

impl UseScan {
    /// Whether it has begun, and not come to the end of memory.
    pub(crate) fn is_under_way(&self) -> bool {
        self.next.is_some()
    }

    /// What it has learned stays, and when the next may begin.
    fn end(&mut self) {
        (self.next, self.is_asked, self.is_own, self.has_gaps) = (None, false, false, false);
        (self.used_pages, self.unused_pages, self.cost_ns) = (0, 0, 0);
    }

    /// Pages to give to others: half of what it found unused in a process that sleeps, and an eighth in one
    /// at work, as a scan comes when an eighth of the limit has come. At least a batch, if not all is in use.
    fn spare_pages(&self) -> u64 {
        let is_asleep = self.used_pages * 8 < self.unused_pages;
        let share = self.unused_pages / if is_asleep { 2 } else { 8 };
        let has_batch = self.unused_pages >= self.used_pages.min(BATCH_PAGES as u64);
        if has_batch { share.max(self.unused_pages.min(BATCH_PAGES as u64)) } else { share }
    }
}

impl<K: Kernel> Worker<K> {
    fn arrivals(&self) -> Arrivals {
        let held_pages = self.at.process().local_pages().load(Ordering::Relaxed);
        Arrivals {
            own_pages: self.engine.departures.count() + held_pages,
            local_pages: self.at.run.budget().local_pages.load(Ordering::Relaxed),
        }
    }

    /// Whether scans say which pages are in use.
    pub(crate) fn uses_are_told(&self) -> bool {
        self.engine.use_scan.has_told(self.arrivals())
    }

    /// Whether the evictor is to scan which pages are used.
    pub(crate) fn is_scan_due(&self) -> bool {
        self.engine.use_scan.is_due(self.arrivals())
    }

    /// Scans a piece of managed memory if a scan is due or under way. False where nothing was done.
    pub(crate) fn scan_uses(&self, scan: &mut UseScan) -> bool {
        let clock = &self.engine.use_scan;
        let arrivals = self.arrivals();
        if scan.next.is_none() {
            let asked = self.at.process().unused_asked().swap(0, Ordering::AcqRel) != 0;
            (scan.is_own, scan.is_asked) = (clock.is_due(arrivals), asked && !clock.is_stopped());
            if !scan.is_own && !scan.is_asked {
                return false;
            }
        }
        let Some(_pass) = self.engine.enter() else { return false };
        // It takes long, and only once. With elastic blocks victims are looked at as they leave, and nobody
        // can be waited for then.
        self.at.kernel.find_accesses(self.at.run.process_count() > 1 && !self.is_elastic());
        let (started_ns, ran_ns) = (K::now_ns(), K::thread_ns());
        if scan.next.is_none() && started_ns < scan.not_before_ns {
            if scan.is_own {
                clock.go_on(arrivals);
            }
            return false;
        }
        let Some(piece) = self.piece_from(scan.next.unwrap_or(0)) else {
            clock.go_on(arrivals);
            if self.engine.foretells_use() {
                scan.forecast.settle(&self.engine.use_values);
            }
            if !scan.has_gaps {
                clock.note_whole(arrivals);
            }
            scan.not_before_ns = started_ns + scan.cost_ns * (TIME_ONE_IN - 1);
            self.at.run.count(Counter::UseScans, 1);
            self.let_unused_go(scan);
            scan.end();
            return true;
        };
        scan.next = Some(if planted!(K, "scan-goes-round") { piece.start } else { piece.end });
        match self.scan_piece(scan, &piece) {
            Look::Told => {}
            Look::NotNow => scan.has_gaps = true,
            Look::Never => {
                clock.stop();
                scan.end();
                return false;
            }
        }
        let took_ns = K::thread_ns() - ran_ns;
        scan.cost_ns += took_ns;
        self.at.run.count(Counter::UseScanUs, took_ns / 1000);
        true
    }

    /// The managed memory that a scan at `from` goes on with.
    fn piece_from(&self, from: usize) -> Option<Range<usize>> {
        let regions = self.engine.regions();
        let (region, _) = regions.iter().find(|(region, _)| region.end > from)?;
        let start = region.start.max(from);
        Some(start..region.end.min(start.saturating_add(PIECE_BYTES)))
    }

    /// What this process does not use goes where others need room; and what others do not use, where this
    /// one does and there will be none left by its next scan. So the limit of a run is for what is in use, in
    /// whichever process.
    fn let_unused_go(&self, scan: &UseScan) {
        if scan.is_asked {
            self.at.process().requested_pages().fetch_max(scan.spare_pages(), Ordering::AcqRel);
        }
        let room_pages = self.at.run.budget().headroom_pages();
        if !scan.is_own || room_pages >= self.engine.use_scan.interval_pages() {
            return;
        }
        let run = self.at.run;
        let holds_more = |entry: &usize| {
            *entry != self.at.entry && run.process(*entry).local_pages().load(Ordering::Relaxed) > 0
        };
        let first = self.engine.departures.count() as usize % MAX_PROCESSES;
        let mut others: Vec<usize> = run.processes().filter(holds_more).collect();
        let before = others.partition_point(|&entry| entry < first);
        others.rotate_left(before);
        for entry in others.into_iter().take(MOST_ASKED) {
            run.process(entry).unused_asked().store(1, Ordering::Release);
            self.at.wake_evictor_of(entry);
        }
    }

    fn scan_piece(&self, scan: &mut UseScan, piece: &Range<usize>) -> Look {
        let (first, end) = (page_number_of(piece.start), page_number_of(piece.end));
        let range = target(first, (end - first) as usize);
        let table = &self.engine.table;
        let is_learned = self.engine.foretells_use();
        let mut found = Found { next_page: first, runs: Runs::default() };
        let look = self.at.kernel.accesses(range, &mut |page_number, accessed| {
            *(if accessed { &mut scan.used_pages } else { &mut scan.unused_pages }) += 1;
            let history = table.use_of(page_number);
            // What the kernel keeps local says nothing of what others with its history will be.
            if is_learned && !self.engine.is_refused(page_number) {
                scan.forecast.note(history, accessed);
            }
            table.set_use(page_number, history.after_scan(accessed));
            if accessed {
                self.note_used(page_number);
            }
            found.note(page_number, accessed);
        });
        self.engine.note(|| Event::Scan { page_number: first, found: found.runs });
        if let Look::Told = look {
            self.at.kernel.forget_accesses(range);
        }
        look
    }
}

/// What a scan finds, as a fault trace has it.
struct Found {
    next_page: u64,
    runs: Runs,
}

impl Found {
    fn note(&mut self, page_number: u64, accessed: bool) {
        self.runs.push_many(NOT_MAPPED, page_number.saturating_sub(self.next_page));
        self.runs.push(accessed.into());
        self.next_page = page_number + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(used_pages: u64, unused_pages: u64) -> u64 {
        UseScan { used_pages, unused_pages, ..UseScan::default() }.spare_pages()
    }

    #[test]
    fn what_sleeps_gives_more_than_what_works_and_what_is_in_use_stays() {
        assert_eq!((spare(0, 4000), spare(400, 4000), spare(8000, 4000)), (2000, 2000, 500));
        // Of few at least a batch, or all of them; but not where more are in use.
        assert_eq!((spare(0, 100), spare(0, 30), spare(50, 60)), (64, 30, 60));
        assert_eq!((spare(5000, 30), spare(5000, 0), spare(0, 0)), (3, 0, 0));
    }
}
