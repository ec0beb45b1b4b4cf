//! What lives where, and what follows: which slabs to empty, the most endangered first.
//!
//! *Compaction*: of slabs in which much is dead, what lives is moved elsewhere, and their memory goes back to
//! the donors. The deadest slabs first, since they give most memory back for what is moved; no more of them
//! than it takes; and none whose pages have no room elsewhere. What is moved goes to a slab of its own, not
//! among what is new: it was left over once, so it is likely to live on. How much is moved for a page that is
//! written, by [`MOST_DEAD_PERCENT`], is measured in `tests/compaction.rs`.

use spillway_core::page::PAGE_SIZE;

use crate::placement::capacity;
use crate::slabs::make::{Fitting, available, fitting, free_numbers, most_fresh_slabs, numbers_for};
use crate::slabs::room::{FRESH_STREAMS, MOVED_STREAM, STREAMS};
use crate::slabs::slab::SlabSeen;
use crate::slabs::words::{SlabPhase, SlabWord};
use crate::table::Table;
use crate::words::{Condition, Place};

/// For a hundred pages that live so many may be dead before slabs are emptied for that. Ten is the promise:
/// the rest is for what dies until the next look.
const MOST_DEAD_PERCENT: u64 = 9;
/// A slab of which fewer than so many of a hundred pages are dead is never worth it.
pub(crate) const LEAST_GAIN_PERCENT: u64 = 5;
/// Nor one of which no more is dead than so many rows: the last row of what is moved at a time is not full,
/// and there must be an end to it.
const LEAST_GAIN_ROWS: u64 = 2;
/// Any stream of what is new: there is the same room for all of them.
const FRESH_STREAM: usize = 0;
/// Room is short where donors have fewer extents free than one of so many; the same of numbers of slabs.
const SHORT_OF: u64 = 8;
/// And where they have no room for so many slabs.
const SHORT_SLABS: u64 = 4;

/// A look over all slots: how many live in each slab.
#[derive(Clone, Debug)]
pub struct Census {
    /// Each slab's word when the look began, and how many slots named it.
    of: Vec<(SlabWord, u32)>,
    next: u32,
    /// How many pages had been forgotten when it began.
    pub(crate) forgotten: u64,
    /// What had happened by which room may come, when it began.
    pub(crate) room_news: u64,
}

impl Census {
    /// Begins to look, at the first slab.
    #[must_use]
    pub fn begin(table: &Table<'_>) -> Self {
        let (forgotten, room_news) = (table.forgotten(), table.room_news());
        let of = (0..table.slabs()).map(|slab| (table.slab(slab), 0)).collect();
        Self { of, next: 0, forgotten, room_news }
    }

    /// Looks at up to `count` slots more; true once it has seen all.
    pub fn go_on(&mut self, table: &Table<'_>, count: u32) -> bool {
        let end = self.next.saturating_add(count).min(table.slots());
        for slot in self.next..end {
            let Some(seat) = table.seat(slot) else { continue };
            let Some((word, live)) = self.of.get_mut(seat.slab as usize) else { continue };
            *live += u32::from(word.generation == seat.generation);
        }
        self.next = end;
        self.next == table.slots()
    }

    /// How many slots named a slab.
    #[must_use]
    pub fn live(&self, slab: u32) -> u32 {
        self.of[slab as usize].1
    }

    /// Retires slabs in which nothing lives, and to which nothing could come since before the look.
    pub fn retire(&self, table: &Table<'_>) {
        for (slab, &(word, live)) in (0..).zip(&self.of) {
            let is_fenced = word.phase == SlabPhase::Fenced
                || (word.phase == SlabPhase::Open && table.planted("retired-without-a-fence"));
            let now = table.slab(slab);
            if live == 0 && is_fenced && now.generation == word.generation && now.phase == word.phase {
                let _ = table.change_slab(slab, now, SlabWord { phase: SlabPhase::Retired, ..now });
            }
        }
    }
}

/// Why a slab is to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Parts of it are lost, or on a donor that leaves, or a page of it came wrong.
    Endangered,
    /// Parts of it are in the last resort, and donors have room for them again.
    Spilled,
    /// Much of it is dead.
    Sparse,
}

/// A slab to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The slab to be emptied.
    pub slab: u32,
    /// The generation that it was seen in.
    pub generation: u32,
    /// Why it is to be emptied.
    pub reason: Reason,
    /// Parts that can be reached: the fewer, the more urgent.
    pub parts_left: usize,
    /// Pages that live in it.
    pub live: u32,
}

impl Task {
    /// Whether there is more room afterwards, for what is new.
    pub(crate) fn makes_room(&self) -> bool {
        self.live == 0 || self.reason != Reason::Endangered
    }
}

/// What a look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Bytes of pages of which fewer parts than wanted can be reached.
    pub endangered_bytes: u64,
    /// Those of them with parts on donors that went a moment ago, and are waited for.
    pub awaited_bytes: u64,
    /// The same of which so few can be reached that some pages cannot be had now.
    pub unreachable_bytes: u64,
    /// Slabs of which too few parts are left for good.
    pub lost: Vec<(u32, u32)>,
    /// Slabs to be emptied, the most endangered first.
    pub tasks: Vec<Task>,
    /// Bytes of parts that are in the last resort.
    pub spilled_bytes: u64,
    /// Pages that live in all slabs.
    pub live_pages: u64,
    /// Pages that the rows given out hold, dead or alive, and rows that are never to be given out.
    pub held_pages: u64,
    /// Donors have less free than they should, or few numbers of slabs are.
    pub is_short: bool,
    /// No slab, or one, can be made for what is new: who moves pages to make room is not to rest.
    pub is_urgent: bool,
    /// No slab can be made for what is new, and no donor is away that is to come back soon.
    pub is_full: bool,
    /// Then there is none for what is moved either, with all its parts: no slab can be emptied.
    pub is_stuck: bool,
    /// Once what is dead is cleared away, donors that are there will have room for more than lives.
    pub is_room_coming: bool,
    /// The same, and for all parts of it.
    pub is_whole_room_coming: bool,
}

impl Findings {
    /// Whether who finds no room is to wait for it: what lives would leave some, and something is done for
    /// that, be it that slabs are emptied or that what they had is given back. Of what is dead some always
    /// stays, for a slab with too little of it is not worth emptying.
    #[must_use]
    pub fn is_room_being_made(&self, is_given_back: bool) -> bool {
        self.is_room_coming && (is_given_back || !self.tasks.is_empty())
    }

    /// Whether what is moved must do with fewer parts for there to be room again ([`Table::set_narrow`]):
    /// no donor is waited for, and no memory of donors is about to be given back.
    #[must_use]
    pub fn needs_narrow(&self, is_given_back: bool) -> bool {
        self.is_stuck && !is_given_back
    }

    /// Whether there is no room and nothing is done for it: too little is dead anywhere.
    pub(crate) fn brings_no_room(&self, is_given_back: bool) -> bool {
        self.is_full && self.tasks.is_empty() && !is_given_back
    }
}

/// What follows from a look. A donor that is down counts as one that comes back for `patience_ms` after it
/// went.
#[must_use]
pub fn judge(table: &Table<'_>, census: &Census, now_ms: u64, patience_ms: u64) -> Findings {
    let mut found = Findings::default();
    let (mut sparse, mut returns) = (Vec::new(), Vec::new());
    let free = free_numbers(table);
    let possible = parts_by_moves(table, free);
    found.is_short = is_short(table, free);
    let fresh = available(table, FRESH_STREAM, free);
    found.is_urgent = fresh.is_none_or(|fresh| fresh.slabs <= 1);
    let is_away = |donor| is_to_be_back(table, donor, now_ms, patience_ms);
    found.is_full = fresh.is_some_and(|fresh| fresh.slabs == 0) && !(0..table.donors()).any(is_away);
    let moved = fitting(table, MOVED_STREAM);
    found.is_stuck = found.is_full && moved.is_some_and(|moved| moved.slabs == 0);
    let width = moved.map_or(0, |moved| moved.worth(table));
    let mut returning = Returning::of(table, fresh);
    let slab_pages = u64::from(table.rows()) * table.data_parts() as u64;
    for slab in 0..table.slabs() {
        let seen = table.see_slab(slab);
        if !matches!(seen.word.phase, SlabPhase::Open | SlabPhase::Fenced) {
            continue;
        }
        let (generation, live) = (seen.word.generation, census.live(slab));
        let is_filling = table.is_in_stream(slab, generation) && table.takes_pages(&seen);
        let held =
            if is_filling { u64::from(seen.word.claimed) * table.data_parts() as u64 } else { slab_pages };
        found.live_pages += u64::from(live);
        found.held_pages += held;
        let parts = Parts::of(table, &seen, now_ms, patience_ms);
        let bytes = u64::from(live) * PAGE_SIZE as u64;
        if live > 0 && parts.left < table.data_parts() {
            found.lost.push((slab, generation));
        }
        // What the last resort can give alone lacks nothing.
        let (spilled, is_safe) = (table.spilled_parts(&seen), table.is_safe_in_spill(&seen));
        if live > 0 && parts.reachable < table.parts() && !is_safe {
            found.endangered_bytes += bytes;
            found.awaited_bytes += if parts.is_awaited { bytes } else { 0 };
            found.unreachable_bytes += if parts.reachable < table.data_parts() { bytes } else { 0 };
        }
        let task = |reason| Task { slab, generation, reason, parts_left: parts.reachable, live };
        found.spilled_bytes += if spilled > 0 { bytes } else { 0 };
        let is_lasting = parts.lasting >= table.parts() || (is_safe && !parts.is_leaving);
        if (!is_lasting && parts.lasting < possible) || seen.word.is_hurt {
            found.tasks.push(task(Reason::Endangered));
        } else if spilled > 0 && returning.takes(parts.lasting - spilled, live) {
            returns.push(task(Reason::Spilled));
        } else if !is_filling && (live == 0 || found.is_short || parts.left <= width) {
            // What has parts on donors that may come back is not moved to where there are fewer.
            sparse.push(task(Reason::Sparse));
        }
    }
    // Of what is lost anyway there is no hurry to save the rest. Where room is short, what is emptied soon
    // gives some to the others.
    let weight = |task: &Task| if found.is_short { task.live } else { 0 };
    found.tasks.sort_by_key(|task| {
        (found.lost.contains(&(task.slab, task.generation)), task.parts_left, weight(task))
    });
    found.is_room_coming = has_room_for(table, found.live_pages.div_ceil(slab_pages.max(1)) + STREAMS as u64);
    let is_for_all_parts = domains_that_stay(table) >= table.parts() || table.open_spill().is_some();
    found.is_whole_room_coming = found.is_room_coming && is_for_all_parts;
    found.tasks.append(&mut returns);
    add_sparse(table, free, &mut found, sparse);
    found
}

/// Chooses slabs to be emptied for what is dead in them: as many as it takes for little to be dead, or all
/// that are worth it where room is short.
fn add_sparse(table: &Table<'_>, free: usize, found: &mut Findings, mut sparse: Vec<Task>) {
    let (rows, data) = (u64::from(table.rows()), table.data_parts() as u64);
    let gain = |task: &Task| (rows * data).saturating_sub(u64::from(task.live));
    let least_gain = (rows * data * LEAST_GAIN_PERCENT / 100).max(LEAST_GAIN_ROWS * data);
    let endangered: u64 = found.tasks.iter().map(|task| u64::from(task.live)).sum();
    let freed: u64 = found.tasks.iter().map(gain).sum();
    let mut dead = found.held_pages.saturating_sub(found.live_pages + freed);
    // What is in danger goes first, but where all room is used up only this makes any.
    let mut room = room_for_moves(table, free).saturating_sub(if found.is_short { 0 } else { endangered });
    sparse.sort_by_key(|task| task.live);
    for task in sparse {
        let live = u64::from(task.live);
        let is_enough = !found.is_short && dead * 100 <= found.live_pages * MOST_DEAD_PERCENT;
        if live > 0 && (is_enough || gain(&task) <= least_gain || live > room) {
            break;
        }
        room -= live;
        dead = dead.saturating_sub(gain(&task));
        found.tasks.push(task);
    }
}

/// Pages for which there is room now, where they are moved.
fn room_for_moves(table: &Table<'_>, free: usize) -> u64 {
    // To the last resort only where what is new has no room at all: else it would take up, for what is dead
    // at donors, what the last resort is for.
    let is_full = available(table, FRESH_STREAM, free).is_none_or(|fresh| fresh.slabs == 0);
    let may_go_to = |moved: &Fitting| is_full || moved.on_donors >= table.data_parts();
    let slabs = available(table, MOVED_STREAM, free).filter(may_go_to).map_or(0, |moved| moved.slabs);
    let rows = u64::from(table.rows()) * u64::from(slabs) + u64::from(table.rows_left(MOVED_STREAM));
    rows * table.data_parts() as u64
}

/// Parts of a slab: those that are there, that can be reached, and that will be.
struct Parts {
    left: usize,
    reachable: usize,
    lasting: usize,
    /// Some cannot be reached, and their donors are waited for.
    is_awaited: bool,
    /// Some are on a donor that leaves.
    is_leaving: bool,
}

impl Parts {
    fn of(table: &Table<'_>, seen: &SlabSeen, now_ms: u64, patience_ms: u64) -> Self {
        let there: Vec<Place> =
            seen.places.iter().flatten().copied().filter(|place| table.is_current(*place)).collect();
        let is_down = |place: &Place| table.donor(usize::from(place.donor)).condition == Condition::Down;
        let lasts = |place: &&Place| {
            let donor = usize::from(place.donor);
            let gone_ms = now_ms.saturating_sub(table.ill_since_ms(donor));
            (!is_down(place) || gone_ms < patience_ms) && !table.is_leaving(donor)
        };
        Self {
            left: there.len(),
            reachable: there.iter().filter(|place| !is_down(place)).count(),
            lasting: there.iter().filter(lasts).count(),
            is_awaited: there.iter().any(|place| is_down(place) && lasts(&place)),
            is_leaving: there.iter().any(|place| table.is_leaving(usize::from(place.donor))),
        }
    }
}

/// What may return from the last resort: slabs that would have more parts on donors, and all that there are
/// donors for, as far as these have room for what is new.
struct Returning {
    on_donors: usize,
    room: u64,
    is_planted: bool,
}

impl Returning {
    /// `fresh`: slabs that can be made for what is new.
    fn of(table: &Table<'_>, fresh: Option<Fitting>) -> Self {
        let fresh = table.spill().and(fresh);
        let most = domains_that_stay(table).min(table.parts());
        let fresh = fresh.filter(|fresh| fresh.on_donors >= most);
        let pages = u64::from(table.rows()) * table.data_parts() as u64;
        let (on_donors, slabs) = fresh.map_or((0, 0), |fresh| (fresh.on_donors, fresh.slabs));
        let is_planted = table.planted("spilled-page-not-returned");
        Self { on_donors, room: u64::from(slabs) * pages, is_planted }
    }

    fn takes(&mut self, on_donors: usize, live: u32) -> bool {
        let fits = on_donors < self.on_donors && live > 0 && u64::from(live) <= self.room && !self.is_planted;
        self.room -= if fits { u64::from(live) } else { 0 };
        fits
    }
}

/// How many parts that count what is moved has afterwards: those of a new slab, or of the one that it goes to
/// now. None where there is no room for it. Where the last resort takes what donors cannot, no more can be
/// wanted.
#[must_use]
pub fn parts_for_moves(table: &Table<'_>) -> usize {
    parts_by_moves(table, free_numbers(table))
}

fn parts_by_moves(table: &Table<'_>, free: usize) -> usize {
    let of_new = available(table, MOVED_STREAM, free).filter(|moved| moved.slabs > 0);
    of_new.map_or(0, |moved| moved.worth(table)).max(table.parts_of_stream(MOVED_STREAM))
}

/// Whether a donor can be reached and does not leave. The last resort is none.
fn stays(table: &Table<'_>, donor: usize) -> bool {
    let is_there = table.donor(donor).condition != Condition::Down && !table.is_leaving(donor);
    is_there && !table.is_spill(donor)
}

/// Whether a donor that cannot be reached now counts as one that comes back: for so long after it went.
#[must_use]
pub fn is_to_be_back(table: &Table<'_>, donor: usize, now_ms: u64, patience_ms: u64) -> bool {
    let gone_ms = || now_ms.saturating_sub(table.ill_since_ms(donor));
    match table.donor(donor).condition {
        Condition::Up => false,
        Condition::Suspect => true,
        Condition::Down => gone_ms() < patience_ms,
    }
}

/// The donors that stay: the domain of each, and what it lends.
fn room_that_stays(table: &Table<'_>) -> Vec<(u32, u32)> {
    let donors = (0..table.donors()).filter(|donor| stays(table, *donor));
    let room = donors.map(|donor| (table.domain(donor), table.room(donor).0));
    room.filter(|(_, extents)| *extents > 0).collect()
}

/// In how many failure domains there are donors that can be reached and do not leave.
#[must_use]
pub fn domains_that_stay(table: &Table<'_>) -> usize {
    let mut domains: Vec<u32> = room_that_stays(table).iter().map(|(domain, _)| *domain).collect();
    domains.sort_unstable();
    domains.dedup();
    domains.len()
}

/// Whether there are numbers for more than so many slabs in all, and the donors that are there, and the last
/// resort, have room for them, whatever is there now.
fn has_room_for(table: &Table<'_>, slabs: u64) -> bool {
    let width = domains_that_stay(table).min(table.parts());
    let is_enough = width >= table.least_copies();
    let of_donors = if is_enough { capacity(&room_that_stays(table), width) } else { 0 };
    let takes_pages = |spill: &usize| table.donor(*spill).condition == Condition::Up;
    let in_spill = table.spill().filter(takes_pages).map_or(0, |spill| table.room(spill).0);
    let room = u64::from(of_donors) + u64::from(in_spill) / table.data_parts().max(1) as u64;
    room.min(most_fresh_slabs(table).into()) > slabs
}

/// Room on donors that are down, or leave, is none.
fn is_short(table: &Table<'_>, free: usize) -> bool {
    let donors = || (0..table.donors()).filter(|donor| stays(table, *donor)).map(|donor| table.room(donor));
    let all: u64 = donors().map(|(capacity, _)| u64::from(capacity)).sum();
    let used: u64 = donors().map(|(_, used)| u64::from(used)).sum();
    let is_room_short = all.saturating_sub(used) < (all / SHORT_OF).max(SHORT_SLABS * table.parts() as u64);
    let numbers = numbers_for(table, FRESH_STREAM, free) as u64;
    is_room_short || numbers < (u64::from(table.slabs()) / SHORT_OF).max(FRESH_STREAMS as u64)
}

/// The slots whose pages are in a slab, as far as `slots` says.
#[must_use]
pub fn slots_in(table: &Table<'_>, slots: std::ops::Range<u32>, slab: u32, generation: u32) -> Vec<u32> {
    let is_there =
        |slot: &u32| table.seat(*slot).is_some_and(|seat| (seat.slab, seat.generation) == (slab, generation));
    slots.filter(is_there).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::slabs::append::{Append, Item, Outcome, Step};
    use crate::slabs::room::{Coding, SPARE_SLABS};
    use crate::table::{Terms, words_of};

    /// Eight donors, and what is coded on six.
    fn words() -> Vec<AtomicU64> {
        let donor = |domain| NewDonor { capacity: 16, domain, text: String::new() };
        let donors: Vec<NewDonor> = (0..8).map(donor).collect();
        let coding = Coding { data: 4, parity: 2, slabs: 16, slots: 64, rows: 4 };
        let terms = Terms { extents: 0, wanted: 6, least: 4, joining: 0, coding: Some(coding) };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, terms);
        words
    }

    fn go_down(table: &Table<'_>, donor: usize) {
        table.complain(donor, table.donor(donor), Condition::Down, 1);
    }

    #[test]
    fn room_on_donors_that_are_down_or_leave_is_none() {
        let words = words();
        let table = Table::known(&words);
        // Of those that stay all but a few extents are taken.
        for donor in 0..4 {
            (0..12).for_each(|_| assert!(table.take_place(donor, 0).is_some()));
        }
        let is_short = || judge(&table, &Census::begin(&table), 1, 1).is_short;
        assert!(!is_short());
        (4..7).for_each(|donor| go_down(&table, donor));
        assert!(!is_short());
        table.set_leaving(7, true);
        assert!(is_short());
    }

    /// Writes pages to all slots.
    fn fill(table: &Table<'_>) {
        let items: Vec<Item> = (0..table.slots()).map(|slot| Item { slot, check: 1, from: None }).collect();
        for items in items.chunks(16) {
            let mut append = Append::new(0, items.to_vec(), 3);
            while !matches!(append.step(table, &table.chooser()), Step::Done(Outcome::Stored { pages: 16 })) {
                let _ = append.sent(table, true, 0);
            }
        }
    }

    /// Writes to a stream until there is no room; how many slabs that has filled.
    fn fill_stream(table: &Table<'_>, stream: usize) -> usize {
        let slabs = 0..2 * table.slabs() as usize;
        let write = |slab: usize| {
            let first = slab as u32 % 4 * 16;
            let item = |slot| Item { slot, check: 1, from: None };
            let mut append = Append::new(stream, (first..first + 16).map(item).collect(), 3);
            loop {
                match append.step(table, &table.chooser()) {
                    Step::Done(outcome) => return outcome,
                    Step::Send(_) => _ = append.sent(table, true, 0),
                    Step::Again | Step::Pause => {}
                }
            }
        };
        slabs.map(write).take_while(|outcome| *outcome == Outcome::Stored { pages: 16 }).count()
    }

    #[test]
    fn numbers_of_slabs_are_kept_for_what_is_moved() {
        let words = words();
        let table = Table::known(&words);
        // Donors have room for more slabs than there are numbers.
        assert!((0..8).map(|donor| table.room(donor).0 as usize).sum::<usize>() > 6 * 16);
        let kept = SPARE_SLABS as usize;
        assert_eq!(fill_stream(&table, FRESH_STREAM), 16 - kept);
        let full = found(&table, 1);
        assert!(full.is_full && full.is_short && full.is_urgent && full.is_room_coming, "{full:?}");
        // Only the last four of them live: the others are emptied, and nothing is in the way of that.
        assert!(full.tasks.iter().filter(|task| task.live == 0).count() >= 16 - kept - 4, "{full:?}");
        assert_eq!(parts_for_moves(&table), 6);
        assert_eq!(fill_stream(&table, MOVED_STREAM), kept);
        assert_eq!(parts_for_moves(&table), 0, "no number is left");
    }

    fn found(table: &Table<'_>, now_ms: u64) -> Findings {
        let mut census = Census::begin(table);
        assert!(census.go_on(table, table.slots()));
        judge(table, &census, now_ms, 10)
    }

    #[test]
    fn pages_are_in_danger_only_where_what_is_moved_would_have_more_parts() {
        let words = words();
        let table = Table::known(&words);
        fill(&table);
        let victim = (0..8).max_by_key(|donor| table.room(*donor).1).unwrap();
        go_down(&table, victim);
        let early = found(&table, 5);
        assert!(early.tasks.is_empty() && early.endangered_bytes > 0, "{early:?}");
        assert_eq!(early.awaited_bytes, early.endangered_bytes, "it may come back");
        let late = found(&table, 20);
        assert!(!late.tasks.is_empty() && late.awaited_bytes == 0 && late.is_whole_room_coming, "{late:?}");
        // There are donors enough, but they are full: what is moved has nowhere to go, until room is made.
        for donor in (0..8).filter(|donor| *donor != victim) {
            while table.take_place(donor, 0).is_some() {}
        }
        let full = found(&table, 20);
        assert!(full.tasks.is_empty() && full.endangered_bytes > 0, "{full:?}");
        assert!(full.is_room_coming && full.is_whole_room_coming, "what is dead there is to be cleared");
        // That is waited for while somebody clears it, and not where too little is dead for that.
        assert_eq!([true, false].map(|is_given_back| full.is_room_being_made(is_given_back)), [true, false]);
        assert!(late.is_room_being_made(false), "slabs are emptied");
        // With fewer donors than parts there is room for some, and never for all.
        let others: Vec<usize> = (0..8).filter(|donor| *donor != victim).take(2).collect();
        others.into_iter().for_each(|donor| go_down(&table, donor));
        let few = found(&table, 20);
        assert!(few.is_room_coming && !few.is_whole_room_coming, "{few:?}");
    }
}
