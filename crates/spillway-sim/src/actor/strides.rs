//! Pages in strides: far from each other, backwards, or in rounds of distances.

use super::Actor;
use crate::world::with;

/// Distances between pages, which come again and again.
const ROUNDS: [&[i64]; 7] = [&[2], &[3], &[-1], &[-5], &[3, 4], &[7, -3, 1], &[90, -50, -30, 12]];
/// Pages that one walk touches, at most.
const WALK_PAGES: u64 = 150;

impl Actor {
    /// Walks through memory up to the end of what it may use there.
    pub(super) fn stride(&self) {
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
