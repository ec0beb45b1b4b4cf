//! Looks after coded pages: empties slabs that are hurt, whose donors leave, or of which much is dead, and
//! makes slabs free of which nothing lives.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::slabs::census::{Census, Findings, Reason, Task, domains_with_room, judge};
use spillway_pool::slabs::reclaim::{Reclaim, parts_left_on};
use spillway_pool::words::Condition;

use super::emptying::{Emptied, Emptying, Key, key_of, movers};
use super::lane::code_of;
use super::mover::Mover;
use super::news::News;
use super::reads::slot_of;
use crate::pool::crew::Crew;
use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, now_ms};
use crate::pool::site::{Found, Site};

/// How often it is asked whether there is something to do.
const PERIOD: Duration = Duration::from_millis(20);
/// How often the table is looked over.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// Of the time, one part in so many may go into looking.
const LOOK_SHARE: u32 = 50;
/// A donor that is away counts as one that comes back for so long.
const AWAY_PATIENCE_MS: u64 = 2_000;
/// Memory of a donor that nobody names is free after so long.
const SWEEP_PATIENCE_MS: u64 = 30_000;
const SWEEP_PERIOD: Duration = Duration::from_secs(5);
/// Slabs that are emptied between two looks, if their time suffices: the numbers of all that lives in them
/// take some memory.
const MOST_TASKS: usize = 256;
/// A slab that could not be emptied is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Slots that are looked at between two looks whether all is over.
const GLANCE: u32 = 1 << 20;

pub(crate) struct Keeper {
    site: Arc<Site>,
    lanes: DonorLanes,
    crew: Crew<Mover>,
    reclaim: Reclaim,
    news: News,
    swept: Instant,
    next_look: Instant,
    asked_for_room: u64,
    /// Slabs, in their generation, that could not be emptied, and when that was.
    stuck: HashMap<Key, Instant>,
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

impl Keeper {
    /// For a pool whose pages are coded.
    pub(crate) fn of(site: &Arc<Site>) -> Option<Self> {
        let shared = Arc::clone(&site.shared);
        let code = code_of(&shared).ok()?;
        Some(Self {
            site: Arc::clone(site),
            lanes: DonorLanes::new(shared),
            crew: movers(site, &code),
            reclaim: Reclaim::default(),
            news: News::new(Arc::clone(site)),
            swept: Instant::now(),
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
        while self.look(is_hurried) {}
    }

    /// Looks once, and does what follows until the next look is due; whether that is at once.
    fn look(&mut self, is_hurried: bool) -> bool {
        let begin = Instant::now();
        let Some(census) = self.look_over() else { return false };
        let rest = LOOK_PERIOD.max(begin.elapsed() * LOOK_SHARE);
        let has_more = self.follow(&census, is_hurried, Instant::now() + rest);
        self.next_look = Instant::now() + rest;
        has_more
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

    fn follow(&mut self, census: &Census, is_hurried: bool, until: Instant) -> bool {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        self.news.begin();
        census.retire(&table);
        self.make_free();
        let found = judge(&table, census, now_ms(), AWAY_PATIENCE_MS);
        site.note_found(state_of(&found));
        self.news.note_danger(&found);
        self.news.give_up_lost(&found);
        let Emptied { is_stuck, has_more, .. } = self.empty_some(&found, is_hurried, until);
        self.news.tell(&found, is_stuck);
        self.see_off(is_stuck);
        self.stuck.retain(|_, since| since.elapsed() < 10 * TRY_AGAIN);
        has_more
    }

    /// Makes slabs free in which nothing lives. A donor that leaves forgets its parts at once, so it is seen
    /// how far that is; nobody reads there any more.
    fn make_free(&mut self) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        for slab in self.reclaim.due(&table, now_ms(), SWEEP_PATIENCE_MS) {
            for place in table.see_slab(slab).places.into_iter().flatten() {
                let donor = usize::from(place.donor);
                let is_there = table.is_current(place) && table.donor(donor).condition == Condition::Up;
                if !table.is_leaving(donor) || !is_there {
                    continue;
                }
                let Ok((lane, way)) = self.lanes.lane(donor, Purpose::Write) else { continue };
                let slots: Vec<u32> = (0..EXTENT_SLOTS as u16).map(|row| slot_of(place, row)).collect();
                lane.discard(&slots);
                if way.store.is_given_up() {
                    site.shared.complain(donor, way.word(), Condition::Down);
                }
            }
            table.free_slab(slab);
        }
        if self.swept.elapsed() >= SWEEP_PERIOD {
            let _ = self.reclaim.sweep(&table, now_ms(), SWEEP_PATIENCE_MS);
            self.swept = Instant::now();
        }
    }

    /// Empties the slabs that need it most; begins with none any more after `until`.
    fn empty_some(&mut self, found: &Findings, is_hurried: bool, until: Instant) -> Emptied {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let is_tried = |task: &&Task| {
            let since = self.stuck.get(&key_of(task));
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
            .take(MOST_TASKS)
            .filter(|task| table.fence(task.slab, task.generation))
            .collect();
        let is_short = is_hurried || found.is_short;
        let emptied = Emptying::new(&table, chosen).work(&mut self.crew, until, is_short);
        self.news.moved_bytes += emptied.saved_bytes;
        self.stuck.extend(emptied.stuck.iter().map(|key| (*key, Instant::now())));
        emptied
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
