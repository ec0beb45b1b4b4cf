//! Makes lost copies anew, moves those of donors that leave, and says what is in danger, what is lost and
//! when all is well again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_pool::placement::Dice;
use spillway_pool::read::donors_of;
use spillway_pool::round::Round;
use spillway_pool::survey::{Survey, Sweep, forget_rebuilds, left_on, survey};
use spillway_pool::words::Condition;

use super::copier::{Copier, Made, copiers, drop_copies, make};
use super::crew::Crew;
use super::donor_lanes::DonorLanes;
use super::shared::now_ms;
use super::site::{Found, Site};
use crate::{Notice, NoticeKind};

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
    crew: Crew<Copier>,
    dice: Dice,
    sweep: Sweep,
    swept: Instant,
    told: Told,
    endangered_since: Option<Instant>,
    /// Since when there is something to copy that can be.
    copying_since: Option<Instant>,
    /// How long that was so before, since the user was told.
    copying_time: Duration,
    /// Bytes that had been copied then.
    told_bytes: u64,
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
        let crew = copiers(&site);
        Self {
            site,
            lanes,
            crew,
            dice: Dice::new(now_ms()),
            sweep: Sweep::default(),
            swept: Instant::now(),
            told: Told::Well,
            endangered_since: None,
            copying_since: None,
            copying_time: Duration::ZERO,
            told_bytes: 0,
            is_first: true,
            owes_news: false,
            told_no_room: 0,
        }
    }

    /// Looks the table over and makes anew what can be, until nothing more can.
    fn look(&mut self) {
        while self.look_once() && !self.site.is_over() {}
        if let Some(since) = self.copying_since.take() {
            self.copying_time += since.elapsed();
        }
    }

    /// Looks once; whether something was made, and so more may be there to make.
    fn look_once(&mut self) -> bool {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        if std::mem::take(&mut self.is_first) {
            forget_rebuilds(&table);
        }
        // Before the look: what is heard of later may not be seen by it.
        self.owes_news |= site.take_news();
        let mut found = survey(&table, now_ms(), AWAY_PATIENCE_MS);
        site.note_found(Found {
            stored_bytes: found.stored_bytes,
            endangered_bytes: found.endangered_bytes,
            unreachable_bytes: found.unreachable_bytes,
            left_bytes: found.left_bytes,
            spilled_bytes: found.spilled_bytes,
        });
        self.clear_lost(&found);
        self.note_danger(&found);
        // Few at a time, since what is most endangered may be something else soon.
        let has_tasks = !found.tasks.is_empty();
        let round = Round::new(found.work(MOST_TASKS), 2 * MOST_TASKS);
        if round.tasks() > 0 {
            self.copying_since.get_or_insert_with(Instant::now);
        }
        let made = make(&mut self.crew, &round);
        if site.is_over() {
            return false;
        }
        self.tell(&found, has_tasks, made);
        self.see_off(made.copies == 0 && made.without_place > 0);
        if self.swept.elapsed() >= SWEEP_PERIOD {
            (0..table.extents()).for_each(|extent| drop_copies(&site, &mut self.lanes, extent));
            let _ = self.sweep.look(&table, now_ms(), SWEEP_PATIENCE_MS);
            self.swept = Instant::now();
        }
        made.copies > 0
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
                let text = format!("pool: donor {} is drained: nothing of this run is on it", name());
                site.tell(Notice::new(NoticeKind::DonorDrained, &text).about(&name()));
            } else if is_stuck && self.told_no_room >> donor & 1 == 0 {
                self.told_no_room |= 1 << donor;
                let text = format!(
                    "pool: {} of pages cannot be moved from donor {}, which is being drained: no other has \
                     room for them; start another donor, or let it stay",
                    mebibytes(left.bytes),
                    name()
                );
                site.tell(Notice::new(NoticeKind::DonorStuck, &text).about(&name()).number(left.bytes));
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
            let donors = donors.join(" and ");
            let text = format!(
                "pool: {} of pages are lost with donors {donors}: a program that needs one of them gets \
                 SIGBUS",
                mebibytes(found.lost_bytes)
            );
            self.site.tell(Notice::new(NoticeKind::PagesLost, &text).about(&donors).number(found.lost_bytes));
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
            let text = format!(
                "pool: {} of pages are on fewer than {copies} donors now; what can be is copied to others",
                mebibytes(found.endangered_bytes)
            );
            self.site.tell(Notice::new(NoticeKind::PagesInDanger, &text).number(found.endangered_bytes));
        }
    }

    fn tell(&mut self, found: &Survey, has_tasks: bool, made: Made) {
        let copies = self.site.shared.table().wanted_copies();
        let is_quiet = found.endangered_bytes == 0 && !has_tasks;
        if is_quiet {
            self.endangered_since = None;
            if self.told != Told::Well || self.owes_news {
                (self.told, self.owes_news) = (Told::Well, false);
                let copied = self.copied();
                let also = if found.spilled_bytes > 0 { ", or in the last resort," } else { "" };
                let text = format!("pool: all pages are on {copies} donors{also} again ({copied})");
                self.site.tell(Notice::new(NoticeKind::PagesSafe, &text));
            }
        } else if made.copies == 0 && made.without_place > 0 && self.told == Told::Rebuilding {
            self.told = Told::Stuck;
            let text = format!(
                "pool: {} of pages stay on fewer than {copies} donors: no other that can be reached has room \
                 for them; they are copied when one comes back",
                mebibytes(found.endangered_bytes)
            );
            self.site.tell(Notice::new(NoticeKind::PagesStuck, &text).number(found.endangered_bytes));
        }
    }

    /// What was copied since this was said last, and in which time: that in which there was something to copy
    /// and somewhere to copy it to.
    fn copied(&mut self) -> String {
        let copied_bytes = self.site.copied_bytes();
        let copied_bytes = copied_bytes - std::mem::replace(&mut self.told_bytes, copied_bytes);
        let since = self.copying_since.replace(Instant::now());
        let time =
            std::mem::take(&mut self.copying_time) + since.map_or(Duration::ZERO, |since| since.elapsed());
        match copied_bytes {
            0 => "nothing had to be copied".to_owned(),
            bytes => format!("{} were copied in {:.1} s", mebibytes(bytes), time.as_secs_f64()),
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
