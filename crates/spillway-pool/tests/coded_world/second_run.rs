//! A second run on the same donors, in some worlds: it meets the same deaths, lies and silences at the same
//! time, while the first is cut off by itself. Nothing of one run may show in the other.

use super::*;

impl World {
    /// Does something with the second run, if there is one.
    pub(super) fn with_second(
        &mut self,
        act: impl FnOnce(&mut World) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(mut second) = self.second.take() else { return Ok(()) };
        second.share_donors_of(self);
        let result = act(&mut second).map_err(|error| format!("of the second run: {error}"));
        self.second = Some(second);
        result
    }

    /// The donors are to the second run as they are to the first.
    fn share_donors_of(&mut self, first: &World) {
        (self.now, self.present) = (first.now, first.present);
        self.machines.clone_from(&first.machines);
        self.lies.clone_from(&first.lies);
        self.drained.clone_from(&first.drained);
    }

    pub(super) fn second_would_bear(&mut self, breaking: usize) -> bool {
        let bears =
            |second: &mut World| match second.with_table(|world, table| world.would_bear(table, breaking)) {
                true => Ok(()),
                false => Err(String::new()),
            };
        self.with_second(bears).is_ok()
    }

    /// A donor has died with all that it had, of each run.
    pub(super) fn lose_all_of(&mut self, donor: usize) {
        self.memory[donor].clear();
        self.lives[donor] += 1;
        self.late.retain(|late| late.donor != donor);
        if let Some(second) = &mut self.second {
            second.lose_all_of(donor);
        }
    }

    /// Reads of the second run.
    pub fn second_reads(&self) -> u64 {
        self.second.as_ref().map_or(0, |second| second.reads)
    }
}
