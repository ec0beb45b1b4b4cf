//! The last resort under the supervisor's eyes: one that took a page no more is tried again and again, and
//! the user is told when pages go there, when it is full, and when donors have them all again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::EXTENT_BYTES;
use spillway_pool::slabs::make::is_spill_full;
use spillway_pool::words::Condition;

use super::site::Site;
use super::spill::LastResort;
use crate::{Lane, StoreError, WriteRequest};

/// How often it is looked at.
const PERIOD: Duration = Duration::from_millis(200);
/// How often one that takes nothing is tried.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Donors have all pages again once nothing has been in it for so long.
const REST: Duration = Duration::from_secs(1);

/// What the user was told last of the room in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing, or that nothing is in it.
    Empty,
    /// That pages go there.
    Used,
    /// That it is full.
    Full,
}

/// Looks after the last resort.
pub(super) struct SpillWatch {
    site: Arc<Site>,
    lane: Option<Box<dyn Lane>>,
    told: Told,
    /// The user knows that it takes nothing.
    has_told_refusal: bool,
    tried: Instant,
    /// Since when nothing is in it.
    empty_since: Option<Instant>,
}

impl SpillWatch {
    /// Begins to look after it, where the pool has one.
    pub(super) fn start(site: &Arc<Site>) {
        if site.shared.last_resort().is_none() {
            return;
        }
        let mut watch = Self {
            site: Arc::clone(site),
            lane: None,
            told: Told::Empty,
            has_told_refusal: false,
            tried: Instant::now(),
            empty_since: None,
        };
        site.spawn("pool spill", PERIOD, move || watch.look());
    }

    fn look(&mut self) {
        let site = Arc::clone(&self.site);
        let Some(resort) = site.shared.last_resort() else { return };
        self.tell_room(resort);
        let table = site.shared.table();
        if table.donor(resort.donor).condition == Condition::Up || self.tried.elapsed() < TRY_AGAIN {
            return;
        }
        self.tried = Instant::now();
        match self.probe(resort) {
            Ok(()) => {
                table.come_up(resort.donor, table.donor(resort.donor).life);
                if std::mem::take(&mut self.has_told_refusal) {
                    site.tell(&format!("pool: the last resort, file:{}, takes pages again", resort.path));
                }
            }
            Err(reason) if !std::mem::replace(&mut self.has_told_refusal, true) => {
                site.tell(&format!(
                    "pool: the last resort, file:{}, takes no page more ({reason}): what donors have no room \
                     for either cannot be stored; it is tried again each second",
                    resort.path
                ));
            }
            Err(_) => {}
        }
    }

    /// Writes a page beyond all others.
    fn probe(&mut self, resort: &LastResort) -> Result<(), String> {
        // That page has its place on the disk once it was written: others need some too.
        let room = resort.store.room().map(|room| room.capacity_bytes.saturating_sub(room.used_bytes));
        if room.is_some_and(|free_bytes| free_bytes < EXTENT_BYTES) {
            return Err("its file system is full".to_owned());
        }
        if self.lane.is_none() {
            self.lane = Some(resort.store.open_lane().map_err(|error| error.to_string())?);
        }
        let Some(lane) = &mut self.lane else { return Ok(()) };
        let page: Page = [0; PAGE_SIZE];
        let mut batch = [WriteRequest { slot: resort.probe_slot(), page: &page, outcome: Ok(()) }];
        lane.write(&mut batch);
        let [WriteRequest { outcome, .. }] = batch;
        outcome.map_err(|error| match error {
            StoreError::Full { .. } => "its file system is full".to_owned(),
            StoreError::Io { reason, .. } => reason,
            other => other.to_string(),
        })
    }

    /// Says when pages begin to go there, when no more find room, and when none is left.
    fn tell_room(&mut self, resort: &LastResort) {
        let site = Arc::clone(&self.site);
        let table = site.shared.table();
        let (capacity, used) = table.room(resort.donor);
        let spilled_bytes = site.found().spilled_bytes;
        let is_full = match table.coding() {
            Some(_) => is_spill_full(&table, resort.donor),
            None => used >= capacity,
        };
        let is_empty = spilled_bytes == 0 && !is_full;
        let empty_since = if is_empty { self.empty_since.or_else(|| Some(Instant::now())) } else { None };
        self.empty_since = empty_since;
        let is_at_rest = empty_since.is_some_and(|since| since.elapsed() >= REST);
        let (now, line) = match self.told {
            Told::Empty | Told::Used if capacity > 0 && is_full => {
                let mebibytes = (u64::from(capacity) * EXTENT_BYTES) >> 20;
                (Told::Full, format!("is full with its {mebibytes} MiB, and donors have no room either"))
            }
            Told::Empty if spilled_bytes > 0 => {
                (Told::Used, "takes pages for which donors have no room".to_owned())
            }
            Told::Used | Told::Full if is_at_rest => {
                (Told::Empty, "is empty again: donors have room for all pages".to_owned())
            }
            _ => return,
        };
        self.told = now;
        site.tell(&format!("pool: the last resort, file:{}, {line}", resort.path));
    }
}
