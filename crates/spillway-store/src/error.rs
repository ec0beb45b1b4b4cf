//! What can go wrong with a store.

use thiserror::Error;

/// A store's failure, in words that name the store, the reason and the remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreError {
    /// No room for the page; other slots may still be written and everything stored is intact.
    #[error("store {store} is full: give it a larger size, or name a further --store")]
    Full {
        /// URI of the store.
        store: String,
    },
    /// The store does not answer any more.
    #[error("store {store} is gone: {reason}")]
    Gone {
        /// URI of the store.
        store: String,
        /// What the last attempt said.
        reason: String,
    },
    /// The device or the server answered with an error for this request.
    #[error("store {store} failed: {reason}")]
    Io {
        /// URI of the store.
        store: String,
        /// What it answered to the request.
        reason: String,
    },
    /// What the store returned was not sealed by this run for that slot at that time.
    #[error(
        "store {store} returned a page whose seal is wrong: it was restarted, or the page was changed or put \
         in the place of another"
    )]
    WrongSeal {
        /// URI of the store.
        store: String,
    },
    /// The run has sealed as many pages as one key may.
    #[error(
        "store {store} can be given no more pages: the run has sealed as many as one key may; end the \
         program and start it anew"
    )]
    SealsSpent {
        /// URI of the store.
        store: String,
    },
    /// The store cannot be used as it was asked for.
    #[error("cannot use store {store}: {reason}; {remedy}")]
    Unusable {
        /// URI of the store.
        store: String,
        /// Why it cannot be used so.
        reason: String,
        /// What the user can do.
        remedy: String,
    },
}
