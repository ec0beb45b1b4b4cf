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

/// What has come of waiting for donors: a bit for each that has answered, or cannot be waited for; and for
/// each that was silent for longer than is usual for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    answered: u64,
    silent: u64,
}

impl Heard {
    /// Whether a donor is not waited for any more.
    pub(super) fn is_over(&self, donor: usize) -> bool {
        (self.answered | self.silent) >> donor & 1 == 1
    }

    pub(super) fn is_silent(&self, donor: usize) -> bool {
        self.silent >> donor & 1 == 1
    }
}

impl DonorLanes {
    /// What the answer of a donor comes by to what it was sent for.
    fn awaited(&self, donor: usize) -> Option<BorrowedFd<'_>> {
        self.known_lane(donor, Purpose::Read).and_then(Lane::posted)
    }

    /// Whether an answer of a donor is under way.
    pub(super) fn is_awaited(&self, donor: usize) -> bool {
        self.awaited(donor).is_some()
    }

    /// Waits until some of these donors have answered what they were sent for, or were silent for longer than
    /// is usual for each. `is_fresh` where it was sent for a moment ago.
    pub(super) fn hear_first(
        &self,
        donors: impl Iterator<Item = usize>,
        since: Instant,
        is_fresh: bool,
    ) -> Heard {
        let (table, begin) = (self.shared.table(), Instant::now());
        let mut heard = Heard::default();
        let (mut awaited, mut sockets) = (Vec::new(), Vec::new());
        let mut usual = Duration::MAX;
        for donor in donors {
            let Some(socket) = self.awaited(donor) else {
                heard.answered |= 1 << donor;
                continue;
            };
            let of_donor = Duration::from_micros(table.hedge_after_us(donor));
            usual = usual.min(of_donor);
            awaited.push((donor, of_donor));
            sockets.push(socket);
        }
        if heard.answered != 0 || sockets.is_empty() {
            return heard;
        }
        let ready = await_ready(&sockets, usual.saturating_sub(begin - since));
        let (end, has_answer) = (Instant::now(), ready.iter().any(|is_ready| *is_ready));
        for ((donor, usual), is_ready) in awaited.into_iter().zip(ready) {
            let is_silent = !has_answer && end - since >= usual;
            heard.answered |= u64::from(is_ready) << donor;
            heard.silent |= u64::from(is_silent) << donor;
            if is_silent || (is_ready && (is_fresh || end - begin >= WAITED)) {
                table.note_answer(donor, (end - since).as_micros() as u64);
            }
        }
        heard
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
    await_ready(sockets, timeout).into_iter().position(|is_ready| is_ready)
}

/// The same; which of them can be read from.
fn await_ready(sockets: &[BorrowedFd<'_>], timeout: Duration) -> Vec<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::from_borrowed_fd(*socket, PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => polled.iter().map(|socket| !socket.revents().is_empty()).collect(),
        Err(_) => (0..sockets.len()).map(|at| at == 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_has_answered_is_heard_whatever_others_do() -> std::io::Result<()> {
        let (one, two, three) = (UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?);
        let sockets = [one.0.as_fd(), two.0.as_fd(), three.0.as_fd()];
        let brief = Duration::from_millis(1);
        assert_eq!(await_ready(&sockets, brief), [false; 3]);
        assert_eq!(await_any(&sockets, brief), None);
        (&three.1).write_all(b"x")?;
        drop(two.1);
        // One that was closed has nothing more to wait for.
        assert_eq!(await_ready(&sockets, Duration::from_secs(60)), [false, true, true]);
        assert_eq!(await_any(&sockets, Duration::from_secs(60)), Some(1));
        Ok(())
    }
}
