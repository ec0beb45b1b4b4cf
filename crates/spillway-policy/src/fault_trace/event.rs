//! What a fault trace tells.

use serde::{Deserialize, Serialize};
use spillway_core::fifo::Entry;
use spillway_core::page_word::Queue;

use super::block_event::{BlockRule, ElasticCall, StreamCall};
use super::runs::Runs;
use crate::dcm::{Config, Replacement, Step};
use crate::strides::Foresight;
use crate::tape::Met;
use crate::thread_queues::{Flushed, ThreadQueues};

/// What a replay needs to begin as the pager did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Settings of the replacement.
    pub replacement: Config,
    /// Of so many of the oldest pages those leave first that lie together.
    pub victim_window_pages: usize,
    /// Pages for which the queues have room: the local limit.
    pub local_pages: usize,
    /// Of the replacement's coin.
    pub seed: u64,
    /// How blocks come to their sizes; nothing in traces of version 1, which do not tell enough of them.
    #[serde(default)]
    pub blocks: Option<BlockRule>,
    /// Everything that the run was started with, to be read by people.
    pub settings: serde_json::Value,
}

impl Header {
    /// The replacement that the pager began with.
    #[must_use]
    pub fn replacement(&self) -> Replacement {
        Replacement::new(self.replacement, self.local_pages, self.seed)
            .with_victim_window(self.victim_window_pages)
    }

    /// What the thread of number `place` began with.
    #[must_use]
    pub fn thread_queues(&self, place: u16) -> ThreadQueues {
        ThreadQueues::new(&self.replacement, self.local_pages, self.seed, place.into())
    }
}

/// What a thread did that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It read from the page.
    Read,
    /// It wrote to the page.
    Write,
    /// It wrote to a page that is there, write-protected.
    Protected,
}

/// What a fault needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The page was never written.
    FirstTouch,
    /// A store held the page.
    Fetch,
    /// It was in the inactive queue: local, unmapped.
    Inactive,
    /// It was on its way out.
    Writeback,
    /// It was there already, or could not be had.
    Other,
}

/// One fault of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The page that was touched.
    pub page_number: u64,
    /// How it was touched.
    pub access: Access,
    /// What it needed of the pager.
    pub served: Served,
}

/// Why pages came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A fault on a far page.
    Fetch,
    /// The evictor read them ahead.
    ReadAhead,
    /// A fault on a page that was never written.
    Zeros,
    /// They were the kernel's until now, and are taken over as they lie there.
    TakenOver,
}

/// Pages that came together. They enter the queues in the events after this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Why they came in.
    pub cause: Cause,
    /// The first of them, or the one that was touched.
    pub page_number: u64,
    /// How many the block would have had.
    pub wanted_pages: u64,
    /// How many of them came.
    pub came_pages: u64,
}

/// A fault of a thread that is followed, and where it is expected next: [`crate::strides`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Who follows the thread.
    pub place: u8,
    /// They follow it from now on.
    pub is_new: bool,
    /// How its next pages are expected.
    pub foresight: Foresight,
    /// The page that faulted.
    pub page_number: u64,
    /// Pages that may be asked for.
    pub most: u64,
    /// For each page that it was asked of, whether it was far.
    pub far: Runs,
    /// Of those that were asked for last, how many were used.
    pub used: u64,
    /// The pages that are asked for.
    pub asked: Vec<u64>,
}

/// A fault of a thread while a tape is played, and what comes along: [`crate::tape`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taped {
    /// Who follows the thread.
    pub place: u8,
    /// They follow it from now on.
    pub is_new: bool,
    /// The page that faulted.
    pub page_number: u64,
    /// How it lies to the tape.
    pub met: Met,
    /// Pages that may be asked for.
    pub most: u64,
    /// Pages that are worth a fetch.
    pub wanted: u64,
    /// The pages that the tape has next and that are far: as many, or fewer.
    pub asked: Vec<u64>,
}

/// How a page left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Dropped where it lay: unchanged since it came.
    Clean,
    /// To a store, or found unchanged there.
    Stored,
    /// Dropped as zeros, or found gone.
    Zeros,
    /// The program gave it up.
    Forgotten,
}

/// A call to what a thread has of its own ([`ThreadQueues`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadCall {
    /// [`ThreadQueues::queue_of_newcomer`] and its answer.
    Newcomer(Queue),
    /// [`ThreadQueues::queue_of_returner`] and its answer.
    Returner {
        /// As it was asked.
        away_pages: u64,
        /// As it was asked.
        local_pages: u64,
        /// The answer that it had.
        queue: Queue,
    },
    /// [`ThreadQueues::collect`]; `is_full` where the buffer had no room.
    Collect {
        /// As it was asked.
        queue: Queue,
        /// As it was asked.
        entry: Entry,
        /// The answer that it had.
        is_full: bool,
    },
    /// [`ThreadQueues::flush`] into the shared queues, and what became of it.
    Flush(Flushed),
    /// [`ThreadQueues::enqueue_inactive`]; `is_full` where there was no room.
    EnqueueInactive {
        /// As it was asked.
        entry: Entry,
        /// The answer that it had.
        is_full: bool,
    },
    /// [`ThreadQueues::next_inactive`] and its answer.
    NextInactive(Option<Entry>),
    /// [`ThreadQueues::drop_stale`]: for each entry, in its order, whether it stayed.
    DropStale(Runs),
    /// [`ThreadQueues::next_source`] and its answer.
    Source {
        /// How many threads there are.
        threads: u16,
        /// The answer that it had.
        first: u16,
    },
}

/// One line of a fault trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The pager begins. First of all.
    Start(Header),
    /// [`Replacement::queue_of_newcomer`] and its answer.
    Newcomer(Queue),
    /// [`Replacement::queue_of_returner`] and its answer.
    Returner {
        /// As it was asked.
        away_pages: u64,
        /// As it was asked.
        local_pages: u64,
        /// The answer that it had.
        queue: Queue,
    },
    /// [`Replacement::enqueue`]; `is_full` where there was no room.
    Enqueue {
        /// As it was asked.
        queue: Queue,
        /// As it was asked.
        entry: Entry,
        /// The answer that it had.
        is_full: bool,
    },
    /// [`Replacement::next_mapped`]: the ranks that it asked for, in its order, and its answer.
    NextMapped {
        /// What it was told of pages' use.
        ranks: Runs,
        /// The answer that it had.
        step: Option<Step>,
    },
    /// [`Replacement::next_inactive`] and its answer.
    NextInactive(Option<Entry>),
    /// [`Replacement::drop_stale`]: for each entry, in its order, whether it stayed.
    DropStale(Runs),
    /// Something was asked of what a thread has of its own.
    Thread {
        /// The number of the thread.
        place: u16,
        /// What was asked, and the answer.
        call: ThreadCall,
    },
    /// A fault, before it is served.
    Fault(Fault),
    /// [`crate::strides::Follower::fault`] and its answer.
    Foreseen(Foreseen),
    /// [`crate::tape::Window::fault`] and its answer.
    Taped(Taped),
    /// Something was asked of streams of faults.
    Stream(StreamCall),
    /// Something was asked of elastic blocks.
    Elastic(ElasticCall),
    /// Pages came, all for one reason.
    Block(Block),
    /// Pages that lie side by side left.
    Left {
        /// How the pages left the memory.
        how: Left,
        /// The first of them.
        page_number: u64,
        /// How many pages that are.
        pages: u64,
    },
    /// Accessed bits were scanned: of the pages from `page_number` on, whether each was used (1), was not (0)
    /// or is not mapped (2).
    Scan {
        /// The first of them.
        page_number: u64,
        /// A number for each.
        found: Runs,
    },
}
