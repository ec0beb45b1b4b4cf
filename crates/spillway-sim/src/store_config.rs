//! What a store of a simulated run is like, and what goes wrong with it.

/// What a store is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// The real `ram:`, whose pages are read in place.
    Ram,
    /// The real `compressed:`, which fills by bytes; what does not compress is read in place.
    Compressed,
    /// A model of what answers late and out of order: `file:`, `nbd:`, `shm:`.
    Remote,
}

/// One store of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// What it is like.
    pub kind: StoreKind,
    /// Slots that it offers; of `compressed:` four times the pages of its memory.
    pub slots: u32,
    /// How long a request to a remote store takes, at most.
    pub latency_ns: u64,
    /// What goes wrong with it.
    pub faults: StoreFaults,
}

/// Chances are one in so many requests; 0 for never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// A request takes a thousand times as long.
    pub stalls_one_in: u64,
    /// A read fails, and succeeds when it is made again.
    pub fails_once_one_in: u64,
    /// A page is damaged on its way back, and comes right when it is asked for again.
    pub garbles_once_one_in: u64,
    /// From this request on, all fail for a while.
    pub fails_at_request: u64,
    /// For so many requests.
    pub fails_for_requests: u64,
    /// From this request on, all fail.
    pub dies_at_request: u64,
    /// At this request everything stored is lost, and pages read as zeros.
    pub emptied_at_request: u64,
    /// A page is damaged as it is stored.
    pub damages_one_in: u64,
    /// A page is not stored although the store says so: it returns the older one.
    pub forgets_one_in: u64,
    /// A page is stored in a wrong place.
    pub misplaces_one_in: u64,
    /// A write is refused for want of room, though there are slots.
    pub full_one_in: u64,
    /// Writes to slots from this one on fail, always, as many as the next says: as to those of a pool whose
    /// donors are dead.
    pub refuses_from: u32,
    /// How many slots that are.
    pub refuses_slots: u32,
    /// The store has room for so many pages, fewer than slots; 0 where its slots are all it has. As a file on
    /// a small disk.
    pub room_pages: u64,
}

impl StoreFaults {
    /// Whether it may return what was not stored there.
    #[must_use]
    pub fn spoils_pages(&self) -> bool {
        self.emptied_at_request + self.damages_one_in + self.forgets_one_in + self.misplaces_one_in > 0
    }
}
