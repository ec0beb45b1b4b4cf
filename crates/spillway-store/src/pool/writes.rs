//! Writing to the pool: each page to every copy of its extent, in the order that `spillway_pool::write` says.
//! All donors are sent their part before any of them is waited for.

use std::sync::Arc;
use std::time::Duration;

use spillway_pool::bits::{Bits, bits_of, has};
use spillway_pool::slabs::locate::Refusal;
use spillway_pool::table::Which;
use spillway_pool::words::{Condition, Place};
use spillway_pool::write::{Outcome, Step, Write, without_barred};
use spillway_pool::{EXTENT_SLOTS, MAX_COPIES};

use super::donor_lanes::{DonorLanes, slot_at};
use super::shared::{Purpose, Shared, Way, now_ms};
use crate::nbd::sleep;
use crate::{Event, StoreError, WriteRequest};

/// What one donor is to drop: the donor, the copies that lie there by extent, and its slots.
type OfDonor = (u8, Vec<(u32, usize, Place)>, Vec<u32>);

const PAUSE: Duration = Duration::from_millis(20);

/// The pages of a batch that lie in one extent.
struct Group {
    extent: u32,
    indices: Vec<usize>,
    slots: Bits,
    write: Write,
    /// Where it is to be sent now.
    sending: Vec<Place>,
    outcome: Option<Outcome>,
    /// What the last resort could not do.
    refusal: Option<StoreError>,
}

impl Group {
    fn begin(extent: u32, indices: Vec<usize>, slots: Bits) -> Self {
        let write = Write::new(extent, slots, dice(extent));
        Self { extent, indices, slots, write, sending: Vec::new(), outcome: None, refusal: None }
    }
}

fn dice(extent: u32) -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_nsec.unsigned_abs() << 32) ^ u64::from(extent)
}

/// Writes a batch, and waits, for a bounded time, for extents of which no donor can be reached, and for room
/// on donors that are away for a moment.
pub(super) fn write(lanes: &mut DonorLanes, batch: &mut [WriteRequest<'_>]) {
    let since_ms = now_ms();
    let mut groups = groups(&lanes.shared, batch);
    let mut has_told = false;
    loop {
        run(lanes, batch, &mut groups);
        let now = now_ms();
        let mut again = Vec::new();
        for group in groups {
            let until_ms = match group.outcome {
                // The last resort has said no, and nobody need wait for more.
                Some(Outcome::Unreachable) if group.refusal.is_some() => now,
                Some(Outcome::Unreachable) => lanes.shared.waits_until_ms(group.extent, since_ms),
                Some(Outcome::NoDonor) => lanes.shared.room_awaited(since_ms).until_ms,
                _ => now,
            };
            if now < until_ms {
                again.push(group);
            } else {
                settle(&lanes.shared, batch, &group);
            }
        }
        let Some(first) = again.first() else { break };
        has_told |= match first.outcome {
            Some(Outcome::NoDonor) => lanes.tell_waiting_for_room(since_ms, now),
            _ => lanes.tell_waiting(first.extent, since_ms, now),
        };
        sleep(PAUSE);
        groups = again
            .into_iter()
            .map(|group| {
                // Into what was sent and not answered a write may come late.
                let slots = without_barred(&lanes.shared.table(), group.extent, &group.slots);
                refuse_barred(&lanes.shared, batch, &group.indices, &slots);
                let open = |index: &usize| has(&slots, batch[*index].slot);
                Group::begin(group.extent, group.indices.iter().copied().filter(open).collect(), slots)
            })
            .filter(|group| !group.indices.is_empty())
            .collect();
    }
    if has_told {
        lanes.shared.hear(Event::Answering);
    }
}

fn groups(shared: &Shared, batch: &mut [WriteRequest<'_>]) -> Vec<Group> {
    let table = shared.table();
    let mut extents: Vec<(u32, Vec<usize>)> = Vec::new();
    for (index, request) in batch.iter_mut().enumerate() {
        let extent = request.slot / EXTENT_SLOTS;
        if extent >= table.extents() {
            request.outcome =
                Err(crate::memory::no_such_slot(&shared.uri, request.slot, table.extents() * EXTENT_SLOTS));
            continue;
        }
        match extents.iter_mut().find(|(of, _)| *of == extent) {
            Some((_, indices)) => indices.push(index),
            None => extents.push((extent, vec![index])),
        }
    }
    let group = |(extent, mut indices): (u32, Vec<usize>)| {
        let all = bits_of(indices.iter().map(|&index| batch[index].slot));
        let slots = without_barred(&table, extent, &all);
        refuse_barred(shared, batch, &indices, &slots);
        indices.retain(|&index| has(&slots, batch[index].slot));
        Group::begin(extent, indices, slots)
    };
    extents.into_iter().map(group).filter(|group| !group.indices.is_empty()).collect()
}

fn refuse_barred(shared: &Shared, batch: &mut [WriteRequest<'_>], indices: &[usize], open: &Bits) {
    for &index in indices {
        if !has(open, batch[index].slot) {
            batch[index].outcome = Err(StoreError::Io {
                store: shared.uri.clone(),
                reason: "an earlier write to the same place was not answered and may still come".to_owned(),
            });
        }
    }
}

/// Has every group come to its outcome. What several groups send to one donor goes in one batch.
fn run(lanes: &mut DonorLanes, batch: &mut [WriteRequest<'_>], groups: &mut [Group]) {
    let shared = Arc::clone(&lanes.shared);
    loop {
        let chooser = lanes.chooser();
        for group in groups.iter_mut() {
            while group.outcome.is_none() {
                match group.write.step(&shared.table(), &chooser) {
                    Step::Again => {}
                    Step::Send { place } => group.sending.push(place),
                    Step::Wait => break,
                    Step::Done(outcome) => group.outcome = Some(outcome),
                }
            }
        }
        let parts = parts(batch, groups);
        if parts.is_empty() {
            return;
        }
        send(lanes, groups, parts);
    }
}

/// What one donor is sent.
struct Part<'a> {
    donor: usize,
    /// Of which groups, and where to.
    of: Vec<(usize, Place)>,
    pages: Vec<WriteRequest<'a>>,
    /// The way by which it was posted.
    way: Option<Way>,
}

fn parts<'a>(batch: &[WriteRequest<'a>], groups: &[Group]) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        for &place in &group.sending {
            let donor = usize::from(place.donor);
            let at = parts.iter().position(|part| part.donor == donor).unwrap_or_else(|| {
                parts.push(Part { donor, of: Vec::new(), pages: Vec::new(), way: None });
                parts.len() - 1
            });
            parts[at].of.push((number, place));
            parts[at].pages.extend(group.indices.iter().map(|&index| {
                let request = &batch[index];
                let slot = slot_at(place.extent, request.slot);
                WriteRequest { slot, page: request.page, outcome: Ok(()) }
            }));
        }
    }
    parts
}

/// Sends every donor its part, then waits for all of them.
fn send(lanes: &mut DonorLanes, groups: &mut [Group], mut parts: Vec<Part<'_>>) {
    let shared = Arc::clone(&lanes.shared);
    for part in &mut parts {
        if let Ok((lane, way)) = lanes.lane(part.donor, Purpose::Write) {
            lane.post_writes(&part.pages);
            part.way = Some(way);
        }
    }
    for Part { donor, of, mut pages, way } in parts {
        let posted = way.and_then(|way| Some((lanes.same_lane(donor, Purpose::Write)?, way)));
        let (mut refusal, mut comes_again) = (None, false);
        let outcomes: Vec<bool> = match posted {
            Some((lane, way)) => {
                lane.complete_writes(&mut pages);
                // It has come by another connection, maybe, and comes once more by the first.
                comes_again = !lane.has_answered();
                refusal = shared.note_written(donor, way.word(), pages.iter().map(|page| &page.outcome));
                pages.iter().map(|page| page.outcome.is_ok()).collect()
            }
            None => vec![false; pages.len()],
        };
        let stored = outcomes.iter().filter(|is_stored| **is_stored).count() as u64;
        shared.table().count_written(donor, stored);
        let mut outcomes = outcomes.into_iter();
        for (number, place) in of {
            let group = &mut groups[number];
            let own: Vec<bool> = outcomes.by_ref().take(group.indices.len()).collect();
            let is_stored = own.iter().all(|is_stored| *is_stored);
            if is_stored && comes_again {
                group.write.comes_again();
            }
            group.write.sent(place, is_stored);
            if !is_stored && refusal.is_some() {
                group.refusal.clone_from(&refusal);
            }
            group.sending.retain(|sending| *sending != place);
        }
    }
}

fn settle(shared: &Shared, batch: &mut [WriteRequest<'_>], group: &Group) {
    let store = || shared.uri.clone();
    let outcome = match (group.outcome, &group.refusal) {
        (Some(Outcome::Stored { .. }), _) => Ok(()),
        (_, Some(refusal)) => Err(refusal.clone()),
        (Some(Outcome::TooFew { copies }), None) => Err(StoreError::Io {
            store: store(),
            reason: format!(
                "{copies} donors have taken the page, and {} must",
                shared.table().least_copies()
            ),
        }),
        (Some(Outcome::NoDonor), None) if has_donors(shared) => Err(StoreError::Full { store: store() }),
        (Some(Outcome::NoDonor), None) => Err(StoreError::Io { store: store(), reason: no_donor(shared) }),
        (Some(Outcome::Lost) | None, None) => Err(shared_lost(shared, group.extent)),
        (Some(Outcome::Unreachable), None) => Err(shared.out_of_reach(group.extent, Refusal::None)),
    };
    for &index in &group.indices {
        batch[index].outcome = outcome.clone();
    }
}

fn no_donor(shared: &Shared) -> String {
    let also = shared
        .last_resort()
        .map(|resort| format!(", and the last resort, file:{}, is full or takes no page more", resort.path));
    format!("no donor can be reached{}", also.unwrap_or_default())
}

/// The slots can be written again once the supervisor has made the extent a new one.
fn shared_lost(shared: &Shared, extent: u32) -> StoreError {
    StoreError::Io { store: shared.uri.clone(), reason: shared.lost(extent).to_string() }
}

/// Whether donors can be reached. Those without room are full.
fn has_donors(shared: &Shared) -> bool {
    shared.table().candidates().iter().any(|donor| donor.is_well)
}

/// Says to every copy that pages are no longer needed.
pub(super) fn discard(lanes: &mut DonorLanes, slots: &[u32]) {
    let shared = Arc::clone(&lanes.shared);
    let table = shared.table();
    let mut sorted: Vec<u32> =
        slots.iter().copied().filter(|slot| slot / EXTENT_SLOTS < table.extents()).collect();
    sorted.sort_unstable();
    let mut by_donor: Vec<OfDonor> = Vec::new();
    let mut barred: Vec<(u32, Bits)> = Vec::new();
    for own in sorted.chunk_by(|one, next| one / EXTENT_SLOTS == next / EXTENT_SLOTS) {
        let extent = own[0] / EXTENT_SLOTS;
        let bits = bits_of(own.iter().copied());
        table.clear_bits(extent, Which::Live, &bits);
        // If this process is killed meanwhile, nobody writes there for a while.
        barred.push((extent, without_barred(&table, extent, &bits)));
        table.set_bits(extent, Which::Barred, &bits);
        let seen = table.snapshot(extent);
        for copy in 0..MAX_COPIES {
            let Some(place) = seen.places[copy] else { continue };
            let is_down = table.donor(usize::from(place.donor)).condition == Condition::Down;
            if is_down || !seen.state.copies[copy].takes_writes() || !table.is_current(place) {
                continue;
            }
            let at = by_donor.iter().position(|(donor, ..)| *donor == place.donor).unwrap_or_else(|| {
                by_donor.push((place.donor, Vec::new(), Vec::new()));
                by_donor.len() - 1
            });
            by_donor[at].1.push((extent, copy, place));
            by_donor[at].2.extend(own.iter().map(|&slot| slot_at(place.extent, slot)));
        }
    }
    for (donor, copies, own) in by_donor {
        let Ok((lane, way)) = lanes.lane(usize::from(donor), Purpose::Write) else { continue };
        lane.discard(&own);
        let comes_again = !lane.has_answered();
        if !way.store.is_given_up() {
            // Over what is written there next: the supervisor lifts the bars.
            barred.retain(|(of, _)| !comes_again || copies.iter().all(|(extent, ..)| extent != of));
            continue;
        }
        // It may come late, over what is written there next.
        shared.complain(usize::from(donor), way.word(), Condition::Down);
        for (extent, copy, place) in copies {
            if !table.drop_copy(extent, copy, place, !(1 << copy)) {
                barred.retain(|(of, _)| *of != extent);
            }
        }
    }
    for (extent, bits) in barred {
        table.clear_bits(extent, Which::Barred, &bits);
    }
}
