//! Writing coded pages: each to its part of a slab, and the parity of their rows to the others, in the order
//! that [`spillway_pool::slabs::append`] says. All donors are sent their part before any of them is waited
//! for.

use std::sync::Arc;
use std::time::Duration;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_pool::code::Code;
use spillway_pool::slabs::append::{Append, Item, Outcome, Sending, Step, seat_of};
use spillway_pool::slabs::hope::RoomWait;
use spillway_pool::table::Table;
use spillway_pool::words::{Condition, Place};

use super::reads::slot_of;
use crate::nbd::sleep;
use crate::pool::donor_lanes::DonorLanes;
use crate::pool::shared::{Purpose, Shared, Way, now_ms};
use crate::{Event, Patience, StoreError, WriteRequest};

/// Before another look at a slab that somebody is making.
const MAKING_PAUSE: Duration = Duration::from_millis(1);
/// Before another look for room, or for donors.
const PAUSE: Duration = Duration::from_millis(10);
/// How soon somebody who waits for room is told so.
const TELL_AFTER: Duration = Duration::from_secs(2);

static ZEROS: Page = [0; PAGE_SIZE];

/// What one thread writes with.
pub(super) struct Writes {
    code: Code,
    stream: usize,
    /// Where parity is computed.
    parity: Vec<Page>,
}

/// How a write has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The first so many pages are stored.
    Stored(usize),
    /// Nothing is, and it may be tried again.
    Again,
    /// There is no room.
    NoRoom,
    /// Too few donors can be reached.
    NoDonor,
}

/// What one donor is sent.
struct Part<'a> {
    number: usize,
    place: Place,
    pages: Vec<WriteRequest<'a>>,
    /// The way by which it was posted.
    way: Option<Way>,
}

fn dice(slot: u32) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_nsec.unsigned_abs() << 32) ^ u64::from(slot)
}

impl Writes {
    pub(super) fn new(code: Code, stream: usize) -> Self {
        Self { code, stream, parity: Vec::new() }
    }

    /// Writes, or moves, the first of these pages.
    pub(super) fn append(&mut self, lanes: &mut DonorLanes, items: Vec<Item>, pages: &[&Page]) -> Written {
        let shared = Arc::clone(&lanes.shared);
        let table = shared.table();
        let first = items.first().map_or(0, |item| item.slot);
        let mut append = Append::new(self.stream, items, dice(first));
        let mut step = append.step(&table, &lanes.chooser());
        loop {
            step = match step {
                Step::Again => append.step(&table, &lanes.chooser()),
                Step::Pause => {
                    sleep(MAKING_PAUSE);
                    append.step(&table, &lanes.chooser())
                }
                Step::Send(sending) => {
                    let (is_stored, late) = self.send(lanes, &sending, pages);
                    append.sent(&table, is_stored, late)
                }
                Step::Done(Outcome::Stored { pages }) => return Written::Stored(pages),
                Step::Done(Outcome::Again) => return Written::Again,
                Step::Done(Outcome::NoRoom) => return Written::NoRoom,
                Step::Done(Outcome::NoDonor) => return Written::NoDonor,
            };
        }
    }

    /// Sends every donor its part, then waits for all of them. Whether all have it; and the parts, a bit
    /// each, to which it may come late, or once more.
    fn send(&mut self, lanes: &mut DonorLanes, sending: &Sending, pages: &[&Page]) -> (bool, u16) {
        let shared = Arc::clone(&lanes.shared);
        if !self.compute(sending, pages) {
            return (false, 0);
        }
        let mut parts = self.parts(sending, pages);
        for part in &mut parts {
            let Ok((lane, way)) = lanes.lane(usize::from(part.place.donor), Purpose::Write) else { continue };
            // In another life of the donor, or generation of the slab, the place is somebody else's: a
            // process that was stopped for long finds it so.
            let is_open = shared.table().slab(sending.rows.slab).generation == sending.rows.generation;
            if is_open && way.word().life == part.place.life {
                lane.post_writes(&part.pages);
                part.way = Some(way);
            }
        }
        let (mut is_stored, mut late) = (true, 0);
        for Part { number, place, mut pages, way } in parts {
            let donor = usize::from(place.donor);
            let posted = way.and_then(|way| Some((lanes.same_lane(donor, Purpose::Write)?, way)));
            let Some((lane, way)) = posted else {
                is_stored = false;
                continue;
            };
            lane.complete_writes(&mut pages);
            // It has come by another connection, maybe, and comes once more by the first.
            late |= u16::from(!lane.has_answered()) << number;
            let stored = pages.iter().filter(|page| page.outcome.is_ok()).count();
            shared.table().count_written(donor, stored as u64);
            is_stored &= stored == pages.len();
            // What the last resort did not take, donors may.
            let _ = shared.note_written(donor, way.word(), pages.iter().map(|page| &page.outcome));
        }
        (is_stored, late)
    }

    /// Computes the parity of each row; false where it could not.
    fn compute(&mut self, sending: &Sending, pages: &[&Page]) -> bool {
        let (data, parity) = (self.code.data(), self.code.parts() - self.code.data());
        let rows = usize::from(sending.rows.count);
        self.parity.resize((rows * parity).max(self.parity.len()), ZEROS);
        let mut of_rows: Vec<&[u8]> = vec![&ZEROS; rows * data];
        for (index, page) in pages.iter().enumerate().take(sending.pages) {
            let seat = seat_of(&sending.rows, data, index);
            of_rows[usize::from(seat.row - sending.rows.first) * data + usize::from(seat.part)] = &page[..];
        }
        of_rows.chunks(data).zip(self.parity.chunks_mut(parity)).all(|(own, out)| {
            let mut out: Vec<&mut [u8]> = out.iter_mut().map(|page| &mut page[..]).collect();
            self.code.encode(own, &mut out)
        })
    }

    /// What each donor is to get.
    fn parts<'a>(&'a self, sending: &Sending, pages: &[&'a Page]) -> Vec<Part<'a>> {
        let (data, parity) = (self.code.data(), self.code.parts() - self.code.data());
        let request = |place, row, page| WriteRequest { slot: slot_of(place, row), page, outcome: Ok(()) };
        let part = |(number, place): (usize, &Option<Place>)| {
            place.map(|place| Part { number, place, pages: Vec::new(), way: None })
        };
        let mut parts: Vec<Option<Part<'a>>> = sending.places.iter().enumerate().map(part).collect();
        for (index, page) in pages.iter().enumerate().take(sending.pages) {
            let seat = seat_of(&sending.rows, data, index);
            if let Some(part) = &mut parts[usize::from(seat.part)] {
                part.pages.push(request(part.place, seat.row, page));
            }
        }
        for number in 0..usize::from(sending.rows.count) {
            for (at, page) in self.parity[number * parity..][..parity].iter().enumerate() {
                if let Some(part) = &mut parts[data + at] {
                    part.pages.push(request(part.place, sending.rows.first + number as u16, page));
                }
            }
        }
        parts.into_iter().flatten().filter(|part| !part.pages.is_empty()).collect()
    }

    /// Writes a batch, and waits, for a bounded time, for room and for donors.
    pub(super) fn write(
        &mut self,
        lanes: &mut DonorLanes,
        batch: &mut [WriteRequest<'_>],
        check: impl Fn(&Page) -> u32,
    ) {
        let shared = Arc::clone(&lanes.shared);
        let table = shared.table();
        let mut left: Vec<usize> = Vec::with_capacity(batch.len());
        for (index, request) in batch.iter_mut().enumerate() {
            if request.slot < table.slots() {
                left.push(index);
            } else {
                request.outcome = Err(crate::memory::no_such_slot(&shared.uri, request.slot, table.slots()));
            }
        }
        let items: Vec<Item> = batch
            .iter()
            .map(|request| Item { slot: request.slot, check: check(request.page), from: None })
            .collect();
        let patience = shared.spec.patience;
        let (mut wait, mut has_told, mut failures) = (RoomWait::begin(&table, now_ms()), false, 0);
        while !left.is_empty() {
            let own: Vec<Item> = left.iter().map(|&index| items[index]).collect();
            let pages: Vec<&Page> = left.iter().map(|&index| batch[index].page).collect();
            let written = self.append(lanes, own, &pages);
            let now = now_ms();
            let waited = Duration::from_millis(wait.waited_ms(now));
            let failure = match written {
                Written::Stored(count) => {
                    left.drain(..count).for_each(|index| batch[index].outcome = Ok(()));
                    (wait, failures) = (RoomWait::begin(&table, now), 0);
                    continue;
                }
                Written::Again if waited < patience.reconnect => {
                    // At once at first, for another slab is there; then a donor refuses all.
                    failures += 1;
                    if failures > 3 {
                        sleep(PAUSE);
                    }
                    continue;
                }
                Written::NoRoom if wait.goes_on(&table, now, room_patience_ms(patience, &table, now)) => {
                    table.ask_for_room();
                    has_told |= tell_waiting_for_room(&shared, waited);
                    sleep(PAUSE);
                    continue;
                }
                Written::NoDonor if now < waits_until_ms(&shared, wait.since_ms()) => {
                    has_told |= tell_waiting(lanes, wait.since_ms(), patience.reconnect);
                    sleep(PAUSE);
                    continue;
                }
                Written::NoRoom => StoreError::Full { store: shared.uri.clone() },
                Written::Again | Written::NoDonor => too_few(&shared),
            };
            left.drain(..).for_each(|index| batch[index].outcome = Err(failure.clone()));
        }
        if has_told {
            shared.hear(Event::Answering);
        }
    }
}

fn away(shared: &Shared) -> Vec<usize> {
    let table = shared.table();
    (0..table.donors()).filter(|donor| table.donor(*donor).condition != Condition::Up).collect()
}

/// Until when a write waits for donors. Not for those that have been away for that long already: each
/// eviction would wait anew.
fn waits_until_ms(shared: &Shared, since_ms: u64) -> u64 {
    let table = shared.table();
    let away = away(shared);
    match away.iter().all(|donor| table.donor(*donor).condition == Condition::Down) {
        true => shared.waits_until_for(&away, since_ms),
        false => since_ms + shared.spec.patience.reconnect.as_millis() as u64,
    }
}

fn tell_waiting(lanes: &DonorLanes, since_ms: u64, patience: Duration) -> bool {
    let until_ms = since_ms + patience.as_millis() as u64;
    lanes.tell_waiting_for(&away(&lanes.shared), until_ms, since_ms, now_ms())
}

/// How long room is waited for. Where the supervisor knows that there will be some, once what is dead is
/// cleared away, as long as for donors: the pool is not full.
pub(super) fn patience_for_room(Patience { timeout, reconnect }: Patience, is_room_coming: bool) -> Duration {
    if is_room_coming { timeout.max(reconnect) } else { timeout }
}

fn room_patience_ms(patience: Patience, table: &Table<'_>, now_ms: u64) -> u64 {
    patience_for_room(patience, table.is_room_coming(now_ms)).as_millis() as u64
}

/// Says that room is waited for, once that takes long; whether it has.
fn tell_waiting_for_room(shared: &Shared, waited: Duration) -> bool {
    let takes_long = waited >= TELL_AFTER && shared.table().is_room_coming(now_ms());
    if takes_long {
        let left = patience_for_room(shared.spec.patience, true).saturating_sub(waited);
        shared.hear(Event::Waiting { reason: "its donors are to be cleared of dead pages", left });
    }
    takes_long
}

fn too_few(shared: &Shared) -> StoreError {
    StoreError::Io {
        store: shared.uri.clone(),
        reason: format!(
            "too few donors can be reached to store a page: donors {} are away, and {} must be there",
            shared.names_of(&away(shared)),
            shared.table().least_copies()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_is_being_made_is_waited_for_as_donors_are() {
        let seconds = Duration::from_secs;
        let patience = Patience { timeout: seconds(2), reconnect: seconds(10) };
        assert_eq!(
            [false, true].map(|is_coming| patience_for_room(patience, is_coming)),
            [2, 10].map(seconds)
        );
        let hasty = Patience { timeout: seconds(2), reconnect: seconds(1) };
        assert_eq!(patience_for_room(hasty, true), seconds(2));
    }
}
