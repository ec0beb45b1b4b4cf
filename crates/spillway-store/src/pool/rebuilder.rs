//! Makes lost copies anew, moves those of donors that leave, and says what is in danger, what is lost and
//! when all is well again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::bits::{Bits, slots_of};
use spillway_pool::placement::Dice;
use spillway_pool::read::donors_of;
use spillway_pool::rebuild::{CHUNK_SLOTS, End, Moved, Rebuild, Step};
use spillway_pool::survey::{Pace, Survey, Sweep, drop_surplus, forget_rebuilds, left_on, place_for, survey};
use spillway_pool::words::{Condition, Place};

use super::donor_lanes::{DonorLanes, slot_at};
use super::shared::{Purpose, now_ms};
use super::site::Site;
use crate::{ReadRequest, StoreError, WriteRequest};

/// How often the table is looked over.
const SURVEY_PERIOD: Duration = Duration::from_millis(200);
/// A donor that is away counts as one that comes back for so long.
const AWAY_PATIENCE_MS: u64 = 2_000;
/// Memory of a donor that nobody names is free after so long.
const SWEEP_PATIENCE_MS: u64 = 30_000;
/// Extents that are made anew between two looks.
const MOST_TASKS: usize = 32;
const SWEEP_PERIOD: Duration = Duration::from_secs(5);
/// Danger that passes within so long is not worth a line.
const WORTH_A_LINE: Duration = Duration::from_millis(600);

/// What the user was told last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Well,
    Rebuilding,
    Stuck,
}

pub(super) struct Rebuilder {
    site: Arc<Site>,
    lanes: DonorLanes,
    pages: Vec<Page>,
    pace: Pace,
    dice: Dice,
    sweep: Sweep,
    swept: Instant,
    told: Told,
    endangered_since: Option<Instant>,
    copied_bytes: u64,
    is_first: bool,
    /// The user waits to hear that all is well.
    owes_news: bool,
    /// Donors, a bit each, of which the user knows that nobody has room for what they are to get rid of.
    told_no_room: u32,
}

impl Rebuilder {
    /// Begins to look after the copies of all extents.
    pub(super) fn start(site: &Arc<Site>) {
        let mut rebuilder = Self::new(Arc::clone(site));
        site.spawn("pool rebuild", SURVEY_PERIOD, move || rebuilder.look());
    }

    fn new(site: Arc<Site>) -> Self {
        let lanes = DonorLanes::new(Arc::clone(&site.shared));
        let pace = Pace::new(site.shared.spec.rebuild.bytes());
        Self {
            site,
            lanes,
            pages: vec![[0; PAGE_SIZE]; CHUNK_SLOTS],
            pace,
            dice: Dice::new(now_ms()),
            sweep: Sweep::default(),
            swept: Instant::now(),
            told: Told::Well,
            endangered_since: None,
            copied_bytes: 0,
            is_first: true,
            owes_news: false,
            told_no_room: 0,
        }
    }

    /// Looks the table over, and makes anew what can be.
    fn look(&mut self) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        if std::mem::take(&mut self.is_first) {
            forget_rebuilds(&table);
        }
        // Before the look: what is heard of later may not be seen by it.
        self.owes_news |= site.take_news();
        let found = survey(&table, now_ms(), AWAY_PATIENCE_MS);
        self.clear_lost(&found);
        self.note_danger(&found);
        let (mut made, mut without_place) = (0, 0);
        // Few at a time, since what is most endangered may be something else soon.
        for task in found.tasks.iter().take(MOST_TASKS) {
            if site.is_over() {
                return;
            }
            match place_for(&table, &self.lanes.chooser(), task.extent, self.dice.next_u64()) {
                Some((copy, place)) => {
                    let end = self.rebuild(task.extent, copy, place);
                    made += usize::from(end == End::Whole);
                    self.drop_surplus(task.extent);
                }
                None => without_place += 1,
            }
        }
        self.tell(&found, made, without_place);
        self.see_off(made == 0 && without_place > 0);
        if self.swept.elapsed() >= SWEEP_PERIOD {
            (0..table.extents()).for_each(|extent| self.drop_surplus(extent));
            let _ = self.sweep.look(&table, now_ms(), SWEEP_PATIENCE_MS);
            self.swept = Instant::now();
        }
    }

    /// Drops copies that are too many. A donor that leaves forgets them at once, so it is seen how far that
    /// is; nobody reads there any more.
    fn drop_surplus(&mut self, extent: u32) {
        let site = Arc::clone(&self.site);
        for place in drop_surplus(&site.shared.table(), extent) {
            let donor = usize::from(place.donor);
            if !site.shared.table().is_leaving(donor) {
                continue;
            }
            let Ok((lane, way)) = self.lanes.lane(donor, Purpose::Write) else { continue };
            let slots: Vec<u32> = (0..EXTENT_SLOTS).map(|slot| slot_at(place.extent, slot)).collect();
            lane.discard(&slots);
            if way.store.is_given_up() {
                site.shared.complain(donor, way.word(), Condition::Down);
            }
        }
    }

    /// Ends the part of donors in the run that leave it, once nothing is left on them.
    fn see_off(&mut self, is_stuck: bool) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        for donor in 0..table.donors() {
            if !table.is_leaving(donor) {
                self.told_no_room &= !(1 << donor);
                continue;
            }
            let is_there = table.donor(donor).condition != Condition::Down && table.room(donor).0 > 0;
            if !is_there || site.is_over() {
                continue;
            }
            let left = left_on(&table, donor);
            for &extent in &left.unplaced {
                // Whoever was about to give it donors may be gone.
                let _ = table.place_next(extent, &self.lanes.chooser(), self.dice.next_u64());
            }
            let name = || site.shared.name(donor);
            if left.extents == 0 {
                table.end_part(donor, now_ms());
                site.end_part(donor);
                site.tell(&format!("pool: donor {} is drained: nothing of this run is on it", name()));
            } else if is_stuck && self.told_no_room >> donor & 1 == 0 {
                self.told_no_room |= 1 << donor;
                site.tell(&format!(
                    "pool: {} of pages cannot be moved from donor {}, which is being drained: no other has \
                     room for them; start another donor, or let it stay",
                    mebibytes(left.bytes),
                    name()
                ));
            }
        }
    }

    fn clear_lost(&self, found: &Survey) {
        let table = self.site.shared.table();
        let mut donors: Vec<String> = Vec::new();
        for &extent in &found.lost {
            let own = donors_of(&table, extent).into_iter().map(|donor| self.site.shared.name(donor));
            if table.clear_extent(extent) {
                own.for_each(|name| {
                    if !donors.contains(&name) {
                        donors.push(name)
                    }
                });
            }
        }
        if found.lost_bytes > 0 && !donors.is_empty() {
            self.site.tell(&format!(
                "pool: {} of pages are lost with donors {}: a program that needs one of them gets SIGBUS",
                mebibytes(found.lost_bytes),
                donors.join(" and ")
            ));
        }
    }

    fn note_danger(&mut self, found: &Survey) {
        if found.endangered_bytes == 0 {
            return;
        }
        self.endangered_since.get_or_insert_with(Instant::now);
        let copies = self.site.shared.table().wanted_copies();
        let is_due = self.endangered_since.is_some_and(|since| since.elapsed() >= WORTH_A_LINE);
        if is_due && self.told == Told::Well && copies > 1 {
            self.told = Told::Rebuilding;
            self.site.tell(&format!(
                "pool: {} of pages are on fewer than {copies} donors now; what can be is copied to others",
                mebibytes(found.endangered_bytes)
            ));
        }
    }

    fn tell(&mut self, found: &Survey, made: usize, without_place: usize) {
        let copies = self.site.shared.table().wanted_copies();
        let is_quiet = found.endangered_bytes == 0 && found.tasks.is_empty();
        if is_quiet {
            self.endangered_since = None;
            if self.told != Told::Well || self.owes_news {
                (self.told, self.owes_news) = (Told::Well, false);
                let copied = mebibytes(std::mem::take(&mut self.copied_bytes));
                self.site
                    .tell(&format!("pool: all pages are on {copies} donors again ({copied} were copied)"));
            }
        } else if made == 0 && without_place > 0 && self.told == Told::Rebuilding {
            self.told = Told::Stuck;
            self.site.tell(&format!(
                "pool: {} of pages stay on fewer than {copies} donors: no other that can be reached has room \
                 for them; they are copied when one comes back",
                mebibytes(found.endangered_bytes)
            ));
        }
    }

    fn rebuild(&mut self, extent: u32, copy: usize, place: Place) -> End {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let mut rebuild = Rebuild::new(extent, copy, place);
        loop {
            match rebuild.step(&table) {
                Step::Again => {}
                Step::Move { from, to, slots } => {
                    let moved = if site.is_over() { Moved::NotWritten } else { self.copy(from, to, &slots) };
                    rebuild.copied(&table, moved);
                }
                Step::Done(end) => return end,
            }
        }
    }

    fn copy(&mut self, from: Place, to: Place, slots: &Bits) -> Moved {
        let begin = Instant::now();
        let slots: Vec<u32> = slots_of(slots).collect();
        if !self.read(from, &slots) {
            return Moved::NotRead;
        }
        if !self.write(to, &slots) {
            return Moved::NotWritten;
        }
        let bytes = (slots.len() * PAGE_SIZE) as u64;
        self.copied_bytes += bytes;
        let reads = self.site.shared.table().reads();
        let rest_us = self.pace.rest_us(bytes, begin.elapsed().as_micros() as u64, reads);
        crate::nbd::sleep(Duration::from_micros(rest_us));
        Moved::All
    }

    fn read(&mut self, from: Place, slots: &[u32]) -> bool {
        // With a write's patience: there may be no other copy to ask.
        let Ok((lane, way)) = self.lanes.lane(usize::from(from.donor), Purpose::Write) else { return false };
        let mut batch: Vec<ReadRequest<'_>> = slots
            .iter()
            .zip(&mut self.pages)
            .map(|(&slot, page)| ReadRequest { slot: slot_at(from.extent, slot), page, outcome: Ok(()) })
            .collect();
        lane.read(&mut batch);
        let is_gone = batch.iter().any(|request| matches!(request.outcome, Err(StoreError::Gone { .. })));
        if is_gone {
            self.site.shared.complain(usize::from(from.donor), way.word(), Condition::Down);
        }
        batch.iter().all(|request| request.outcome.is_ok())
    }

    fn write(&mut self, to: Place, slots: &[u32]) -> bool {
        let Ok((lane, way)) = self.lanes.lane(usize::from(to.donor), Purpose::Write) else { return false };
        let mut batch: Vec<WriteRequest<'_>> = slots
            .iter()
            .zip(&self.pages)
            .map(|(&slot, page)| WriteRequest { slot: slot_at(to.extent, slot), page, outcome: Ok(()) })
            .collect();
        lane.write(&mut batch);
        if batch.iter().any(|request| matches!(request.outcome, Err(StoreError::Gone { .. }))) {
            self.site.shared.complain(usize::from(to.donor), way.word(), Condition::Down);
        }
        batch.iter().all(|request| request.outcome.is_ok())
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
