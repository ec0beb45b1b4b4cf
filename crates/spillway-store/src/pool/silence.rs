//! How long a donor's answer is waited for before the page is asked for by another way too, and who answers
//! first then.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::donor_lanes::DonorLanes;
use super::shared::Purpose;
use crate::Lane;

/// Who has not waited for so long has found the answer there, and does not know since when.
const WAITED: Duration = Duration::from_micros(10);

impl DonorLanes {
    /// What the answer of a donor comes by to what it was sent for.
    fn awaited(&self, donor: usize) -> Option<BorrowedFd<'_>> {
        self.known_lane(donor, Purpose::Read).and_then(Lane::posted)
    }

    /// Whether an answer of a donor is under way.
    pub(super) fn is_awaited(&self, donor: usize) -> bool {
        self.awaited(donor).is_some()
    }

    /// Waits for the answer to what was sent for, as long as is usual for the donor; whether it is silent for
    /// longer. `is_fresh` where it was sent for a moment ago.
    pub(super) fn is_silent(&self, donor: usize, since: Instant, is_fresh: bool) -> bool {
        let table = self.shared.table();
        let usual = Duration::from_micros(table.hedge_after_us(donor));
        let Some(socket) = self.awaited(donor) else { return false };
        let begin = Instant::now();
        let is_silent = await_any(&[socket], usual.saturating_sub(since.elapsed())).is_none();
        if is_fresh || is_silent || begin.elapsed() >= WAITED {
            table.note_answer(donor, since.elapsed().as_micros() as u64);
        }
        is_silent
    }

    /// Waits for the answer of a donor, or for those of all others; whether the others are to be heard first.
    pub(super) fn is_overtaken(&self, first: usize, others: &[usize], since: Instant) -> bool {
        // Where there is no connection to one of them yet, it is asked by the one that is opened for it.
        let mut others: Vec<BorrowedFd<'_>> =
            others.iter().filter_map(|&donor| self.awaited(donor)).collect();
        let Some(first_socket) = self.awaited(first) else { return others.is_empty() };
        let most = Duration::from_micros(self.shared.table().silence_us(first));
        while !others.is_empty() {
            let mut sockets = vec![first_socket];
            sockets.extend(&others);
            match await_any(&sockets, most.saturating_sub(since.elapsed())) {
                Some(at) if at > 0 => {
                    others.swap_remove(at - 1);
                }
                _ => return false,
            }
        }
        true
    }

    /// Hears no more of what these donors were sent for.
    pub(super) fn leave(&mut self, donors: impl Iterator<Item = usize>) {
        for donor in donors {
            if let Some(lane) = self.same_lane(donor, Purpose::Read) {
                lane.leave_posted();
            }
        }
    }
}

/// Waits for so long until one of the sockets can be read from; which, by number. What cannot be waited for
/// counts as the first.
fn await_any(sockets: &[BorrowedFd<'_>], timeout: Duration) -> Option<usize> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::from_borrowed_fd(*socket, PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(0) => None,
        Ok(_) => polled.iter().position(|socket| !socket.revents().is_empty()),
        Err(_) => Some(0),
    }
}
