//! Which copy of a page to read.

use crate::MAX_COPIES;
use crate::bits::has;
use crate::slabs::locate::{Refusal, refusal_of};
use crate::table::{Snapshot, Table, Which};
use crate::words::{Condition, Phase, Place};

/// A copy to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which of the extent's copies.
    pub copy: usize,
    /// Where that copy lies.
    pub place: Place,
}

/// Where a page can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It can be read there.
    At(Choice),
    /// Copies are left, but those that may be asked were tried, or cannot be reached now.
    Later,
    /// No copy is left: the page is lost.
    Lost,
}

/// The copy to read for a slot of an extent. Copies in `tried` (a bit each) are passed over; donors that are
/// down are asked only where `at_last`, and those that are late ([`crate::hedge`]) after those that are not.
/// The last resort comes after donors that are as well as it is.
/// `turn` says which of several good ones comes first.
#[must_use]
pub fn choose(table: &Table<'_>, extent: u32, slot: u32, tried: u8, at_last: bool, turn: usize) -> Found {
    let seen = table.snapshot(extent);
    let is_forgotten = table.lost_with(extent) != 0
        && !has(&table.bits(extent, Which::Live), slot)
        && !table.planted("forgotten-slot-read");
    if seen.state.phase != Phase::Placed || is_forgotten {
        return Found::Lost;
    }
    let condition = |choice: &Choice| table.donor(usize::from(choice.place.donor)).condition;
    let rank = |choice: &Choice| {
        let donor = usize::from(choice.place.donor);
        (condition(choice), table.is_late(donor), table.is_spill(donor))
    };
    let whole = |copy: &usize| table.is_whole(&seen, *copy) || is_read_anyway(table, &seen, *copy);
    let open = || {
        let untried = (0..MAX_COPIES).filter(|copy| whole(copy) && tried >> copy & 1 == 0);
        let placed = untried.filter_map(|copy| Some(Choice { copy, place: seen.places[copy]? }));
        placed.filter(|choice| at_last || condition(choice) != Condition::Down)
    };
    let best = open().map(|choice| rank(&choice)).min();
    let equals = || open().filter(|choice| Some(rank(choice)) == best);
    match equals().nth(turn % equals().count().max(1)) {
        Some(choice) => Found::At(choice),
        None if (0..MAX_COPIES).any(|copy| whole(&copy)) => Found::Later,
        None => Found::Lost,
    }
}

fn is_read_anyway(table: &Table<'_>, seen: &Snapshot, copy: usize) -> bool {
    use crate::words::Copy;
    table.planted("rebuilding-copy-read") && seen.state.copies[copy] != Copy::Absent
}

/// What the last resort makes of a page of an extent, of which the copies in `tried` (a bit each) gave
/// nothing.
#[must_use]
pub fn refusal(table: &Table<'_>, extent: u32, tried: u8) -> Refusal {
    let seen = table.snapshot(extent);
    let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy));
    let who = whole.filter_map(|copy| Some((copy, usize::from(seen.places[copy]?.donor))));
    refusal_of(table, who, u32::from(tried))
}

/// Whether what was read there still counts: the copy is whole now too, and so was all the time. What is
/// given up may be forgotten by its donor, and its place given to another extent.
#[must_use]
pub fn still_counts(table: &Table<'_>, extent: u32, choice: Choice) -> bool {
    let seen = table.snapshot(extent);
    let is_there = seen.places[choice.copy] == Some(choice.place) && table.is_current(choice.place);
    let is_moved = !table.is_whole(&seen, choice.copy) && !table.planted("moved-copy-read");
    is_there && (!is_moved || is_read_anyway(table, &seen, choice.copy))
}

/// A page came wrong from there: its copy is given up, if another whole one is left, and is made anew. The
/// copies to be passed over when it is read again, a bit each.
#[must_use]
pub fn came_wrong(table: &Table<'_>, extent: u32, choice: Choice) -> u8 {
    if !table.planted("wrong-copy-kept") {
        let _ = table.drop_copy(extent, choice.copy, choice.place, !(1 << choice.copy));
    }
    1 << choice.copy
}

/// The donors that have, or had, a page of an extent: for a message about it.
#[must_use]
pub fn donors_of(table: &Table<'_>, extent: u32) -> Vec<usize> {
    let seen = table.snapshot(extent);
    let now = seen.places.iter().flatten().fold(0_u64, |all, place| all | 1 << place.donor);
    let all = now | table.lost_with(extent);
    (0..table.donors()).filter(|donor| all >> donor & 1 == 1).collect()
}
