use super::*;
use crate::memory::{Area, PageMap};
use std::sync::atomic::{AtomicBool, Ordering};

/// A descriptor whose missing pages give SIGBUS or, to system calls, EFAULT; and registered areas.
fn uffd_and_areas<const N: usize>(pages: usize) -> (Uffd, [Area; N]) {
    let uffd = Uffd::open(None, Features::MOVE | Features::SIGBUS).unwrap();
    let areas = std::array::from_fn(|_| {
        let area = Area::new(pages * PAGE_SIZE).unwrap();
        uffd.register_own(area.pages(0, pages)).unwrap();
        area
    });
    (uffd, areas)
}

/// How many pages of the area's start are there.
fn populated(area: &Area, pages: usize) -> usize {
    let map = PageMap::open().unwrap();
    let is_there = |page: &usize| map.entry(area.address() + page * PAGE_SIZE).unwrap().is_populated();
    (0..pages).take_while(is_there).count()
}

/// The pages of an area that plays the program.
fn target(area: &Area, first: usize, pages: usize) -> TargetRange {
    // SAFETY: the test reads it through the page map only.
    unsafe { TargetRange::new(area.address() + first * PAGE_SIZE, pages * PAGE_SIZE) }
}

#[test]
fn pages_that_the_kernel_moved_and_did_not_count_are_counted() {
    let (uffd, [program, frames]) = uffd_and_areas(8);
    let source = [[7_u8; PAGE_SIZE]; 3];
    // As the kernel leaves it: two pages are in their frames, and it says EEXIST.
    uffd.copy(target(&frames, 0, 2), BounceRange::new(&source[..2]), false).unwrap();
    uffd.copy(target(&program, 2, 1), BounceRange::new(&source[..1]), false).unwrap();
    let moved = uffd.move_to_frames(frames.pages(0, 3), target(&program, 0, 3)).unwrap();
    assert_eq!(moved, 2 * PAGE_SIZE);
    assert_eq!(populated(&frames, 8), 2, "asking fills no frame");
    // And the way back: the page is where it belongs, its frame empty.
    let to = target(&program, 2, 1);
    uffd.move_from_frame(to, frames.pages(5, 1)).unwrap();
    assert_eq!(uffd.move_from_frame(to, frames.pages(0, 1)), Err(Errno::EXIST), "its frame is full");
    assert_eq!(uffd.move_to_frames(frames.pages(4, 1), target(&program, 0, 1)), Err(Errno::NOENT));
}

#[test]
fn what_is_poisoned_stays_so_without_registration_until_it_is_dropped() {
    let uffd = Uffd::open(None, Features::POISON | Features::SIGBUS).unwrap();
    let area = Area::new(3 * PAGE_SIZE).unwrap();
    let page = |page: usize| area.address() + page * PAGE_SIZE;
    let readable = || [0, 1, 2].map(|number| crate::memory::is_readable(page(number)));
    uffd.register_own(area.pages(0, 3)).unwrap();
    uffd.copy(target(&area, 2, 1), BounceRange::new(&[[7; PAGE_SIZE]]), false).unwrap();
    uffd.poison(target(&area, 0, 1)).unwrap();
    assert_eq!(readable(), [false, false, true]);
    uffd.unregister(target(&area, 0, 3)).unwrap();
    assert_eq!(populated(&area, 3), 1, "a marker counts as a page of the page map");
    // What is not marked reads as zeros now.
    assert_eq!(readable(), [false, true, true]);
    let other = Uffd::open(None, Features::POISON | Features::SIGBUS).unwrap();
    other.register_own(area.pages(0, 3)).unwrap();
    assert_eq!(other.poison(target(&area, 0, 1)), Err(Errno::EXIST));
    crate::memory::discard(target(&area, 0, 1)).unwrap();
    assert_eq!(populated(&area, 3), 0);
    other.copy(target(&area, 0, 1), BounceRange::new(&[[8; PAGE_SIZE]]), false).unwrap();
    assert_eq!(readable(), [true; 3]);
}

/// Accessed bits come and go while pages are moved, which is when the kernel miscounts: about once in
/// 15,000 calls.
#[test]
fn no_page_is_lost_while_others_use_it() {
    const PAGES: usize = 16;
    let (uffd, [program, frames]) = uffd_and_areas(PAGES);
    let source = vec![[7_u8; PAGE_SIZE]; PAGES];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // System calls write to the pages, for they get an error, not a signal, where none is.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                (0..PAGES).for_each(|page| crate::memory::try_to_write(program.address() + page * PAGE_SIZE));
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                crate::memory::forget_accesses(target(&program, 0, PAGES)).unwrap();
            }
        });
        for round in 0..20_000 {
            let mut there = 0;
            while there < PAGES {
                let (to, from) = (target(&program, there, PAGES - there), &source[there..]);
                there += uffd.copy(to, BounceRange::new(from), false).map_or(1, |bytes| bytes / PAGE_SIZE);
            }
            let moved = uffd.move_to_frames(frames.pages(0, PAGES), target(&program, 0, PAGES));
            let (moved, full) = (moved.map_or(0, |bytes| bytes / PAGE_SIZE), populated(&frames, PAGES));
            if moved != full {
                stop.store(true, Ordering::Relaxed);
            }
            assert_eq!(moved, full, "in round {round}");
            frames.discard(0, PAGES * PAGE_SIZE).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn this_kernel_has_what_the_pager_needs() {
    let features = supported_features(None).unwrap();
    assert!(features.contains(Features::MOVE | Features::POISON | Features::PAGEFAULT_FLAG_WP));
}
