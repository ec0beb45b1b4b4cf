//! Workers of the supervisor that empty slabs beside each other: each reads the pages of whole rows and moves
//! them.

use spillway_pool::gather::RowPlan;
use spillway_pool::slabs::append::{Append, Item, Outcome, Step};
use spillway_pool::slabs::census::Task;
use spillway_pool::slabs::room::MOVED_STREAM;
use spillway_pool::slabs::words::Seat;
use spillway_pool::words::Condition;

use super::*;

/// Pages that are moved at once, and while somebody waits for pages; and rows that they may be of.
const MOST_PAGES: usize = 2 * DATA;
const FEW_PAGES: usize = DATA + 1;
const MOST_ROWS: usize = 5;

/// A slab that is being emptied.
pub(super) struct Emptying {
    pub(super) task: Task,
    /// What lives in it, in the order of its rows.
    live: Vec<(Seat, u32)>,
    rows: Vec<Row>,
    ready: Vec<(Item, Page)>,
}

/// A row that is being read.
struct Row {
    live: Vec<(Seat, u32)>,
    plan: RowPlan,
    tried: u16,
    came: Vec<(usize, Page)>,
    is_lie: bool,
}

#[derive(Default)]
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
pub(super) enum Work {
    #[default]
    Idle,
    Reading(Emptying),
    Moving(Emptying, Append, Option<Sending>),
}

impl Work {
    /// The slab that is being emptied.
    pub(super) fn slab(&self) -> Option<(u32, u32)> {
        match self {
            Self::Idle => None,
            Self::Reading(Emptying { task, .. }) | Self::Moving(Emptying { task, .. }, ..) => {
                Some((task.slab, task.generation))
            }
        }
    }
}

fn rows_of(live: &[(Seat, u32)]) -> impl Iterator<Item = &[(Seat, u32)]> {
    live.chunk_by(|(one, _), (next, _)| one.row == next.row)
}

/// How many pages are moved at once: those of whole rows.
fn chunk_of(live: &[(Seat, u32)], most_pages: usize) -> usize {
    let mut end = 0;
    for row in rows_of(live).take(MOST_ROWS) {
        if end > 0 && end + row.len() > most_pages {
            break;
        }
        end += row.len();
    }
    end
}

impl Emptying {
    pub(super) fn begin(table: &Table<'_>, task: Task) -> Self {
        let is_in = |seat: &Seat| (seat.slab, seat.generation) == (task.slab, task.generation);
        let mut live: Vec<(Seat, u32)> = (0..SLOTS)
            .filter_map(|slot| Some((table.seat(slot)?, slot)))
            .filter(|(seat, _)| is_in(seat))
            .collect();
        live.sort_unstable_by_key(|(seat, _)| (seat.row, seat.part));
        Self { task, live, rows: Vec::new(), ready: Vec::new() }
    }
}

impl World {
    /// One step of a worker that is at work.
    pub(super) fn go_on(&mut self, table: &Table<'_>, work: Work) -> Result<Work, String> {
        match work {
            Work::Idle => Ok(Work::Idle),
            Work::Reading(emptying) => self.go_on_reading_rows(table, emptying),
            Work::Moving(emptying, append, sending) => {
                Ok(self.go_on_moving(table, emptying, append, sending))
            }
        }
    }

    fn go_on_reading_rows(&mut self, table: &Table<'_>, mut emptying: Emptying) -> Result<Work, String> {
        let slab = emptying.task.slab;
        if !emptying.rows.is_empty() {
            let number = self.dice.below(emptying.rows.len());
            if self.read_row(table, slab, &mut emptying.rows[number])? {
                let row = emptying.rows.swap_remove(number);
                self.keep_pages(table, &mut emptying, row);
            }
            return Ok(Work::Reading(emptying));
        }
        if !emptying.ready.is_empty() {
            let items = emptying.ready.iter().map(|(item, _)| *item).collect();
            let append = Append::new(MOVED_STREAM, items, self.dice.next_u64());
            return Ok(Work::Moving(emptying, append, None));
        }
        let most_pages = if self.chance(2) { FEW_PAGES } else { MOST_PAGES };
        let rest = emptying.live.split_off(chunk_of(&emptying.live, most_pages));
        let mut chunk = std::mem::replace(&mut emptying.live, rest);
        // What was dropped or written anew since is not there any more.
        chunk.retain(|(seat, slot)| table.seat(*slot) == Some(*seat));
        emptying.rows = rows_of(&chunk).map(Row::of).collect();
        emptying.rows.iter_mut().for_each(|row| row.plan(table, slab));
        let is_over = emptying.live.is_empty() && emptying.rows.is_empty();
        Ok(if is_over { Work::Idle } else { Work::Reading(emptying) })
    }

    /// One step of reading a row; whether no more of it is to be had.
    fn read_row(&mut self, table: &Table<'_>, slab: u32, row: &mut Row) -> Result<bool, String> {
        let is_there = |part: &usize| row.came.iter().any(|(came, _)| came == part);
        let next = row.plan.parts().find(|part| !is_there(part));
        if let Some(part) = next {
            let Some(place) = table.see_slab(slab).places[part] else { return Err("a part is gone".into()) };
            let seen = table.donor(usize::from(place.donor));
            match self.read_from(place, row.plan.row) {
                Ok((page, is_lie)) => {
                    row.came.push((part, page));
                    row.is_lie |= is_lie;
                }
                Err(()) => {
                    table.complain(usize::from(place.donor), seen, Condition::Down, self.now);
                    row.try_without(table, slab, 1 << part);
                }
            }
            return Ok(false);
        }
        for part in (0..DATA).filter(|part| row.plan.decoded >> part & 1 == 1) {
            let sources: Vec<(usize, Page)> =
                row.came.iter().copied().filter(|(part, _)| row.plan.read >> part & 1 == 1).collect();
            row.came.push((part, self.decode(part, row.plan.zeros, &sources)));
        }
        let page = |part: usize| row.came.iter().find(|(came, _)| *came == part).map(|(_, page)| *page);
        let wrong = row.plan.wrong_parts(table, slab, |part| page(part).map_or(0, |page| check_of(&page)));
        if wrong == 0 {
            return Ok(true);
        }
        if !row.is_lie {
            return Err(format!("row {} of slab {slab} came wrong though no donor lied", row.plan.row));
        }
        table.hurt(row.live[0].0);
        row.try_without(table, slab, wrong);
        Ok(false)
    }

    fn keep_pages(&mut self, table: &Table<'_>, emptying: &mut Emptying, row: Row) {
        let had: Vec<usize> = row.plan.had().collect();
        for (seat, slot) in row.live.iter().filter(|(seat, _)| had.contains(&usize::from(seat.part))) {
            let part = usize::from(seat.part);
            let Some((_, page)) = row.came.iter().find(|(came, _)| *came == part) else { continue };
            let check = table.check(seat.slab, part, seat.row);
            emptying.ready.push((Item { slot: *slot, check, from: Some(*seat) }, *page));
            self.gathered += u64::from(row.plan.decoded >> part & 1 == 1);
        }
    }

    fn go_on_moving(
        &mut self,
        table: &Table<'_>,
        mut emptying: Emptying,
        mut append: Append,
        mut sending: Option<Sending>,
    ) -> Work {
        let step = match &mut sending {
            Some(under_way) => match self.send_one(table, under_way) {
                None => return Work::Moving(emptying, append, sending),
                Some(is_stored) => {
                    let late = under_way.late;
                    sending = None;
                    append.sent(table, is_stored, late)
                }
            },
            None => append.step(table, &Self::chooser(table)),
        };
        match step {
            Step::Again | Step::Pause => Work::Moving(emptying, append, sending),
            Step::Send(what) => {
                let pages: Vec<Page> = emptying.ready.iter().map(|(_, page)| *page).collect();
                let left = self.messages(&what, &pages);
                Work::Moving(emptying, append, Some(Sending::of(left)))
            }
            Step::Done(Outcome::Stored { pages }) => {
                self.moved += pages as u64;
                self.compacted += if emptying.task.reason == Reason::Sparse { pages as u64 } else { 0 };
                emptying.ready.drain(..pages);
                Work::Reading(emptying)
            }
            // It is given back: the next look finds what is left.
            Step::Done(Outcome::Again | Outcome::NoRoom | Outcome::NoDonor) => Work::Idle,
        }
    }
}

impl Row {
    fn of(live: &[(Seat, u32)]) -> Self {
        let live = live.to_vec();
        Self { live, plan: RowPlan::default(), tried: 0, came: Vec::new(), is_lie: false }
    }

    fn plan(&mut self, table: &Table<'_>, slab: u32) {
        let seen = table.see_slab(slab);
        let wanted = self.live.iter().fold(0, |all, (seat, _)| all | 1 << seat.part);
        self.plan = RowPlan::new(table, (slab, &seen), self.live[0].0.row, wanted, self.tried);
    }

    fn try_without(&mut self, table: &Table<'_>, slab: u32, parts: u16) {
        self.tried |= parts;
        (self.came, self.is_lie) = (Vec::new(), false);
        self.plan(table, slab);
    }
}
