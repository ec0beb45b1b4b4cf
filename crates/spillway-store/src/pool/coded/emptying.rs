//! Slabs that are emptied beside each other: what one look has found, handed out to workers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use spillway_pool::code::Code;
use spillway_pool::round::Round;
use spillway_pool::slabs::census::{Reason, Task};
use spillway_pool::table::Table;
use spillway_pool::words::DonorWord;

use super::mover::{End, Live, Mover};
use crate::pool::crew::{Crew, Turn};
use crate::pool::site::Site;

/// A slab in its generation.
pub(super) type Key = (u32, u32);

pub(super) fn key_of(task: &Task) -> Key {
    (task.slab, task.generation)
}

/// How the donors are, and which of them leave.
pub(super) type Donors = Vec<(DonorWord, bool)>;

pub(super) fn donors_of(site: &Site) -> Donors {
    let table = site.shared.table();
    (0..table.donors()).map(|donor| (table.donor(donor), table.is_leaving(donor))).collect()
}

/// How far one round goes.
pub(super) struct Bounds {
    /// Nothing is begun any more after that.
    pub(super) until: Instant,
    /// Room is short, so one worker does it: of several each could be left with a slab half emptied, and none
    /// would become free.
    pub(super) is_short: bool,
    /// Who empties slabs to make room does not rest.
    pub(super) is_urgent: bool,
    /// How often room had been asked for.
    pub(super) asked_for_room: u64,
    /// How the donors were at the look.
    pub(super) donors: Donors,
}

impl Bounds {
    /// Whether a slab is to be begun. What is dead in it is no reason any more where donors go or come.
    fn allows(&self, site: &Site, task: &Task) -> bool {
        task.reason == Reason::Endangered || donors_of(site) == self.donors
    }

    /// Rests for as long as others come first; whether more of a slab is to be moved then. Who waits for room
    /// does not wait for a rest as well.
    fn allow_more(&self, turn: Turn<'_>, reason: Reason) -> bool {
        let table = turn.site.shared.table();
        let is_asked = || self.is_urgent || table.asked_for_room() != self.asked_for_room;
        let is_over = || Instant::now() >= self.until;
        turn.rest_unless(|| is_asked() && (reason == Reason::Sparse || is_over())) && !is_over()
    }
}

/// Slabs to be emptied, which are fenced, and what lives in them.
pub(super) struct Emptying {
    tasks: Vec<Task>,
    live: HashMap<Key, Vec<Live>>,
}

/// How one round of it went.
#[derive(Debug, Default)]
pub(super) struct Emptied {
    /// Bytes of pages of slabs in danger that were moved.
    pub(super) saved_bytes: u64,
    /// Slabs with pages that cannot be had.
    pub(super) stuck: Vec<Key>,
    /// There is no room for what is in danger.
    pub(super) is_stuck: bool,
    /// Something was moved, and it is to be looked at once what is left.
    pub(super) has_more: bool,
}

/// What the workers of one round share.
#[derive(Default)]
struct Under {
    moved_bytes: AtomicU64,
    saved_bytes: AtomicU64,
    stuck: Mutex<Vec<Key>>,
    /// A slab was given back.
    is_cut: AtomicBool,
    /// There is no room any more; and none for what is in danger.
    is_full: AtomicBool,
    is_stuck: AtomicBool,
}

/// Workers that empty slabs.
pub(super) fn movers(site: &Arc<Site>, code: &Code) -> Crew<Mover> {
    Crew::new(site, |_| Mover::new(&site.shared, code.clone()))
}

impl Emptying {
    /// Of these slabs, of different numbers, the most endangered first.
    pub(super) fn new(table: &Table<'_>, tasks: Vec<Task>) -> Self {
        let mut live: HashMap<Key, Vec<Live>> =
            tasks.iter().map(|task| (key_of(task), Vec::with_capacity(task.live as usize))).collect();
        if !tasks.is_empty() {
            for slot in 0..table.slots() {
                let Some(seat) = table.seat(slot) else { continue };
                if let Some(own) = live.get_mut(&(seat.slab, seat.generation)) {
                    own.push((seat, slot));
                }
            }
        }
        live.values_mut().for_each(|own| own.sort_unstable_by_key(|(seat, _)| (seat.row, seat.part)));
        Self { tasks, live }
    }

    /// Empties them, as far as the bounds say.
    pub(super) fn work(self, crew: &mut Crew<Mover>, bounds: &Bounds) -> Emptied {
        let Self { tasks, live } = self;
        let count = tasks.len();
        let (round, under) = (Round::new(tasks, count), Under::default());
        let workers = if bounds.is_short { 1 } else { count };
        crew.work(workers, |mover, turn| {
            let table = turn.site.shared.table();
            while turn.may_begin()
                && Instant::now() < bounds.until
                && !under.is_full.load(Ordering::Relaxed)
                && let Some(task) = round.take(&table)
            {
                if turn.site.is_over() || !bounds.allows(turn.site, &task) {
                    return;
                }
                let own = live.get(&key_of(&task)).map_or(&[][..], Vec::as_slice);
                under.empty(mover, turn, (task, own), bounds);
            }
        });
        let Under { moved_bytes, saved_bytes, stuck, is_cut, is_stuck, is_full } = under;
        let (moved_bytes, saved_bytes) = (moved_bytes.into_inner(), saved_bytes.into_inner());
        let may_end = round.left() == 0 && saved_bytes == 0 && !is_cut.into_inner();
        Emptied {
            saved_bytes,
            stuck: stuck.into_inner().unwrap_or_else(PoisonError::into_inner),
            is_stuck: is_stuck.into_inner(),
            has_more: moved_bytes > 0 && !may_end && !is_full.into_inner(),
        }
    }
}

impl Under {
    fn empty(&self, mover: &mut Mover, turn: Turn<'_>, (task, live): (Task, &[Live]), bounds: &Bounds) {
        let is_endangered = task.reason == Reason::Endangered;
        let may_go_on = || bounds.allow_more(turn, task.reason);
        let end = mover.empty(turn, live, may_go_on, |bytes| {
            self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
            if task.reason != Reason::Sparse {
                self.saved_bytes.fetch_add(bytes, Ordering::Relaxed);
                turn.site.count_copied(bytes);
            }
        });
        match end {
            End::Empty => {}
            End::GivenBack => self.is_cut.store(true, Ordering::Relaxed),
            End::PartlyLost => {
                self.stuck.lock().unwrap_or_else(PoisonError::into_inner).push(key_of(&task));
            }
            End::NoRoom => {
                self.is_full.store(true, Ordering::Relaxed);
                self.is_stuck.fetch_or(is_endangered, Ordering::Relaxed);
            }
        }
    }
}
