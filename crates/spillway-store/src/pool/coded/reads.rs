//! Reading coded pages: each from the donor that has it, or decoded from others where that one is away, slow,
//! silent or gives it wrong. All donors are asked before any of them is waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::around::locate_quick;
use spillway_pool::code::Code;
use spillway_pool::slabs::locate::{Found, Reading, Refusal, donors_of_slot, refusal, still_counts};
use spillway_pool::slabs::room::MAX_PARTS;
use spillway_pool::table::Table;
use spillway_pool::words::Place;

use super::check::Checker;
use crate::nbd::sleep;
use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, Shared, now_ms};
use crate::{Event, ReadRequest};

/// Pauses between attempts while too few donors of a page answer.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Most pages that are read to decode others of them, at once.
const MOST_SOURCES: usize = 256;

/// What one thread reads with.
pub(super) struct Reads {
    pub(super) lanes: DonorLanes,
    code: Code,
    checker: Checker,
    /// Pages of which others are decoded.
    pub(super) sources: Vec<Page>,
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
pub(super) struct Asked {
    pub(super) open: Open,
    pub(super) reading: Reading,
    /// Where its sources begin.
    pub(super) first_source: usize,
    /// Parts that did not come.
    pub(super) failed: u16,
}

/// One page that some donor is asked for.
pub(super) struct Want {
    /// For which of the pages that are being read.
    pub(super) asked: usize,
    pub(super) part: usize,
    pub(super) place: Place,
    pub(super) row: u16,
    /// Where it goes to: none where it is the page itself.
    pub(super) source: Option<usize>,
}

pub(super) static ZEROS: Page = [0; PAGE_SIZE];

/// The slot of a row on a part's donor.
pub(super) fn slot_of(place: Place, row: u16) -> u32 {
    place.extent * EXTENT_SLOTS + u32::from(row)
}

impl Reads {
    pub(super) fn new(shared: Arc<Shared>, code: Code) -> Self {
        let checker = Checker::of_run(&shared.token);
        let lanes = DonorLanes::new(shared);
        Self { lanes, code, checker, sources: Vec::new(), last: Vec::new() }
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
                let refusal = refusal(&shared.table(), batch[page.index].slot, page.tried);
                // Once tried anew it is known: a file of this machine is waited for by nobody.
                if at_last && refusal == Refusal::ForGood {
                    batch[page.index].outcome = Err(shared.refused_by_resort());
                    return false;
                }
                let donors = donors_of_slot(&shared.table(), batch[page.index].slot);
                let until_ms = shared.waits_until_for(&donors, since_ms);
                let is_over = now >= until_ms;
                if is_over {
                    batch[page.index].outcome = Err(shared.parts_out_of_reach(&donors, refusal));
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
            match locate_quick(&table, request.slot, page.tried, at_last) {
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
        self.fetch(batch, &mut asked, None);
        for asked in asked {
            again.extend(self.look_at(&table, batch, &asked));
        }
        again
    }

    /// Has donors send what is asked for. `posted` says since when they are at it, if they were sent the
    /// questions before.
    fn fetch(&mut self, batch: &mut [ReadRequest<'_>], asked: &mut [Asked], posted: Option<Instant>) {
        let wants = wants(asked);
        let mut used = wants.iter().filter(|want| want.source.is_some()).count();
        self.sources.resize(used.max(self.sources.len()), ZEROS);
        let since = posted.unwrap_or_else(|| {
            let now = Instant::now();
            self.post_to_all(&wants);
            now
        });
        // Who is silent is heard last: the others, who may be asked in its place, have answered by then.
        let (mut awaited, mut silent): (Vec<&[Want]>, Vec<&[Want]>) =
            (by_donor(&wants).collect(), Vec::new());
        while !awaited.is_empty() {
            let donors = || awaited.iter().map(|group| donor_of(group));
            let heard = self.lanes.hear_first(donors(), since, posted.is_none());
            for group in awaited.extract_if(.., |group| heard.is_over(donor_of(group))) {
                match heard.is_silent(donor_of(group)) {
                    true => silent.push(group),
                    false => _ = self.hear(batch, asked, group),
                }
            }
        }
        for group in silent {
            if !self.race(batch, asked, group, (since, &mut used)) {
                self.hear(batch, asked, group);
            }
        }
    }

    /// Sends every donor its questions.
    pub(super) fn post_to_all(&mut self, wants: &[Want]) {
        for group in by_donor(wants) {
            let slots: Vec<u32> = group.iter().map(|want| slot_of(want.place, want.row)).collect();
            self.lanes.post_at(group[0].place, Purpose::Read, &slots);
        }
    }

    /// Hears the answers of donors, and notes what did not come; whether all did.
    pub(super) fn hear(
        &mut self,
        batch: &mut [ReadRequest<'_>],
        asked: &mut [Asked],
        wants: &[Want],
    ) -> bool {
        let mut is_good = true;
        for group in by_donor(wants) {
            let came = self.pages_of(batch, asked, group);
            for (want, came) in group.iter().zip(came) {
                asked[want.asked].failed |= u16::from(!came) << want.part;
                is_good &= came;
            }
        }
        is_good
    }

    /// Hears one donor's answer; says which pages came.
    fn pages_of(&mut self, batch: &mut [ReadRequest<'_>], asked: &[Asked], group: &[Want]) -> Vec<bool> {
        let index_of = |want: &Want| asked[want.asked].open.index;
        let request =
            |want: &Want, page| ReadRequest { slot: slot_of(want.place, want.row), page, outcome: Ok(()) };
        let mut requests: Vec<ReadRequest<'_>> = Vec::with_capacity(group.len());
        let is_direct = group.iter().all(|want| want.source.is_none());
        if is_direct && group.is_sorted_by(|one, next| index_of(one) < index_of(next)) {
            // As nearly always: no list of all pages is made for each donor.
            let mut rest = batch.iter_mut();
            let mut passed = 0;
            for want in group {
                let own = rest.nth(index_of(want) - passed);
                passed = index_of(want) + 1;
                requests.extend(own.map(|own| request(want, &mut *own.page)));
            }
            return self.lanes.fetch_at(group[0].place, Purpose::Read, &mut requests);
        }
        let mut own: Vec<Option<&mut Page>> =
            batch.iter_mut().map(|request| Some(&mut *request.page)).collect();
        let mut sources: Vec<Option<&mut Page>> = self.sources.iter_mut().map(Some).collect();
        for want in group {
            let page = match want.source {
                Some(source) => sources[source].take(),
                None => own[asked[want.asked].open.index].take(),
            };
            let Some(page) = page else { return vec![false; group.len()] };
            requests.push(request(want, page));
        }
        self.lanes.fetch_at(group[0].place, Purpose::Read, &mut requests)
    }

    /// What has come of a page: it is done, or is to be asked for anew.
    fn look_at(&mut self, table: &Table<'_>, batch: &mut [ReadRequest<'_>], asked: &Asked) -> Option<Open> {
        let Asked { open, reading, failed, .. } = asked;
        let request = &mut batch[open.index];
        let again = |tried: u16| Some(Open { tried, ..*open });
        if !still_counts(table, request.slot, reading) {
            return again(0);
        }
        if *failed != 0 {
            return again(open.tried | failed);
        }
        // A page that was read itself is known by its seal.
        let wrong = if reading.is_direct() { None } else { self.decode(table, asked, request.page) };
        if let Some(part) = wrong {
            table.hurt(reading.seat);
            return again(open.tried | 1 << part);
        }
        request.outcome = Ok(());
        self.last.push((request.slot, *reading));
        None
    }

    /// Whether a page of a part is not what was written.
    fn is_wrong(&self, table: &Table<'_>, reading: &Reading, part: usize, page: &Page) -> bool {
        self.checker.check(page) != table.check(reading.seat.slab, part, reading.seat.row)
    }

    /// Decodes a page; the part that is not what was written, if one is.
    fn decode(&self, table: &Table<'_>, asked: &Asked, page: &mut Page) -> Option<usize> {
        let Asked { reading, first_source, .. } = asked;
        let mut rows: [Option<&[u8]>; MAX_PARTS] = [None; MAX_PARTS];
        let data = self.code.data();
        (0..data).filter(|part| reading.zeros >> part & 1 == 1).for_each(|part| rows[part] = Some(&ZEROS));
        for (number, (part, _)) in reading.parts().enumerate() {
            let source = &self.sources[first_source + number];
            if part < data && self.is_wrong(table, reading, part, source) {
                return Some(part);
            }
            rows[part] = Some(source);
        }
        let own = usize::from(reading.seat.part);
        let is_decoded = self.code.decode(&rows[..self.code.parts()], own, page);
        if is_decoded && !self.is_wrong(table, reading, own, page) {
            return None;
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
            if let Found::At(reading) = locate_quick(&table, slot, 0, false)
                && reading.is_direct()
            {
                let open = Open { index, tried: 0 };
                asked.push(Asked { open, reading, first_source: 0, failed: 0 });
            }
        }
        let since = Instant::now();
        self.post_to_all(&wants(&asked));
        Posted { slots: slots.to_vec(), asked, since }
    }

    /// Fetches what was posted, and reads what does not come so.
    pub(super) fn complete(&mut self, mut posted: Posted, batch: &mut [ReadRequest<'_>]) {
        let shared = Arc::clone(&self.lanes.shared);
        let table = shared.table();
        self.fetch(batch, &mut posted.asked, Some(posted.since));
        let mut is_asked = vec![false; batch.len()];
        posted.asked.iter().for_each(|asked| is_asked[asked.open.index] = true);
        let mut open = Self::all(batch);
        open.retain(|page| !is_asked[page.index]);
        for asked in &posted.asked {
            open.extend(self.look_at(&table, batch, asked));
        }
        self.read(batch, open);
    }
}

/// Reads that are under way.
pub(super) struct Posted {
    pub(super) slots: Vec<u32>,
    asked: Vec<Asked>,
    since: Instant,
}

/// What each donor is asked for, donor by donor.
fn wants(asked: &[Asked]) -> Vec<Want> {
    let pages = || asked.iter().enumerate();
    let mut wants: Vec<Want> = pages()
        .flat_map(|(number, page)| {
            let first_source = (!page.reading.is_direct()).then_some(page.first_source);
            wants_of(&page.reading, number, first_source)
        })
        .collect();
    sort_by_donor(&mut wants);
    wants
}

/// What is read for one page, whose sources begin there if it is decoded.
pub(super) fn wants_of(
    reading: &Reading,
    asked: usize,
    first_source: Option<usize>,
) -> impl Iterator<Item = Want> + use<> {
    let Reading { seat, sources, .. } = *reading;
    let row = seat.row;
    let parts = sources.into_iter().enumerate().filter_map(|(part, place)| Some((part, place?)));
    parts.enumerate().map(move |(at, (part, place))| {
        let source = first_source.map(|first| first + at);
        Want { asked, part, place, row, source }
    })
}

pub(super) fn sort_by_donor(wants: &mut [Want]) {
    let mut met = 0_u64;
    let is_met_anew = |group: &[Want]| {
        let (before, donor) = (met, 1 << donor_of(group));
        met |= donor;
        before & donor != 0
    };
    // Pages that are neighbours lie part by part, and so donor by donor, as they come.
    if by_donor(wants).any(is_met_anew) {
        // Stable, so pages of one donor stay in the order of the batch.
        wants.sort_by_key(|want| want.place.donor);
    }
}

/// What is asked of each donor.
pub(super) fn by_donor(wants: &[Want]) -> impl Iterator<Item = &[Want]> {
    wants.chunk_by(|one, next| one.place.donor == next.place.donor)
}

pub(super) fn donor_of(group: &[Want]) -> usize {
    group.first().map_or(0, |want| usize::from(want.place.donor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn donors(wants: &[Want]) -> Vec<Vec<(u8, usize)>> {
        let of = |group: &[Want]| group.iter().map(|want| (want.place.donor, want.asked)).collect();
        by_donor(wants).map(of).collect()
    }

    fn wants_from(order: &[u8]) -> Vec<Want> {
        let want = |(asked, &donor): (usize, &u8)| {
            let place = Place { donor, life: 1, extent: 0 };
            Want { asked, part: 0, place, row: asked as u16, source: None }
        };
        order.iter().enumerate().map(want).collect()
    }

    #[test]
    fn each_donor_is_asked_once_and_in_the_order_of_the_batch() {
        for order in [&[3, 3, 1, 1, 2][..], &[3, 1, 3, 2, 1], &[1, 2, 3, 1], &[]] {
            let mut wants = wants_from(order);
            sort_by_donor(&mut wants);
            let groups = donors(&wants);
            let mut asked: Vec<u8> = groups.iter().map(|group| group[0].0).collect();
            let all = asked.len();
            asked.sort_unstable();
            asked.dedup();
            assert_eq!(asked.len(), all, "{order:?}: {groups:?}");
            assert!(groups.iter().all(|group| group.is_sorted()), "{order:?}: {groups:?}");
            assert_eq!(groups.concat().len(), order.len());
        }
    }
}
