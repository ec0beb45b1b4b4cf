//! One thread's way to the pool: reads. Each page is asked of one donor that has it; where that is silent or
//! away, of the next; where none answers, all of them are waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_pool::read::{Choice, Found, came_wrong, choose, refusal};
use spillway_pool::slabs::locate::Refusal;

use super::donor_lanes::{DonorLanes, slot_at};
use super::part::{Came, extent_of, turn_of};
use super::shared::{Shared, now_ms};
use crate::nbd::sleep;
use crate::{Event, Lane, ReadRequest, WriteRequest};

/// Pauses between attempts while no donor of a page answers.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// The way of one thread to the pool.
pub(super) struct PoolLane {
    lanes: DonorLanes,
    posted: Option<Posted>,
    /// What the last read chose, where it answered.
    last: Vec<(u32, Choice)>,
}

/// A page that is to be read: its place in the batch, and the copies that were tried.
#[derive(Clone, Copy)]
struct Open {
    index: usize,
    tried: u8,
}

/// What one donor is asked for: the donor, the pages by their places in the batch, and the same as they were.
type OfDonor = (usize, Vec<(usize, Choice)>, Vec<Open>);

/// Reads that are under way.
struct Posted {
    slots: Vec<u32>,
    /// Of each donor: which of the slots, and where they are read.
    parts: Vec<(usize, Vec<(usize, Choice)>)>,
    since: Instant,
}

impl PoolLane {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { lanes: DonorLanes::new(shared), posted: None, last: Vec::new() }
    }

    /// Chooses copies; what has none to ask now is left in `open`.
    fn choose_parts(
        &self,
        batch: &mut [ReadRequest<'_>],
        open: &mut Vec<Open>,
        at_last: bool,
    ) -> Vec<OfDonor> {
        let table = self.lanes.shared.table();
        let mut parts: Vec<OfDonor> = Vec::new();
        open.retain(|page| {
            let request = &mut batch[page.index];
            let extent = extent_of(request.slot);
            match choose(&table, extent, request.slot, page.tried, at_last, turn_of(extent)) {
                Found::At(choice) => {
                    let donor = usize::from(choice.place.donor);
                    let at = parts.iter().position(|(of, ..)| *of == donor).unwrap_or_else(|| {
                        parts.push((donor, Vec::new(), Vec::new()));
                        parts.len() - 1
                    });
                    parts[at].1.push((page.index, choice));
                    parts[at].2.push(*page);
                    false
                }
                Found::Later => true,
                Found::Lost => {
                    request.outcome = Err(self.lanes.shared.lost(extent));
                    false
                }
            }
        });
        parts
    }

    /// Reads pages until each has come or is lost.
    fn read_open(&mut self, batch: &mut [ReadRequest<'_>], mut open: Vec<Open>) {
        let since_ms = now_ms();
        let (mut pause, mut at_last, mut has_told) = (FIRST_PAUSE, false, false);
        loop {
            let mut waiting = Vec::new();
            while !open.is_empty() {
                let parts = self.choose_parts(batch, &mut open, at_last);
                waiting.append(&mut open);
                for (donor, part, pages) in parts {
                    let came = self.lanes.read_part(donor, batch, &part, None);
                    for (page, came) in pages.into_iter().zip(came) {
                        match came {
                            Came::By(choice) => self.note(&mut batch[page.index], choice),
                            Came::Not(tried) => open.push(Open { tried: page.tried | tried, ..page }),
                        }
                    }
                }
                open.sort_by_key(|page| page.index);
            }
            let now = now_ms();
            waiting.retain(|page| {
                let extent = extent_of(batch[page.index].slot);
                let refusal = refusal(&self.lanes.shared.table(), extent, page.tried);
                // Once tried anew it is known: a file of this machine is waited for by nobody.
                if at_last && refusal == Refusal::ForGood {
                    batch[page.index].outcome = Err(self.lanes.shared.refused_by_resort());
                    return false;
                }
                let is_over = now >= self.lanes.shared.waits_until_ms(extent, since_ms);
                if is_over {
                    batch[page.index].outcome = Err(self.lanes.shared.out_of_reach(extent, refusal));
                }
                !is_over
            });
            if waiting.is_empty() {
                break;
            }
            has_told |= self.lanes.tell_waiting(extent_of(batch[waiting[0].index].slot), since_ms, now);
            if at_last {
                sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            // From now on those that are said to be away are asked too.
            at_last = true;
            open = waiting.into_iter().map(|page| Open { tried: 0, ..page }).collect();
            open.sort_by_key(|page| page.index);
        }
        if has_told {
            self.lanes.shared.hear(Event::Answering);
        }
    }

    /// A page has come from this copy.
    fn note(&mut self, request: &mut ReadRequest<'_>, choice: Choice) {
        request.outcome = Ok(());
        self.last.push((request.slot, choice));
    }

    fn all(batch: &[ReadRequest<'_>]) -> Vec<Open> {
        (0..batch.len()).map(|index| Open { index, tried: 0 }).collect()
    }

    fn last_choice(&self, slot: u32) -> Option<Choice> {
        self.last.iter().rev().find(|(of, _)| *of == slot).map(|(_, choice)| *choice)
    }
}

impl Lane for PoolLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        super::writes::write(&mut self.lanes, batch);
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.lanes.shared.table().count_read();
        self.last.clear();
        self.read_open(batch, Self::all(batch));
    }

    fn read_again(&mut self, batch: &mut [ReadRequest<'_>]) {
        let mut open = Self::all(batch);
        for page in &mut open {
            let slot = batch[page.index].slot;
            let Some(choice) = self.last_choice(slot) else { continue };
            page.tried = 1 << choice.copy;
            // The first is the page that came wrong: that copy is not what it should be, if there is another.
            if page.index == 0 {
                page.tried = came_wrong(&self.lanes.shared.table(), extent_of(slot), choice);
            }
        }
        self.last.clear();
        self.read_open(batch, open);
    }

    fn can_post(&self) -> bool {
        true
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.posted = None;
        let shared = Arc::clone(&self.lanes.shared);
        let table = shared.table();
        table.count_read();
        let mut parts: Vec<(usize, Vec<(usize, Choice)>)> = Vec::new();
        for (index, &slot) in slots.iter().enumerate() {
            let extent = extent_of(slot);
            // What cannot be sent for at once is sent for at completion.
            let Found::At(choice) = choose(&table, extent, slot, 0, false, turn_of(extent)) else { continue };
            let donor = usize::from(choice.place.donor);
            match parts.iter_mut().find(|(of, _)| *of == donor) {
                Some((_, part)) => part.push((index, choice)),
                None => parts.push((donor, vec![(index, choice)])),
            }
        }
        let since = Instant::now();
        for (donor, part) in &parts {
            let own: Vec<u32> =
                part.iter().map(|(index, choice)| slot_at(choice.place.extent, slots[*index])).collect();
            self.lanes.post_part(*donor, &own);
        }
        self.posted = Some(Posted { slots: slots.to_vec(), parts, since });
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        let posted = self.posted.take().filter(|posted| crate::posted::are_of(&posted.slots, batch));
        let Some(posted) = posted else { return self.read(batch) };
        self.last.clear();
        let mut open = Self::all(batch);
        for (donor, part) in posted.parts {
            let came = self.lanes.read_part(donor, batch, &part, Some(posted.since));
            for ((index, _), came) in part.into_iter().zip(came) {
                match came {
                    Came::By(choice) => {
                        self.note(&mut batch[index], choice);
                        open.retain(|page| page.index != index);
                    }
                    Came::Not(tried) => open
                        .iter_mut()
                        .filter(|page| page.index == index)
                        .for_each(|page| page.tried |= tried),
                }
            }
        }
        self.read_open(batch, open);
    }

    fn discard(&mut self, slots: &[u32]) {
        super::writes::discard(&mut self.lanes, slots);
    }
}
