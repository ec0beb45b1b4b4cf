//! `ram:`: plain copies in a memory file. Slot n lies at byte n * 4096; memory is taken when a slot is first
//! written and given back by discard.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::size::Size;
use spillway_sys::shared_memory::SharedMemory;

use crate::fabric::{self, Link};
use crate::memory::{for_each_run, held_bytes, no_memory_file, no_such_slot, pages_in, shared_file};
use crate::{Lane, LatencyClass, ReadRequest, SharedParts, Store, StoreError, StoreSpec, WriteRequest};

/// Makes the memory file.
pub(crate) fn prepare(spec: &StoreSpec, size: Option<Size>) -> Result<SharedParts, StoreError> {
    let slots = pages_in(size) as u32;
    // The link of a modelled network lies behind the slots.
    let (file, _memory) = SharedMemory::create("spillway-ram", slots as usize * PAGE_SIZE + Link::BYTES)
        .map_err(|errno| no_memory_file(spec, errno))?;
    Ok(SharedParts { capacity_slots: slots, fd: Some(file), held: Vec::new(), spill: None, notice: None })
}

/// Maps the run's memory file into this process.
pub(crate) fn open(spec: &StoreSpec, parts: SharedParts) -> Result<Arc<dyn Store>, StoreError> {
    let file = shared_file(spec, parts.fd)?;
    let memory = SharedMemory::map(&file).map_err(|errno| no_memory_file(spec, errno))?;
    let slot_bytes = memory.bytes().saturating_sub(Link::BYTES);
    let slots = u32::try_from(slot_bytes / PAGE_SIZE).unwrap_or(u32::MAX);
    let memory = Arc::new(memory);
    let link = match spec {
        StoreSpec::Ram { fabric: Some(fabric), .. } => {
            Some(Link::at(*fabric, Arc::clone(&memory), slots as usize * PAGE_SIZE))
        }
        _ => None,
    };
    Ok(Arc::new(RamStore { uri: spec.to_string().into(), slots, memory, file, link }))
}

/// A store of plain copies, as one process sees it.
struct RamStore {
    uri: Arc<str>,
    slots: u32,
    memory: Arc<SharedMemory>,
    file: OwnedFd,
    link: Option<Link>,
}

impl Store for RamStore {
    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Memory
    }

    fn uri(&self) -> &str {
        &self.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.slots
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        let lane = RamLane { uri: self.uri.clone(), slots: self.slots, memory: self.memory.clone() };
        Ok(fabric::over(self.link.clone(), Box::new(lane)))
    }

    fn stored_bytes(&self) -> u64 {
        held_bytes(&self.file)
    }
}

struct RamLane {
    uri: Arc<str>,
    slots: u32,
    memory: Arc<SharedMemory>,
}

impl RamLane {
    fn offset(&self, slot: u32) -> Result<usize, StoreError> {
        if slot >= self.slots {
            return Err(no_such_slot(&self.uri, slot, self.slots));
        }
        Ok(slot as usize * PAGE_SIZE)
    }
}

impl Lane for RamLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        for request in batch {
            request.outcome = self.offset(request.slot).map(|at| self.memory.write(at, request.page));
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        for request in batch {
            request.outcome = self.offset(request.slot).map(|at| self.memory.read(at, request.page));
        }
    }

    #[allow(unsafe_code)]
    fn page(&self, slot: u32) -> Option<&Page> {
        let offset = self.offset(slot).ok()?;
        // SAFETY: whoever holds the slot sees to it, as `Lane::page` demands.
        Some(unsafe { self.memory.page(offset) })
    }

    fn discard(&mut self, slots: &[u32]) {
        for_each_run(slots, |first, count| {
            let count = count.min(self.slots.saturating_sub(first)) as usize;
            if count > 0 {
                // On failure the memory stays taken until the slots are used again.
                let _ = self.memory.give_back(first as usize * PAGE_SIZE, count * PAGE_SIZE);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{check_store, fill, open_store, pages};

    #[test]
    fn conforms() {
        check_store("ram:?size=4M");
    }

    #[test]
    fn memory_is_taken_by_writes_and_given_back() {
        let (_parts, store) = open_store("ram:?size=1M");
        assert_eq!((store.capacity_slots(), store.stored_bytes()), (256, 0));
        let mut lane = store.open_lane().unwrap();
        assert_eq!(fill(&mut *lane, &(0..100).collect::<Vec<_>>(), &pages(100, 1)), 100);
        assert_eq!(store.stored_bytes(), 100 * 4096);
        lane.discard(&(0..100).step_by(2).chain([100, 255, 256, u32::MAX]).collect::<Vec<_>>());
        assert_eq!(store.stored_bytes(), 50 * 4096);
    }

    #[test]
    fn pages_can_be_read_where_they_lie() {
        let (_parts, store) = open_store("ram:?size=1M");
        let mut lane = store.open_lane().unwrap();
        let pages = pages(3, 1);
        assert_eq!(fill(&mut *lane, &[0, 7, 255], &pages), 3);
        for (slot, page) in [0, 7, 255].into_iter().zip(&pages) {
            assert_eq!(lane.page(slot), Some(page));
        }
        assert_eq!(lane.page(256), None);
        // What a modelled network delays is not at hand.
        let (_parts, slow) = open_store("ram:?size=1M&fabric=fdr");
        assert_eq!(slow.open_lane().unwrap().page(0), None);
    }

    #[test]
    fn costs_nothing_until_used() {
        let (_parts, store) = open_store("ram:");
        assert_eq!(u64::from(store.capacity_slots()), crate::memory::pages_in(None));
        assert_eq!(store.stored_bytes(), 0);
    }
}
