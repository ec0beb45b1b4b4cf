//! dcm's replacement: three FIFO queues and no scan of accessed bits.
//!
//! Taken from "Disaggregated Cloud Memory with Elastic Block Management", section 3.2 and Fig. 4: the queues,
//! the random promotion (epsilon = 0.1), promotion on a touch in Inactive or Writeback. The paper does not
//! give the sizes of the queues; they are in [`Config`]. Its per-vCPU buffers (3.4) are left to a later step.

use serde::{Deserialize, Serialize};
use spillway_core::fifo::{Entry, Fifo, Pool, PoolFull};
use spillway_core::page_word::Queue;

use crate::victims::VictimWindow;

/// Settings of dcm's replacement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Chance that a page which comes in goes straight to the proactive queue (paper: 0.1).
    pub random_promotion: f64,
    /// Share of the mapped pages that the proactive queue may hold before its head moves to the active queue.
    pub proactive_share: f64,
    /// Share of the local limit that lies in the inactive queue, local but unmapped, beyond the batch on its
    /// way out.
    pub inactive_share: f64,
    /// A far page that comes back before this share of the local limit has left behind it goes straight to
    /// the proactive queue. Not the paper's, whose inactive queue tells such pages apart at the price of
    /// their memory; 0 switches it off.
    pub return_share: f64,
    /// Accessed bits are scanned each time that this share of the local limit has come, where the machine
    /// lets them be read: what is in use stays ([`crate::use_history`]). Not the paper's; 0 switches it off.
    pub scan_share: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            random_promotion: 0.1,
            proactive_share: 0.5,
            inactive_share: 0.0,
            return_share: 0.25,
            scan_share: 0.125,
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
    random: u64,
    kept_in_use: u64,
    /// Proactive pages in a row that stayed because they are in use.
    spared: u32,
}

/// So many proactive pages may be in use before one leaves the queue all the same.
const MOST_SPARED: u32 = 4;

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
            random: seed | 1,
            kept_in_use: 0,
            spared: 0,
        }
    }

    /// The same, but of the `pages` oldest active pages those leave first that lie together. Not the paper's.
    #[must_use]
    pub fn with_victim_window(self, pages: usize) -> Self {
        Self { window: VictimWindow::new(pages), ..self }
    }

    /// The queue in which a page that was fetched or first touched begins.
    pub fn queue_of_newcomer(&mut self) -> Queue {
        // xorshift64*: a few instructions, and good enough for a coin.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let draw = (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64;
        if draw < self.config.random_promotion { Queue::Proactive } else { Queue::Active }
    }

    /// The queue in which a page begins that comes back after `away_pages` others have left, under a limit of
    /// `local_pages`.
    pub fn queue_of_returner(&mut self, away_pages: u64, local_pages: u64) -> Queue {
        if (away_pages as f64) < local_pages as f64 * self.config.return_share {
            Queue::Proactive
        } else {
            self.queue_of_newcomer()
        }
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

    /// The next page to move down among the mapped ones. `rank` says how much a page is in use, 0 for not at
    /// all or not known ([`crate::use_history`]): such pages stay, where others can leave. Not the paper's,
    /// which scans no accessed bits.
    pub fn next_mapped(&mut self, rank: impl Fn(u64) -> u8) -> Option<Step> {
        if let Some(entry) = self.window.take_used() {
            self.kept_in_use += 1;
            return Some(Step::ToProactive(entry));
        }
        let leaving = self.active.len() + self.window.len();
        let mapped = leaving + self.proactive.len();
        let crowded = self.proactive.len() as f64 > self.config.proactive_share * mapped as f64;
        if crowded || leaving == 0 {
            let entry = self.proactive.pop(&mut self.pool)?;
            let is_spared = self.window.is_above_bar(rank(entry.page_number));
            self.spared = if is_spared { self.spared + 1 } else { 0 };
            if (1..=MOST_SPARED).contains(&self.spared) {
                self.kept_in_use += 1;
                return Some(Step::ToProactive(entry));
            }
            self.spared = 0;
            return Some(Step::ToActive(entry));
        }
        while self.window.has_room() {
            let Some(entry) = self.active.pop(&mut self.pool) else { break };
            self.window.offer(entry);
        }
        self.window.take(rank).map(Step::ToInactive)
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

    /// How long the inactive queue should be under a limit of `local_pages`.
    #[must_use]
    pub fn inactive_target(&self, local_pages: usize) -> usize {
        (local_pages as f64 * self.config.inactive_share) as usize
    }

    /// Drops the entries that no longer speak of a page in their queue.
    pub fn drop_stale(&mut self, mut is_current: impl FnMut(Entry, Queue) -> bool) {
        self.window.retain(|entry| is_current(entry, Queue::Active));
        self.active.retain(&mut self.pool, |entry| is_current(entry, Queue::Active));
        self.proactive.retain(&mut self.pool, |entry| is_current(entry, Queue::Proactive));
        self.inactive.retain(&mut self.pool, |entry| is_current(entry, Queue::Inactive));
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
    use super::*;

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
            assert_eq!(replacement.next_mapped(|_| 0), Some(Step::ToInactive(entry(page))));
            replacement.enqueue(Queue::Inactive, entry(page)).unwrap();
        }
        assert_eq!(replacement.next_mapped(|_| 0), None);
        assert_eq!(replacement.inactive_len(), 10);
        assert_eq!(replacement.next_inactive(), Some(entry(0)));
    }

    #[test]
    fn proactive_pages_pass_through_active_before_they_leave() {
        let mut replacement = replacement(Config::default());
        replacement.enqueue(Queue::Proactive, entry(1)).unwrap();
        replacement.enqueue(Queue::Active, entry(2)).unwrap();
        replacement.enqueue(Queue::Active, entry(3)).unwrap();
        assert_eq!(
            replacement.next_mapped(|_| 0),
            Some(Step::ToInactive(entry(2))),
            "not crowded: active first"
        );
        assert_eq!(replacement.next_mapped(|_| 0), Some(Step::ToInactive(entry(3))));
        assert_eq!(replacement.next_mapped(|_| 0), Some(Step::ToActive(entry(1))));
        replacement.enqueue(Queue::Active, entry(1)).unwrap();
        assert_eq!(replacement.next_mapped(|_| 0), Some(Step::ToInactive(entry(1))));
    }

    #[test]
    fn what_is_in_use_becomes_proactive_in_place_of_leaving() {
        let mut replacement = replacement(Config::default()).with_victim_window(256);
        for page in 0..300 {
            replacement.enqueue(Queue::Active, entry(page)).unwrap();
        }
        let in_use = |page: u64| u8::from(page.is_multiple_of(2));
        let (mut left, mut stayed) = (Vec::new(), Vec::new());
        for _ in 0..256 {
            match replacement.next_mapped(in_use).unwrap() {
                Step::ToInactive(entry) => left.push(entry.page_number),
                Step::ToProactive(entry) => stayed.push(entry.page_number),
                Step::ToActive(_) => panic!("nothing is proactive yet"),
            }
        }
        assert!(stayed.iter().all(|page| page % 2 == 0) && stayed.len() > 64, "{stayed:?}");
        assert_eq!(replacement.take_kept_in_use(), stayed.len() as u64);
        // The first ones were taken before anything was known to be in use.
        assert!(left[64..].iter().all(|page| page % 2 == 1), "{left:?}");
    }

    #[test]
    fn a_proactive_page_in_use_stays_so_but_not_for_ever() {
        let mut replacement = replacement(Config::default());
        for page in 0..10 {
            replacement.enqueue(Queue::Proactive, entry(page)).unwrap();
        }
        for page in 0..u64::from(MOST_SPARED) {
            assert_eq!(replacement.next_mapped(|_| 1), Some(Step::ToProactive(entry(page))));
        }
        let next = u64::from(MOST_SPARED);
        assert_eq!(replacement.next_mapped(|_| 1), Some(Step::ToActive(entry(next))));
        assert_eq!(replacement.next_mapped(|_| 0), Some(Step::ToActive(entry(next + 1))));
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
        assert_eq!(replacement.next_mapped(|_| 0), Some(Step::ToInactive(entry(0))));
        assert_eq!(replacement.next_mapped(|_| 0), Some(Step::ToInactive(entry(10))));
    }
}
