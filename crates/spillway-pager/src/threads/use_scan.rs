//! Scans of accessed bits: the evictor notes for each page how it was used, and clears its bit. Which pages
//! leave hangs on it ([`spillway_policy::use_history`]), and nothing else does: a wrong bit is a page that
//! leaves too early.
//!
//! Needs a process that may read its page tables ([`spillway_sys::accesses`]). Where it may not, the order of
//! arrival and the returns ([`spillway_policy::dcm`]) are all that is known.

use std::ops::Range;

use spillway_policy::fault_trace::{Event, Runs};

use crate::kernel::Kernel;
use crate::pages::address::{page_number_of, target};
use crate::process::worker::Worker;
use crate::run::state::Counter;

/// Scanned in one go, before the evictor's other work has its turn.
const PIECE_BYTES: usize = 64 << 20;
/// The part of one CPU's time that scans may take, at most: one in so many.
const TIME_ONE_IN: u64 = 10;

/// In a fault trace, beside 1 and 0 for pages that are.
const NOT_MAPPED: u8 = 2;

/// Where the evictor's scan is.
#[derive(Default)]
pub(crate) struct UseScan {
    /// Where it goes on; `None` between two scans.
    next: Option<usize>,
    cost_ns: u64,
    not_before_ns: u64,
}

impl<K: Kernel> Worker<K> {
    /// Scans a piece of managed memory if a scan is due or under way. False where nothing was done.
    pub(crate) fn scan_uses(&self, scan: &mut UseScan) -> bool {
        let clock = &self.engine.use_scan;
        let departures = self.engine.departures.count();
        if scan.next.is_none() && !clock.is_due(departures) {
            return false;
        }
        let Some(_pass) = self.engine.enter() else { return false };
        let started_ns = K::now_ns();
        if scan.next.is_none() && started_ns < scan.not_before_ns {
            clock.go_on(departures);
            return false;
        }
        let Some(piece) = self.piece_from(scan.next.unwrap_or(0)) else {
            clock.go_on(departures);
            scan.not_before_ns = started_ns + scan.cost_ns * (TIME_ONE_IN - 1);
            (scan.next, scan.cost_ns) = (None, 0);
            self.at.run.count(Counter::UseScans, 1);
            return true;
        };
        scan.next = Some(piece.end);
        if !self.scan_piece(&piece) {
            clock.stop();
            scan.next = None;
            return false;
        }
        let took_ns = K::now_ns() - started_ns;
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

    fn scan_piece(&self, piece: &Range<usize>) -> bool {
        let (first, end) = (page_number_of(piece.start), page_number_of(piece.end));
        let range = target(first, (end - first) as usize);
        let table = &self.engine.table;
        let mut found = Found { next_page: first, runs: Runs::default() };
        let is_known = self.at.kernel.accesses(range, &mut |page_number, accessed| {
            table.set_use(page_number, table.use_of(page_number).after_scan(accessed));
            if accessed {
                self.note_used(page_number);
            }
            found.note(page_number, accessed);
        });
        self.engine.note(|| Event::Scan { page_number: first, found: found.runs });
        if is_known {
            self.at.kernel.forget_accesses(range);
        }
        is_known
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
