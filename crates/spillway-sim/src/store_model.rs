//! What the world knows of a store: what it holds, what is under way, and what has gone wrong there.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_store::{Room, Store, StoreError, StoreSpec};

use crate::config::{StoreConfig, StoreKind};
use crate::late_writes::OnTheirWay;

/// A store, as all processes of the world share it.
pub struct StoreModel {
    pub(crate) config: StoreConfig,
    /// Its name in messages and settings.
    pub uri: String,
    /// Slots that it offers.
    pub capacity_slots: u32,
    /// The real one below.
    pub(crate) inner: Option<Arc<dyn Store>>,
    /// What the modelled one holds.
    pub(crate) pages: BTreeMap<u32, Box<Page>>,
    pub(crate) requests: u64,
    pub(crate) under_way: Vec<UnderWay>,
    pub(crate) on_their_way: OnTheirWay,
    /// Good answers that reads are owed, by process and slot, after one of no use: most of the reads that the
    /// pager makes of a page in a row, or what fails would not pass.
    pub(crate) owed: BTreeMap<(Option<usize>, u32), u8>,
    /// It has returned, or will return, what was not stored there.
    pub has_spoilt: bool,
    /// Some of its requests have failed.
    pub has_failed: bool,
    /// It has refused pages for want of room.
    pub has_been_full: bool,
}

/// A request that is not done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) process: Option<usize>,
    pub(crate) slot: u32,
    pub(crate) is_write: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    Fails,
    FailsOnce,
    GarbledOnce,
    Dead,
    Full,
    Damaged,
    Forgotten,
    Misplaced,
}

impl StoreModel {
    /// A store by its number among those of the run.
    ///
    /// # Errors
    /// Where the real store below cannot be made.
    pub fn new(number: usize, config: &StoreConfig) -> Result<Self, StoreError> {
        let bytes = u64::from(config.slots) * PAGE_SIZE as u64;
        let uri = match config.kind {
            StoreKind::Ram => format!("ram:?size={bytes}"),
            StoreKind::Compressed => format!("compressed:?size={}", bytes / 4),
            StoreKind::Remote => format!("nbd://10.0.0.{number}:10809/a"),
        };
        let inner = match config.kind {
            StoreKind::Remote => None,
            _ => Some(open(&uri)?),
        };
        let capacity_slots = inner.as_ref().map_or(config.slots, |inner| inner.capacity_slots());
        Ok(Self {
            config: config.clone(),
            uri,
            capacity_slots,
            inner,
            pages: BTreeMap::new(),
            requests: 0,
            under_way: Vec::new(),
            on_their_way: OnTheirWay::default(),
            owed: BTreeMap::new(),
            has_spoilt: false,
            has_failed: false,
            has_been_full: false,
        })
    }

    pub(crate) fn has_room_for(&self, slot: u32) -> bool {
        let room_pages = self.config.faults.room_pages;
        room_pages == 0 || self.pages.contains_key(&slot) || (self.pages.len() as u64) < room_pages
    }

    /// What a file system would say of its space.
    pub(crate) fn room(&self) -> Option<Room> {
        let capacity_bytes = self.config.faults.room_pages * PAGE_SIZE as u64;
        let used_bytes = (self.pages.len() * PAGE_SIZE) as u64;
        (capacity_bytes > 0 && used_bytes > 0).then_some(Room { used_bytes, capacity_bytes })
    }

    pub(crate) fn error(&self, fate: Fate) -> StoreError {
        let store = self.uri.clone();
        match fate {
            Fate::Full => StoreError::Full { store },
            Fate::Dead => StoreError::Gone { store, reason: "the simulated store has died".to_owned() },
            _ => StoreError::Io { store, reason: "the simulated store has failed".to_owned() },
        }
    }
}

fn open(uri: &str) -> Result<Arc<dyn Store>, StoreError> {
    let unusable = |reason: String| StoreError::Unusable {
        store: uri.to_owned(),
        reason,
        remedy: "this is a mistake of the simulator's".to_owned(),
    };
    let spec: StoreSpec = uri.parse().map_err(|error| unusable(format!("{error}")))?;
    let parts = spec.prepare("simulated")?;
    spec.open(parts, "simulated")
}
