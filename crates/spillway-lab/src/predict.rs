//! How often the pager would fetch, by a memory trace of the program ([`crate::trace`]) and the replacement
//! that the pager has. An estimate: single pages, no time, one thread's accesses after another's as the trace
//! has their chunks, and of the kernel's accesses those that the trace has.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;

use serde::Serialize;
use spillway_core::fifo::Entry;
use spillway_core::page::PAGE_SHIFT;
use spillway_core::page_word::Queue;
use spillway_policy::dcm::{Replacement, Step};
use spillway_policy::fault_trace::Header;
use spillway_policy::scan_clock::{Arrivals, ScanClock};
use spillway_policy::use_forecast::{UseForecast, UseValues};
use spillway_policy::use_history::{UNKNOWN, UseHistory};

use crate::access::Action;
use crate::trace::{TraceError, TraceReader};

/// Pages that the pager evicts together.
const BATCH_PAGES: usize = 64;
/// Generations of a page's entries, as its word has them.
const GENERATIONS: u8 = 128;

/// When accessed bits are scanned.
#[derive(Clone, Debug)]
pub enum Scans {
    /// As the settings ask (`scan_share`).
    Due,
    /// Whenever so many pages had come: as a live pager did it.
    At(Vec<u64>),
}

/// What the pager would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Predicted {
    /// Pages that would be touched at all.
    pub touched_pages: u64,
    /// Pages that would be fetched.
    pub fetched_pages: u64,
    /// Scans of accessed bits.
    pub scans: u64,
}

#[derive(Clone, Copy, Default)]
struct Page {
    is_local: bool,
    /// Local, and in the inactive queue.
    is_inactive: bool,
    accessed: bool,
    generation: u8,
    history: UseHistory,
    /// The count of departures after it left; 0 where it never did.
    left_at: u64,
}

struct Pager {
    header: Header,
    replacement: Replacement,
    numbers: HashMap<u64, u32>,
    pages: Vec<Page>,
    local_pages: usize,
    /// Of these, those in the inactive queue.
    inactive_pages: usize,
    /// Pages that came, those that were given back since among them.
    came_pages: u64,
    departures: u64,
    clock: ScanClock,
    forecast: UseForecast,
    values: UseValues,
    /// When scans are made, where that is not when they are due: the next comes last.
    scans_at: Option<Vec<u64>>,
    predicted: Predicted,
}

/// Runs a memory trace through the replacement of `header`.
///
/// # Errors
/// `source` cannot be read, or holds no whole trace.
pub fn predict(source: impl Read, header: &Header, scans: Scans) -> Result<Predicted, TraceError> {
    let scans_at = match scans {
        Scans::Due => None,
        Scans::At(mut arrivals) => {
            arrivals.reverse();
            Some(arrivals)
        }
    };
    let mut pager = Pager {
        replacement: header.replacement(),
        header: header.clone(),
        numbers: HashMap::new(),
        pages: Vec::new(),
        local_pages: 0,
        inactive_pages: 0,
        came_pages: 0,
        departures: 0,
        clock: ScanClock::new(header.replacement.scan_share, header.local_pages),
        forecast: UseForecast::default(),
        values: UseValues::default(),
        scans_at,
        predicted: Predicted::default(),
    };
    let mut last = (u64::MAX, 0);
    TraceReader::new(source)?.for_each(|_, access| {
        let Some(address) = access.address() else {
            if let Action::Release(page_number, pages) = access.action() {
                pager.release(page_number..page_number + pages);
                last.0 = u64::MAX;
            }
            return;
        };
        let page_number = address >> PAGE_SHIFT;
        if page_number != last.0 {
            last = (page_number, pager.number(page_number));
        }
        pager.touch(last.1);
    })?;
    Ok(Predicted { touched_pages: pager.pages.len() as u64, ..pager.predicted })
}

impl Pager {
    fn number(&mut self, page_number: u64) -> usize {
        let next = self.pages.len() as u32;
        let number = *self.numbers.entry(page_number).or_insert(next);
        if number == next {
            self.pages.push(Page::default());
        }
        number as usize
    }

    /// The program gave these pages back: what it has there next is new.
    fn release(&mut self, page_numbers: Range<u64>) {
        let is_fewer = page_numbers.end - page_numbers.start < self.numbers.len() as u64;
        let released: Vec<u32> = if is_fewer {
            page_numbers.filter_map(|page_number| self.numbers.get(&page_number).copied()).collect()
        } else {
            let of_range = |&(page_number, _): &(&u64, &u32)| page_numbers.contains(page_number);
            self.numbers.iter().filter(of_range).map(|(_, &number)| number).collect()
        };
        for number in released {
            let page = &mut self.pages[number as usize];
            self.local_pages -= usize::from(page.is_local);
            self.inactive_pages -= usize::from(page.is_inactive);
            *page = Page { generation: page.generation, ..Page::default() };
        }
    }

    fn touch(&mut self, number: usize) {
        if self.pages[number].is_local {
            self.pages[number].accessed = true;
            if self.pages[number].is_inactive {
                self.rescue(number);
            }
            return;
        }
        if self.local_pages >= self.header.local_pages {
            self.evict();
        }
        let left_at = self.pages[number].left_at;
        let queue = if left_at == 0 {
            self.replacement.queue_of_newcomer()
        } else {
            self.predicted.fetched_pages += 1;
            let away_pages = self.departures + 1 - left_at;
            self.replacement.queue_of_returner(away_pages, self.header.local_pages as u64)
        };
        let page = &mut self.pages[number];
        (page.is_local, page.accessed) = (true, true);
        self.local_pages += 1;
        self.came_pages += 1;
        self.enqueue(number, queue);
        self.scan_if_due();
    }

    /// An inactive page is touched.
    fn rescue(&mut self, number: usize) {
        let page = &mut self.pages[number];
        (page.is_inactive, page.history) = (false, UseHistory::USED_LAST);
        self.inactive_pages -= 1;
        self.enqueue(number, Queue::Proactive);
    }

    fn enqueue(&mut self, number: usize, queue: Queue) {
        let page = &mut self.pages[number];
        page.generation = (page.generation + 1) % GENERATIONS;
        let entry = Entry { page_number: number as u64, generation: page.generation };
        if self.replacement.enqueue(queue, entry).is_err() {
            let pages = &self.pages;
            self.replacement.drop_stale(|entry, _| is_current(pages, entry));
            let _ = self.replacement.enqueue(queue, entry);
        }
    }

    fn evict(&mut self) {
        let batch = BATCH_PAGES.min(self.header.local_pages);
        if self.header.replacement.inactive_share == 0.0 {
            self.take_mapped(batch, Self::leave);
            return;
        }
        let full = self.header.replacement.inactive_pages(self.local_pages) + batch;
        self.take_mapped(full.saturating_sub(self.inactive_pages).min(2 * batch), Self::make_inactive);
        let mut left = 0;
        while left < batch {
            let Some(entry) = self.replacement.next_inactive() else { break };
            if is_current(&self.pages, entry) {
                self.inactive_pages -= 1;
                self.leave(entry.page_number as usize);
                left += 1;
            }
        }
    }

    fn leave(&mut self, number: usize) {
        self.departures += 1;
        self.local_pages -= 1;
        let page = &mut self.pages[number];
        (page.is_local, page.is_inactive) = (false, false);
        (page.history, page.left_at) = (UseHistory::RETURNED, self.departures);
    }

    fn make_inactive(&mut self, number: usize) {
        self.inactive_pages += 1;
        (self.pages[number].is_inactive, self.pages[number].history) = (true, UseHistory::RETURNED);
        self.enqueue(number, Queue::Inactive);
    }

    /// Does something with the next `wanted` mapped pages.
    fn take_mapped(&mut self, wanted: usize, take: fn(&mut Self, usize)) {
        let mut taken = 0;
        let uses_are_told = self.clock.has_told(self.arrivals());
        while taken < wanted {
            let (pages, values) = (&self.pages, &self.values);
            let is_foretold = self.header.replacement.use_forecast;
            let rank = |number: u64| match pages[number as usize].history {
                _ if !uses_are_told => UNKNOWN,
                history if is_foretold => values.of(history),
                history => history.rank(),
            };
            let Some(step) = self.replacement.next_mapped(rank) else { break };
            let (Step::ToActive(entry) | Step::ToProactive(entry) | Step::ToInactive(entry)) = step;
            if !is_current(&self.pages, entry) {
                continue;
            }
            let number = entry.page_number as usize;
            match step {
                Step::ToActive(_) => self.enqueue(number, Queue::Active),
                Step::ToProactive(_) => self.enqueue(number, Queue::Proactive),
                Step::ToInactive(_) => {
                    take(self, number);
                    taken += 1;
                }
            }
        }
    }

    fn arrivals(&self) -> Arrivals {
        let local_pages = self.local_pages as u64;
        Arrivals { own_pages: self.departures + local_pages, local_pages }
    }

    fn scan_if_due(&mut self) {
        let arrivals = self.arrivals();
        let is_due = match &mut self.scans_at {
            None => self.clock.is_due(arrivals),
            Some(next) => next.pop_if(|next| *next <= self.came_pages).is_some(),
        };
        if !is_due {
            return;
        }
        self.clock.go_on(arrivals);
        self.clock.note_whole(arrivals);
        self.predicted.scans += 1;
        for page in self.pages.iter_mut().filter(|page| page.is_local && !page.is_inactive) {
            self.forecast.note(page.history, page.accessed);
            page.history = page.history.after_scan(page.accessed);
            page.accessed = false;
        }
        self.forecast.settle(&self.values);
    }
}

fn is_current(pages: &[Page], entry: Entry) -> bool {
    let page = &pages[entry.page_number as usize];
    page.is_local && page.generation == entry.generation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::trace::TraceWriter;
    use spillway_policy::dcm::Config;

    fn predicted(pages: impl Iterator<Item = u64>, local_pages: usize, scans: Scans) -> Predicted {
        predicted_of(pages.map(|page| Access::read(page << PAGE_SHIFT)), local_pages, scans)
    }

    fn predicted_of(accesses: impl Iterator<Item = Access>, local_pages: usize, scans: Scans) -> Predicted {
        predicted_with(Config::default(), accesses, local_pages, scans)
    }

    fn predicted_with(
        config: Config,
        accesses: impl Iterator<Item = Access>,
        local_pages: usize,
        scans: Scans,
    ) -> Predicted {
        let mut trace = Vec::new();
        let mut writer = TraceWriter::new(&mut trace).unwrap();
        accesses.for_each(|access| writer.append(0, access).unwrap());
        writer.finish().unwrap();
        let replacement = Config { random_promotion: 0.0, return_share: 0.0, ..config };
        let settings = serde_json::Value::Null;
        let header =
            Header { replacement, victim_window_pages: 512, local_pages, seed: 1, blocks: None, settings };
        predict(trace.as_slice(), &header, scans).unwrap()
    }

    #[test]
    fn what_fits_is_fetched_never() {
        let pages = || (0..10_000).map(|i| i % 500);
        let fits = predicted(pages(), 700, Scans::Due);
        assert_eq!((fits.touched_pages, fits.fetched_pages, fits.scans), (500, 0, 0));
        // Up to the limit: two scans before it is reached, and one as it is.
        let just_fits = predicted(pages(), 512, Scans::Due);
        assert_eq!((just_fits.fetched_pages, just_fits.scans), (0, 2));
    }

    /// 300 pages are used, given back, and used anew, then 300 others, while 200 stay in use: never more than
    /// 500 at a time.
    #[test]
    fn what_is_given_back_takes_no_room_and_is_not_fetched() {
        let rounds = |release: fn(u64) -> Access| {
            (0..20).flat_map(move |round| {
                let first = 1000 + round / 2 * 300;
                let touch = move |i| if i % 2 == 0 { i / 2 % 200 } else { first + i / 2 % 300 };
                let touches = (0..2000_u64).map(move |i| Access::write(touch(i) << PAGE_SHIFT));
                touches.chain([release(first)])
            })
        };
        let given_back = predicted_of(rounds(|first| Access::release(first, 300)), 512, Scans::Due);
        assert_eq!((given_back.touched_pages, given_back.fetched_pages), (200 + 3000, 0));
        // A range of more pages than there are, of which nothing else is known.
        let with_much_else = rounds(|first| Access::release(first, Access::MOST_RELEASED_PAGES));
        assert_eq!(predicted_of(with_much_else, 512, Scans::Due), given_back);
        let kept = predicted_of(rounds(|_| Access::compute_ns(1)), 512, Scans::Due);
        assert!(kept.fetched_pages > 0, "{kept:?}");
    }

    #[test]
    fn what_is_in_use_stays_where_scans_say_so() {
        // Half of the touches go to 300 pages, the others pass through 5,000.
        let pages =
            || (0..400_000_u64).map(|i| if i % 2 == 0 { i / 2 * 7 % 300 } else { 1000 + i / 2 % 5000 });
        let with = predicted(pages(), 1000, Scans::Due);
        let without = predicted(pages(), 1000, Scans::At(Vec::new()));
        assert_eq!(with.touched_pages, 5300);
        assert!(with.scans > 500 && without.scans == 0);
        assert!(with.fetched_pages < without.fetched_pages, "{with:?} {without:?}");
    }

    /// The order of use in which the page that was local longest is always the one needed next.
    #[test]
    fn what_goes_round_is_kept_in_part() {
        const PAGES: u64 = 4000;
        const ROUNDS: u64 = 60;
        let fetched = |use_forecast| {
            let accesses = (0..ROUNDS * PAGES).map(|i| Access::read((i % PAGES) << PAGE_SHIFT));
            let config = Config { use_forecast, ..Config::default() };
            predicted_with(config, accesses, 3000, Scans::Due).fetched_pages
        };
        let (ranked, foretold) = (fetched(false), fetched(true));
        assert!(ranked > ROUNDS * PAGES * 9 / 10 && foretold < ranked / 2, "{foretold} {ranked}");
    }

    /// As in the test before, but nothing scans.
    #[test]
    fn what_is_touched_while_it_is_inactive_stays() {
        let touches =
            || (0..400_000_u64).map(|i| if i % 2 == 0 { i / 2 * 7 % 300 } else { 1000 + i / 2 % 5000 });
        let fetched = |inactive_share| {
            let accesses = touches().map(|page| Access::read(page << PAGE_SHIFT));
            let config = Config { inactive_share, ..Config::default() };
            predicted_with(config, accesses, 1000, Scans::At(Vec::new())).fetched_pages
        };
        let (without, with) = (fetched(0.0), fetched(0.3));
        assert!(with < without, "{with} {without}");
    }
}
