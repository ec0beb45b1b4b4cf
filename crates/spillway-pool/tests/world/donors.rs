//! What the donors do: they store pages, at once or late, and say what they hold.

use super::*;

/// What who sends a page to a donor knows then.
pub(super) struct Sent {
    pub(super) is_stored: bool,
    /// It was sent by two connections, of which one has not answered.
    pub(super) comes_again: bool,
}

impl Sent {
    const NOT: Self = Self { is_stored: false, comes_again: false };
}

impl World {
    pub(super) fn land_late(&mut self, run: usize) {
        let (now, machines) = (self.now, self.machines.clone());
        let Run { late, memory, .. } = &mut self.runs[run];
        let mut at = 0;
        while at < late.len() {
            let is_due = late[at].at <= now && machines[late[at].donor] == Machine::Well;
            if is_due {
                let Late { donor, life, extent, slot, held, .. } = late.swap_remove(at);
                memory[donor].insert((life, extent, slot), held);
            } else {
                at += 1;
            }
        }
    }

    /// Whether a donor serves this life of the run: else it says that it knows nothing of it.
    pub(super) fn serves(&self, run: usize, place: Place) -> bool {
        let donor = usize::from(place.donor);
        matches!(self.machines[donor], Machine::Well | Machine::Full)
            && (self.runs[run].lives[donor] == place.life || self.bug == "earlier-life-read")
    }

    pub(super) fn write_to(&mut self, run: usize, place: Place, slot: u32, held: Held) -> Sent {
        let (donor, key) = (usize::from(place.donor), (place.life, place.extent, slot % 512));
        if self.machines[donor] == Machine::Full {
            return Sent::NOT;
        }
        let reach = self.reach(run, donor);
        if reach != Reach::Both && self.serves(run, place) {
            self.cut_off += 1;
            if reach == Reach::There {
                self.runs[run].memory[donor].insert(key, held);
            } else if self.chance(2) {
                // It is sent again and again, and comes once that is over.
                let at = self.now + self.dice.below(MOST_LATE as usize) as u64;
                self.delay(run, at, place, slot, held);
            }
            return Sent::NOT;
        }
        if self.serves(run, place) {
            let is_lost = self.chance(60) && self.may_lose();
            let comes_again = self.sends_twice && !is_lost && Some(donor) != self.spill && self.chance(20);
            if comes_again {
                // By a connection that was lost, and by another.
                let at = self.now + MOST_LATE / 2 + self.dice.below(MOST_LATE as usize / 4) as u64;
                self.delay(run, at, place, slot, held);
            }
            if !is_lost || self.chance(2) {
                self.runs[run].memory[donor].insert(key, held);
            }
            return Sent { is_stored: !is_lost, comes_again };
        }
        if self.machines[donor] == Machine::Frozen && self.runs[run].lives[donor] == place.life {
            let at = self.now + self.dice.below(MOST_LATE as usize) as u64;
            self.delay(run, at, place, slot, held);
        }
        Sent::NOT
    }

    fn delay(&mut self, run: usize, at: u64, place: Place, slot: u32, held: Held) {
        let Place { donor, life, extent } = place;
        let late = Late { at, donor: usize::from(donor), life, extent, slot: slot % 512, held };
        self.runs[run].late.push(late);
    }

    /// `Err` where there is no answer.
    pub(super) fn read_from(&mut self, run: usize, place: Place, slot: u32) -> Answer {
        if self.reach(run, usize::from(place.donor)) != Reach::Both {
            self.cut_off += 1;
            return Err(());
        }
        if !self.serves(run, place) || self.chance(60) {
            return Err(());
        }
        let key = (place.life, place.extent, slot % 512);
        Ok(self.runs[run].memory[usize::from(place.donor)].get(&key).copied().unwrap_or_default())
    }

    /// The same by a process. The donor may lie: it gives an older page, that of another slot, or none.
    pub(super) fn ask_for(&mut self, run: usize, place: Place, slot: u32) -> Answer {
        let held = self.read_from(run, place, slot)?;
        if !self.lies[usize::from(place.donor)] || self.chance(2) {
            return Ok(held);
        }
        let other = self.dice.below(self.next_version as usize) as Version;
        let is_none = self.chance(4);
        Ok(Held { version: (!is_none).then_some(other), is_lie: true })
    }

    /// The same by who makes a copy anew, for whom nobody checks what it copies. In a gentle world it is told
    /// the truth: a lie that is copied makes two copies wrong.
    pub(super) fn ask_to_copy(&mut self, run: usize, place: Place, slot: u32) -> Answer {
        if self.is_gentle { self.read_from(run, place, slot) } else { self.ask_for(run, place, slot) }
    }
}
