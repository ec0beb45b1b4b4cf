//! Which store a URI leads to.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{SharedParts, Store, StoreError, StoreSpec};

impl StoreSpec {
    /// Makes, once a run, what its processes will share, and checks that the store can be used.
    /// `run_token` is unique to the run; a donor keeps what belongs to it private.
    pub fn prepare(&self, run_token: &str) -> Result<SharedParts, StoreError> {
        match self {
            Self::Nbd { .. } | Self::NbdUnix { .. } => crate::nbd::prepare(self, run_token),
            Self::Shm { .. } => crate::shm::prepare(self, run_token),
            Self::Pool(pool) => crate::pool::prepare(self, pool, run_token),
            Self::Compressed { size } => crate::compressed::prepare(self, *size),
            Self::Ram { size, .. } => crate::ram::prepare(self, *size),
            Self::File { path, size } => crate::file::prepare(self, path, *size),
        }
    }

    /// Opens the store in one process of the run. Called anew in a forked child.
    pub fn open(&self, parts: SharedParts, run_token: &str) -> Result<Arc<dyn Store>, StoreError> {
        match self {
            Self::Nbd { .. } | Self::NbdUnix { .. } => crate::nbd::open(self, parts, run_token),
            Self::Shm { .. } => crate::shm::open(self, parts, run_token),
            Self::Pool(pool) => crate::pool::open(self, pool, parts, run_token),
            Self::Compressed { .. } => crate::compressed::open(self, parts),
            Self::Ram { .. } => crate::ram::open(self, parts),
            Self::File { .. } => crate::file::open(self, parts),
        }
    }

    /// Ends the run whose [`SharedParts::fd`] this is, after its last process: a donor gives the run's memory
    /// back at once. Returns when it has, or after some time. Without it a donor takes the run for lost, and
    /// keeps its memory for the grace time.
    pub fn end(&self, fd: &OwnedFd) {
        match self {
            Self::Nbd { .. } | Self::NbdUnix { .. } => crate::nbd::end(fd),
            Self::Shm { .. } => crate::shm::end(fd),
            // The memory file or the scratch file goes with its last descriptor.
            Self::Compressed { .. } | Self::Ram { .. } | Self::File { .. } | Self::Pool(_) => {}
        }
    }

    /// The same for what only the supervisor held ([`SharedParts::held`]).
    pub fn end_held(&self, held: &[OwnedFd]) {
        if let Self::Pool(_) = self {
            held.iter().for_each(crate::nbd::end);
        }
    }
}
