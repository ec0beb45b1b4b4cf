//! Who finds no room waits, for a bounded time, and not where others have waited in vain since anything
//! happened. The world knows by itself what has happened.

use spillway_pool::slabs::append::Outcome;
use spillway_pool::words::Condition;

use super::*;

/// How long room is waited for, and where it is to come.
const ROOM_PATIENCE: u64 = 100;
pub(super) const COMING_PATIENCE: u64 = 400;
/// Memory of a donor that is kept for pages that are moved: more is room.
const KEPT: u32 = 2;

/// What may bring room, as it was at one moment.
#[derive(Clone, Default, PartialEq, Eq)]
struct Sight {
    /// What each donor has for what is new, and the last resort while it takes pages.
    free: Vec<u32>,
    /// Memory of a new life is free, and may be no more than was free before.
    lives: Vec<u16>,
    free_slabs: usize,
    is_coming: bool,
    /// Slabs that are to be emptied, or are emptied now.
    tasks: usize,
    written: usize,
}

/// What the world knows of it.
#[derive(Default)]
pub(super) struct Hopes {
    sight: Sight,
    /// When a donor had more room than before, last; and when anything of it changed.
    grown: u64,
    changed: u64,
    /// The wait in vain that began last: its begin and end.
    vain: Option<(u64, u64)>,
    /// When the last look began.
    look_begun: u64,
}

impl World {
    pub(super) fn note_changes(&mut self, table: &Table<'_>) {
        let takes_pages = |donor: usize, is_well: bool| {
            is_well || (self.is_spill(donor) && table.donor(donor).condition == Condition::Up)
        };
        let candidates = table.candidates();
        let free = candidates
            .iter()
            .enumerate()
            .map(|(donor, candidate)| if takes_pages(donor, candidate.is_well) { candidate.free } else { 0 });
        let free: Vec<u32> = free.collect();
        let sight = Sight {
            free_slabs: (0..table.slabs()).filter(|slab| table.slab(*slab).phase == SlabPhase::Free).count(),
            is_coming: table.is_room_coming(self.now),
            tasks: self.keeper.work_left(),
            written: self.oracle.len(),
            lives: (0..table.donors()).map(|donor| table.donor(donor).life).collect(),
            free,
        };
        let before = &self.hopes.sight.free;
        let has_grown = |(donor, free): (usize, &u32)| {
            *free > KEPT && *free > before.get(donor).copied().unwrap_or_default()
        };
        if sight.free.iter().enumerate().any(has_grown) {
            self.hopes.grown = self.now;
        }
        if sight != self.hopes.sight {
            self.hopes.changed = self.now;
        }
        self.hopes.sight = sight;
    }

    pub(super) fn note_look_begins(&mut self) {
        self.hopes.look_begun = self.now;
    }

    /// Whoever waits for room waits in vain, as if one who began with the look had.
    pub(super) fn note_looked_in_vain(&mut self) {
        self.looked_in_vain += 1;
        let since = self.hopes.look_begun;
        if self.hopes.vain.is_none_or(|(before, _)| before <= since) {
            self.hopes.vain = Some((since, self.now));
        }
    }

    /// After an attempt to write: the wait that goes on, or begins anew.
    pub(super) fn wait_on(
        &mut self,
        table: &Table<'_>,
        outcome: Outcome,
        wait: RoomWait,
    ) -> Result<RoomWait, String> {
        if self.is_settling {
            return Ok(wait);
        }
        let anew = RoomWait::begin(table, self.now);
        match outcome {
            Outcome::Stored { .. } => return Ok(anew),
            Outcome::NoRoom => {}
            Outcome::Again | Outcome::NoDonor => return Ok(wait),
        }
        let patience = if table.is_room_coming(self.now) { COMING_PATIENCE } else { ROOM_PATIENCE };
        let is_refused = !table.is_room_hoped_for();
        if wait.goes_on(table, self.now, patience) {
            return Ok(wait);
        }
        let Hopes { grown, changed, vain, .. } = self.hopes;
        if is_refused {
            self.refused += 1;
            match vain {
                Some((since, _)) if grown <= since => {}
                _ => {
                    return Err(format!(
                        "refused at {}, though a donor has had more room since {grown}, and others waited in \
                         vain last {vain:?}",
                        self.now
                    ));
                }
            }
        } else {
            self.vain += 1;
            if vain.is_some_and(|(since, end)| changed < since && wait.since_ms() > end) {
                return Err(format!("waits in vain from {} on, as from {vain:?} on", wait.since_ms()));
            }
            if vain.is_none_or(|(since, _)| since <= wait.since_ms()) {
                self.hopes.vain = Some((wait.since_ms(), self.now));
            }
        }
        Ok(anew)
    }
}
