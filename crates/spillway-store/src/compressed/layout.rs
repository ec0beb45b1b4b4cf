//! How the compressed store's memory file is laid out: a header, the index, the allocator's words, the arena.
//! All of it is sparse: what is not used takes no memory.
//!
//! The cost for a slot is 8 bytes of index and, at four slots to a page of arena, some 2 bytes of spans.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{Errno, Result};
use spillway_core::page::PAGE_SIZE;
use spillway_sys::shared_memory::SharedMemory;

use super::classes::{CLASSES, Class, SPAN_BYTES};
use super::spans::{BITMAP_WORDS, Object, Spans, hint_words};

/// Slots for each page of arena: pages that compress better than this take more arena than slots.
pub const SLOTS_PER_ARENA_PAGE: u64 = 4;

/// "spillZ1" in the header's first word: the file is ours, and of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"spillZ1\0");

/// Words of the header.
const HEADER_WORDS: usize = 4;

/// Empty spans that keep their memory, 2 MiB: so many that pages which are written anew in the order in which
/// they were first written do not give back and take memory all the time.
pub const WARM_SPANS: usize = 32;

/// Byte offsets of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Slots in the index.
    pub slots: usize,
    /// Spans in the arena.
    pub spans: usize,
    index: usize,
    states: usize,
    bitmaps: usize,
    free_hints: usize,
    room_hints: usize,
    warm: usize,
    arena: usize,
    /// Length of the file.
    pub bytes: usize,
}

impl Layout {
    /// The layout for an arena of `arena_bytes`, at least one span.
    pub fn for_arena(arena_bytes: u64) -> Self {
        let spans = (arena_bytes / SPAN_BYTES as u64).clamp(1, u64::from(u32::MAX) / 64);
        let pages = spans * (SPAN_BYTES / PAGE_SIZE) as u64;
        let slots = (pages * SLOTS_PER_ARENA_PAGE).min(u64::from(u32::MAX));
        Self::of(slots as usize, spans as usize)
    }

    fn of(slots: usize, spans: usize) -> Self {
        let mut next = 0;
        let mut place = |bytes: usize, alignment: usize| {
            let at = usize::next_multiple_of(next, alignment);
            next = at + bytes;
            at
        };
        place(HEADER_WORDS * 8, PAGE_SIZE);
        let index = place(slots * 8, PAGE_SIZE);
        let states = place(spans * 8, PAGE_SIZE);
        let bitmaps = place(spans * BITMAP_WORDS * 8, PAGE_SIZE);
        let free_hints = place(hint_words(spans) * 8, PAGE_SIZE);
        let room_hints = place(hint_words(spans) * CLASSES * 8, PAGE_SIZE);
        let warm = place(WARM_SPANS * 8, 64);
        let arena = place(spans * SPAN_BYTES, SPAN_BYTES);
        Self { slots, spans, index, states, bitmaps, free_hints, room_hints, warm, arena, bytes: next }
    }

    /// Writes the header into a new file.
    pub fn mark(&self, memory: &SharedMemory) {
        for (word, value) in memory.atomics_u64(0, HEADER_WORDS).iter().zip(self.header()) {
            word.store(value, Ordering::Release);
        }
    }

    /// Reads the layout of a file that was marked.
    pub fn of_file(memory: &SharedMemory) -> Result<Self> {
        if memory.bytes() < PAGE_SIZE {
            return Err(Errno::INVAL);
        }
        let header = memory.atomics_u64(0, HEADER_WORDS);
        let word = |at: usize| header.get(at).map_or(0, |word| word.load(Ordering::Acquire));
        let numbers = [word(1), word(2)].map(|number| u32::try_from(number).unwrap_or(0) as usize);
        let layout = Self::of(numbers[0], numbers[1]);
        if word(0) != MAGIC || layout.slots == 0 || layout.spans == 0 || layout.bytes != memory.bytes() {
            return Err(Errno::INVAL);
        }
        Ok(layout)
    }

    /// Magic, slots, spans; the fourth word is the allocator's: the first span that was never used.
    fn header(&self) -> [u64; HEADER_WORDS] {
        [MAGIC, self.slots as u64, self.spans as u64, 0]
    }

    /// The index: an [`Entry`] for each slot.
    pub fn index<'a>(&self, memory: &'a SharedMemory) -> &'a [AtomicU64] {
        memory.atomics_u64(self.index, self.slots)
    }

    /// The allocator of spans, over the file's memory.
    pub fn spans<'a>(&self, memory: &'a SharedMemory) -> Spans<'a, AtomicU64> {
        Spans {
            states: memory.atomics_u64(self.states, self.spans),
            bitmaps: memory.atomics_u64(self.bitmaps, self.spans * BITMAP_WORDS),
            free_hints: memory.atomics_u64(self.free_hints, hint_words(self.spans)),
            room_hints: memory.atomics_u64(self.room_hints, hint_words(self.spans) * CLASSES),
            warm: memory.atomics_u64(self.warm, WARM_SPANS),
            fresh: &memory.atomics_u64((HEADER_WORDS - 1) * 8, 1)[0],
        }
    }

    /// Where a span lies in the file.
    pub fn span_offset(&self, span: u32) -> usize {
        self.arena + span as usize * SPAN_BYTES
    }

    /// Where an object lies in the file; none when it cannot be one of this file.
    pub fn object_offset(&self, object: Object) -> Option<usize> {
        let index = usize::from(object.index);
        if object.span as usize >= self.spans || index >= object.class.objects_per_span() {
            return None;
        }
        Some(self.span_offset(object.span) + index * object.class.object_bytes())
    }
}

/// What the index says of a slot: where its page lies, and how long it is there. A word of 0 means nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose memory it is.
    pub object: Object,
    /// Bytes of it in use; 4096 means that the page lies there as it is.
    pub bytes: usize,
}

impl Entry {
    const BYTES_BITS: u32 = 13;
    const CLASS_BITS: u32 = 7;
    const INDEX_BITS: u32 = 12;

    /// As a word of the index.
    pub fn pack(self) -> u64 {
        let mut word = u64::from(self.object.span);
        word = word << Self::INDEX_BITS | u64::from(self.object.index);
        word = word << Self::CLASS_BITS | self.object.class.number() as u64;
        word << Self::BYTES_BITS | self.bytes as u64
    }

    /// From a word of the index; none when it is empty or makes no sense.
    pub fn unpack(mut word: u64) -> Option<Self> {
        let mut take = |bits: u32| {
            let part = word & ((1 << bits) - 1);
            word >>= bits;
            part
        };
        let bytes = take(Self::BYTES_BITS) as usize;
        let class = Class::numbered(take(Self::CLASS_BITS))?;
        let index = take(Self::INDEX_BITS) as u16;
        let span = take(32) as u32;
        (1..=class.object_bytes())
            .contains(&bytes)
            .then_some(Self { object: Object { span, index, class }, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn metadata_for_a_slot_is_small() {
        for arena_bytes in [1 << 20, 1 << 30, 1 << 40] {
            let layout = Layout::for_arena(arena_bytes);
            assert_eq!(layout.slots as u64, (arena_bytes / 1024).min(u64::from(u32::MAX)));
            let metadata = (layout.arena - PAGE_SIZE) as f64 / layout.slots as f64;
            let most = if arena_bytes == 1 << 20 { 128.0 } else { 12.0 };
            assert!(metadata <= most, "{metadata} bytes a slot for {arena_bytes}");
        }
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let (_fd, memory) = SharedMemory::create("test", 1 << 20).unwrap();
        assert_eq!(Layout::of_file(&memory), Err(Errno::INVAL));
        let layout = Layout::for_arena(1 << 20);
        layout.mark(&memory);
        assert_eq!(Layout::of_file(&memory), Err(Errno::INVAL), "too short for what its header says");
        let (_fd, memory) = SharedMemory::create("test", layout.bytes).unwrap();
        layout.mark(&memory);
        assert_eq!(Layout::of_file(&memory), Ok(layout));
    }

    proptest! {
        #[test]
        fn entries_return(span: u32, index in 0..1024u16, number in 0..CLASSES, bytes: prop::sample::Index) {
            let class = Class::numbered(number as u64).unwrap();
            let bytes = bytes.index(class.object_bytes()) + 1;
            let entry = Entry { object: Object { span, index, class }, bytes };
            prop_assert_eq!(Entry::unpack(entry.pack()), Some(entry));
            prop_assert_ne!(entry.pack(), 0);
        }

        #[test]
        fn any_word_is_an_entry_or_none(word: u64) {
            if let Some(entry) = Entry::unpack(word) {
                let offset = Layout::for_arena(1 << 30).object_offset(entry.object);
                prop_assert!(offset.is_none_or(|at| at + entry.bytes <= Layout::for_arena(1 << 30).bytes));
            }
        }
    }
}
