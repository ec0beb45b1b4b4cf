//! Store URIs: `compressed:`, `ram:`, `file:PATH?size=SIZE`, `nbd://HOST:PORT/EXPORT`,
//! `nbd+unix:///EXPORT?socket=PATH`, `shm:NAME`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{Store, StoreError};

/// A parsed store URI. `Display` gives the URI back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {}

/// What the processes of one run must share to use one store.
#[derive(Debug)]
pub struct SharedParts {
    /// Number of slots that the store offers.
    pub capacity_slots: u32,
    /// A memory file or an open file, where the store needs one.
    pub fd: Option<OwnedFd>,
}

impl StoreSpec {
    /// Makes, once a run, what its processes will share, and checks that the store can be used.
    /// `run_token` is unique to the run; a donor keeps what belongs to it private.
    pub fn prepare(&self, run_token: &str) -> Result<SharedParts, StoreError> {
        let _ = run_token;
        unimplemented!()
    }

    /// Opens the store in one process of the run. Called anew in a forked child.
    pub fn open(&self, parts: SharedParts, run_token: &str) -> Result<Arc<dyn Store>, StoreError> {
        let _ = (parts, run_token);
        unimplemented!()
    }
}
