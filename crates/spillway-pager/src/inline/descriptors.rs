//! Descriptors that the program's table has by the same numbers as the pager's, where the program serves its
//! own faults.
//!
//! They lie behind the last that the program may have (RLIMIT_NOFILE), so that it can have each of its own.
//! Where no number behind it can be had they take the last ones that are free, and the program's limit is
//! lowered to them.

use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::io::{Errno, Result, fcntl_dupfd_cloexec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spillway_sys::process;

/// More than are ever shared: two userfaultfds, three files of /proc, one a store, pipes and
/// what goes with them, and the pager's thread.
const MOST: u64 = 64;
/// Numbers from here on would make each file table large.
const HIGHEST: u64 = 1 << 16;

/// The limit on descriptors, raised for as long as this lives. Nobody else may open anything meanwhile.
pub(crate) struct RaisedLimit {
    before: Rlimit,
}

impl RaisedLimit {
    /// Raises it as far as it goes: behind the program's last descriptor, and behind those that are
    /// `inherited`.
    pub(crate) fn new(inherited: &[RawFd]) -> Self {
        let before = getrlimit(Resource::Nofile);
        let (soft, hard) = (before.current.unwrap_or(u64::MAX), before.maximum.unwrap_or(u64::MAX));
        let behind_own = inherited.iter().max().map_or(0, |&fd| fd as u64 + 1);
        let wanted = soft.saturating_add(MOST).max(behind_own);
        let limit = |soft: u64, hard: u64| Rlimit { current: Some(soft), maximum: Some(hard) };
        if setrlimit(Resource::Nofile, limit(wanted, hard.max(wanted))).is_err() {
            // Not privileged.
            let _ = setrlimit(Resource::Nofile, limit(wanted.min(hard), hard));
        }
        Self { before }
    }

    /// How many descriptors the program may have.
    pub(crate) fn of_program(&self) -> u64 {
        self.before.current.unwrap_or(u64::MAX)
    }

    /// These numbers are not the program's: where they had to be taken from its own, it may have as many
    /// fewer, so that the kernel tells it so.
    pub(crate) fn leave_out(&mut self, numbers: &[RawFd]) {
        let limit = self.of_program();
        let first = numbers.iter().map(|&number| number as u64).min();
        if let Some(first) = first.filter(|&first| first < limit && limit <= HIGHEST) {
            self.before.current = Some(first);
        }
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.before);
    }
}

/// Numbers that are free in the calling thread's table, those that are `inherited` among them: the best
/// first.
pub(crate) fn free_numbers(limit_of_program: u64, inherited: &[RawFd]) -> Vec<RawFd> {
    let limit_now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if !inherited.is_empty() {
        return inherited.to_vec();
    }
    let behind_last = limit_of_program.min(HIGHEST);
    (behind_last..behind_last + MOST)
        .chain((3..behind_last).rev())
        .filter(|&number| number < limit_now && !process::is_open(number as RawFd))
        .take(MOST as usize)
        .map(|number| number as RawFd)
        .collect()
}

/// Gives descriptors of the pager's their numbers.
pub(crate) struct SharedDescriptors {
    free: std::vec::IntoIter<RawFd>,
    numbers: Vec<RawFd>,
    is_inline: bool,
}

impl SharedDescriptors {
    /// Shares nothing unless `is_inline`.
    pub(crate) fn new(is_inline: bool, free: Vec<RawFd>) -> Self {
        Self { free: free.into_iter(), numbers: Vec::new(), is_inline }
    }

    /// The same descriptor, by a number that the program's table has free.
    pub(crate) fn share<T: From<OwnedFd> + AsFd>(&mut self, owner: T) -> Result<T> {
        if !self.is_inline {
            return Ok(owner);
        }
        let number = self.reserve()?;
        Ok(process::move_to(fcntl_dupfd_cloexec(&owner, 0)?, number)?.into())
    }

    /// All numbers given. The last is for what the program's table has besides: see [`crate::inline`].
    pub(crate) fn finish(mut self) -> Result<Vec<RawFd>> {
        if self.is_inline {
            self.reserve()?;
        }
        Ok(self.numbers)
    }

    /// A number that is free in the program's table, and in the pager's.
    fn reserve(&mut self) -> Result<RawFd> {
        let number = self.free.find(|&number| !process::is_open(number)).ok_or(Errno::MFILE)?;
        self.numbers.push(number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn numbers_are_free_and_behind_the_programs_last_where_they_can_be() {
        let open = fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).unwrap();
        let limit = getrlimit(Resource::Nofile).current.unwrap().min(HIGHEST);
        let inherited = [open.as_raw_fd()];
        let behind = free_numbers(limit - 100, &[]);
        assert_eq!(behind, (limit - 100..limit - 36).map(|n| n as RawFd).collect::<Vec<_>>());
        // Without room there.
        let last = free_numbers(limit.max(HIGHEST), &[]);
        assert!(last.len() > 8 && last.iter().all(|&number| !process::is_open(number)), "{last:?}");
        assert!(!free_numbers(100, &[]).contains(&open.as_raw_fd()));
        assert_eq!(free_numbers(100, &inherited), inherited);
    }
}
