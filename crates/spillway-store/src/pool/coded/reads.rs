//! Reading coded pages: each from the donor that has it, or decoded from others where that one is away,
//! silent or gives it wrong. All donors are asked before any of them is waited for.

use std::sync::Arc;
use std::time::Duration;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::code::Code;
use spillway_pool::slabs::locate::{Found, Reading, donors_of_slot, locate, still_counts};
use spillway_pool::slabs::room::MAX_PARTS;
use spillway_pool::table::Table;
use spillway_pool::words::{Condition, Place};

use super::check::Checker;
use crate::nbd::sleep;
use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, Shared, now_ms};
use crate::{Event, ReadRequest, StoreError};

/// Pauses between attempts while too few donors of a page answer.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Most pages that are read to decode others of them, at once.
const MOST_SOURCES: usize = 256;

/// Who reads, and with what patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// A program's thread, which waits for its pages and knows them by their seals.
    Program,
    /// The supervisor, which comes again, and knows pages by their checks alone.
    Keeper,
}

/// What one thread reads with.
pub(super) struct Reads {
    pub(super) lanes: DonorLanes,
    code: Code,
    checker: Checker,
    reader: Reader,
    /// Pages of which others are decoded.
    sources: Vec<Page>,
    /// How the pages of the last batch were read that came.
    pub(super) last: Vec<(u32, Reading)>,
}

/// A page that is to be read: its place in the batch, and the parts that were tried.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) index: usize,
    pub(super) tried: u16,
}

/// A page that is being read.
struct Asked {
    open: Open,
    reading: Reading,
    /// Where its sources begin.
    first_source: usize,
    /// Parts that did not come.
    failed: u16,
}

/// One page that some donor is asked for.
struct Want {
    asked: usize,
    part: usize,
    place: Place,
    /// Where it goes to: none where it is the page itself.
    source: Option<usize>,
}

static ZEROS: Page = [0; PAGE_SIZE];

/// The slot of a row on a part's donor.
pub(super) fn slot_of(place: Place, row: u16) -> u32 {
    place.extent * EXTENT_SLOTS + u32::from(row)
}

impl Reads {
    pub(super) fn new(shared: Arc<Shared>, code: Code, reader: Reader) -> Self {
        let checker = Checker::of_run(&shared.token);
        let lanes = DonorLanes::new(shared);
        Self { lanes, code, checker, reader, sources: Vec::new(), last: Vec::new() }
    }

    fn purpose(&self) -> Purpose {
        match self.reader {
            Reader::Program => Purpose::Read,
            Reader::Keeper => Purpose::Write,
        }
    }

    pub(super) fn all(batch: &[ReadRequest<'_>]) -> Vec<Open> {
        (0..batch.len()).map(|index| Open { index, tried: 0 }).collect()
    }

    /// Reads pages until each has come, is lost, or was waited for long enough.
    pub(super) fn read(&mut self, batch: &mut [ReadRequest<'_>], mut open: Vec<Open>) {
        let since_ms = now_ms();
        let (mut pause, mut at_last, mut has_told) = (FIRST_PAUSE, false, false);
        let shared = Arc::clone(&self.lanes.shared);
        loop {
            let mut waiting = Vec::new();
            while !open.is_empty() {
                open = self.attempt(batch, open, &mut waiting, at_last);
            }
            let now = now_ms();
            waiting.retain(|page| {
                let donors = donors_of_slot(&shared.table(), batch[page.index].slot);
                let until_ms = shared.waits_until_for(&donors, since_ms);
                let is_over = (at_last && self.reader == Reader::Keeper) || now >= until_ms;
                if is_over {
                    batch[page.index].outcome = Err(shared.parts_out_of_reach(&donors));
                } else {
                    has_told |= self.lanes.tell_waiting_for(&donors, until_ms, since_ms, now);
                }
                !is_over
            });
            if waiting.is_empty() {
                break;
            }
            if at_last {
                sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            // From now on those that are said to be away are asked too.
            at_last = true;
            open = waiting.into_iter().map(|page| Open { tried: 0, ..page }).collect();
        }
        if has_told {
            shared.hear(Event::Answering);
        }
    }

    /// Asks for pages once; returns those that are to be asked for anew. What cannot be had now is `waiting`.
    fn attempt(
        &mut self,
        batch: &mut [ReadRequest<'_>],
        open: Vec<Open>,
        waiting: &mut Vec<Open>,
        at_last: bool,
    ) -> Vec<Open> {
        let shared = Arc::clone(&self.lanes.shared);
        let table = shared.table();
        let (mut asked, mut again, mut sources) = (Vec::new(), Vec::new(), 0);
        for page in open {
            let request = &mut batch[page.index];
            match locate(&table, request.slot, page.tried, at_last) {
                Found::At(_) if sources + MAX_PARTS > MOST_SOURCES => again.push(page),
                Found::At(reading) => {
                    let first_source = sources;
                    sources += if reading.is_direct() { 0 } else { reading.parts().count() };
                    asked.push(Asked { open: page, reading, first_source, failed: 0 });
                }
                Found::Later => waiting.push(page),
                Found::Lost => {
                    let donors = donors_of_slot(&table, request.slot);
                    request.outcome = Err(shared.parts_lost(&donors));
                }
            }
        }
        self.fetch(&table, batch, &mut asked, false);
        for asked in asked {
            again.extend(self.look_at(&table, batch, &asked));
        }
        again
    }

    /// Has donors send what is asked for. `is_posted` where they were sent the questions before.
    fn fetch(
        &mut self,
        table: &Table<'_>,
        batch: &mut [ReadRequest<'_>],
        asked: &mut [Asked],
        is_posted: bool,
    ) {
        let wants = wants(asked);
        let needed = wants.iter().filter(|want| want.source.is_some()).count();
        self.sources.resize(needed.max(self.sources.len()), ZEROS);
        let mut sources = std::mem::take(&mut self.sources);
        {
            let mut own: Vec<Option<&mut Page>> =
                batch.iter_mut().map(|request| Some(&mut *request.page)).collect();
            let mut others: Vec<Option<&mut Page>> = sources.iter_mut().map(Some).collect();
            let groups: Vec<&[Want]> =
                wants.chunk_by(|one, next| one.place.donor == next.place.donor).collect();
            let slot = |asked: &[Asked], want: &Want| slot_of(want.place, asked[want.asked].reading.seat.row);
            if groups.len() > 1 && !is_posted {
                for group in &groups {
                    if let Some(lane) = self.lane_of(group[0].place) {
                        let slots: Vec<u32> = group.iter().map(|want| slot(asked, want)).collect();
                        lane.post_reads(&slots);
                    }
                }
            }
            let is_posted = is_posted || groups.len() > 1;
            for group in groups {
                let mut requests: Vec<ReadRequest<'_>> = Vec::with_capacity(group.len());
                for want in group {
                    let page = match want.source {
                        Some(source) => others[source].take(),
                        None => own[asked[want.asked].open.index].take(),
                    };
                    let Some(page) = page else { continue };
                    requests.push(ReadRequest { slot: slot(asked, want), page, outcome: Ok(()) });
                }
                let came = self.read_of(table, group[0].place, &mut requests, is_posted);
                for (want, came) in group.iter().zip(came) {
                    asked[want.asked].failed |= u16::from(!came) << want.part;
                }
            }
        }
        self.sources = sources;
    }

    /// This thread's lane to the donor of a place, in the life of the place.
    fn lane_of(&mut self, place: Place) -> Option<&mut Box<dyn crate::Lane>> {
        let purpose = self.purpose();
        let (lane, way) = self.lanes.lane(usize::from(place.donor), purpose).ok()?;
        (way.word().life == place.life).then_some(lane)
    }

    /// Reads pages of one donor; says which came.
    fn read_of(
        &mut self,
        table: &Table<'_>,
        place: Place,
        requests: &mut [ReadRequest<'_>],
        is_posted: bool,
    ) -> Vec<bool> {
        let (shared, donor) = (Arc::clone(&self.lanes.shared), usize::from(place.donor));
        let purpose = self.purpose();
        let none = vec![false; requests.len()];
        let Ok((lane, way)) = self.lanes.lane(donor, purpose) else { return none };
        if way.word().life != place.life {
            return none;
        }
        if is_posted {
            lane.complete_reads(requests);
        } else {
            lane.read(requests);
        }
        if requests.iter().any(|request| matches!(request.outcome, Err(StoreError::Gone { .. }))) {
            let condition = if purpose == Purpose::Read { Condition::Suspect } else { Condition::Down };
            shared.complain(donor, way.word(), condition);
        }
        let came: Vec<bool> = requests.iter().map(|request| request.outcome.is_ok()).collect();
        table.count_fetched(donor, came.iter().filter(|came| **came).count() as u64);
        came
    }

    /// What has come of a page: it is done, or is to be asked for anew.
    fn look_at(&mut self, table: &Table<'_>, batch: &mut [ReadRequest<'_>], asked: &Asked) -> Option<Open> {
        let Asked { open, reading, failed, .. } = asked;
        let request = &mut batch[open.index];
        let again = |tried: u16| Some(Open { tried, ..*open });
        if *failed != 0 {
            return again(open.tried | failed);
        }
        if !still_counts(table, request.slot, reading) {
            return again(0);
        }
        let wrong = match reading.is_direct() {
            true => self.is_wrong(table, reading, usize::from(reading.seat.part), request.page),
            false => self.decode(table, asked, request.page),
        };
        if let Some(part) = wrong {
            table.hurt(reading.seat);
            return again(open.tried | 1 << part);
        }
        request.outcome = Ok(());
        self.last.push((request.slot, *reading));
        None
    }

    /// Of a page that was read itself: its part, where it is not what was written.
    fn is_wrong(&self, table: &Table<'_>, reading: &Reading, part: usize, page: &Page) -> Option<usize> {
        let is_looked_at = self.reader == Reader::Keeper || !reading.is_direct();
        let check = || table.check(reading.seat.slab, part, reading.seat.row);
        (is_looked_at && self.checker.check(page) != check()).then_some(part)
    }

    /// Decodes a page; the part that is not what was written, if one is.
    fn decode(&self, table: &Table<'_>, asked: &Asked, page: &mut Page) -> Option<usize> {
        let Asked { reading, first_source, .. } = asked;
        let mut rows: [Option<&[u8]>; MAX_PARTS] = [None; MAX_PARTS];
        let data = self.code.data();
        (0..data).filter(|part| reading.zeros >> part & 1 == 1).for_each(|part| rows[part] = Some(&ZEROS));
        for (number, (part, _)) in reading.parts().enumerate() {
            let source = &self.sources[first_source + number];
            if part < data && self.is_wrong(table, reading, part, source).is_some() {
                return Some(part);
            }
            rows[part] = Some(source);
        }
        let own = usize::from(reading.seat.part);
        if self.code.decode(&rows[..self.code.parts()], own, page) {
            self.is_wrong(table, reading, own, page)?;
        }
        // The pages are right, so some parity is not.
        Some(reading.parts().map(|(part, _)| part).find(|part| *part >= data).unwrap_or(own))
    }

    /// Sends for the pages that are read from one donor each.
    pub(super) fn post(&mut self, slots: &[u32]) -> Posted {
        let shared = Arc::clone(&self.lanes.shared);
        let table = shared.table();
        let mut asked = Vec::new();
        for (index, &slot) in slots.iter().enumerate() {
            // What cannot be sent for at once is sent for at completion.
            if let Found::At(reading) = locate(&table, slot, 0, false)
                && reading.is_direct()
            {
                let open = Open { index, tried: 0 };
                asked.push(Asked { open, reading, first_source: 0, failed: 0 });
            }
        }
        for group in wants(&asked).chunk_by(|one, next| one.place.donor == next.place.donor) {
            let own: Vec<u32> =
                group.iter().map(|want| slot_of(want.place, asked[want.asked].reading.seat.row)).collect();
            if let Some(lane) = self.lane_of(group[0].place) {
                lane.post_reads(&own);
            }
        }
        Posted { slots: slots.to_vec(), asked }
    }

    /// Fetches what was posted, and reads what does not come so.
    pub(super) fn complete(&mut self, mut posted: Posted, batch: &mut [ReadRequest<'_>]) {
        let shared = Arc::clone(&self.lanes.shared);
        let table = shared.table();
        self.fetch(&table, batch, &mut posted.asked, true);
        let mut open = Self::all(batch);
        for asked in &posted.asked {
            open.retain(|page| page.index != asked.open.index);
            open.extend(self.look_at(&table, batch, asked));
        }
        self.read(batch, open);
    }
}

/// Reads that are under way.
pub(super) struct Posted {
    pub(super) slots: Vec<u32>,
    asked: Vec<Asked>,
}

/// What each donor is asked for, donor by donor.
fn wants(asked: &[Asked]) -> Vec<Want> {
    let mut wants = Vec::new();
    for (number, page) in asked.iter().enumerate() {
        let is_direct = page.reading.is_direct();
        for (at, (part, place)) in page.reading.parts().enumerate() {
            let source = (!is_direct).then_some(page.first_source + at);
            wants.push(Want { asked: number, part, place, source });
        }
    }
    // Stable, so pages of one donor stay in the order of the batch.
    wants.sort_by_key(|want| want.place.donor);
    wants
}
