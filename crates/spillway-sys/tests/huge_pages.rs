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
    let address = range.start();
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
