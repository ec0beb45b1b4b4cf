//! Sealing and opening take no memory, and a page that does not open takes none either: they are done in
//! signal handlers and in threads that libc does not know.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use spillway_core::page::PAGE_SIZE;
use spillway_core::seals::nonce;
use spillway_pager::seal::cipher::PageCipher;

/// The system's allocator, which counts what the thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

#[allow(unsafe_code)]
// SAFETY: all is the system allocator's work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: as the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller has it.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn asked_for(work: impl FnOnce()) -> usize {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

#[test]
fn neither_sealing_nor_opening_nor_refusing_asks_for_memory() {
    assert!(asked_for(|| drop(std::hint::black_box(Box::new(1)))) > 0, "the count counts");
    let mut page = [7; PAGE_SIZE];
    let asked = asked_for(|| {
        let cipher = PageCipher::new(&[3; 32]).unwrap();
        let tag = cipher.seal(nonce(1, 2), &mut page).unwrap();
        let mut other = page;
        assert!(cipher.open(nonce(1, 3), tag, &mut other).is_err());
        cipher.open(nonce(1, 2), tag, &mut page).unwrap();
    });
    assert_eq!((asked, page), (0, [7; PAGE_SIZE]));
}
