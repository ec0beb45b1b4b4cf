//! Reads that were posted and came before somebody asked for them.

use spillway_core::page::{PAGE_SIZE, Page};

use crate::{ReadRequest, StoreError};

/// Whether a batch asks for these slots, in this order.
pub(crate) fn are_of(slots: &[u32], batch: &[ReadRequest<'_>]) -> bool {
    slots.iter().eq(batch.iter().map(|request| &request.slot))
}

/// Pages that a lane has fetched for a batch to come, because it needed its way to the store for something
/// else.
pub(crate) struct Kept {
    slots: Vec<u32>,
    pages: Vec<Page>,
    outcomes: Vec<Result<(), StoreError>>,
}

impl Kept {
    /// Has `read` fetch pages from these slots.
    pub(crate) fn fetch(slots: Vec<u32>, read: impl FnOnce(&mut [ReadRequest<'_>])) -> Self {
        let mut pages = vec![[0; PAGE_SIZE]; slots.len()];
        let requests = slots.iter().zip(&mut pages);
        let mut batch: Vec<_> =
            requests.map(|(&slot, page)| ReadRequest { slot, page, outcome: Ok(()) }).collect();
        read(&mut batch);
        let outcomes = batch.into_iter().map(|request| request.outcome).collect();
        Self { slots, pages, outcomes }
    }

    /// Hands the pages over; false where the batch asks for others.
    pub(crate) fn hand_over(&self, batch: &mut [ReadRequest<'_>]) -> bool {
        if !are_of(&self.slots, batch) {
            return false;
        }
        for ((request, page), outcome) in batch.iter_mut().zip(&self.pages).zip(&self.outcomes) {
            *request.page = *page;
            request.outcome = outcome.clone();
        }
        true
    }
}
