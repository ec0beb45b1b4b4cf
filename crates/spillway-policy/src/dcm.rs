//! dcm's replacement: three FIFO queues and no scan of accessed bits.
//!
//! Taken from "Disaggregated Cloud Memory with Elastic Block Management", section 3.2 and Fig. 4: the queues,
//! the random promotion (epsilon = 0.1), promotion on a touch in Inactive or Writeback. The paper does not
//! give the sizes of the queues; they are in [`Config`]. What each thread has of its own of them (3.4) is in
//! [`crate::thread_queues`].

use std::cell::Cell;

use serde::{Deserialize, Serialize};
use spillway_core::fifo::{Entry, Fifo, Pool, PoolFull};
use spillway_core::page_word::Queue;
use thiserror::Error;

use crate::newcomers::Newcomers;
use crate::use_history;
use crate::victims::VictimWindow;

/// Settings of dcm's replacement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Chance that a page which comes in goes straight to the proactive queue (paper: 0.1).
    pub random_promotion: f64,
    /// Share of the mapped pages that the proactive queue may hold before its head moves to the active queue.
    pub proactive_share: f64,
    /// Share of the local pages that lies in the inactive queue, local but unmapped: every page that leaves
    /// passes through it, and a touch there is a re-reference, which takes it to the proactive queue without
    /// a fetch (3.2). At 0 nothing waits there: what has not changed is dropped where it lies, and the rest
    /// is unmapped to be written at once.
    pub inactive_share: f64,
    /// A far page that comes back before this share of the local limit has left behind it goes straight to
    /// the proactive queue. Not the paper's, whose inactive queue tells such pages apart at the price of
    /// their memory; 0 switches it off.
    pub return_share: f64,
    /// Accessed bits are scanned each time that this share of the local limit has come, where the machine
    /// lets them be read: what is in use stays ([`crate::use_history`]). Not the paper's; 0 switches it off.
    pub scan_share: f64,
    /// What scans found of a page counts as much as it foretells in this program
    /// ([`crate::use_forecast`]); otherwise, and with a tape, by its rank
    /// ([`crate::use_history::UseHistory::rank`]).
    pub use_forecast: bool,
    /// Without a forecast: what a page counts for that came too lately for scans to tell, on the scale of
    /// ranks.
    pub newcomer_rank: u8,
    /// Pages that wait in a buffer of the thread that brought them in, before they move to the shared queues
    /// together (3.4, [`crate::thread_queues`]); at 0 each goes to the shared queues by itself.
    pub thread_buffer_pages: u32,
    /// Each thread has an inactive sub-queue of its own (3.4); otherwise there is one for all.
    pub thread_inactive: bool,
}

/// Pages of a thread's buffer at most.
const MOST_BUFFER_PAGES: u32 = 1024;

/// A setting of the replacement is out of its range.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{name} is {value}; set it to 0 to {most}")]
pub struct OutOfRange {
    name: &'static str,
    value: f64,
    most: f64,
}

impl Config {
    /// Whether each setting is in its range: shares and chances, and a rank.
    ///
    /// # Errors
    /// One is not.
    pub fn check(&self) -> Result<(), OutOfRange> {
        let Self {
            random_promotion,
            proactive_share,
            inactive_share,
            return_share,
            scan_share,
            use_forecast: _,
            newcomer_rank,
            thread_buffer_pages,
            thread_inactive: _,
        } = *self;
        let settings = [
            ("random_promotion", random_promotion, 1.0),
            ("proactive_share", proactive_share, 1.0),
            ("inactive_share", inactive_share, 1.0),
            ("return_share", return_share, 1.0),
            ("scan_share", scan_share, 1.0),
            ("newcomer_rank", newcomer_rank.into(), use_history::HIGHEST.into()),
            ("thread_buffer_pages", thread_buffer_pages.into(), MOST_BUFFER_PAGES.into()),
        ];
        let wrong = settings.into_iter().find(|(_, value, most)| !(0.0..=*most).contains(value));
        wrong.map_or(Ok(()), |(name, value, most)| Err(OutOfRange { name, value, most }))
    }

    /// How many of `local_pages` lie in the inactive queue.
    #[must_use]
    pub fn inactive_pages(&self, local_pages: usize) -> usize {
        (local_pages as f64 * self.inactive_share) as usize
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            random_promotion: 0.1,
            proactive_share: 0.5,
            inactive_share: 0.0,
            return_share: 0.25,
            scan_share: 0.125,
            use_forecast: true,
            newcomer_rank: 3,
            thread_buffer_pages: 0,
            thread_inactive: false,
        }
    }
}

/// What to do with a page at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It leaves the proactive queue: queue it as Active.
    ToActive(Entry),
    /// It is in use: queue it as Proactive, as one that has just come there.
    ToProactive(Entry),
    /// It leaves the active queue: unmap it and queue it as Inactive.
    ToInactive(Entry),
}

/// The three queues of one process.
#[derive(Clone)]
pub struct Replacement {
    config: Config,
    pool: Pool,
    active: Fifo,
    proactive: Fifo,
    inactive: Fifo,
    window: VictimWindow,
    newcomers: Newcomers,
    kept_in_use: u64,
    /// Scans have told of some page whether it is in use.
    knows_uses: bool,
    /// The proactive queue's share of the pages drawn, as yet undrawn.
    turn: usize,
}

impl Replacement {
    /// Queues for at most `local_pages` pages. One seed, one sequence of choices.
    #[must_use]
    pub fn new(config: Config, local_pages: usize, seed: u64) -> Self {
        // A quarter more than can be local, for entries of pages that have left.
        let pool = Pool::new(local_pages + local_pages / 4 + 1024, 3);
        let (active, proactive, inactive) = (Fifo::new(), Fifo::new(), Fifo::new());
        let window = VictimWindow::new(0);
        Self {
            config,
            pool,
            active,
            proactive,
            inactive,
            window,
            newcomers: Newcomers::new(config.random_promotion, config.return_share, seed),
            kept_in_use: 0,
            knows_uses: false,
            turn: 0,
        }
    }

    /// The same, but of the `pages` oldest active pages those leave first that lie together. Not the paper's.
    #[must_use]
    pub fn with_victim_window(self, pages: usize) -> Self {
        Self { window: VictimWindow::new(pages), ..self }
    }

    /// The queue of a page that comes in for the first time: [`Newcomers::queue_of_newcomer`].
    pub fn queue_of_newcomer(&mut self) -> Queue {
        self.newcomers.queue_of_newcomer()
    }

    /// The queue of a page that comes back: [`Newcomers::queue_of_returner`].
    pub fn queue_of_returner(&mut self, away_pages: u64, local_pages: u64) -> Queue {
        self.newcomers.queue_of_returner(away_pages, local_pages)
    }

    /// Puts a page at the tail of a queue.
    ///
    /// # Errors
    /// There is no room in the queues: call [`Self::drop_stale`] and try again.
    pub fn enqueue(&mut self, queue: Queue, entry: Entry) -> Result<(), PoolFull> {
        let queue = match queue {
            Queue::Proactive => &mut self.proactive,
            Queue::Inactive => &mut self.inactive,
            Queue::Active => &mut self.active,
        };
        queue.push(&mut self.pool, entry)
    }

    /// The next page to move down among the mapped ones. `rank` says how much a page is in use
    /// ([`crate::use_history`]). Once that is known of any, those leave that are used least, of either queue.
    /// Not the paper's, which scans no accessed bits: without them it is the paper's queues.
    pub fn next_mapped(&mut self, rank: impl Fn(u64) -> u8) -> Option<Step> {
        if let Some(entry) = self.window.take_used() {
            return Some(Step::ToProactive(entry));
        }
        if self.knows_uses {
            return self.next_by_use(rank);
        }
        let leaving = self.active.len() + self.window.len();
        let mapped = leaving + self.proactive.len();
        let crowded = self.proactive.len() as f64 > self.config.proactive_share * mapped as f64;
        if crowded || leaving == 0 {
            return self.proactive.pop(&mut self.pool).map(Step::ToActive);
        }
        while self.window.has_room() {
            let Some(entry) = self.active.pop(&mut self.pool) else { break };
            self.window.offer(entry);
        }
        let knows_uses = Cell::new(false);
        let taken = self.window.take(|page_number| {
            knows_uses.set(knows_uses.get() || rank(page_number) != use_history::UNKNOWN);
            0
        });
        self.knows_uses = knows_uses.get();
        taken.map(Step::ToInactive)
    }

    fn next_by_use(&mut self, rank: impl Fn(u64) -> u8) -> Option<Step> {
        while self.window.has_room() {
            let Some(entry) = self.draw() else { break };
            self.window.offer(entry);
        }
        let newcomer_rank = self.config.newcomer_rank;
        let knows_uses = Cell::new(self.window.has_chosen());
        let taken = self.window.take(|page_number| match rank(page_number) {
            use_history::UNKNOWN => newcomer_rank,
            rank => {
                knows_uses.set(true);
                rank
            }
        });
        self.knows_uses = knows_uses.get();
        while let Some(entry) = self.window.take_used() {
            self.kept_in_use += 1;
            if self.proactive.push(&mut self.pool, entry).is_err() {
                self.window.give_back_used(entry);
                break;
            }
        }
        taken.map(Step::ToInactive)
    }

    /// The oldest of either queue, of each in proportion to its length.
    fn draw(&mut self) -> Option<Entry> {
        let mapped = self.active.len() + self.proactive.len();
        self.turn += self.proactive.len();
        let is_proactives = self.turn >= mapped;
        if is_proactives {
            self.turn = (self.turn - mapped).min(mapped);
        }
        let (first, second) = match is_proactives {
            true => (&mut self.proactive, &mut self.active),
            false => (&mut self.active, &mut self.proactive),
        };
        first.pop(&mut self.pool).or_else(|| second.pop(&mut self.pool))
    }

    /// As [`Self::take_kept_in_use`], which counts on.
    #[must_use]
    pub fn kept_in_use(&self) -> u64 {
        self.kept_in_use
    }

    /// How many pages stayed because they are in use, since this was asked last.
    pub fn take_kept_in_use(&mut self) -> u64 {
        std::mem::take(&mut self.kept_in_use)
    }

    /// The next page to write back.
    pub fn next_inactive(&mut self) -> Option<Entry> {
        self.inactive.pop(&mut self.pool)
    }

    /// Entries in the inactive queue, stale ones included.
    #[must_use]
    pub fn inactive_len(&self) -> usize {
        self.inactive.len()
    }

    /// What [`Self::next_inactive`] would give.
    #[must_use]
    pub fn peek_inactive(&self) -> Option<Entry> {
        self.inactive.peek(&self.pool)
    }

    /// The entries of a queue, stale ones included, in the order in which they leave as long as nothing new
    /// is known of their use.
    pub fn in_order(&self, queue: Queue) -> impl Iterator<Item = Entry> {
        let (fifo, window) = match queue {
            Queue::Active => (&self.active, Some(self.window.iter())),
            Queue::Proactive => (&self.proactive, None),
            Queue::Inactive => (&self.inactive, None),
        };
        window.into_iter().flatten().chain(fifo.iter(&self.pool))
    }

    /// [`Config::inactive_pages`], by this replacement's settings.
    #[must_use]
    pub fn inactive_target(&self, local_pages: usize) -> usize {
        self.config.inactive_pages(local_pages)
    }

    /// Drops the entries that no longer speak of a page in their queue.
    pub fn drop_stale(&mut self, mut is_current: impl FnMut(Entry, Queue) -> bool) {
        self.window.retain(|entry| is_current(entry, Queue::Active));
        self.active.retain(&mut self.pool, |entry| is_current(entry, Queue::Active));
        self.proactive.retain(&mut self.pool, |entry| is_current(entry, Queue::Proactive));
        self.inactive.retain(&mut self.pool, |entry| is_current(entry, Queue::Inactive));
    }

    /// Entries of mapped pages, stale ones included.
    #[must_use]
    pub fn mapped_len(&self) -> usize {
        self.active.len() + self.proactive.len() + self.window.len()
    }

    /// Calls `visit` with every entry and its queue.
    pub fn for_each(&mut self, mut visit: impl FnMut(Queue, Entry)) {
        self.for_each_mapped(|entry| visit(Queue::Active, entry));
        self.inactive.retain(&mut self.pool, |entry| {
            visit(Queue::Inactive, entry);
            true
        });
    }

    /// Calls `visit` with every entry of the mapped pages, oldest first in each queue.
    pub fn for_each_mapped(&mut self, mut visit: impl FnMut(Entry)) {
        self.window.retain(|entry| {
            visit(entry);
            true
        });
        for queue in [&mut self.active, &mut self.proactive] {
            queue.retain(&mut self.pool, |entry| {
                visit(entry);
                true
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::use_history::{HIGHEST, UNKNOWN};

    fn entry(page_number: u64) -> Entry {
        Entry { page_number, generation: 1 }
    }

    fn replacement(config: Config) -> Replacement {
        Replacement::new(config, 1000, 42)
    }

    #[test]
    fn a_page_that_comes_back_soon_is_proactive() {
        let config = Config { random_promotion: 0.0, return_share: 0.25, ..Config::default() };
        let mut replacement = replacement(config);
        assert_eq!(replacement.queue_of_returner(249, 1000), Queue::Proactive);
        assert_eq!(replacement.queue_of_returner(250, 1000), Queue::Active);
    }

    #[test]
    fn newcomers_are_promoted_by_chance_one_in_ten() {
        let mut replacement = replacement(Config::default());
        let promoted = (0..100_000).filter(|_| replacement.queue_of_newcomer() == Queue::Proactive).count();
        assert!((9_500..10_500).contains(&promoted), "{promoted}");
    }

    #[test]
    fn victims_leave_in_order_of_arrival() {
        let mut replacement = replacement(Config::default());
        for page in 0..10 {
            replacement.enqueue(Queue::Active, entry(page)).unwrap();
        }
        for page in 0..10 {
            assert_eq!(replacement.next_mapped(|_| UNKNOWN), Some(Step::ToInactive(entry(page))));
            replacement.enqueue(Queue::Inactive, entry(page)).unwrap();
        }
        assert_eq!(replacement.next_mapped(|_| UNKNOWN), None);
        assert_eq!(replacement.inactive_len(), 10);
        assert_eq!(replacement.next_inactive(), Some(entry(0)));
    }

    #[test]
    fn the_order_that_is_told_is_that_in_which_pages_leave() {
        let config = Config { random_promotion: 0.0, ..Config::default() };
        let mut replacement = Replacement::new(config, 1000, 1).with_victim_window(128);
        (0..600).for_each(|page| replacement.enqueue(Queue::Active, entry(page)).unwrap());
        (600..650).for_each(|page| replacement.enqueue(Queue::Inactive, entry(page)).unwrap());
        // Something waits in the window then, some of it already chosen.
        assert!(replacement.next_mapped(|_| use_history::UNKNOWN).is_some());
        let told: Vec<u64> =
            replacement.in_order(Queue::Active).take(5).map(|entry| entry.page_number).collect();
        let leaving = std::iter::from_fn(|| match replacement.next_mapped(|_| use_history::UNKNOWN) {
            Some(Step::ToInactive(entry)) => Some(entry.page_number),
            _ => None,
        });
        assert_eq!(leaving.take(5).collect::<Vec<_>>(), told);
        let inactive: Vec<u64> =
            replacement.in_order(Queue::Inactive).map(|entry| entry.page_number).collect();
        assert_eq!(inactive, (600..650).collect::<Vec<_>>());
    }

    #[test]
    fn proactive_pages_pass_through_active_before_they_leave() {
        let mut replacement = replacement(Config::default());
        replacement.enqueue(Queue::Proactive, entry(1)).unwrap();
        replacement.enqueue(Queue::Active, entry(2)).unwrap();
        replacement.enqueue(Queue::Active, entry(3)).unwrap();
        assert_eq!(
            replacement.next_mapped(|_| UNKNOWN),
            Some(Step::ToInactive(entry(2))),
            "not crowded: active first"
        );
        assert_eq!(replacement.next_mapped(|_| UNKNOWN), Some(Step::ToInactive(entry(3))));
        assert_eq!(replacement.next_mapped(|_| UNKNOWN), Some(Step::ToActive(entry(1))));
        replacement.enqueue(Queue::Active, entry(1)).unwrap();
        assert_eq!(replacement.next_mapped(|_| UNKNOWN), Some(Step::ToInactive(entry(1))));
    }

    /// The pages that leave, `count` of them, where nothing but victims comes out of the queues.
    fn leaving(replacement: &mut Replacement, count: usize, rank: impl Fn(u64) -> u8) -> Vec<u64> {
        let victim = |step| match step {
            Step::ToInactive(entry) => entry.page_number,
            step => panic!("{step:?}"),
        };
        (0..count).map(|_| victim(replacement.next_mapped(&rank).unwrap())).collect()
    }

    fn filled(active: Range<u64>, proactive: Range<u64>) -> Replacement {
        let mut replacement = replacement(Config::default()).with_victim_window(256);
        active.for_each(|page| replacement.enqueue(Queue::Active, entry(page)).unwrap());
        proactive.for_each(|page| replacement.enqueue(Queue::Proactive, entry(page)).unwrap());
        replacement
    }

    #[test]
    fn once_uses_are_known_what_is_used_least_leaves() {
        let mut replacement = filled(0..900, 0..0);
        let rank = |page: u64| if page.is_multiple_of(2) { HIGHEST } else { 0 };
        // The first choice is made before anything is known.
        assert_eq!(leaving(&mut replacement, 64, rank), (0..64).collect::<Vec<_>>());
        let left = leaving(&mut replacement, 256, rank);
        assert!(left.iter().all(|page| page % 2 == 1), "{left:?}");
        assert!(replacement.take_kept_in_use() >= 256);
        assert_eq!(replacement.take_kept_in_use(), 0);
    }

    #[test]
    fn what_was_used_once_and_is_no_more_leaves_the_proactive_queue_too() {
        let mut replacement = filled(0..500, 500..900);
        let rank = |page: u64| if page < 500 { UNKNOWN } else { 0 };
        replacement.knows_uses = true;
        let left = leaving(&mut replacement, 384, rank);
        let idle = left.iter().filter(|page| **page >= 500).count();
        assert!(idle > 350, "{idle} idle pages of {} left before newcomers", left.len());
    }

    #[test]
    fn newcomers_leave_before_what_is_in_use_and_after_what_is_not() {
        let mut replacement = filled(0..192, 0..0);
        replacement.knows_uses = true;
        let ranks = [0, UNKNOWN, Config::default().newcomer_rank + 1];
        let left = leaving(&mut replacement, 192, |page| ranks[page as usize % 3]);
        let order: Vec<u64> =
            left.chunks(64).map(|chunk| chunk.iter().map(|page| page % 3).max().unwrap()).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn without_news_of_any_page_it_goes_by_the_papers_queues_again() {
        let mut replacement = filled(0..600, 600..700);
        replacement.knows_uses = true;
        let _ = leaving(&mut replacement, 64, |_| UNKNOWN);
        assert!(!replacement.knows_uses);
        // One in seven of the 256 that were drawn by then; no others before the queue is crowded.
        let left = leaving(&mut replacement, 400, |_| UNKNOWN);
        let proactive = left.iter().filter(|page| **page >= 600).count();
        assert!(proactive <= 256 / 7 + 1, "{proactive} proactive pages left");
    }

    #[test]
    fn nothing_is_lost_where_the_queues_are_full() {
        // What is drawn from two queues may leave no chunk of the pool empty.
        let mut replacement = replacement(Config::default()).with_victim_window(80);
        let queue_of = |page: u64| if page.is_multiple_of(2) { Queue::Active } else { Queue::Proactive };
        let mut pages = 0;
        while replacement.enqueue(queue_of(pages), entry(pages)).is_ok() {
            pages += 1;
        }
        replacement.knows_uses = true;
        let (mut left, mut stayed, mut newcomer) = (0, 0, pages);
        for _ in 0..20_000 {
            match replacement.next_mapped(|page| if page.is_multiple_of(5) { HIGHEST } else { 0 }) {
                Some(Step::ToInactive(_)) => left += 1,
                Some(Step::ToProactive(_)) => stayed += 1,
                other => panic!("{other:?}"),
            }
            while replacement.enqueue(queue_of(newcomer), entry(newcomer)).is_ok() {
                newcomer += 1;
            }
        }
        let mut queued = 0;
        replacement.for_each_mapped(|_| queued += 1);
        assert!(stayed > 0, "{left} left");
        assert_eq!(queued + left + stayed, newcomer);
    }

    #[test]
    fn stale_entries_are_dropped_when_room_runs_out() {
        let mut replacement = replacement(Config::default());
        let mut page = 0;
        while replacement.enqueue(Queue::Active, entry(page)).is_ok() {
            page += 1;
        }
        replacement.drop_stale(|entry, queue| queue == Queue::Active && entry.page_number % 10 == 0);
        replacement.enqueue(Queue::Active, entry(page)).unwrap();
        assert_eq!(replacement.next_mapped(|_| UNKNOWN), Some(Step::ToInactive(entry(0))));
        assert_eq!(replacement.next_mapped(|_| UNKNOWN), Some(Step::ToInactive(entry(10))));
    }
}
