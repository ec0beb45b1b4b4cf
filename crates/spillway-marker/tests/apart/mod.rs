//! An allocator that is not the program's, as the preload library has one: a fork holds libc's locks while it
//! waits for the marker to hear of it.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use spillway_sys::own_memory;

/// Taken from the kernel at a time.
const CHUNK_BYTES: usize = 1 << 20;
const CLASSES: usize = 64;

struct Lists {
    /// Blocks of 2 to the power of the index that were given back, each with the address of the next.
    free: [*mut u8; CLASSES],
    at: *mut u8,
    left: usize,
}

/// Blocks of powers of two, under a lock of its own.
pub struct Apart {
    locked: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are used under the lock.
unsafe impl Sync for Apart {}

impl Apart {
    pub const fn new() -> Self {
        let lists = Lists { free: [ptr::null_mut(); CLASSES], at: ptr::null_mut(), left: 0 };
        Self { locked: AtomicBool::new(false), lists: UnsafeCell::new(lists) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Lists) -> R) -> R {
        while self.locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
        // SAFETY: under the lock.
        let result = act(unsafe { &mut *self.lists.get() });
        self.locked.store(false, Ordering::Release);
        result
    }
}

fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if at == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    own_memory::note(at.expose_provenance(), bytes);
    at.cast()
}

/// Of two to the power of what a block is.
fn class_of(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(16).next_power_of_two().trailing_zeros() as usize
}

// SAFETY: a block is one caller's until it is given back, and aligned to its size up to that of a page.
unsafe impl GlobalAlloc for Apart {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class_of(layout);
        self.with(|lists| {
            let found = lists.free[class];
            if !found.is_null() {
                // SAFETY: a block that was given back holds the address of the next.
                lists.free[class] = unsafe { *found.cast::<*mut u8>() };
                return found;
            }
            let bytes = 1 << class;
            if bytes >= CHUNK_BYTES / 4 {
                return map(bytes);
            }
            let skipped = lists.at.align_offset(bytes);
            if lists.at.is_null() || lists.left < bytes + skipped {
                (lists.at, lists.left) = (map(CHUNK_BYTES), CHUNK_BYTES);
                if lists.at.is_null() {
                    lists.left = 0;
                    return ptr::null_mut();
                }
            }
            let skipped = lists.at.align_offset(bytes);
            if lists.left < bytes + skipped {
                return map(bytes);
            }
            let block = lists.at.wrapping_add(skipped);
            lists.at = block.wrapping_add(bytes);
            lists.left -= bytes + skipped;
            block
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.with(|lists| {
            let class = class_of(layout);
            // SAFETY: the caller gives the block back, which is 16 bytes at least.
            unsafe { *block.cast::<*mut u8>() = lists.free[class] };
            lists.free[class] = block;
        });
    }
}
