//! How to get at a page: from the part that has it, or decoded from the same row of others.

use std::sync::atomic::Ordering::SeqCst;

use crate::slabs::room::MAX_PARTS;
use crate::slabs::slab::SlabSeen;
use crate::slabs::words::{Seat, SlabPhase, pack_lost, unpack_lost};
use crate::table::Table;
use crate::words::{Condition, Place};

/// Pages to read for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Where the page is.
    pub seat: Seat,
    /// Parts to read in the seat's row: the page's own alone, or others from which it is decoded.
    pub sources: [Option<Place>; MAX_PARTS],
    /// Of a page that is decoded: parts whose page in this row is zeros, a bit each. They are known without a
    /// read.
    pub zeros: u16,
}

impl Reading {
    /// Whether the page itself is read.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.sources[usize::from(self.seat.part)].is_some()
    }

    /// The parts that are read.
    pub fn parts(&self) -> impl Iterator<Item = (usize, Place)> + '_ {
        self.sources.iter().enumerate().filter_map(|(part, place)| Some((part, (*place)?)))
    }
}

/// How a page can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It can be read like this.
    At(Reading),
    /// Enough parts are left, but some that are needed were tried, or cannot be reached now.
    Later,
    /// Too few parts are left: the page is lost.
    Lost,
}

/// How to get at the page of a slot. Parts in `tried` (a bit each) are passed over; donors that are down are
/// asked only where `at_last`.
#[must_use]
pub fn locate(table: &Table<'_>, slot: u32, tried: u16, at_last: bool) -> Found {
    loop {
        let Some(seat) = table.seat(slot) else { return Found::Lost };
        if seat.slab >= table.slabs() || usize::from(seat.part) >= table.data_parts() {
            return Found::Lost;
        }
        let seen = table.see_slab(seat.slab);
        let is_there = matches!(seen.word.phase, SlabPhase::Open | SlabPhase::Fenced);
        if is_there && seen.word.generation == seat.generation {
            return among(table, seat, &seen, tried, at_last);
        }
        // It was moved in between, and the slab is another's by now; or a write to it never counted.
        if table.seat(slot) == Some(seat) {
            return Found::Lost;
        }
    }
}

fn among(table: &Table<'_>, seat: Seat, seen: &SlabSeen, tried: u16, at_last: bool) -> Found {
    let own = usize::from(seat.part);
    let mut reading = Reading { seat, sources: [None; MAX_PARTS], zeros: 0 };
    let condition = |place: Place| table.donor(usize::from(place.donor)).condition;
    let there = |part: usize| seen.places[part].filter(|&place| table.is_current(place));
    let open = |part: usize| {
        let place = there(part).filter(|_| tried >> part & 1 == 0)?;
        (at_last || condition(place) != Condition::Down).then_some(place)
    };
    let direct = open(own);
    if direct.is_some_and(|place| condition(place) == Condition::Up) {
        reading.sources[own] = direct;
        return Found::At(reading);
    }
    for part in (0..table.data_parts()).filter(|&part| part != own) {
        let is_zero = table.check(seat.slab, part, seat.row) == 0 && !table.planted("padding-read");
        reading.zeros |= u16::from(is_zero) << part;
    }
    let zeros = reading.zeros.count_ones() as usize;
    let others = || (0..table.parts()).filter(|&part| part != own && reading.zeros >> part & 1 == 0);
    let mut rest: Vec<(Condition, usize, Place)> =
        others().filter_map(|part| open(part).map(|place| (condition(place), part, place))).collect();
    rest.sort_unstable();
    let needed = table.data_parts().saturating_sub(zeros);
    rest.truncate(needed);
    let worst = rest.iter().map(|(condition, ..)| *condition).max().unwrap_or(Condition::Up);
    let is_direct_better = direct.is_some_and(|place| rest.len() < needed || condition(place) <= worst);
    if is_direct_better {
        reading.sources[own] = direct;
        return Found::At(reading);
    }
    if rest.len() == needed {
        rest.iter().for_each(|&(_, part, place)| reading.sources[part] = Some(place));
        return Found::At(reading);
    }
    match there(own).is_some() || others().filter(|&part| there(part).is_some()).count() >= needed {
        true => Found::Later,
        false => Found::Lost,
    }
}

/// Writes down that a slot's page is lost, if it is, and with which donors: nothing of it is kept any more.
pub fn lose(table: &Table<'_>, slot: u32) -> bool {
    let Some(seat) = table.seat(slot) else { return false };
    if locate(table, slot, 0, true) != Found::Lost {
        return false;
    }
    let donors = donors_of_slot(table, slot).into_iter().fold(0, |all: u32, donor| all | 1 << donor);
    let (before, after) = (Seat::pack(Some(seat)), pack_lost(donors));
    table.slot_word(slot).compare_exchange(before, after, SeqCst, SeqCst).is_ok()
}

/// Whether what was read for a slot still counts: its word is the same now, so its row was there all the
/// time; and no donor that was asked has begun a new life.
#[must_use]
pub fn still_counts(table: &Table<'_>, slot: u32, reading: &Reading) -> bool {
    let is_there = table.slot_word(slot).load(SeqCst) == Seat::pack(Some(reading.seat));
    let is_spilled = || reading.parts().all(|(_, place)| table.is_spill(usize::from(place.donor)));
    let is_there =
        is_there || table.planted("moved-page-read") || (table.planted("returned-page-read") && is_spilled());
    is_there && reading.parts().all(|(_, place)| table.is_current(place))
}

/// What the last resort, which is never away, makes of a page that it did not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was not asked.
    None,
    /// It has given nothing, and a donor that is away may give the page once it is back.
    WhileAway,
    /// It has given nothing, and no donor is away: waiting does not help.
    ForGood,
}

/// What the last resort makes of a slot's page, of which the parts in `tried` (a bit each) gave nothing.
#[must_use]
pub fn refusal(table: &Table<'_>, slot: u32, tried: u16) -> Refusal {
    let Some(seat) = table.seat(slot).filter(|seat| seat.slab < table.slabs()) else { return Refusal::None };
    let seen = table.see_slab(seat.slab);
    if seen.word.generation != seat.generation {
        return Refusal::None;
    }
    let places = seen.places.iter().enumerate().filter_map(|(part, place)| Some((part, (*place)?)));
    let current = places.filter(|(_, place)| table.is_current(*place));
    refusal_of(table, current.map(|(part, place)| (part, usize::from(place.donor))), u32::from(tried))
}

/// The same of what has a page: its numbers, and its donors.
pub(crate) fn refusal_of(
    table: &Table<'_>,
    who: impl Iterator<Item = (usize, usize)>,
    tried: u32,
) -> Refusal {
    let (mut is_asked, mut is_away) = (false, false);
    for (number, donor) in who {
        let is_spill = table.is_spill(donor);
        is_asked |= is_spill && tried >> number & 1 == 1;
        is_away |= !is_spill && table.donor(donor).condition != Condition::Up;
    }
    match (is_asked, is_away) {
        (false, _) => Refusal::None,
        (true, true) => Refusal::WhileAway,
        (true, false) => Refusal::ForGood,
    }
}

/// The donors that have, or had, parts of a slot's slab: for a message about it. Those that are of no use now
/// come alone, where there are any.
#[must_use]
pub fn donors_of_slot(table: &Table<'_>, slot: u32) -> Vec<usize> {
    if let Some(lost) = unpack_lost(table.slot_word(slot).load(SeqCst)) {
        return (0..table.donors()).filter(|donor| lost >> donor & 1 == 1).collect();
    }
    let Some(seat) = table.seat(slot).filter(|seat| seat.slab < table.slabs()) else { return Vec::new() };
    let places = table.see_slab(seat.slab).places;
    let of = |is_wanted: &dyn Fn(&Place) -> bool| -> Vec<usize> {
        places
            .iter()
            .flatten()
            .filter(|place| is_wanted(place))
            .map(|place| usize::from(place.donor))
            .collect()
    };
    let is_away = |place: &Place| {
        !table.is_current(*place) || table.donor(usize::from(place.donor)).condition != Condition::Up
    };
    let away = of(&is_away);
    if away.is_empty() { of(&|_| true) } else { away }
}
