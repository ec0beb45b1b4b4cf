//! Pages in strides: far from each other, backwards, or in rounds of distances.

use super::Actor;
use crate::config::TapeConfig;
use crate::tape::{MAPPINGS, mapping_pages, place_at};
use crate::world::with;

/// Distances between pages, which come again and again.
const ROUNDS: [&[i64]; 7] = [&[2], &[3], &[-1], &[-5], &[3, 4], &[7, -3, 1], &[90, -50, -30, 12]];
/// Pages that one walk touches, at most.
const WALK_PAGES: u64 = 150;

impl Actor {
    /// Walks through memory, where it has a tape as that has it.
    pub(super) fn stride(&self) {
        let is_taped = with(|world| world.config.tape != TapeConfig::None && !world.draws.one_in(4));
        if is_taped { self.walk_as_ever() } else { self.walk_in_strides() }
    }

    /// Walks over the first mappings, in the order that all such walks have.
    fn walk_as_ever(&self) {
        let walk = with(|world| {
            let pages = mapping_pages(&world.config);
            let regions = &world.processes[self.process].program.regions;
            let whole = regions.iter().filter(|region| region.pages.end - region.pages.start == pages);
            let starts: Vec<u64> = whole.map(|region| region.pages.start).take(MAPPINGS).collect();
            if starts.len() < MAPPINGS {
                return None;
            }
            let percent = world.config.habits.write_percent;
            let is_write = world.draws.below(100) < percent;
            let from = world.draws.below(MAPPINGS as u64 * pages);
            Some((starts, pages, from, world.draws.within(20..=2 * WALK_PAGES), is_write))
        });
        let Some((starts, pages, from, count, is_write)) = walk else { return };
        for step in from..from + count {
            let (mapping, within) = place_at(step, pages);
            let page = starts[mapping] + within;
            let Some(how) = self.use_of(page, is_write) else { continue };
            self.use_one(page, how);
        }
    }

    /// Walks up to the end of what it may use there.
    fn walk_in_strides(&self) {
        let (start, round, count, is_write) = with(|world| {
            let percent = world.config.habits.write_percent;
            let is_write = world.draws.below(100) < percent;
            let start = world.processes[self.process].program.pick_page(is_write, &mut world.draws);
            (start, world.draws.pick(&ROUNDS), world.draws.within(20..=WALK_PAGES), is_write)
        });
        let Some(mut page) = start else { return };
        for distance in round.iter().cycle().take(count as usize) {
            let Some(how) = self.use_of(page, is_write) else { return };
            self.use_one(page, how);
            let Some(next) = page.checked_add_signed(*distance) else { return };
            page = next;
        }
    }
}
