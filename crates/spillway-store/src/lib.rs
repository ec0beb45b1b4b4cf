//! Far memory: where pages are kept that are not local.
//!
//! A [`Store`] is an array of page-sized *slots*. Who uses which slot, and the checksum of what a slot
//! holds, is the pager's business; a store only keeps bytes. The processes of one run share a store: what
//! they must share (a memory file, an open file) is made once by [`StoreSpec::prepare`] and handed to each,
//! which then calls [`StoreSpec::open`].

pub mod claim;
mod compressed;
pub mod ending;
pub mod error;
pub mod fabric;
mod file;
mod kept;
pub mod membership;
mod memory;
pub mod nbd;
mod notice;
mod open;
mod pool;
mod posted;
mod ram;
pub mod shm;
pub mod spec;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod with_descriptor;

pub use error::StoreError;
pub use notice::{Notice, NoticeKind, Tell};
pub use spec::{Claim, Patience, SharedParts, SpecError, StoreSpec};

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use spillway_core::page::Page;

/// One page on its way to the store. `slot` counts from 0 within this store.
pub struct WriteRequest<'a> {
    /// Where to put it.
    pub slot: u32,
    /// What to put there. Does not change while the request is under way.
    pub page: &'a Page,
    /// How it went; set by [`Lane::write`].
    pub outcome: Result<(), StoreError>,
}

/// One page on its way back.
pub struct ReadRequest<'a> {
    /// Where the page has been stored.
    pub slot: u32,
    /// Where to put it. Its contents are undefined where `outcome` is an error.
    pub page: &'a mut Page,
    /// How it went; set by [`Lane::read`].
    pub outcome: Result<(), StoreError>,
}

/// Room of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that pages take now.
    pub used_bytes: u64,
    /// Bytes that there are.
    pub capacity_bytes: u64,
}

/// What answers a store's requests, and so how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LatencyClass {
    /// Memory of this machine, copied by the caller: less than a microsecond a page.
    Memory,
    /// The same, and the caller compresses: some microseconds a page, most of them in writes.
    Compression,
    /// Another process of this machine, over shared memory: some microseconds, on another CPU.
    Neighbour,
    /// A device or a network: long enough for another thread to work meanwhile.
    Remote,
}

impl LatencyClass {
    /// Somebody else than the caller answers: a process, a device, another machine.
    #[must_use]
    pub fn waits_for_others(self) -> bool {
        self >= Self::Neighbour
    }
}

/// What happens to a store's lanes while somebody waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A request has no answer yet, or the store cannot be reached: told about once a second.
    Waiting {
        /// What is the matter.
        reason: &'a str,
        /// When the store is given up.
        left: Duration,
    },
    /// A request has its answer.
    Answering,
    /// The store takes no further connection, so lanes wait for each other.
    Crowded {
        /// What became of the last attempt.
        reason: &'a str,
    },
    /// This process has no connection to the store, and gets none.
    Starving,
}

/// Who hears of a store's lanes. Called by whoever works with them, and often: it must be quick.
pub trait Hear: Send + Sync {
    /// Something has happened to the store of this URI.
    fn hear(&self, store: &str, event: Event<'_>);

    /// There is a connection by which pages are going to be written, under a number that this process uses
    /// once. Whoever keeps a copy of it can see, after the end of this process, when the server has done the
    /// last of what was sent by it. False where it cannot be kept: nothing may be sent by it then.
    fn keep(&self, _number: u64, _connection: BorrowedFd<'_>) -> bool {
        true
    }

    /// This connection is not needed any more, and no write is on its way by it.
    fn let_go(&self, _number: u64) {}

    /// Some process of the run has no connection to the store, and others should leave it theirs.
    fn is_starving(&self) -> bool;
}

/// Somebody who hears of a store's lanes.
pub type Listener = Arc<dyn Hear>;

/// How a server is that is part of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartHealth {
    /// It answers in time.
    Up,
    /// It has left a read without an answer.
    Silent,
    /// It cannot be reached.
    Away,
}

/// What a part of a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// A server on this machine or another one.
    Donor,
    /// A file of this machine, for what donors have no room for.
    Spill,
}

/// A server that is part of a store, or its last resort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whether it is a server or a file.
    pub kind: PartKind,
    /// As the user named it: a server, or the path of a file.
    pub name: String,
    /// Bytes that it lends.
    pub capacity_bytes: u64,
    /// Bytes of it that are in use.
    pub used_bytes: u64,
    /// Pages read from it.
    pub fetched_pages: u64,
    /// Pages written to it.
    pub written_pages: u64,
    /// Reads that were asked of another server too, since this one was silent for longer than usual.
    pub hedged_reads: u64,
    /// How it is at this moment.
    pub health: PartHealth,
}

/// A far-memory store, as one process sees it.
pub trait Store: Send + Sync {
    /// What answers its requests.
    fn latency_class(&self) -> LatencyClass;

    /// The URI that the user gave, for messages.
    fn uri(&self) -> &str;

    /// How many slots the store has.
    fn capacity_slots(&self) -> u32;

    /// Has what its lanes go through told to somebody. At most once, before the first lane.
    fn listen(&self, _listener: Listener) {}

    /// Gives back what rests. Called about once a second.
    fn tend(&self) {}

    /// No request gets an answer through this any more, for it has waited too long for one.
    fn is_given_up(&self) -> bool {
        false
    }

    /// In the run's supervisor: looks after the store from now on, with threads of its own, and has what
    /// happens told. `held` is [`SharedParts::held`].
    fn supervise(&self, _held: Vec<OwnedFd>, _tell: Tell) {}

    /// Ends [`Self::supervise`]: its threads begin nothing any more, and it gives back what it was given, or
    /// what stands for it by now.
    fn pause(&self) -> Vec<OwnedFd> {
        Vec::new()
    }

    /// In the run's supervisor, at the end of the run and after [`Self::pause`]: gives back what the store
    /// has claimed of servers that others may use too.
    fn leave(&self) {}

    /// The servers that a store is made of, where it is of several.
    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    /// A slot beyond all that are for pages, for the claim of a run on a store that others may use too, where
    /// one is needed. Known once a lane has been opened.
    fn claim_slot(&self) -> Option<u32> {
        None
    }

    /// A way to the store for one thread. Lanes work side by side without waiting for each other.
    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError>;

    /// How much room there is and how much of it is taken, where the number of slots does not say it.
    fn room(&self) -> Option<Room> {
        None
    }

    /// Whether the store keeps memory for this slot, so that it takes a page there though it is full. A store
    /// that does not know says no.
    fn keeps_memory_for(&self, _slot: u32) -> bool {
        false
    }

    /// Bytes of memory or disk that the store takes at this moment, where it knows; else 0.
    fn stored_bytes(&self) -> u64 {
        0
    }
}

/// One thread's way to a store. Calls block until every request of the batch has its outcome; requests of a
/// batch are in flight together.
pub trait Lane: Send {
    /// Stores pages. A slot may be written again; a failed write leaves that slot's contents undefined.
    fn write(&mut self, batch: &mut [WriteRequest<'_>]);

    /// Begins to store pages and returns at once; [`Self::complete_writes`] waits for it, and is to be called
    /// next, with the same batch. What cannot be sent now is sent then. So a thread writes by several lanes
    /// at the same time.
    fn post_writes(&mut self, _batch: &[WriteRequest<'_>]) {}

    /// Ends what [`Self::post_writes`] began, as [`Self::write`] does.
    fn complete_writes(&mut self, batch: &mut [WriteRequest<'_>]) {
        self.write(batch);
    }

    /// Fetches pages that were written before.
    fn read(&mut self, batch: &mut [ReadRequest<'_>]);

    /// Fetches pages once more whose read failed or came wrong: by another way to the store, where there is
    /// one.
    fn read_again(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.read(batch);
    }

    /// Whether reads can be under way while their caller does something else.
    fn can_post(&self) -> bool {
        false
    }

    /// Sends for pages that were written before, and returns at once; [`Self::complete_reads`] fetches them.
    /// They come into memory of the lane's own, so the caller may do what it likes meanwhile, with this lane
    /// too, or never fetch them: what is posted next replaces them. A slot that is written between the two
    /// calls may come either way. What cannot be sent now is sent for at completion.
    fn post_reads(&mut self, _slots: &[u32]) {}

    /// Fetches what was posted. Where that were other slots than the batch's, or none, it is [`Self::read`].
    fn complete_reads(&mut self, batch: &mut [ReadRequest<'_>]) {
        self.read(batch);
    }

    /// What can be read from once the first answer to posted reads is there; `None` where none are under way.
    fn posted(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Gives up what was posted: its answers, whenever they come, are never looked at.
    fn leave_posted(&mut self) {}

    /// The page in a slot that was written before, where the store keeps it as it is in memory of this
    /// process. Whoever holds the slot sees to it that nobody writes there meanwhile.
    fn page(&self, _slot: u32) -> Option<&Page> {
        None
    }

    /// Says that the contents of `slots` are no longer needed, so that their memory can be given back.
    /// Returns when it is safe to write these slots again. Failure is not an error: the slots can be reused.
    fn discard(&mut self, slots: &[u32]);

    /// Whether each request of the last call has its answer and was sent once: then nothing of it can come
    /// late, over what is stored there next by another lane or process.
    fn has_answered(&self) -> bool {
        true
    }
}
