//! Slabs that are emptied beside each other: what one look has found, handed out to workers.

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

/// Slabs to be emptied, which are fenced, and what lives in them in the order of their rows.
pub(super) struct Emptying {
    slabs: Vec<(Task, Vec<Live>)>,
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
    /// Something was moved in this round.
    pub(super) has_moved: bool,
    /// Besides, it is to be looked at once what is left.
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
    /// A slab was emptied: the next look makes it free, so there is room again.
    has_emptied: AtomicBool,
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
        let with_room = |task: Task| (task, Vec::with_capacity(task.live as usize));
        let mut slabs: Vec<(Task, Vec<Live>)> = tasks.into_iter().map(with_room).collect();
        if slabs.is_empty() {
            return Self { slabs };
        }
        // Every slot is asked for its slab, so that is to be quick.
        let mut place_of = vec![usize::MAX; table.slabs() as usize];
        (0..).zip(&slabs).for_each(|(place, (task, _))| place_of[task.slab as usize] = place);
        for slot in 0..table.slots() {
            let Some(seat) = table.seat(slot) else { continue };
            let place = place_of.get(seat.slab as usize).copied().unwrap_or(usize::MAX);
            if let Some((task, live)) = slabs.get_mut(place)
                && task.generation == seat.generation
            {
                live.push((seat, slot));
            }
        }
        slabs.iter_mut().for_each(|(_, live)| live.sort_unstable_by_key(|(seat, _)| (seat.row, seat.part)));
        Self { slabs }
    }

    /// Empties them, as far as the bounds say.
    pub(super) fn work(self, crew: &mut Crew<Mover>, bounds: &Bounds) -> Emptied {
        let Self { slabs } = self;
        let count = slabs.len();
        let (round, under) = (Round::new((0..count).collect(), count), Under::default());
        let workers = if bounds.is_short { 1 } else { count };
        crew.work(workers, |mover, turn| {
            let table = turn.site.shared.table();
            while turn.may_begin()
                && Instant::now() < bounds.until
                && !under.is_full.load(Ordering::Relaxed)
                && let Some((task, live)) = round.take(&table).and_then(|place| slabs.get(place))
            {
                if turn.site.is_over() || !bounds.allows(turn.site, task) {
                    return;
                }
                under.empty(mover, turn, (task, live), bounds);
            }
        });
        under.outcome(round.left())
    }
}

impl Under {
    fn empty(&self, mover: &mut Mover, turn: Turn<'_>, (task, live): (&Task, &[Live]), bounds: &Bounds) {
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
            End::Empty => self.has_emptied.store(true, Ordering::Relaxed),
            End::GivenBack => self.is_cut.store(true, Ordering::Relaxed),
            End::PartlyLost => {
                self.stuck.lock().unwrap_or_else(PoisonError::into_inner).push(key_of(task));
            }
            End::NoRoom => {
                self.is_full.store(true, Ordering::Relaxed);
                self.is_stuck.fetch_or(is_endangered, Ordering::Relaxed);
            }
        }
    }

    /// How the round went that left so many slabs.
    fn outcome(self, left: usize) -> Emptied {
        let Self { moved_bytes, saved_bytes, stuck, is_cut, has_emptied, is_stuck, is_full } = self;
        let (moved_bytes, saved_bytes) = (moved_bytes.into_inner(), saved_bytes.into_inner());
        let may_end = left == 0 && saved_bytes == 0 && !is_cut.into_inner();
        let has_room = has_emptied.into_inner() || !is_full.into_inner();
        Emptied {
            saved_bytes,
            stuck: stuck.into_inner().unwrap_or_else(PoisonError::into_inner),
            is_stuck: is_stuck.into_inner(),
            has_moved: moved_bytes > 0,
            has_more: moved_bytes > 0 && !may_end && has_room,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round that moved pages in danger until there was no room, after it had emptied a slab or not.
    fn until_full(has_emptied: bool) -> Under {
        Under {
            moved_bytes: AtomicU64::new(1),
            saved_bytes: AtomicU64::new(1),
            is_full: AtomicBool::new(true),
            has_emptied: AtomicBool::new(has_emptied),
            ..Under::default()
        }
    }

    #[test]
    fn the_room_of_an_emptied_slab_is_used_at_once() {
        assert!(until_full(true).outcome(1).has_more);
        assert!(!until_full(false).outcome(1).has_more, "room is waited for");
    }

    #[test]
    fn what_is_dead_is_looked_for_again_where_slabs_are_left() {
        let under = || Under { moved_bytes: AtomicU64::new(1), ..Under::default() };
        assert!(!under().outcome(0).has_more && under().outcome(1).has_more);
        assert!(!Under::default().outcome(1).has_more, "nothing was moved, so nothing would be");
    }
}
