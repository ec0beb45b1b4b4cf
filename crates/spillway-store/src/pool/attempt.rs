//! One attempt to begin a run on a pool.

use crate::spec::PoolSpec;
use crate::{StoreError, StoreSpec};

/// A run that begins on a pool by some redundancy.
pub(super) struct Attempt<'a> {
    pub(super) spec: &'a StoreSpec,
    /// The pool, with a redundancy that is settled.
    pub(super) pool: &'a PoolSpec,
    pub(super) run_token: &'a str,
    /// Nobody asked for that redundancy: there is another where it does not pay.
    pub(super) is_offer: bool,
}

/// Why a run does not begin with a redundancy.
pub(super) enum Failure {
    /// There are not so many donors, so nobody expects it.
    TooFew(StoreError),
    /// The donors that there are have no room by it. By another they may have.
    NoRoom(StoreError),
    /// It begins by no redundancy.
    Any(StoreError),
}

impl Failure {
    pub(super) fn error(self) -> StoreError {
        let (Self::TooFew(error) | Self::NoRoom(error) | Self::Any(error)) = self;
        error
    }
}
