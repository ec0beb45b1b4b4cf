//! What a worker notes while a read is under way ([`crate::fault::overlap`]).

/// A read under way.
pub(crate) struct Posted {
    pub(crate) store: usize,
    /// Of the run: the faulting page's, then its followers'.
    pub(crate) slots: Vec<u32>,
    /// The faulting page is charged; its followers are in every case.
    pub(crate) is_charged: bool,
}

/// How much is evicted at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// What pays best by the page.
    Batch,
    /// Beside a read that is under way: at most so many pages, and none is waited for that must be written
    /// to a store far away.
    Beside(usize),
}
