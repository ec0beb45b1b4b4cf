//! The allocator of everything in this library: never the program's, whose locks may be held and whose memory
//! may be far, and never memory that a hook could see.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use spillway_core::page::PAGE_SIZE;
use spillway_sys::memory::refuse_huge_pages;
use spillway_sys::own_memory;

/// Memory straight from the kernel, by system calls that pass libc by.
struct Pages;

// SAFETY: each allocation is a fresh mapping, released only as dlmalloc says.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping aliases nothing.
        match unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, MapFlags::PRIVATE) } {
            Ok(memory) => {
                refuse_huge_pages(memory.expose_provenance(), size);
                own_memory::note(memory.expose_provenance(), size);
                (memory.cast(), size, 0)
            }
            Err(_) => (std::ptr::null_mut(), 0, 0),
        }
    }

    fn remap(&self, _ptr: *mut u8, _old_size: usize, _new_size: usize, _can_move: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, ptr: *mut u8, old_size: usize, new_size: usize) -> bool {
        let start = ptr.expose_provenance();
        own_memory::forget(&(start + new_size..start + old_size));
        // SAFETY: dlmalloc gives up the end of a mapping that `alloc` made.
        unsafe { munmap(ptr.add(new_size).cast(), old_size - new_size).is_ok() }
    }

    fn free(&self, ptr: *mut u8, size: usize) -> bool {
        let start = ptr.expose_provenance();
        own_memory::forget(&(start..start + size));
        // SAFETY: dlmalloc gives up a mapping that `alloc` made.
        unsafe { munmap(ptr.cast(), size).is_ok() }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE_SIZE
    }
}

struct Heap(Mutex<Dlmalloc<Pages>>);

#[global_allocator]
static HEAP: Heap = Heap(Mutex::new(Dlmalloc::new_with_allocator(Pages)));

/// The heap, held by one thread.
pub struct Held(#[allow(dead_code, reason = "held until dropped")] MutexGuard<'static, Dlmalloc<Pages>>);

/// Keeps every other thread out of the heap for the moment of a fork: the child would inherit it locked by a
/// thread that it has not got. Whoever drops the result in the child frees the child's heap.
pub fn hold() -> Held {
    Held(HEAP.small())
}

/// From so many bytes on an allocation is a mapping of its own: what is zero takes memory where it is used,
/// and what is freed goes back to the kernel.
const MAPPED_FROM_BYTES: usize = 16 << 10;

fn is_mapped(layout: &Layout) -> bool {
    layout.size() >= MAPPED_FROM_BYTES && layout.align() <= PAGE_SIZE
}

fn mapped(layout: &Layout) -> *mut u8 {
    Pages.alloc(layout.size().next_multiple_of(PAGE_SIZE)).0
}

impl Heap {
    fn small(&self) -> MutexGuard<'_, Dlmalloc<Pages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: dlmalloc under a lock, or a mapping that nobody else has; which of them it is the layout says.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(&layout) {
            return mapped(&layout);
        }
        // SAFETY: the caller's layout is valid.
        unsafe { self.small().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(&layout) {
            return mapped(&layout);
        }
        // SAFETY: the caller's layout is valid.
        unsafe { self.small().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if is_mapped(&layout) {
            Pages.free(ptr, layout.size().next_multiple_of(PAGE_SIZE));
            return;
        }
        // SAFETY: the caller got `ptr` from here with this layout.
        unsafe { self.small().free(ptr, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller vouches that the new size is valid with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if !is_mapped(&layout) && !is_mapped(&new_layout) {
            // SAFETY: the caller got `ptr` from here with this layout.
            return unsafe { self.small().realloc(ptr, layout.size(), layout.align(), new_size) };
        }
        // SAFETY: as the caller's, of this function's.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both have room for the shorter, and one of them is new.
            unsafe { ptr.copy_to_nonoverlapping(new, layout.size().min(new_size)) };
            // SAFETY: the caller got `ptr` from here with this layout.
            unsafe { self.dealloc(ptr, layout) };
        }
        new
    }
}
