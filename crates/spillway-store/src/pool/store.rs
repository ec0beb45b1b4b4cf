//! The pool as the rest of Spillway sees it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use spillway_pool::EXTENT_BYTES;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::words::Condition;

use super::care::Care;
use super::claimed::leave_all;
use super::coded::lane::{CodedLane, code_of};
use super::lane::PoolLane;
use super::shared::Shared;
use crate::spec::PoolSpec;
use crate::{
    Lane, LatencyClass, Listener, Part, PartHealth, PartKind, SharedParts, Store, StoreError, StoreSpec, Tell,
};

/// Opens the pool in one process of the run.
pub(crate) fn open(
    spec: &StoreSpec,
    pool: &PoolSpec,
    parts: SharedParts,
    run_token: &str,
) -> Result<Arc<dyn Store>, StoreError> {
    let shared = Arc::new(Shared::open(spec, pool, parts, run_token)?);
    let capacity_slots = shared.table().slots();
    if shared.table().coding().is_some() {
        // The code's library finds out once what the processor has, and a fork may come between.
        let _ = code_of(&shared)?;
    }
    Ok(Arc::new(PoolStore { shared, capacity_slots, care: Mutex::default() }))
}

struct PoolStore {
    shared: Arc<Shared>,
    capacity_slots: u32,
    care: Mutex<Option<Care>>,
}

impl Store for PoolStore {
    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Remote
    }

    fn uri(&self) -> &str {
        &self.shared.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.capacity_slots
    }

    fn listen(&self, listener: Listener) {
        self.shared.listen(listener);
    }

    fn tend(&self) {
        self.shared.ways().for_each(|way| way.store.tend());
    }

    fn keeps_memory_for(&self, slot: u32) -> bool {
        let (table, extent) = (self.shared.table(), slot / EXTENT_SLOTS);
        table.coding().is_none() && extent < table.extents() && table.keeps_memory_for(extent)
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        let shared = Arc::clone(&self.shared);
        Ok(match shared.table().coding() {
            Some(_) => Box::new(CodedLane::new(shared)?),
            None => Box::new(PoolLane::new(shared)),
        })
    }

    fn supervise(&self, held: Vec<OwnedFd>, tell: Tell) {
        let care = Care::start(Arc::clone(&self.shared), held, tell);
        *self.care.lock().unwrap_or_else(PoisonError::into_inner) = Some(care);
    }

    fn pause(&self) -> Vec<OwnedFd> {
        let care = self.care.lock().unwrap_or_else(PoisonError::into_inner).take();
        care.map(Care::stop).unwrap_or_default()
    }

    fn leave(&self) {
        leave_all(&self.shared);
    }

    fn parts(&self) -> Vec<Part> {
        let table = self.shared.table();
        let part = |donor: usize| {
            let (capacity, used) = table.room(donor);
            let (fetched_pages, written_pages) = table.traffic(donor);
            let bytes = |extents: u32| u64::from(extents) * EXTENT_BYTES;
            let (kind, name) = match self.shared.last_resort().filter(|resort| resort.donor == donor) {
                Some(resort) => (PartKind::Spill, resort.path.clone()),
                None => (PartKind::Donor, self.shared.name(donor)),
            };
            Part {
                kind,
                name,
                capacity_bytes: bytes(capacity),
                used_bytes: bytes(used),
                fetched_pages,
                written_pages,
                hedged_reads: table.hedged(donor),
                health: match table.donor(donor).condition {
                    Condition::Up => PartHealth::Up,
                    Condition::Suspect => PartHealth::Silent,
                    Condition::Down => PartHealth::Away,
                },
            }
        };
        (0..table.donors()).map(part).collect()
    }
}
