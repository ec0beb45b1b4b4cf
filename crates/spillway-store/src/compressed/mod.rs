//! `compressed:`: pages compressed by lz4 in a memory file that all processes of the run map.
//!
//! The [`layout`] has an index, which says for each slot where its page lies, and an arena that [`spans`]
//! hands out in the sizes of [`classes`]; [`codec`] compresses. There are no locks: a process may be killed
//! at any moment, and loses at worst the memory of the page it was about to write or free.

mod classes;
mod codec;
mod layout;
mod spans;
#[cfg(all(test, loom))]
mod spans_loom;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spillway_core::page::{PAGE_SIZE, Page};
use spillway_core::size::Size;
use spillway_sys::shared_memory::SharedMemory;

use crate::memory::{held_bytes, no_memory_file, no_such_slot, pages_in, shared_file};
use crate::{Lane, LatencyClass, ReadRequest, Room, SharedParts, Store, StoreError, StoreSpec, WriteRequest};
use classes::{Class, SPAN_BYTES};
use codec::Codec;
use layout::{Entry, Layout};
use spans::{Homes, NO_HOMES, Object};

/// Makes the memory file. `size` bounds the memory of the compressed pages; there are four slots to each page
/// of it, so that pages which compress well are not turned away for want of a slot.
pub(crate) fn prepare(spec: &StoreSpec, size: Option<Size>) -> Result<SharedParts, StoreError> {
    let layout = Layout::for_arena(pages_in(size) * PAGE_SIZE as u64);
    let (file, memory) = SharedMemory::create("spillway-compressed", layout.bytes)
        .map_err(|errno| no_memory_file(spec, errno))?;
    layout.mark(&memory);
    Ok(SharedParts {
        capacity_slots: layout.slots as u32,
        fd: Some(file),
        held: Vec::new(),
        spill: None,
        notice: None,
    })
}

/// Maps the run's memory file into this process.
pub(crate) fn open(spec: &StoreSpec, parts: SharedParts) -> Result<Arc<dyn Store>, StoreError> {
    let file = shared_file(spec, parts.fd)?;
    let memory = SharedMemory::map(&file).map_err(|errno| no_memory_file(spec, errno))?;
    let layout = Layout::of_file(&memory).map_err(|errno| no_memory_file(spec, errno))?;
    let arena = Arena { uri: spec.to_string(), memory, layout };
    Ok(Arc::new(CompressedStore { arena: Arc::new(arena), file }))
}

/// The compressed store, as one process sees it.
struct CompressedStore {
    arena: Arc<Arena>,
    file: OwnedFd,
}

impl Store for CompressedStore {
    fn latency_class(&self) -> LatencyClass {
        LatencyClass::Compression
    }

    fn uri(&self) -> &str {
        &self.arena.uri
    }

    fn capacity_slots(&self) -> u32 {
        self.arena.layout.slots as u32
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, StoreError> {
        Ok(Box::new(CompressedLane { arena: self.arena.clone(), homes: NO_HOMES, codec: Codec::new() }))
    }

    fn room(&self) -> Option<Room> {
        let capacity_bytes = self.arena.layout.spans as u64 * SPAN_BYTES as u64;
        Some(Room { used_bytes: self.stored_bytes(), capacity_bytes })
    }

    fn stored_bytes(&self) -> u64 {
        held_bytes(&self.file)
    }
}

/// The memory file as this process has it mapped.
struct Arena {
    uri: String,
    memory: SharedMemory,
    layout: Layout,
}

impl Arena {
    fn entry_of(&self, slot: u32) -> Result<&AtomicU64, StoreError> {
        let index = self.layout.index(&self.memory);
        index.get(slot as usize).ok_or_else(|| no_such_slot(&self.uri, slot, index.len() as u32))
    }

    /// Puts a slot's new entry (or 0) in place and frees what it had before.
    fn replace(&self, entry: &AtomicU64, new: u64) {
        if let Some(old) = Entry::unpack(entry.swap(new, Ordering::AcqRel)) {
            self.free(old.object);
        }
    }

    fn free(&self, object: Object) {
        self.layout.spans(&self.memory).free(object, |span| {
            // On failure the memory stays taken until the span is used again.
            let _ = self.memory.give_back(self.layout.span_offset(span), SPAN_BYTES);
        });
    }
}

struct CompressedLane {
    arena: Arc<Arena>,
    homes: Homes,
    codec: Codec,
}

impl CompressedLane {
    /// What the slot had is freed only when its new contents are in place; where there is no room for these,
    /// it keeps what it had.
    fn write_page(&mut self, slot: u32, page: &Page) -> Result<(), StoreError> {
        let Arena { uri, memory, layout } = &*self.arena;
        let entry = self.arena.entry_of(slot)?;
        let packed = self.codec.pack(page);
        let object = Class::holding(packed.len())
            .and_then(|class| layout.spans(memory).allocate(class, &mut self.homes))
            .ok_or_else(|| StoreError::Full { store: uri.clone() })?;
        let Some(offset) = layout.object_offset(object) else { return Err(self.damaged(slot)) };
        memory.write(offset, packed);
        self.arena.replace(entry, Entry { object, bytes: packed.len() }.pack());
        Ok(())
    }

    /// Where the page of a slot lies in the memory, and how long it is there.
    fn place_of(&self, slot: u32) -> Result<(usize, usize), StoreError> {
        let entry = Entry::unpack(self.arena.entry_of(slot)?.load(Ordering::Acquire));
        let place =
            entry.and_then(|entry| Some((self.arena.layout.object_offset(entry.object)?, entry.bytes)));
        place.ok_or_else(|| self.damaged(slot))
    }

    fn read_page(&mut self, slot: u32, page: &mut Page) -> Result<(), StoreError> {
        let (offset, bytes) = self.place_of(slot)?;
        let memory = &self.arena.memory;
        if bytes == PAGE_SIZE {
            memory.read(offset, page);
            return Ok(());
        }
        if let Some(room) = self.codec.room_for(bytes) {
            memory.read(offset, room);
        }
        if self.codec.unpack(bytes, page) { Ok(()) } else { Err(self.damaged(slot)) }
    }

    fn damaged(&self, slot: u32) -> StoreError {
        StoreError::Io {
            store: self.arena.uri.clone(),
            reason: format!("slot {slot} holds no page, or its memory was damaged"),
        }
    }
}

impl Lane for CompressedLane {
    fn write(&mut self, batch: &mut [WriteRequest<'_>]) {
        for request in batch {
            request.outcome = self.write_page(request.slot, request.page);
        }
    }

    fn read(&mut self, batch: &mut [ReadRequest<'_>]) {
        for request in batch {
            request.outcome = self.read_page(request.slot, request.page);
        }
    }

    #[allow(unsafe_code)]
    fn page(&self, slot: u32) -> Option<&Page> {
        let (offset, bytes) = self.place_of(slot).ok()?;
        // SAFETY: an object is its slot's until that is written or discarded, and whoever holds the slot sees
        // to it that it is not, as `Lane::page` demands.
        (bytes == PAGE_SIZE).then(|| unsafe { self.arena.memory.page(offset) })
    }

    fn discard(&mut self, slots: &[u32]) {
        for slot in slots {
            if let Ok(entry) = self.arena.entry_of(*slot) {
                self.arena.replace(entry, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        check_store, expect_pages, fill, open_again, open_store, page_of, pages, read, write,
    };

    fn slots(count: u32) -> Vec<u32> {
        (0..count).collect()
    }

    #[test]
    fn conforms() {
        check_store("compressed:?size=8M");
    }

    #[test]
    fn conforms_when_it_is_often_full() {
        crate::testing::check_random_batches("compressed:?size=192K");
    }

    #[test]
    fn costs_nothing_until_used() {
        let (_parts, store) = open_store("compressed:");
        assert_eq!(u64::from(store.capacity_slots()), pages_in(None) / 16 * 64);
        let mut lane = store.open_lane().unwrap();
        lane.discard(&slots(1000));
        assert!(store.stored_bytes() <= 16 << 10, "{} bytes", store.stored_bytes());
        let seeds: Vec<_> = (0..1000).map(|number| page_of(number * 4 + 1)).collect();
        assert_eq!(fill(&mut *lane, &slots(1000), &seeds), 1000);
        assert!(store.stored_bytes() <= 1000 * 2048, "{} bytes", store.stored_bytes());
    }

    #[test]
    fn pages_that_do_not_compress_can_be_read_where_they_lie() {
        let (_parts, store) = open_store("compressed:?size=1M");
        let mut lane = store.open_lane().unwrap();
        let pages: Vec<Page> = (0..40).map(page_of).collect();
        assert_eq!(fill(&mut *lane, &slots(40), &pages), 40);
        for (slot, page) in (0..).zip(&pages) {
            // Of these seeds one in four does not compress.
            assert_eq!(lane.page(slot), (slot % 4 == 0).then_some(page), "slot {slot}");
        }
        assert_eq!((lane.page(40), lane.page(1024)), (None, None), "nothing is stored there");
    }

    #[test]
    fn a_full_store_keeps_what_it_has() {
        let (_parts, store) = open_store("compressed:?size=1M");
        assert_eq!(store.capacity_slots(), 1024);
        let mut lane = store.open_lane().unwrap();
        let first = pages(300, 1);
        assert_eq!(fill(&mut *lane, &slots(300), &first), 256, "incompressible pages fill it exactly");

        // A rewrite fails too, and leaves the old page; all else is intact.
        assert_eq!(
            write(&mut *lane, &[7], &pages(1, 2)),
            [Err(StoreError::Full { store: store.uri().into() })]
        );
        expect_pages(&mut *lane, &slots(256), &first);

        // What is discarded makes room again.
        lane.discard(&slots(32));
        let second = pages(32, 3);
        assert_eq!(fill(&mut *lane, &slots(32), &second), 32);
        expect_pages(&mut *lane, &slots(32), &second);
        expect_pages(&mut *lane, &slots(256)[32..], &first[32..]);
    }

    #[test]
    fn all_memory_comes_back() {
        let (_parts, store) = open_store("compressed:?size=16M");
        let mut lane = store.open_lane().unwrap();
        for round in 0..3 {
            let seeds: Vec<_> = (0..7000).map(|number| page_of(round * 10_000 + number)).collect();
            assert_eq!(fill(&mut *lane, &slots(7000), &seeds), 7000);
            assert!(store.stored_bytes() > 7000 * 1024);
            lane.discard(&slots(7000));
            let warm = (layout::WARM_SPANS * SPAN_BYTES) as u64;
            assert!(store.stored_bytes() <= warm + (160 << 10), "{} bytes are left", store.stored_bytes());
        }
        assert_eq!(fill(&mut *lane, &slots(4200), &pages(4200, 9)), 4096, "none is lost");
    }

    #[test]
    fn slots_without_a_page_are_errors() {
        let (_parts, store) = open_store("compressed:?size=1M");
        let mut lane = store.open_lane().unwrap();
        write(&mut *lane, &[1], &[page_of(1)]);
        lane.discard(&[1]);
        for outcome in read(&mut *lane, &[0, 1]) {
            assert!(matches!(outcome, Err(StoreError::Io { .. })));
        }
    }

    /// Whatever is written over the store's shared memory, nothing panics and nothing is accessed outside.
    #[test]
    fn damage_is_an_error_or_another_page() {
        let spec: StoreSpec = "compressed:?size=256K".parse().unwrap();
        let parts = spec.prepare("test").unwrap();
        let memory = SharedMemory::map(parts.fd.as_ref().unwrap()).unwrap();
        let mut lane = open_again(&spec, &parts).open_lane().unwrap();
        let all = slots(256);
        for seed in 0..40u64 {
            fill(&mut *lane, &all[..64], &(0..64).map(|slot| page_of(seed + slot)).collect::<Vec<_>>());
            for word in
                memory.atomics_u64(24, memory.bytes() / 8 - 3).iter().skip(seed as usize % 5).step_by(5)
            {
                let noise = u64::from_le_bytes(page_of(seed * 4)[..8].try_into().unwrap());
                word.fetch_xor(noise >> (seed % 61), Ordering::AcqRel);
            }
            let _ = read(&mut *lane, &all);
            all.iter().filter_map(|&slot| lane.page(slot)).for_each(|page| _ = std::hint::black_box(*page));
            let _ = write(&mut *lane, &all, &vec![page_of(seed); 256]);
            lane.discard(&all[..128]);
        }
    }
}
