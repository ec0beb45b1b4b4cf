//! One worker that empties slabs: it reads the pages that live in many rows at once, each part of a row one
//! time, and writes them to other slabs. A slab that it cannot go on with, since a donor died under it, it
//! gives back: what lives there is found again by the next look.

use std::sync::Arc;
use std::time::Instant;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::code::Code;
use spillway_pool::gather::RowPlan;
use spillway_pool::slabs::append::Item;
use spillway_pool::slabs::room::{MAX_PARTS, MOVED_STREAM};
use spillway_pool::slabs::slab::SlabSeen;
use spillway_pool::slabs::words::Seat;
use spillway_pool::table::Table;

use super::check::Checker;
use super::reads::slot_of;
use super::writes::{Writes, Written};
use crate::ReadRequest;
use crate::pool::crew::Turn;
use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, Shared};

/// Pages that are moved at once: so many that what donors are asked for is large, so few that a worker takes
/// little memory.
const MOST_PAGES: usize = 256;
/// The same while somebody waits for pages, whose requests come between two of these.
const FEW_PAGES: usize = 64;
/// Rows that these may be of: of a row in which little lives as much may be read as of a full one.
const MOST_ROWS: usize = 128;
/// Slabs into which the same pages are written anew, where a donor does not take its part.
const MOST_ATTEMPTS: u32 = 4;

static ZEROS: Page = [0; PAGE_SIZE];

/// A page that lives in a slab: where it is, and of which slot.
pub(super) type Live = (Seat, u32);

/// How emptying a slab went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing lives in it.
    Empty,
    /// Pages are left that cannot be had.
    PartlyLost,
    /// There is no room for its pages.
    NoRoom,
    /// Pages are left for the next look to find.
    GivenBack,
}

/// What a worker empties slabs with.
pub(super) struct Mover {
    lanes: DonorLanes,
    code: Code,
    checker: Checker,
    writes: Writes,
    /// Pages of the rows that are moved.
    pages: Vec<Page>,
}

/// A row that is read.
struct Row<'a> {
    live: &'a [Live],
    plan: RowPlan,
    /// Where its pages begin: those that are read, then those that are decoded.
    first: usize,
    /// Parts that did not come, or came wrong.
    tried: u16,
}

impl Row<'_> {
    /// Where the page of a part is, which is read or decoded.
    fn page_of(&self, part: usize) -> usize {
        let before = |parts: u16| (parts & ((1 << part) - 1)).count_ones() as usize;
        match self.plan.read >> part & 1 {
            1 => self.first + before(self.plan.read),
            _ => self.first + self.plan.reads() + before(self.plan.decoded),
        }
    }

    fn pages(&self) -> usize {
        self.plan.reads() + self.plan.decoded.count_ones() as usize
    }
}

/// How many of these pages are moved at once: those of whole rows, as far as they are at most so many, and of
/// one row in any case.
fn chunk_of(live: &[Live], most_pages: usize) -> usize {
    let mut end = 0;
    for row in live.chunk_by(|(one, _), (next, _)| one.row == next.row).take(MOST_ROWS) {
        if end > 0 && end + row.len() > most_pages {
            break;
        }
        end += row.len();
    }
    end
}

impl Mover {
    pub(super) fn new(shared: &Arc<Shared>, code: Code) -> Self {
        Self {
            lanes: DonorLanes::new(Arc::clone(shared)),
            checker: Checker::of_run(&shared.token),
            writes: Writes::new(code.clone(), MOVED_STREAM),
            code,
            pages: Vec::new(),
        }
    }

    /// Its connections, for what else it has to ask donors.
    pub(super) fn lanes(&mut self) -> &mut DonorLanes {
        &mut self.lanes
    }

    /// Moves pages of a slab that was fenced to others; `live` are in the order of their rows. Asks before
    /// each part of them whether it may go on, and says of how many bytes it has moved pages.
    pub(super) fn empty(
        &mut self,
        turn: Turn<'_>,
        mut live: &[Live],
        may_go_on: impl Fn() -> bool,
        moved: impl Fn(u64),
    ) -> End {
        let mut is_whole = true;
        while !live.is_empty() {
            if !may_go_on() {
                return End::GivenBack;
            }
            let begin = Instant::now();
            let most_pages = if turn.makes_way() { FEW_PAGES } else { MOST_PAGES };
            let (chunk, rest) = live.split_at(chunk_of(live, most_pages));
            live = rest;
            let table = turn.site.shared.table();
            // What was dropped or written anew since is not there any more.
            let is_there = |(seat, slot): &&Live| table.seat(*slot) == Some(*seat);
            let chunk: Vec<Live> = chunk.iter().filter(is_there).copied().collect();
            let had = self.read(&table, &chunk);
            is_whole &= had.len() == chunk.len();
            let bytes = (had.len() * PAGE_SIZE) as u64;
            match self.move_all(turn, had) {
                Written::Stored(_) => {
                    moved(bytes);
                    turn.note_copied(bytes, begin.elapsed());
                }
                Written::Again => return End::GivenBack,
                Written::NoRoom | Written::NoDonor => return End::NoRoom,
            }
        }
        if is_whole { End::Empty } else { End::PartlyLost }
    }

    /// Reads pages, which are of one slab; those that came right, and where they are in [`Self::pages`].
    fn read(&mut self, table: &Table<'_>, live: &[Live]) -> Vec<(Item, usize)> {
        let Some(&(Seat { slab, generation, .. }, _)) = live.first() else { return Vec::new() };
        let seen = table.see_slab(slab);
        if seen.word.generation != generation {
            return Vec::new();
        }
        let mut rows: Vec<Row<'_>> = live
            .chunk_by(|(one, _), (next, _)| one.row == next.row)
            .map(|live| Row { live, plan: RowPlan::default(), first: 0, tried: 0 })
            .collect();
        let (mut had, mut used) = (Vec::with_capacity(live.len()), 0);
        // Each time at least one part more of a row was tried.
        while !rows.is_empty() {
            for row in &mut rows {
                let wanted = row.live.iter().fold(0, |all, (seat, _)| all | 1 << seat.part);
                row.plan = RowPlan::new(table, (slab, &seen), row.live[0].0.row, wanted, row.tried);
                row.first = used;
                used += row.pages();
            }
            self.pages.resize(used.max(self.pages.len()), ZEROS);
            self.fetch(&seen, &mut rows);
            rows.retain_mut(|row| !self.is_done(table, row, &mut had));
        }
        had
    }

    /// Has all donors at once send what is planned of the rows. What does not come counts as tried.
    fn fetch(&mut self, seen: &SlabSeen, rows: &mut [Row<'_>]) {
        let mut pages: Vec<Option<&mut Page>> = self.pages.iter_mut().map(Some).collect();
        let reads = |row: &&Row<'_>, part: usize| row.plan.read >> part & 1 == 1;
        let places = || (0..).zip(seen.places).filter_map(|(part, place)| Some((part, place?)));
        for (part, place) in places() {
            let of_part = rows.iter().filter(|row| reads(row, part));
            let slots: Vec<u32> = of_part.map(|row| slot_of(place, row.plan.row)).collect();
            if !slots.is_empty() {
                self.lanes.post_at(place, Purpose::Write, &slots);
            }
        }
        for (part, place) in places() {
            let mut requests = Vec::new();
            for row in rows.iter().filter(|row| reads(row, part)) {
                let Some(page) = pages[row.page_of(part)].take() else { continue };
                requests.push(ReadRequest { slot: slot_of(place, row.plan.row), page, outcome: Ok(()) });
            }
            if requests.is_empty() {
                continue;
            }
            // With a write's patience: there may be no other part to ask.
            let came = self.lanes.fetch_at(place, Purpose::Write, &mut requests);
            let of_part = rows.iter_mut().filter(|row| row.plan.read >> part & 1 == 1);
            for (row, came) in of_part.zip(came) {
                row.tried |= u16::from(!came) << part;
            }
        }
    }

    /// Whether no more of a row's pages can be had than `had` has by now: else it is to be read anew.
    fn is_done(&mut self, table: &Table<'_>, row: &mut Row<'_>, had: &mut Vec<(Item, usize)>) -> bool {
        if row.plan.read & row.tried != 0 {
            return false;
        }
        let Some(&(seat, _)) = row.live.first() else { return true };
        self.decode(row);
        let check_of = |part: usize| self.checker.check(&self.pages[row.page_of(part)]);
        let wrong = row.plan.wrong_parts(table, seat.slab, check_of);
        if wrong != 0 {
            table.hurt(seat);
            row.tried |= wrong;
            return false;
        }
        let parts: Vec<usize> = row.plan.had().collect();
        for &(seat, slot) in row.live.iter().filter(|(seat, _)| parts.contains(&usize::from(seat.part))) {
            let part = usize::from(seat.part);
            let check = table.check(seat.slab, part, seat.row);
            had.push((Item { slot, check, from: Some(seat) }, row.page_of(part)));
        }
        true
    }

    /// Computes the pages of a row that were not read.
    fn decode(&mut self, row: &Row<'_>) {
        let (sources, decoded) = self.pages[row.first..][..row.pages()].split_at_mut(row.plan.reads());
        let mut parts: [Option<&[u8]>; MAX_PARTS] = [None; MAX_PARTS];
        let is_zeros = |part: &usize| row.plan.zeros >> part & 1 == 1;
        (0..MAX_PARTS).filter(is_zeros).for_each(|part| parts[part] = Some(&ZEROS));
        row.plan.parts().zip(&*sources).for_each(|(part, page)| parts[part] = Some(page));
        let wanted = (0..MAX_PARTS).filter(|part| row.plan.decoded >> part & 1 == 1);
        for (part, page) in wanted.zip(decoded) {
            // What could not be decoded is found to be wrong by its check.
            let _ = self.code.decode(&parts[..self.code.parts()], part, page);
        }
    }

    /// Writes pages to other slabs, neighbours beside each other.
    fn move_all(&mut self, turn: Turn<'_>, mut had: Vec<(Item, usize)>) -> Written {
        had.sort_unstable_by_key(|(item, _)| item.slot);
        let (all, mut attempts) = (had.len(), 0);
        while !had.is_empty() {
            let items = had.iter().map(|(item, _)| *item).collect();
            let pages: Vec<&Page> = had.iter().map(|(_, at)| &self.pages[*at]).collect();
            match self.writes.append(&mut self.lanes, items, &pages) {
                Written::Stored(count) => drop(had.drain(..count)),
                Written::Again if attempts + 1 < MOST_ATTEMPTS && !turn.site.is_over() => attempts += 1,
                other => return other,
            }
        }
        Written::Stored(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_by_whole_rows() {
        let at = |row: u16, part: u8| (Seat { generation: 1, slab: 2, part, row }, u32::from(row));
        let live = [at(0, 0), at(0, 3), at(4, 1), at(9, 0), at(9, 1), at(9, 2)];
        assert_eq!([1, 2, 3, 5, 6, 9].map(|most| chunk_of(&live, most)), [2, 2, 3, 3, 6, 6]);
        assert_eq!(chunk_of(&[], 4), 0);
        let many: Vec<Live> = (0..500).map(|row| at(row, 1)).collect();
        assert_eq!([64, 256].map(|most| chunk_of(&many, most)), [64, MOST_ROWS]);
    }

    #[test]
    fn pages_that_are_read_come_before_those_that_are_decoded() {
        let plan = RowPlan { row: 1, wanted: 0b1111, read: 0b11_1010, decoded: 0b0101, zeros: 0 };
        let row = Row { live: &[], plan, first: 10, tried: 0 };
        assert_eq!([1, 3, 4, 5, 0, 2].map(|part| row.page_of(part)), [10, 11, 12, 13, 14, 15]);
        assert_eq!(row.pages(), 6);
    }
}
