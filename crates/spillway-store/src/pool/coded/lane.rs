//! One thread's way to a pool whose pages are coded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spillway_pool::code::Code;
use spillway_pool::slabs::room::FRESH_STREAMS;

use super::check::Checker;
use super::reads::{Posted, Reads};
use super::writes::Writes;
use crate::pool::shared::Shared;
use crate::{Lane, ReadRequest, StoreError, WriteRequest};

/// Lanes take turns among the slabs that are filled.
static LANES: AtomicUsize = AtomicUsize::new(0);

/// One thread's way to the pool.
pub(crate) struct CodedLane {
    reads: Reads,
    writes: Writes,
    checker: Checker,
    posted: Option<Posted>,
}

/// The code of a pool.
pub(crate) fn code_of(shared: &Shared) -> Result<Code, StoreError> {
    let coding = shared.table().coding();
    coding.and_then(|coding| Code::new(coding.data, coding.parity)).ok_or_else(|| StoreError::Gone {
        store: shared.uri.clone(),
        reason: "its table names a code that this version does not know".to_owned(),
    })
}

impl CodedLane {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<Self, StoreError> {
        let code = code_of(&shared)?;
        let checker = Checker::of_run(&shared.token);
        // Processes differ too: each begins elsewhere.
        let turn = LANES.fetch_add(1, Ordering::Relaxed) + std::process::id() as usize;
        let writes = Writes::new(code.clone(), turn % FRESH_STREAMS);
        Ok(Self { reads: Reads::new(shared, code), writes, checker, posted: None })
    }
}

impl Lane for CodedLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        let checker = self.checker;
        self.writes.write(&mut self.reads.lanes, batch, |page| checker.check(page));
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.reads.lanes.shared.table().count_read();
        self.reads.last.clear();
        let open = Reads::all(batch);
        self.reads.read(batch, open);
    }

    fn read_again(&mut self, batch: &mut [ReadRequest<'_>]) {
        let mut open = Reads::all(batch);
        // The first is the page that came wrong: it is decoded from others.
        let first = batch.first().map(|request| request.slot);
        let last = self.reads.last.iter().rev().find(|(slot, _)| Some(*slot) == first);
        if let Some((_, reading)) = last.filter(|(_, reading)| reading.is_direct()) {
            open[0].tried = 1 << reading.seat.part;
            self.reads.lanes.shared.table().hurt(reading.seat);
        }
        self.reads.last.clear();
        self.reads.read(batch, open);
    }

    fn can_post(&self) -> bool {
        true
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.reads.lanes.shared.table().count_read();
        self.posted = Some(self.reads.post(slots));
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        let posted = self.posted.take().filter(|posted| crate::posted::are_of(&posted.slots, batch));
        let Some(posted) = posted else { return self.read(batch) };
        self.reads.last.clear();
        self.reads.complete(posted, batch);
    }

    fn discard(&mut self, slots: &[u32]) {
        let table = self.reads.lanes.shared.table();
        // The donors are told nothing: what lives beside these pages needs them to be decoded.
        slots.iter().filter(|slot| **slot < table.slots()).for_each(|slot| table.forget(*slot));
    }
}
