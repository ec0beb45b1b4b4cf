//! What a process has sent to a server and a server does after the process's end: it lies in the server's
//! socket, and nobody can take it back.

use std::collections::BTreeMap;

use spillway_core::page::Page;

/// How late a server may be.
const MOST_LATE_NS: u64 = 40_000_000;

/// What is on its way to one store.
#[derive(Default)]
pub(crate) struct OnTheirWay {
    /// Pages that processes which live have sent and have no answer for, by process and slot.
    sent: BTreeMap<(usize, u32), Box<Page>>,
    /// Pages of processes that have ended.
    late: Vec<LateWrite>,
}

/// A page of a process that has ended.
pub(crate) struct LateWrite {
    pub(crate) process: usize,
    pub(crate) slot: u32,
    pub(crate) page: Box<Page>,
    done_at_ns: u64,
}

impl OnTheirWay {
    /// A process sends a page.
    pub(crate) fn note_sent(&mut self, process: usize, slot: u32, page: &Page) {
        self.sent.insert((process, slot), Box::new(*page));
    }

    /// The store has answered.
    pub(crate) fn note_answered(&mut self, process: usize, slot: u32) {
        self.sent.remove(&(process, slot));
    }

    /// A process has ended. Half of what it has sent comes to nothing, and the rest is done late.
    pub(crate) fn note_ended(&mut self, process: usize, now_ns: u64) {
        let sent = self.sent.extract_if((process, 0)..=(process, u32::MAX), |_, _| true);
        let late = sent.filter(|((_, slot), _)| slot % 2 == 0).map(|((process, slot), page)| {
            // Not drawn, so that what is drawn for everything else stays as it is.
            let lateness_ns = u64::from(slot).wrapping_mul(0x9E37_79B9_7F4A_7C15) % MOST_LATE_NS;
            LateWrite { process, slot, page, done_at_ns: now_ns + lateness_ns }
        });
        self.late.extend(late);
    }

    /// Something of a process that has ended is on its way.
    pub(crate) fn has_of(&self, process: usize) -> bool {
        self.late.iter().any(|late| late.process == process)
    }

    /// What is done by now.
    pub(crate) fn take_done(&mut self, now_ns: u64) -> Vec<LateWrite> {
        self.late.extract_if(.., |late| late.done_at_ns <= now_ns).collect()
    }
}
