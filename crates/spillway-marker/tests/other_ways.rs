//! Why pages are taken out of their places and not marked in an easier way: what the kernel does with each of
//! the others.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use spillway_sys::memory::{Area, PageMap};
use spillway_sys::page::PAGE_SIZE;
use spillway_sys::ranges::TargetRange;
use spillway_sys::uffd::events::EVENTS;
use spillway_sys::uffd::{Features, RegisterMode, Uffd};

/// Memory that a program maps, of one page.
fn page() -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE_SIZE, 3, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: as above.
    unsafe { page.cast::<u8>().write_volatile(7) };
    page.cast()
}

fn written(to: &OwnedFd, page: *const u8) -> Result<isize, i32> {
    // SAFETY: the page is the test's; the kernel checks the address.
    let result = unsafe { libc::write(to.as_raw_fd(), page.cast(), PAGE_SIZE) };
    if result < 0 { Err(Error::last_os_error().raw_os_error().unwrap()) } else { Ok(result) }
}

/// A program's write(2) of a page that is marked so would fail, where without the mark it succeeds.
#[test]
fn a_page_without_permissions_makes_system_calls_fail() {
    let (page, (_from, to)) = (page(), rustix::pipe::pipe().unwrap());
    assert_eq!(written(&to, page), Ok(PAGE_SIZE as isize));
    // SAFETY: the page is the test's.
    unsafe { libc::mprotect(page.cast(), PAGE_SIZE, libc::PROT_NONE) };
    assert_eq!(written(&to, page), Err(libc::EFAULT), "and no signal that a handler could answer");
}

/// Nobody would hear of reads.
#[test]
fn write_protection_lets_reads_pass() {
    let page = page();
    let uffd = Uffd::open_to_poll(EVENTS | Features::PAGEFAULT_FLAG_WP).unwrap();
    // SAFETY: the page is the test's, and no reference points there.
    let range = unsafe { TargetRange::new(page.expose_provenance(), PAGE_SIZE) };
    uffd.register(range, RegisterMode::WRITE_PROTECT).unwrap();
    uffd.write_protect(range, true).unwrap();
    // With nobody to serve a fault this thread would wait for ever.
    // SAFETY: as above.
    assert_eq!(unsafe { page.read_volatile() }, 7);
    assert!(uffd.read_event().unwrap().is_none());
}

/// The kernel's own hint faults cannot be asked for: `MPOL_MF_LAZY` is an internal flag.
#[test]
fn lazy_migration_cannot_be_asked_for() {
    const MPOL_DEFAULT: usize = 0;
    const MPOL_MF_MOVE: usize = 1 << 1;
    const MPOL_MF_LAZY: usize = 1 << 3;
    let page = page();
    // SAFETY: changes no contents.
    let lazy = |flags: usize| unsafe {
        libc::syscall(libc::SYS_mbind, page, PAGE_SIZE, MPOL_DEFAULT, ptr::null::<u64>(), 0_usize, flags)
    };
    assert_eq!(lazy(MPOL_MF_MOVE), 0, "{}", Error::last_os_error());
    assert_eq!(
        (lazy(MPOL_MF_MOVE | MPOL_MF_LAZY), Error::last_os_error().raw_os_error()),
        (-1, Some(libc::EINVAL))
    );
}

/// Why the daemon has a marker's userfaultfd, too.
#[test]
fn when_the_last_descriptor_is_closed_what_was_taken_reads_as_zeros() {
    let page = page();
    let frames = Area::new(PAGE_SIZE).unwrap();
    let uffd = Uffd::open_to_poll(EVENTS).unwrap();
    // SAFETY: as above.
    let range = unsafe { TargetRange::new(page.expose_provenance(), PAGE_SIZE) };
    uffd.register(range, RegisterMode::MISSING).unwrap();
    uffd.register_own(frames.pages(0, 1)).unwrap();
    uffd.take_page(frames.pages(0, 1), range, &PageMap::open().unwrap()).unwrap();
    drop(uffd);
    // SAFETY: as above.
    assert_eq!(unsafe { page.read_volatile() }, 0);
}
