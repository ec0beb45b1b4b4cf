//! Looks after coded pages: empties slabs that are hurt, whose donors leave, or of which much is dead, and
//! makes slabs free of which nothing lives. Which slabs, and how many of them, is the business of
//! [`spillway_pool::slabs::census`]. Slabs are made free, and donors forget what they had, while no worker
//! empties one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_pool::slabs::census::{
    Census, Findings, Reason, Task, domains_that_stay, is_to_be_back, judge, parts_for_moves,
};
use spillway_pool::slabs::reclaim::parts_left_on;
use spillway_pool::words::Condition;

use super::discards::Discards;
use super::emptying::{Bounds, Donors, Emptied, Emptying, Key, donors_of, key_of, movers};
use super::lane::code_of;
use super::mover::Mover;
use super::news::News;
use crate::pool::crew::Crew;
use crate::pool::shared::now_ms;
use crate::pool::site::{Found, Site};
use crate::{Notice, NoticeKind};

/// How often it is asked whether there is something to do.
const PERIOD: Duration = Duration::from_millis(20);
/// How often the table is looked over, and for how long slabs in danger are emptied between two looks.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// The same while what is dead is cleared away: donors hold what they had of a slab until the look after it
/// was emptied.
const CLEARING_PERIOD: Duration = Duration::from_millis(30);
/// Of the time, one part in so many may go into looking.
const LOOK_SHARE: u32 = 50;
/// A donor that is away counts as one that comes back for so long.
const AWAY_PATIENCE_MS: u64 = 2_000;
/// Slabs that are emptied between two looks, or one of so many, if their time suffices: the numbers of all
/// that lives in them take some memory. Looks are rarer where there are many slabs.
const MOST_TASKS: usize = 256;
const TASKS_OF: usize = 64;
/// A slab that could not be emptied is tried again after so long.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// What was said of room that is to come holds for so long: longer than from one look to the next, whatever
/// a donor makes the supervisor wait for.
const ROOM_COMING_MS: u64 = 10_000;
/// Slots that are looked at between two looks whether all is over.
const GLANCE: u32 = 1 << 20;

pub(crate) struct Keeper {
    site: Arc<Site>,
    crew: Crew<Mover>,
    discards: Discards,
    news: News,
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
        spilled_bytes: found.spilled_bytes,
    }
}

impl Keeper {
    /// For a pool whose pages are coded.
    pub(crate) fn of(site: &Arc<Site>) -> Option<Self> {
        let shared = Arc::clone(&site.shared);
        let code = code_of(&shared).ok()?;
        Some(Self {
            site: Arc::clone(site),
            crew: movers(site, &code),
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
        let is_hurried = self.is_asked_for_room();
        if !is_hurried && Instant::now() < self.next_look {
            return;
        }
        let mut has_more = self.look(is_hurried);
        while has_more {
            let is_hurried = self.is_asked_for_room();
            has_more = self.look(is_hurried);
        }
    }

    /// Whether somebody has asked for room since it was seen last.
    fn is_asked_for_room(&mut self) -> bool {
        let asked = self.site.shared.table().asked_for_room();
        std::mem::replace(&mut self.asked_for_room, asked) != asked
    }

    /// Looks once, and does what follows until the next look is due; whether that is at once.
    fn look(&mut self, is_hurried: bool) -> bool {
        let begin = Instant::now();
        let Some(census) = self.look_over() else { return false };
        let least = begin.elapsed() * LOOK_SHARE;
        let Emptied { has_moved, has_more, .. } = self.follow(&census, is_hurried, least);
        let rest = if has_moved { CLEARING_PERIOD } else { LOOK_PERIOD };
        self.next_look = Instant::now() + rest.max(least);
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

    fn follow(&mut self, census: &Census, is_hurried: bool, least: Duration) -> Emptied {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        self.news.begin();
        census.retire(&table);
        self.discards.make_free(&site, &mut self.crew);
        let donors = donors_of(&site);
        let found = judge(&table, census, now_ms(), AWAY_PATIENCE_MS);
        let now = now_ms();
        let is_given_back = self.discards.give_back_soon(&site);
        table.set_narrow(found.needs_narrow(is_given_back));
        let is_being_made = found.is_room_being_made(is_given_back);
        table.set_room_coming(if is_being_made { now + ROOM_COMING_MS } else { 0 }, now);
        // Who is back within the patience of who writes may have room.
        let reconnect_ms = site.shared.spec.patience.reconnect.as_millis() as u64;
        let is_awaited = (0..table.donors()).any(|donor| is_to_be_back(&table, donor, now, reconnect_ms));
        let _ = table.note_no_room_comes(census, &found, is_given_back || is_awaited);
        site.note_found(state_of(&found));
        self.news.note_danger(&found);
        self.news.give_up_lost(&found);
        let emptied = self.empty_some((census, &found), is_hurried, (donors, least));
        // What waits for what is dead to be cleared away waits for no donor.
        let is_stuck = emptied.is_stuck && !found.is_whole_room_coming;
        self.news.tell(&found, is_stuck);
        self.see_off(is_stuck, &found);
        self.stuck.retain(|_, since| since.elapsed() < 10 * TRY_AGAIN);
        emptied
    }

    /// Empties the slabs that need it most, for so long at least. Slabs that are emptied for what is dead in
    /// them are left for later where donors are not as they were.
    fn empty_some(
        &mut self,
        (census, found): (&Census, &Findings),
        is_hurried: bool,
        (donors, least): (Donors, Duration),
    ) -> Emptied {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let is_tried = |task: &&Task| {
            let since = self.stuck.get(&key_of(task));
            since.is_none_or(|since| since.elapsed() >= TRY_AGAIN)
        };
        let (empty, full): (Vec<Task>, Vec<Task>) =
            found.tasks.iter().filter(is_tried).copied().partition(|task| task.live == 0);
        // The next look finds that nothing lives in them.
        for task in &empty {
            let _ = table.fence(task.slab, task.generation);
        }
        let chosen: Vec<Task> = full
            .into_iter()
            .take(MOST_TASKS.max(table.slabs() as usize / TASKS_OF))
            .filter(|task| table.fence(task.slab, task.generation))
            .collect();
        table.note_looked(census, empty.iter().chain(&chosen));
        let is_clearing = chosen.iter().all(|task| task.reason == Reason::Sparse);
        let time = if is_clearing { CLEARING_PERIOD } else { LOOK_PERIOD }.max(least);
        let emptying = Emptying::new(&table, chosen);
        let bounds = Bounds {
            // What went before, as discards may, is not taken from it: something is moved after each look.
            until: Instant::now() + time,
            is_short: is_hurried || found.is_short,
            is_urgent: is_hurried || found.is_urgent,
            asked_for_room: self.asked_for_room,
            donors,
        };
        let emptied = emptying.work(&mut self.crew, &bounds);
        self.news.moved_bytes += emptied.saved_bytes;
        self.stuck.extend(emptied.stuck.iter().map(|key| (*key, Instant::now())));
        emptied
    }

    /// Ends the part of donors in the run that leave it, once nothing is left on them.
    fn see_off(&mut self, is_stuck: bool, found: &Findings) {
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
                let text = format!("pool: donor {name} is drained: nothing of this run is on it");
                site.tell(Notice::new(NoticeKind::DonorDrained, &text).about(&name));
            } else if is_stuck || !self.has_room_elsewhere(found) {
                self.news.tell_no_room(donor, left);
            }
        }
    }

    /// Whether pages of a donor that leaves can have all their parts on others, now or a moment later.
    fn has_room_elsewhere(&self, found: &Findings) -> bool {
        let table = self.site.shared.table();
        let is_coming = found.is_room_coming && domains_that_stay(&table) >= table.wanted_copies();
        is_coming || parts_for_moves(&table) >= table.wanted_copies()
    }
}
