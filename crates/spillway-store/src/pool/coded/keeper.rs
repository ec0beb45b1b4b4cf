//! Looks after coded pages: empties slabs that are hurt, whose donors leave, or of which much is dead, and
//! makes slabs free of which nothing lives. Which slabs, and how many of them, is the business of
//! [`spillway_pool::slabs::census`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::pace::Pace;
use spillway_pool::slabs::append::Item;
use spillway_pool::slabs::census::{Census, Findings, Reason, Task, domains_with_room, judge};
use spillway_pool::slabs::reclaim::parts_left_on;
use spillway_pool::slabs::room::MOVED_STREAM;
use spillway_pool::words::{Condition, DonorWord};

use super::check::Checker;
use super::discards::Discards;
use super::lane::code_of;
use super::news::News;
use super::reads::{Reader, Reads};
use super::writes::{Writes, Written};
use crate::pool::shared::now_ms;
use crate::pool::site::{Found, Site};
use crate::{ReadRequest, StoreError};

/// How often it is asked whether there is something to do.
const PERIOD: Duration = Duration::from_millis(20);
/// How often the table is looked over.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// Of the time, one part in so many may go into looking.
const LOOK_SHARE: u32 = 50;
/// A donor that is away counts as one that comes back for so long.
const AWAY_PATIENCE_MS: u64 = 2_000;
/// Slabs that are emptied between two looks, or one of so many: looks are rarer where there are many.
const MOST_TASKS: usize = 8;
const TASKS_OF: usize = 64;
/// Pages that are moved at once.
const MOST_MOVED: usize = 64;
/// A slab that could not be emptied is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Slots that are looked at between two looks whether all is over.
const GLANCE: u32 = 1 << 20;

pub(crate) struct Keeper {
    site: Arc<Site>,
    reads: Reads,
    writes: Writes,
    checker: Checker,
    pages: Vec<Page>,
    pace: Pace,
    /// When the clock of the pace was 0.
    began: Instant,
    discards: Discards,
    news: News,
    next_look: Instant,
    asked_for_room: u64,
    /// Slabs, in their generation, that could not be emptied, and when that was.
    stuck: HashMap<(u32, u32), Instant>,
}

/// How emptying a slab went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    /// Nothing lives in it.
    Wholly,
    /// Pages are left that cannot be had.
    PartlyLost,
    /// There is no room for its pages.
    NoRoom,
}

/// What who looks after the pool is told of the run's pages.
fn state_of(found: &Findings) -> Found {
    let bytes = |pages: u64| pages * PAGE_SIZE as u64;
    let is_endangered = |task: &&Task| task.reason == Reason::Endangered;
    Found {
        stored_bytes: bytes(found.live_pages),
        endangered_bytes: found.endangered_bytes,
        unreachable_bytes: found.unreachable_bytes,
        left_bytes: bytes(found.tasks.iter().filter(is_endangered).map(|task| u64::from(task.live)).sum()),
        // Coded pages have no last resort.
        spilled_bytes: 0,
    }
}

/// How the donors are, and which of them leave.
fn donors_of(site: &Site) -> Vec<(DonorWord, bool)> {
    let table = site.shared.table();
    (0..table.donors()).map(|donor| (table.donor(donor), table.is_leaving(donor))).collect()
}

impl Keeper {
    /// For a pool whose pages are coded.
    pub(crate) fn of(site: &Arc<Site>) -> Option<Self> {
        let shared = Arc::clone(&site.shared);
        let code = code_of(&shared).ok()?;
        let pace = Pace::new(shared.spec.rebuild.bytes());
        Some(Self {
            site: Arc::clone(site),
            checker: Checker::of_run(&shared.token),
            reads: Reads::new(shared, code.clone(), Reader::Keeper),
            writes: Writes::new(code, MOVED_STREAM),
            pages: vec![[0; PAGE_SIZE]; MOST_MOVED],
            pace,
            began: Instant::now(),
            discards: Discards::new(),
            news: News::new(Arc::clone(site)),
            next_look: Instant::now(),
            asked_for_room: 0,
            stuck: HashMap::new(),
        })
    }

    pub(crate) fn start(mut self) {
        let site = Arc::clone(&self.site);
        site.spawn("pool slabs", PERIOD, move || self.tick());
    }

    fn tick(&mut self) {
        let asked = self.site.shared.table().asked_for_room();
        let is_hurried = std::mem::replace(&mut self.asked_for_room, asked) != asked;
        if !is_hurried && Instant::now() < self.next_look {
            return;
        }
        let begin = Instant::now();
        let Some(census) = self.look_over() else { return };
        let rest = LOOK_PERIOD.max(begin.elapsed() * LOOK_SHARE);
        self.follow(&census, is_hurried);
        self.next_look = Instant::now() + rest;
    }

    /// Counts what lives; `None` where all is over.
    fn look_over(&self) -> Option<Census> {
        let table = self.site.shared.table();
        let mut census = Census::begin(&table);
        while !census.go_on(&table, GLANCE) {
            if self.site.is_over() {
                return None;
            }
        }
        (!self.site.is_over()).then_some(census)
    }

    fn follow(&mut self, census: &Census, is_hurried: bool) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        self.news.begin();
        census.retire(&table);
        self.discards.make_free(&site, &mut self.reads.lanes);
        let donors = donors_of(&site);
        let found = judge(&table, census, now_ms(), AWAY_PATIENCE_MS);
        site.note_found(state_of(&found));
        self.news.note_danger(&found);
        self.news.give_up_lost(&found);
        let is_stuck = self.empty_some(&found, is_hurried, &donors);
        self.news.tell(&found, is_stuck);
        self.see_off(is_stuck);
        self.stuck.retain(|_, since| since.elapsed() < 10 * TRY_AGAIN);
    }

    /// Empties the slabs that need it most; true where there is no room for what is in danger.
    /// Slabs that are emptied for what is dead in them are left for later where donors are not as they were.
    fn empty_some(&mut self, found: &Findings, is_hurried: bool, donors: &[(DonorWord, bool)]) -> bool {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let is_tried = |task: &&Task| {
            let since = self.stuck.get(&(task.slab, task.generation));
            since.is_none_or(|since| since.elapsed() >= TRY_AGAIN)
        };
        let (empty, full): (Vec<Task>, Vec<Task>) =
            found.tasks.iter().filter(is_tried).copied().partition(|task| task.live == 0);
        // The next look finds that nothing lives in them.
        for task in empty {
            let _ = table.fence(task.slab, task.generation);
        }
        let chosen: Vec<Task> = full
            .into_iter()
            .take(MOST_TASKS.max(table.slabs() as usize / TASKS_OF))
            .filter(|task| table.fence(task.slab, task.generation))
            .collect();
        let mut slots = self.slots_of(&chosen);
        for task in chosen {
            if site.is_over() || (task.reason == Reason::Sparse && donors_of(&site) != donors) {
                return false;
            }
            let key = (task.slab, task.generation);
            let own = slots.remove(&key).unwrap_or_default();
            let is_urgent = (is_hurried || found.is_urgent) && task.reason == Reason::Sparse;
            match self.empty(&own, task, is_urgent) {
                Emptied::Wholly => {}
                Emptied::PartlyLost => drop(self.stuck.insert(key, Instant::now())),
                Emptied::NoRoom => return task.reason == Reason::Endangered,
            }
        }
        false
    }

    /// The slots whose pages are in these slabs.
    fn slots_of(&self, tasks: &[Task]) -> HashMap<(u32, u32), Vec<u32>> {
        let table = self.site.shared.table();
        let mut slots: HashMap<(u32, u32), Vec<u32>> =
            tasks.iter().map(|task| ((task.slab, task.generation), Vec::new())).collect();
        if !tasks.is_empty() {
            for slot in 0..table.slots() {
                let Some(seat) = table.seat(slot) else { continue };
                if let Some(own) = slots.get_mut(&(seat.slab, seat.generation)) {
                    own.push(slot);
                }
            }
        }
        slots
    }

    /// Moves the pages of a slab that was fenced to others.
    fn empty(&mut self, slots: &[u32], task: Task, is_urgent: bool) -> Emptied {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let mut is_whole = true;
        for slots in slots.chunks(MOST_MOVED) {
            if site.is_over() {
                return Emptied::NoRoom;
            }
            let begin = Instant::now();
            // What was dropped or written anew since is not there any more.
            let is_there = |slot: &&u32| table.seat(**slot).is_some_and(|seat| seat.slab == task.slab);
            let slots: Vec<u32> = slots.iter().filter(is_there).copied().collect();
            let (items, numbers) = self.read(&slots);
            is_whole &= items.len() == slots.len();
            match self.move_all(items, &numbers) {
                Written::Stored(count) => {
                    let bytes = (count * PAGE_SIZE) as u64;
                    if task.reason == Reason::Endangered {
                        self.news.moved_bytes += bytes;
                        site.count_copied(bytes);
                    }
                    if !is_urgent {
                        self.rest(bytes, begin.elapsed(), task.reason);
                    }
                }
                Written::Again | Written::NoRoom | Written::NoDonor => return Emptied::NoRoom,
            }
        }
        if is_whole { Emptied::Wholly } else { Emptied::PartlyLost }
    }

    /// Rests after it has moved so many bytes, for as long as others come first.
    fn rest(&mut self, moved_bytes: u64, took: Duration, reason: Reason) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let now_us = |since: Instant| since.elapsed().as_micros() as u64;
        self.pace.copied(0, moved_bytes, took.as_micros() as u64, now_us(self.began));
        // Who waits for room does not wait for a rest as well.
        let makes_room = |asked: u64| reason == Reason::Sparse && table.asked_for_room() != asked;
        while !site.is_over() && !makes_room(self.asked_for_room) {
            match self.pace.rest_us(0, now_us(self.began), table.reads()) {
                0 => return,
                rest_us => crate::nbd::sleep(Duration::from_micros(rest_us)),
            }
        }
    }

    /// Reads pages; those that came right, and where they are in [`Self::pages`].
    fn read(&mut self, slots: &[u32]) -> (Vec<Item>, Vec<usize>) {
        let mut batch: Vec<ReadRequest<'_>> = slots
            .iter()
            .zip(&mut self.pages)
            .map(|(&slot, page)| ReadRequest { slot, page, outcome: Ok(()) })
            .collect();
        self.reads.last.clear();
        let open = Reads::all(&batch);
        self.reads.read(&mut batch, open);
        let outcomes: Vec<Result<(), StoreError>> =
            batch.into_iter().map(|request| request.outcome).collect();
        let mut items = Vec::with_capacity(slots.len());
        let mut numbers = Vec::with_capacity(slots.len());
        for (number, (&slot, outcome)) in slots.iter().zip(outcomes).enumerate() {
            let how = self.reads.last.iter().find(|(of, _)| *of == slot);
            let (Ok(()), Some((_, reading))) = (outcome, how) else { continue };
            let check = self.checker.check(&self.pages[number]);
            items.push(Item { slot, check, from: Some(reading.seat) });
            numbers.push(number);
        }
        (items, numbers)
    }

    fn move_all(&mut self, mut items: Vec<Item>, mut numbers: &[usize]) -> Written {
        let mut moved = 0;
        let mut failures = 0;
        while !items.is_empty() {
            let pages: Vec<&Page> = numbers.iter().map(|&number| &self.pages[number]).collect();
            match self.writes.append(&mut self.reads.lanes, items.clone(), &pages) {
                Written::Stored(count) => {
                    moved += count;
                    items.drain(..count);
                    numbers = &numbers[count..];
                }
                Written::Again if failures < 3 && !self.site.is_over() => failures += 1,
                other => return other,
            }
        }
        Written::Stored(moved)
    }

    /// Ends the part of donors in the run that leave it, once nothing is left on them.
    fn see_off(&mut self, is_stuck: bool) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        for donor in 0..table.donors() {
            if !table.is_leaving(donor) {
                self.news.stays(donor);
                continue;
            }
            let is_there = table.donor(donor).condition != Condition::Down && table.room(donor).0 > 0;
            if !is_there || site.is_over() {
                continue;
            }
            let left = parts_left_on(&table, donor).parts;
            if left == 0 {
                table.end_part(donor, now_ms());
                site.end_part(donor);
                let name = site.shared.name(donor);
                site.tell(&format!("pool: donor {name} is drained: nothing of this run is on it"));
            } else if is_stuck || !self.has_room_elsewhere() {
                self.news.tell_no_room(donor, left);
            }
        }
    }

    /// Whether pages of a donor that leaves can have all their parts on others.
    fn has_room_elsewhere(&self) -> bool {
        let table = self.site.shared.table();
        domains_with_room(&table) >= table.wanted_copies()
    }
}
