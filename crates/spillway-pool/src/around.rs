//! How to get at a coded page past donors that are slow: decoded from others, as far as enough of them are
//! quick. It takes as many requests as the code has parts of data in place of one, so a donor is gone around
//! only once it is late, or for one read of which it is silent ([`crate::hedge`]).

use crate::hedge::{Way, is_quick};
use crate::slabs::locate::{Found, Reading, locate, still_counts};
use crate::table::Table;

/// The parts, a bit each, of a reading's row whose donors cannot be expected to answer soon.
fn slow_parts(table: &Table<'_>, reading: &Reading) -> u16 {
    let places = table.see_slab(reading.seat.slab).places;
    let is_slow =
        |part: &usize| places[*part].is_some_and(|place| !is_quick(table, usize::from(place.donor)));
    (0..places.len()).filter(is_slow).fold(0, |all, part| all | 1 << part)
}

/// How to get at the page of a slot, as [`locate`] says, but past donors that are late where enough others
/// are quick.
#[must_use]
pub fn locate_quick(table: &Table<'_>, slot: u32, tried: u16, at_last: bool) -> Found {
    let found = locate(table, slot, tried, at_last);
    let Found::At(reading) = found else { return found };
    let is_late = reading.parts().any(|(_, place)| table.is_late(usize::from(place.donor)));
    if at_last || !is_late {
        return found;
    }
    match locate(table, slot, tried | slow_parts(table, &reading), false) {
        Found::At(other) => Found::At(other),
        Found::Later | Found::Lost => found,
    }
}

impl Way for Reading {
    /// Three times in a row: it takes some requests more to go around a donor.
    const WEIGHT: u64 = 1;

    fn donors(&self) -> impl Iterator<Item = usize> {
        self.parts().map(|(_, place)| usize::from(place.donor))
    }

    fn still_counts(&self, table: &Table<'_>, slot: u32) -> bool {
        still_counts(table, slot, self)
    }

    /// The page decoded from other parts of its row. Of a row of which too few are quick there is none.
    fn another(&self, table: &Table<'_>, slot: u32, _turn: usize) -> Option<Self> {
        let own = 1 << self.seat.part;
        match locate(table, slot, own | slow_parts(table, self), false) {
            Found::At(other) if other.seat == self.seat => Some(other),
            _ => None,
        }
    }
}
