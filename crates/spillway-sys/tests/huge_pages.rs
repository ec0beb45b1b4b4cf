//! When the kernel makes huge pages of memory that is registered with userfaultfd: what the pager relies on.
#![allow(clippy::unwrap_used)]

use rustix::io::Errno;
use std::sync::atomic::Ordering;

use spillway_sys::memory::{self, Area};
use spillway_sys::page::PAGE_SIZE;
use spillway_sys::ranges::{BounceRange, TargetRange};
use spillway_sys::uffd::{Features, RegisterMode, Uffd};

const HUGE: usize = 2 << 20;

/// A registered range of 2 MiB on a boundary of as much, with the first `pages` filled.
#[allow(unsafe_code)]
fn range_with(uffd: &Uffd, area: &Area, pages: usize) -> TargetRange {
    // SAFETY: the area is seen through atomics alone.
    let range = unsafe { TargetRange::new(area.address().next_multiple_of(HUGE), HUGE) };
    memory::ask_for_huge_pages(range).unwrap();
    uffd.register(range, RegisterMode::MISSING | RegisterMode::WRITE_PROTECT).unwrap();
    let source = vec![[7_u8; PAGE_SIZE]; pages];
    uffd.copy(range.part(0, pages * PAGE_SIZE), BounceRange::new(&source), false).unwrap();
    range
}

/// Bytes in huge pages of the mapping that holds an address.
fn huge_bytes(range: TargetRange) -> usize {
    huge_bytes_at(range.start())
}

fn huge_bytes_at(address: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in maps.lines() {
        let range = line.split_whitespace().next().unwrap().split_once('-');
        if let Some((Ok(from), Ok(to))) =
            range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)))
        {
            inside = (from..to).contains(&address);
        } else if let (true, Some(rest)) = (inside, line.strip_prefix("AnonHugePages:")) {
            return rest.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
        }
    }
    0
}

#[test]
fn a_registered_range_becomes_a_huge_page_only_when_it_is_whole_and_not_protected() {
    let features = Features::PAGEFAULT_FLAG_WP | Features::SIGBUS | Features::MOVE;
    let uffd = Uffd::open(None, features).unwrap();
    let areas: [Area; 3] = std::array::from_fn(|_| Area::new(2 * HUGE).unwrap());

    let whole = range_with(&uffd, &areas[0], 512);
    match memory::collapse(whole) {
        Ok(()) => assert_eq!(huge_bytes(whole), HUGE),
        // No free range of 2 MiB in the machine, or huge pages switched off for good.
        Err(error) => {
            assert!(matches!(error, Errno::NOMEM | Errno::AGAIN | Errno::INVAL), "{error}");
            eprintln!("this machine has no huge page to give: {error}");
        }
    }
    let last = whole.start() - areas[0].address() + 511 * PAGE_SIZE;
    let sevens = u64::from_ne_bytes([7; 8]);
    assert!(areas[0].words(last, PAGE_SIZE / 8).iter().all(|word| word.load(Ordering::Relaxed) == sevens));

    let with_a_hole = range_with(&uffd, &areas[1], 511);
    assert!(memory::collapse(with_a_hole).is_err());
    let protected = range_with(&uffd, &areas[2], 512);
    uffd.write_protect(protected.part(0, PAGE_SIZE), true).unwrap();
    assert!(memory::collapse(protected).is_err());
    assert_eq!((huge_bytes(with_a_hole), huge_bytes(protected)), (0, 0));
}

/// What streams by huge pages rely on: a fresh huge page goes where no page table is, and out again, in one
/// step; beside the empty table of pages that left one by one it is split.
#[test]
#[allow(unsafe_code)]
fn a_huge_page_moves_whole_where_no_page_table_is() {
    let uffd = Uffd::open(None, Features::MOVE | Features::SIGBUS).unwrap();
    let areas: [Area; 3] = std::array::from_fn(|_| Area::new(2 * HUGE).unwrap());
    let [stage, program, frames] = &areas;
    let own = |area: &'_ Area| (area.address().next_multiple_of(HUGE) - area.address()) / PAGE_SIZE;
    let from = stage.pages(own(stage), 512);
    // SAFETY: the area is seen through atomics alone.
    let to = unsafe { TargetRange::new(program.address().next_multiple_of(HUGE), HUGE) };
    uffd.register(to, RegisterMode::MISSING).unwrap();
    uffd.register_own(frames.pages(own(frames), 512)).unwrap();
    if memory::ask_for_own_huge_pages(from).is_err() || !memory::may_have_huge_pages() {
        return eprintln!("this machine has no huge pages");
    }
    let place = || {
        memory::discard_own(from).unwrap();
        memory::populate(from).unwrap();
        let is_huge = huge_bytes_at(from.start()) == HUGE;
        // SAFETY: nobody reads the stage.
        unsafe { from.write(&[7; PAGE_SIZE]) };
        is_huge.then(|| uffd.move_reserved(to, from))
    };
    let Some(moved) = place() else { return eprintln!("this machine has no huge page to give") };
    assert_eq!((moved, huge_bytes(to), huge_bytes_at(from.start())), (HUGE, HUGE, 0));
    let out = frames.pages(own(frames), 512);
    assert_eq!(uffd.move_to_frames(out, to), Ok(HUGE));
    assert_eq!((huge_bytes(to), huge_bytes_at(out.start())), (0, HUGE));
    memory::discard_own(out).unwrap();
    // One page leaves a page table behind, which goes only with the whole range.
    let page = [[8_u8; PAGE_SIZE]];
    uffd.copy(to.part(0, PAGE_SIZE), BounceRange::new(&page), false).unwrap();
    memory::discard(to.part(0, PAGE_SIZE)).unwrap();
    assert_eq!((place(), huge_bytes(to)), (Some(HUGE), 0));
    memory::discard(to).unwrap();
    assert_eq!(place(), Some(HUGE));
    let first = own(program) * PAGE_SIZE;
    assert_eq!(program.words(first, 1)[0].load(Ordering::Relaxed), u64::from_ne_bytes([7; 8]));
}
