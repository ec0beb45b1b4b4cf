//! Why a page cannot be had.

use rustix::io::Errno;
use spillway_store::StoreError;
use thiserror::Error;

/// Why a page cannot be had.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PageError {
    /// The store has failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The store returned something other than what was stored.
    #[error(
        "store {store} returned a page with a wrong checksum: it was restarted, or has corrupted the page"
    )]
    Checksum {
        /// URI of the store.
        store: String,
    },
    /// The slot holds another page than the one that should lie there: a mistake of Spillway's.
    #[error("its slot holds another page: please report this mistake of Spillway's")]
    ForeignSlot,
    /// Nothing local can be evicted to make room.
    #[error("no page can be evicted: {reason}; give more --local, or a larger or further --store")]
    NoRoom {
        /// What stands in the way.
        reason: String,
    },
    /// A frame that should hold a page does not: a mistake of Spillway's.
    #[error("a frame that should hold the page is empty: please report this mistake of Spillway's")]
    EmptyFrame,
    /// An earlier access could not have it.
    #[error("it was lost before, as the line of that time says")]
    Lost,
    /// The kernel refused an operation.
    #[error("the kernel refused to {what}: {error}")]
    Kernel {
        /// The operation, as the end of "refused to".
        what: &'static str,
        /// What the kernel answered.
        error: Errno,
    },
}

/// How a fault's service can fail.
#[derive(Debug)]
pub enum Failure {
    /// Not now: the thread will fault again.
    Retry,
    /// The page cannot be had.
    Refused(PageError),
}

impl<E: Into<PageError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}
