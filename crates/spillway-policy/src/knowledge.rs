//! What offline policies know of a run before it happens.

use std::sync::Arc;

use crate::machine::PageIndex;

/// What a policy must know beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreknowledge {
    /// Nothing: it can run live.
    Nothing,
    /// How often each page is accessed.
    Profile,
    /// Every page that is accessed, in order.
    Future,
}

/// What is known beforehand; empty where nothing was asked for.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// Accesses of each page that miss the caches.
    pub profile: Arc<Vec<u32>>,
    /// The pages accessed, in order; one that is accessed many times in a row stands there once. A page that
    /// is given back stands there with [`GIVEN_BACK`].
    pub future: Arc<Vec<PageIndex>>,
}

/// The bit of a page in [`Knowledge::future`] that says that it is given back, not accessed.
pub const GIVEN_BACK: PageIndex = 1 << 31;
