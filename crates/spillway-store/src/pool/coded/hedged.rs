//! Pages of a donor that is silent for longer than is usual for it: they are asked for by other parts of
//! their rows too, and whoever has answered first counts. The connections by which the others may still
//! answer are closed. What was decoded counts as any decoded page does: by its check, and where its slot is
//! as it was.

use std::sync::Arc;
use std::time::Instant;

use spillway_pool::hedge::{Race, Verdict, Way};
use spillway_pool::slabs::locate::Reading;
use spillway_pool::table::Table;

use super::reads::{Asked, Reads, Want, ZEROS, by_donor, donor_of, sort_by_donor, wants_of};
use crate::ReadRequest;

impl Reads {
    /// Asks others for the pages of a silent donor; what has come, or has not, is noted. False where nobody
    /// can be asked in its place: the donor is waited for. `used` says how many pages are sources of others.
    pub(super) fn race(
        &mut self,
        batch: &mut [ReadRequest<'_>],
        asked: &mut [Asked],
        group: &[Want],
        (since, used): (Instant, &mut usize),
    ) -> bool {
        let shared = Arc::clone(&self.lanes.shared);
        let table = shared.table();
        let Some((mut race, second)) = self.ways(&table, batch, asked, group) else { return false };
        let Some(by_others) = race.ask_another(&table, 0) else { return false };
        let mut others: Vec<Want> = Vec::new();
        let mut sources = Vec::with_capacity(second.len());
        for (want, way) in group.iter().zip(&second) {
            sources.push(*used);
            others.extend(wants_of(way, want.asked, Some(*used)));
            *used += way.parts().count();
        }
        sort_by_donor(&mut others);
        self.sources.resize((*used).max(self.sources.len()), ZEROS);
        self.post_to_all(&others);
        let donors: Vec<usize> = by_donor(&others).map(donor_of).collect();
        let own = asked[group[0].asked].reading;
        let order = match self.lanes.is_overtaken(donor_of(group), &donors, since) {
            true => [by_others, own],
            false => [own, by_others],
        };
        for way in order {
            let is_good = self.hear(batch, asked, if way == own { group } else { &others[..] });
            match race.answered(&table, way, is_good) {
                Verdict::Taken { by, left } => {
                    if left.is_some() {
                        let left = if by == own { donors } else { vec![donor_of(group)] };
                        self.lanes.leave(left.into_iter());
                    }
                    for ((want, way), first_source) in group.iter().zip(second).zip(sources) {
                        let page = &mut asked[want.asked];
                        page.failed = 0;
                        if by != own {
                            (page.reading, page.first_source) = (way, first_source);
                        }
                    }
                    return true;
                }
                Verdict::Wait => {}
                Verdict::Failed => break,
            }
        }
        true
    }

    /// A race for the first page of a silent donor, and by which other ways its pages can be had. None where
    /// one of them cannot, or somebody would be asked whose own answer is awaited.
    fn ways(
        &self,
        table: &Table<'_>,
        batch: &[ReadRequest<'_>],
        asked: &[Asked],
        group: &[Want],
    ) -> Option<(Race<Reading>, Vec<Reading>)> {
        let slot = |want: &Want| batch[asked[want.asked].open.index].slot;
        let seat = |want: &Want| asked[want.asked].reading.seat;
        let first = group.first()?;
        // Pages of a fault nearly always lie in one slab; others are waited for.
        let slab = (seat(first).slab, seat(first).generation);
        let is_alike =
            |want: &Want| want.source.is_none() && (seat(want).slab, seat(want).generation) == slab;
        if !group.iter().all(is_alike) {
            return None;
        }
        let ways: Option<Vec<Reading>> =
            group.iter().map(|want| asked[want.asked].reading.another(table, slot(want), 0)).collect();
        let ways =
            ways.filter(|ways| ways.iter().flat_map(Way::donors).all(|donor| !self.lanes.is_awaited(donor)))?;
        Some((Race::new(slot(first), asked[first.asked].reading), ways))
    }
}
