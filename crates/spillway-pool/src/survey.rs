//! What the supervisor finds when it looks over the table: what has too few copies, what to rebuild first and
//! where, which copies are too many, which extents are lost, what is left on a donor that is to leave, whose
//! places nobody names any more.
//!
//! Copies count by failure domains: two in one domain are as good as one. Such come to be only while a donor
//! is being drained, or is away and no other has room: those do not keep others out of their domain. One in
//! the last resort counts as all that are wanted: it dies with no donor ([`crate::spill`]).

use spillway_core::page::PAGE_SIZE;

use crate::MAX_COPIES;
use crate::bars::Bars;
use crate::new_donor::SPILL_DOMAIN;
use crate::placement::Chooser;
use crate::spill::can_return;
use crate::table::{Snapshot, Table, Which};
use crate::words::{Condition, Copy, Phase, Place};

/// Bytes of a slot.
const SLOT_BYTES: u64 = PAGE_SIZE as u64;

/// A copy to be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// It is of this extent.
    pub extent: u32,
    /// Whole copies that can be reached: the fewer, the more urgent.
    pub copies_left: usize,
}

/// What a look at the table has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Bytes of all pages, each counted once.
    pub stored_bytes: u64,
    /// Bytes of pages in extents of which a copy is to be made anew.
    pub left_bytes: u64,
    /// Bytes of pages that have fewer copies than wanted.
    pub endangered_bytes: u64,
    /// The same that have no copy which can be reached now.
    pub unreachable_bytes: u64,
    /// Copies to be made anew, the most endangered extents first.
    pub tasks: Vec<Task>,
    /// Copies to be made of extents that are in the last resort, since donors have room again.
    pub returns: Vec<Task>,
    /// Bytes of pages that are in the last resort.
    pub spilled_bytes: u64,
    /// Extents whose copies are all lost for good.
    pub lost: Vec<u32>,
    /// Bytes of pages that are lost with them.
    pub lost_bytes: u64,
}

impl Survey {
    /// What is to be made next: at most so many copies of what is in danger, and then of what may return.
    #[must_use]
    pub fn work(&mut self, most: usize) -> Vec<Task> {
        let mut work = std::mem::take(&mut self.tasks);
        work.truncate(most);
        work.extend(self.returns.drain(..).take(most));
        work
    }
}

fn live_bytes(table: &Table<'_>, extent: u32) -> u64 {
    let slots: u32 = table.bits(extent, Which::Live).iter().map(|word| word.count_ones()).sum();
    u64::from(slots) * SLOT_BYTES
}

/// In how many failure domains these places are; as many as are wanted where one is in the last resort.
fn apart<'a>(table: &Table<'_>, places: impl Iterator<Item = &'a Place>) -> usize {
    let mut domains: Vec<u32> = places.map(|place| table.domain(usize::from(place.donor))).collect();
    domains.sort_unstable();
    domains.dedup();
    match domains.contains(&SPILL_DOMAIN) {
        true => domains.len().max(table.wanted_copies()),
        false => domains.len(),
    }
}

/// Looks over all extents. A donor that is down counts as one that comes back for `patience_ms` after it
/// went.
#[must_use]
pub fn survey(table: &Table<'_>, now_ms: u64, patience_ms: u64) -> Survey {
    let mut found = Survey::default();
    let candidates = table.candidates();
    for extent in 0..table.extents() {
        let seen = table.snapshot(extent);
        if seen.state.phase != Phase::Placed {
            continue;
        }
        let live = live_bytes(table, extent);
        found.stored_bytes += live;
        let whole: Vec<Place> = (0..MAX_COPIES)
            .filter(|&copy| table.is_whole(&seen, copy))
            .filter_map(|copy| seen.places[copy])
            .collect();
        if whole.is_empty() {
            found.lost.push(extent);
            found.lost_bytes += live;
            continue;
        }
        let condition = |place: &&Place| table.donor(usize::from(place.donor)).condition;
        let reachable = apart(table, whole.iter().filter(|place| condition(place) != Condition::Down));
        let will_last = |place: &&Place| {
            let donor = usize::from(place.donor);
            let gone_ms = now_ms.saturating_sub(table.ill_since_ms(donor));
            let is_awaited = condition(place) != Condition::Down || gone_ms < patience_ms;
            is_awaited && !table.is_leaving(donor)
        };
        let counted = apart(table, whole.iter().filter(will_last));
        if reachable < table.wanted_copies() {
            found.endangered_bytes += live;
            found.unreachable_bytes += if reachable == 0 { live } else { 0 };
        }
        if counted < table.wanted_copies() && reachable > 0 {
            found.left_bytes += live;
            found.tasks.push(Task { extent, copies_left: reachable });
        }
        let is_spilled = whole.iter().any(|place| table.is_spill(usize::from(place.donor)));
        if is_spilled {
            found.spilled_bytes += live;
        }
        let lasting: Vec<Place> = whole.iter().filter(will_last).copied().collect();
        if is_spilled && can_return(table, &candidates, &lasting) {
            found.returns.push(Task { extent, copies_left: reachable });
        }
    }
    found.tasks.sort_by_key(|task| task.copies_left);
    found
}

/// Where the next copy of an extent is to be made: which copy, at which place, taken for it: on a donor, and
/// where none can take it in the last resort. `None` where neither can.
#[must_use]
pub fn place_for(table: &Table<'_>, chooser: &Chooser, extent: u32, dice: u64) -> Option<(usize, Place)> {
    let seen = table.snapshot(extent);
    if seen.state.phase != Phase::Placed {
        return None;
    }
    let absent = |copy: &usize| seen.state.copies[*copy] == Copy::Absent || is_dead(table, &seen, *copy);
    let away = || longest_away(table, &seen).filter(|_| !table.planted("away-copies-keep-their-places"));
    let copy = (0..MAX_COPIES).find(absent).or_else(away)?;
    let taken: Vec<usize> = (0..MAX_COPIES)
        .filter(|other| *other != copy && !absent(other))
        .filter_map(|other| seen.places[other])
        .map(|place| usize::from(place.donor))
        // What leaves keeps nobody out of its domain: it is itself not chosen.
        .filter(|&donor| !table.is_leaving(donor))
        .collect();
    let (spilled, taken): (Vec<usize>, Vec<usize>) =
        taken.into_iter().partition(|&donor| table.is_spill(donor));
    let choose = |taken: &[usize]| chooser.choose(&table.candidates(), taken, u32::MAX, dice);
    let is_there = |donor: &usize| table.donor(*donor).condition != Condition::Down;
    // Nor, where there is no other, does what is away: it may never come back.
    let beside_away = || {
        let there: Vec<usize> = taken.iter().copied().filter(is_there).collect();
        choose(&there).filter(|_| !table.planted("away-copy-keeps-its-domain"))
    };
    let donor = choose(&taken).or_else(beside_away);
    let is_spilled = !spilled.is_empty();
    if donor.is_none() && (is_spilled || table.open_spill().is_none()) {
        return None;
    }
    if let Some(old) = seen.places[copy].filter(|_| !absent(&copy)) {
        let others = (0..MAX_COPIES).filter(|other| *other != copy && is_reachable(table, &seen, *other));
        if !table.drop_copy(extent, copy, old, others.fold(0, |all, other| all | 1 << other)) {
            return None;
        }
    } else if seen.state.copies[copy] != Copy::Absent
        && !table.change(extent, seen.state, seen.state.with(copy, Copy::Absent))
    {
        return None;
    }
    let place = match donor {
        Some(donor) => table.take_place(donor, extent)?,
        None => table.take_spill(extent)?,
    };
    Some((copy, place))
}

/// The copy that makes room for another where each place for one is taken: of those whose donor is away the
/// one that has been so for longest. Two donors of three may never come back. `None` where no other copy can
/// be reached.
fn longest_away(table: &Table<'_>, seen: &Snapshot) -> Option<usize> {
    let whole = || (0..MAX_COPIES).filter(|&copy| table.is_whole(seen, copy));
    whole().find(|&copy| is_reachable(table, seen, copy))?;
    let away = whole().filter(|&copy| !is_reachable(table, seen, copy));
    away.min_by_key(|&copy| seen.places[copy].map(|place| table.ill_since_ms(usize::from(place.donor))))
}

fn is_reachable(table: &Table<'_>, seen: &Snapshot, copy: usize) -> bool {
    let is_down = |place: Place| table.donor(usize::from(place.donor)).condition == Condition::Down;
    table.is_whole(seen, copy) && seen.places[copy].is_some_and(|place| !is_down(place))
}

/// The state calls it a copy, but it is of an earlier life of its donor.
fn is_dead(table: &Table<'_>, seen: &Snapshot, copy: usize) -> bool {
    seen.state.copies[copy] != Copy::Absent && !seen.places[copy].is_some_and(|place| table.is_current(place))
}

/// Drops copies beyond the wanted ones: those that cannot be reached first, then those on donors that leave,
/// then that in the last resort, then those in a domain with another. Returns where they are: nothing that is
/// read there counts any more.
pub fn drop_surplus(table: &Table<'_>, extent: u32) -> Vec<Place> {
    let mut dropped = Vec::new();
    loop {
        let seen = table.snapshot(extent);
        let whole: Vec<(usize, Place)> = (0..MAX_COPIES)
            .filter(|&copy| table.is_whole(&seen, copy))
            .filter_map(|copy| Some((copy, seen.places[copy]?)))
            .collect();
        let is_spill = |place: &Place| table.is_spill(usize::from(place.donor));
        let is_left = |place: &Place| table.is_leaving(usize::from(place.donor));
        let on_donors = whole.iter().filter(|(_, place)| !is_spill(place)).count();
        if on_donors == whole.len() && on_donors <= table.wanted_copies() {
            return dropped;
        }
        let is_down = |place: &Place| table.donor(usize::from(place.donor)).condition == Condition::Down;
        let reachable_but = |copy: usize| {
            let others = whole.iter().filter(|(other, place)| *other != copy && !is_down(place));
            apart(table, others.map(|(_, place)| place))
        };
        let (reachable, full) = (reachable_but(MAX_COPIES), whole.len() == MAX_COPIES);
        let key = |(copy, place): &(usize, Place)| {
            let is_double = reachable_but(*copy) == reachable;
            (is_down(place), is_left(place), is_spill(place), is_double, *copy)
        };
        // Whether a donor of the same domain has it too: of use to nobody, where others lack room.
        let is_beside = |copy: usize, place: &Place| {
            let domain = |place: &Place| table.domain(usize::from(place.donor));
            whole.iter().any(|(other, at)| *other != copy && !is_down(at) && domain(at) == domain(place))
        };
        // Where every place for a copy is taken, one that counts for nothing makes room.
        let needed = if full { table.wanted_copies().min(reachable) } else { table.wanted_copies() };
        let can_go = |copy: usize, place: &Place| match is_down(place) {
            _ if is_spill(place) => is_spilled_for_nothing(table, &whole),
            // Beside the last resort donors keep what they have, as it is sooner had from them.
            _ if !full
                && !is_left(place)
                && on_donors <= table.wanted_copies()
                && !is_beside(copy, place) =>
            {
                false
            }
            true => reachable >= table.wanted_copies(),
            false => reachable_but(copy) >= needed,
        };
        let surplus = whole.iter().filter(|(copy, place)| can_go(*copy, place)).max_by_key(|one| key(one));
        let Some(&(copy, place)) = surplus else { return dropped };
        let others = whole.iter().filter(|(other, place)| *other != copy && !is_down(place));
        let kept = others.fold(0, |all, (other, _)| all | 1 << other);
        if !table.drop_copy(extent, copy, place, kept) {
            return dropped;
        }
        dropped.push(place);
    }
}

/// Whether as many donors as are wanted have an extent, and are there to stay.
fn is_spilled_for_nothing(table: &Table<'_>, whole: &[(usize, Place)]) -> bool {
    let stays = |place: &&Place| {
        let donor = usize::from(place.donor);
        let will_last = table.donor(donor).condition != Condition::Down && !table.is_leaving(donor);
        !table.is_spill(donor) && will_last
    };
    let needed = if table.planted("spill-copy-dropped-early") { 1 } else { table.wanted_copies() };
    apart(table, whole.iter().map(|(_, place)| place).filter(stays)) >= needed
}

/// What is left of the run on a donor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Extents that have a copy there, or may be about to.
    pub extents: u32,
    /// Bytes of pages in them.
    pub bytes: u64,
    /// Those of the extents that have no donors yet: somebody was about to give them some.
    pub unplaced: Vec<u32>,
}

/// What is left on a donor that is leaving. Once it is nothing, it stays nothing: its part in the run can end
/// ([`Table::end_part`]), unless the caller clears extents in between ([`Table::clear_extent`]).
///
/// Who takes a place there has taken it before the mark, and is seen here as its owner. A placed extent that
/// does not name the place never will, for only the supervisor changes a place then.
#[must_use]
pub fn left_on(table: &Table<'_>, donor: usize) -> Left {
    let mut left = Left::default();
    let life = table.donor(donor).life;
    for own in 0..table.room(donor).0 {
        let owner = table.owner_of(donor, own).filter(|extent| *extent < table.extents());
        let Some(extent) = owner else { continue };
        let seen = table.snapshot(extent);
        let place = Place { donor: donor as u8, life, extent: own };
        let is_named = (0..MAX_COPIES)
            .any(|copy| seen.places[copy] == Some(place) && seen.state.copies[copy] != Copy::Absent);
        if seen.state.phase != Phase::Placed {
            left.extents += 1;
            left.unplaced.push(extent);
        } else if is_named && !is_counted_anyway(table, &seen) {
            left.extents += 1;
            left.bytes += live_bytes(table, extent);
        }
    }
    left
}

fn is_counted_anyway(table: &Table<'_>, seen: &Snapshot) -> bool {
    let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(seen, copy)).count();
    table.planted("leaving-copy-counted") && whole >= table.wanted_copies()
}

/// Gives back what a rebuild left behind that was cut off with its supervisor.
pub fn forget_rebuilds(table: &Table<'_>) {
    for extent in 0..table.extents() {
        loop {
            let state = table.state(extent);
            let mut after = state;
            for copy in &mut after.copies {
                if matches!(copy, Copy::Rebuilding | Copy::Closing) {
                    *copy = Copy::Absent;
                }
            }
            if after == state || table.change(extent, state, after) {
                break;
            }
        }
    }
}

/// Frees places that nobody names any more. Each must have been found so for a while: who was late to name
/// his, or to write there, has done so by then.
///
/// A donor that does not answer may yet do what it was sent, so no time counts while one does not; nor does
/// the time before it came up, if that was between two looks.
#[derive(Debug, Default)]
pub struct Sweep {
    /// How often each donor had come up at the last look.
    epochs: Vec<u32>,
    since_ms: Vec<Vec<u64>>,
    bars: Bars,
}

impl Sweep {
    /// Looks at all places; frees those that were found unnamed for `patience_ms`. Returns how many.
    pub fn look(&mut self, table: &Table<'_>, now_ms: u64, patience_ms: u64) -> usize {
        let epochs: Vec<u32> = (0..table.donors()).map(|donor| table.donor(donor).epoch).collect();
        let before = std::mem::replace(&mut self.epochs, epochs);
        let is_steady = |donor: usize| {
            let is_same = before.get(donor) == self.epochs.get(donor);
            is_same && table.donor(donor).condition == Condition::Up
        };
        let steady: Vec<bool> = (0..table.donors()).map(is_steady).collect();
        self.bars.look(table, &steady, now_ms, patience_ms);
        let mut freed = 0;
        self.since_ms.resize(steady.len(), Vec::new());
        for (donor, &is_steady) in steady.iter().enumerate() {
            let (life, capacity) = (table.donor(donor).life, table.room(donor).0);
            let since = &mut self.since_ms[donor];
            since.resize(capacity as usize, 0);
            for own in 0..capacity {
                let Some(extent) = table.owner_of(donor, own).filter(|extent| *extent < table.extents())
                else {
                    since[own as usize] = 0;
                    continue;
                };
                let seen = table.snapshot(extent);
                let place = Place { donor: donor as u8, life, extent: own };
                let is_named = (0..MAX_COPIES).any(|copy| {
                    seen.places[copy] == Some(place)
                        && (seen.state.phase != Phase::Placed || seen.state.copies[copy] != Copy::Absent)
                });
                // While the extent has no donors yet, somebody may be about to name his.
                if is_named || !is_steady || seen.state.phase != Phase::Placed {
                    since[own as usize] = 0;
                } else if since[own as usize] == 0 {
                    since[own as usize] = now_ms.max(1);
                } else if now_ms.saturating_sub(since[own as usize]) >= patience_ms {
                    table.free_place(donor, own, extent);
                    since[own as usize] = 0;
                    freed += 1;
                }
            }
        }
        freed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::rebuild::{End, Rebuild, Step};
    use crate::table::{Terms, words_of};

    #[test]
    fn the_time_before_a_donor_came_up_between_two_looks_does_not_count() {
        let donors = [NewDonor { capacity: 4, domain: 0, text: String::new() }];
        let terms = Terms { extents: 1, wanted: 1, least: 1, joining: 0, coding: None };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors, terms);
        let chooser = table.chooser();
        while table.place_next(0, &chooser, 1).is_some() {}
        // Taken for the extent, and never named: a write may be on its way there.
        assert!(table.take_place(0, 0).is_some());
        let mut sweep = Sweep::default();
        assert_eq!([1, 10].map(|now_ms| sweep.look(&table, now_ms, 30)), [0, 0]);
        table.complain(0, table.donor(0), Condition::Down, 11);
        table.come_up(0, 1);
        assert_eq!([45, 60, 74].map(|now_ms| sweep.look(&table, now_ms, 30)), [0, 0, 0]);
        assert_eq!(sweep.look(&table, 100, 30), 1);
    }

    /// Two of three donors die for good, so that places of theirs are all that is left.
    #[test]
    fn as_many_copies_as_are_wanted_are_made_though_no_donor_comes_back() {
        let donors: Vec<NewDonor> =
            (0..6).map(|domain| NewDonor { capacity: 4, domain, text: String::new() }).collect();
        let terms = Terms { extents: 1, wanted: 3, least: 1, joining: 0, coding: None };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors, terms);
        let chooser = table.chooser();
        while table.place_next(0, &chooser, 1).is_some_and(|placed| placed.is_ok()) {}
        let first: Vec<usize> =
            table.snapshot(0).places.iter().flatten().map(|place| usize::from(place.donor)).collect();
        assert_eq!(first.len(), 3);
        for (at_ms, &donor) in [5, 6].into_iter().zip(&first) {
            table.complain(donor, table.donor(donor), Condition::Down, at_ms);
        }
        let make_one_more = || {
            let (copy, place) = place_for(&table, &chooser, 0, 3)?;
            let mut rebuild = Rebuild::new(0, copy, place);
            while rebuild.step(&table) != Step::Done(End::Whole) {}
            Some(place)
        };
        assert!(survey(&table, 10, 30).tasks.is_empty(), "they are awaited");
        let copies_left = || survey(&table, 100, 30).tasks.first().map(|task| task.copies_left);
        for copies in [1, 2] {
            assert_eq!(copies_left(), Some(copies));
            assert!(make_one_more().is_some(), "{copies}");
        }
        assert_eq!(copies_left(), None);
        // Of the two that were away, the one that had been so for longer has made room.
        let left: Vec<usize> =
            table.snapshot(0).places.iter().flatten().map(|place| usize::from(place.donor)).collect();
        assert!(!left.contains(&first[0]) && left.contains(&first[1]), "{first:?} {left:?}");
        // A last copy that can be reached makes way for none.
        for donor in (0..6).filter(|donor| *donor != first[1]) {
            table.complain(donor, table.donor(donor), Condition::Down, 200);
        }
        assert_eq!(make_one_more(), None);
    }

    #[test]
    fn the_domain_of_a_donor_that_is_away_is_used_where_no_other_can_be_had() {
        let donor = |domain| NewDonor { capacity: 4, domain, text: String::new() };
        let donors: Vec<NewDonor> = [0, 1, 0, 2].map(donor).to_vec();
        let terms = Terms { extents: 1, wanted: 2, least: 1, joining: 0, coding: None };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors, terms);
        // The one of the third domain comes later.
        table.complain(3, table.donor(3), Condition::Down, 1);
        table.complain(2, table.donor(2), Condition::Down, 1);
        let chooser = table.chooser();
        while table.place_next(0, &chooser, 1).is_some_and(|placed| placed.is_ok()) {}
        table.come_up(2, 1);
        table.complain(0, table.donor(0), Condition::Down, 5);
        assert_eq!(survey(&table, 100, 30).tasks.len(), 1);
        let chosen = || place_for(&table, &chooser, 0, 3).map(|(_, place)| place.donor);
        assert_eq!(chosen(), Some(2), "beside the dead one in its domain");
        table.come_up(3, 1);
        assert_eq!(chosen(), Some(3), "a domain of its own comes first");
    }

    #[test]
    fn an_extent_that_has_its_place_keeps_its_memory_while_that_donor_is_well() {
        let donors = [NewDonor { capacity: 1, domain: 0, text: String::new() }];
        let terms = Terms { extents: 3, wanted: 1, least: 1, joining: 0, coding: None };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors, terms);
        let chooser = table.chooser();
        let keeps = || [0, 1, 2].map(|extent| table.keeps_memory_for(extent));
        assert_eq!(keeps(), [false; 3]);
        while let Some(Ok(())) = table.place_next(1, &chooser, 1) {}
        assert!(matches!(table.place_next(2, &chooser, 1), Some(Err(_))), "the donor is full");
        assert_eq!(keeps(), [false, true, false]);
        table.complain(0, table.donor(0), Condition::Down, 1);
        assert_eq!(keeps(), [false; 3]);
        table.come_up(0, 1);
        assert_eq!(keeps(), [false, true, false]);
        table.begin_life(0, 2);
        table.come_up(0, 2);
        assert_eq!(keeps(), [false; 3], "what it had is gone");
    }
}
