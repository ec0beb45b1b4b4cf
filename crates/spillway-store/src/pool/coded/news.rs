//! What the user is told of coded pages: what is in danger, what is lost, and when all is well again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_pool::EXTENT_BYTES;
use spillway_pool::slabs::census::{Findings, Reason};
use spillway_pool::slabs::locate::{donors_of_slot, lose};

use crate::pool::site::Site;
use crate::{Notice, NoticeKind};

/// Danger that passes within so long is not worth a line.
const WORTH_A_LINE: Duration = Duration::from_millis(600);

/// What the user was told last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Well,
    InDanger,
    Stuck,
}

/// Knows what the user knows.
pub(super) struct News {
    site: Arc<Site>,
    told: Told,
    endangered_since: Option<Instant>,
    /// The user waits to hear that all is well.
    is_owed: bool,
    pub(super) moved_bytes: u64,
    /// Donors, a bit each, of which the user knows that nobody has room for what they are to get rid of.
    told_no_room: u32,
}

/// Whether what is in danger waits for a donor that went a moment ago, or for room that is being made.
fn is_awaited(found: &Findings) -> bool {
    found.awaited_bytes > 0 || found.is_whole_room_coming
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl News {
    pub(super) fn new(site: Arc<Site>) -> Self {
        Self {
            site,
            told: Told::Well,
            endangered_since: None,
            is_owed: false,
            moved_bytes: 0,
            told_no_room: 0,
        }
    }

    /// Before a look: what is heard of later may not be seen by it.
    pub(super) fn begin(&mut self) {
        self.is_owed |= self.site.take_news();
    }

    pub(super) fn note_danger(&mut self, found: &Findings) {
        if found.endangered_bytes == 0 {
            return;
        }
        self.endangered_since.get_or_insert_with(Instant::now);
        let is_due = self.endangered_since.is_some_and(|since| since.elapsed() >= WORTH_A_LINE);
        if is_due && self.told == Told::Well {
            self.told = Told::InDanger;
            let parts = self.site.shared.table().wanted_copies();
            let text = format!(
                "pool: {} of pages have fewer than {parts} parts now; what can be is made anew on others",
                mebibytes(found.endangered_bytes)
            );
            self.site.tell(Notice::new(NoticeKind::PagesInDanger, &text).number(found.endangered_bytes));
        }
    }

    pub(super) fn tell(&mut self, found: &Findings, is_stuck: bool) {
        let parts = self.site.shared.table().wanted_copies();
        let has_tasks = found.tasks.iter().any(|task| task.reason == Reason::Endangered && task.live > 0);
        if found.endangered_bytes == 0 && !has_tasks {
            self.endangered_since = None;
            if self.told != Told::Well || self.is_owed {
                (self.told, self.is_owed) = (Told::Well, false);
                let moved = mebibytes(std::mem::take(&mut self.moved_bytes));
                let also = if found.spilled_bytes > 0 { ", or are in the last resort," } else { "" };
                let text = format!("pool: all pages have {parts} parts{also} again ({moved} were moved)");
                self.site.tell(Notice::new(NoticeKind::PagesSafe, &text));
            }
        } else if (is_stuck || (!has_tasks && !is_awaited(found))) && self.told == Told::InDanger {
            self.told = Told::Stuck;
            let text = format!(
                "pool: {} of pages stay with fewer than {parts} parts: no other donor that can be reached \
                 has room for them; they are made anew when one comes back",
                mebibytes(found.endangered_bytes)
            );
            self.site.tell(Notice::new(NoticeKind::PagesStuck, &text).number(found.endangered_bytes));
        } else if has_tasks && !is_stuck && self.told == Told::Stuck {
            self.told = Told::InDanger;
        }
    }

    /// Gives up pages that are lost for good, and says so.
    pub(super) fn give_up_lost(&mut self, found: &Findings) {
        if found.lost.is_empty() {
            return;
        }
        let table = self.site.shared.table();
        let lost: HashSet<(u32, u32)> = found.lost.iter().copied().collect();
        let (mut pages, mut donors) = (0, Vec::new());
        for slot in 0..table.slots() {
            let of = table.seat(slot).map(|seat| (seat.slab, seat.generation));
            if of.is_some_and(|of| lost.contains(&of)) && lose(&table, slot) {
                pages += 1;
                donors.extend(donors_of_slot(&table, slot));
                donors.sort_unstable();
                donors.dedup();
            }
        }
        if pages > 0 {
            let (lost_bytes, names) = (pages * PAGE_SIZE as u64, self.site.shared.names_of(&donors));
            let text = format!(
                "pool: {} of pages are lost with donors {names}: a program that needs one of them gets \
                 SIGBUS",
                mebibytes(lost_bytes)
            );
            self.site.tell(Notice::new(NoticeKind::PagesLost, &text).about(&names).number(lost_bytes));
        }
    }

    /// A donor is not leaving, or no more.
    pub(super) fn stays(&mut self, donor: usize) {
        self.told_no_room &= !(1 << donor);
    }

    /// Nobody has room for what is on a donor that leaves.
    pub(super) fn tell_no_room(&mut self, donor: usize, parts: u32) {
        if self.told_no_room >> donor & 1 == 1 {
            return;
        }
        self.told_no_room |= 1 << donor;
        let (left_bytes, name) = (u64::from(parts) * EXTENT_BYTES, self.site.shared.name(donor));
        let text = format!(
            "pool: {} of pages cannot be moved from donor {name}, which is being drained: no other has room \
             for them; start another donor, or let it stay",
            mebibytes(left_bytes)
        );
        self.site.tell(Notice::new(NoticeKind::DonorStuck, &text).about(&name).number(left_bytes));
    }
}
