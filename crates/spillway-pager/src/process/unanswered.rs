//! What this process has told servers to change, and has no answer to. A server may do it at any later time,
//! after the end of the process too: until it is known to be done, nobody else may have these slots.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use spillway_store::{Lane, ReadRequest, WriteRequest};

use crate::kernel::{Kernel, planted};
use crate::run::state::Process;

/// A lane whose unanswered calls that change something are counted in the process's entry of the run's state.
pub(crate) struct CountedLane<K> {
    lane: Box<dyn Lane>,
    process: Process<'static>,
    kernel: PhantomData<fn() -> K>,
}

impl<K: Kernel> CountedLane<K> {
    pub(crate) fn new(lane: Box<dyn Lane>, process: Process<'static>) -> Self {
        Self { lane, process, kernel: PhantomData }
    }

    /// Counted before the first byte is sent, and until each request has its answer: for ever where that does
    /// not come.
    fn change(&mut self, change: impl FnOnce(&mut dyn Lane)) {
        if planted!(K, "changes-not-counted") {
            return change(&mut *self.lane);
        }
        self.process.unanswered_changes().fetch_add(1, Ordering::SeqCst);
        change(&mut *self.lane);
        if self.lane.has_answered() {
            self.process.unanswered_changes().fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<K: Kernel> Lane for CountedLane<K> {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        self.change(|lane| lane.write(batch));
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.lane.read(batch);
    }

    fn read_again(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.lane.read_again(batch);
    }

    fn can_post(&self) -> bool {
        self.lane.can_post()
    }

    fn post_reads(&mut self, slots: &[u32]) {
        self.lane.post_reads(slots);
    }

    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.lane.complete_reads(batch);
    }

    fn posted(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.lane.posted()
    }

    fn leave_posted(&mut self) {
        self.lane.leave_posted();
    }

    fn discard(&mut self, slots: &[u32]) {
        self.change(|lane| lane.discard(slots));
    }

    fn has_answered(&self) -> bool {
        self.lane.has_answered()
    }
}
