//! A marker in this process, and all that a program may do to memory while pages of it are marked: it finds
//! what it wrote, whoever looks, and everybody gets on.
#![allow(clippy::unwrap_used, clippy::expect_used, unsafe_code)]

mod apart;

use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use spillway_marker::call::introduce;
use spillway_marker::excluded::exclude;
use spillway_marker::marker::FRAMES;
use spillway_marker::wire::{self, Hello, Outcome, Report};
use spillway_sys::memory::Area;
use spillway_sys::page::PAGE_SIZE;

#[global_allocator]
static ALLOCATOR: apart::Apart = apart::Apart::new();

/// However busy the machine is.
const PATIENCE_S: i64 = 60;

/// One test at a time: pages that a fork shares cannot be taken, and a fork shares all tests' pages.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that a program maps.
struct Memory(*mut u8, usize);

// SAFETY: threads use it by atomics.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    /// So many pages, of which each word tells which it is.
    fn new(pages: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let around = unsafe { libc::mmap(ptr::null_mut(), (pages + 2) * PAGE_SIZE, 0, flags, -1, 0) };
        assert_ne!(around, libc::MAP_FAILED);
        // What lies next to a file's mapping might be a library's variables.
        let at = around.wrapping_byte_add(PAGE_SIZE);
        // SAFETY: within the mapping.
        assert_eq!(unsafe { libc::mprotect(at, pages * PAGE_SIZE, 3) }, 0);
        // SAFETY: as above.
        unsafe { libc::madvise(at, pages * PAGE_SIZE, libc::MADV_NOHUGEPAGE) };
        let memory = Self(at.cast(), pages);
        (0..pages).for_each(|page| memory.word(page).store(expected(page), Ordering::Relaxed));
        memory
    }

    fn address(&self, page: usize) -> u64 {
        (self.0.expose_provenance() + page * PAGE_SIZE) as u64
    }

    fn word(&self, page: usize) -> &AtomicU64 {
        // SAFETY: a word in the middle of a page of the mapping.
        unsafe { &*self.0.add(page * PAGE_SIZE + 2048).cast() }
    }

    fn is_whole(&self, pages: impl IntoIterator<Item = usize>) -> bool {
        pages.into_iter().all(|page| self.word(page).load(Ordering::Relaxed) == expected(page))
    }
}

fn expected(page: usize) -> u64 {
    page as u64 * 0x9E37_79B9 + 1
}

/// Any build will do.
const BUILD: u64 = 9;

/// The daemon's end of a marker.
struct Daemon {
    socket: OwnedFd,
    marker: JoinHandle<()>,
}

impl Daemon {
    fn new() -> Self {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let marker = introduce(theirs, BUILD).expect("as root, on Linux 6.8 or later");
        let marker = std::thread::spawn(|| marker.run());
        let daemon = Self { socket: ours, marker };
        let hello = Hello::decode(&daemon.packet()).unwrap();
        assert_eq!(hello.build, BUILD);
        assert!(
            hello.refused.is_none() && hello.frames.end - hello.frames.start == (FRAMES * PAGE_SIZE) as u64
        );
        daemon
    }

    fn packet(&self) -> Vec<u8> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&patience)), Ok(1), "the marker says nothing");
        let mut packet = [0; wire::MOST_BYTES];
        let (read, _) = recv(&self.socket, &mut packet[..], RecvFlags::empty()).unwrap();
        packet[..read].to_vec()
    }

    fn mark(&self, addresses: &[u64]) {
        for some in addresses.chunks(wire::MOST_ORDERS) {
            send(&self.socket, &wire::encode_orders(some), SendFlags::empty()).unwrap();
        }
    }

    /// Marks pages, and waits until they are: an order that is refused comes behind them.
    fn mark_and_wait(&self, addresses: &[u64]) {
        self.mark(addresses);
        self.mark(&[1]);
        assert_eq!(self.reports(1)[0].outcome, Outcome::Refused(Errno::PERM), "nothing else was told");
    }

    fn reports(&self, count: usize) -> Vec<Report> {
        let mut reports = Vec::new();
        while reports.len() < count {
            reports.extend(wire::decode_reports(&self.packet()).unwrap());
        }
        assert_eq!(reports.len(), count, "{reports:?}");
        reports
    }

    fn outcomes(&self, count: usize) -> Vec<(u64, Outcome)> {
        let mut outcomes: Vec<_> =
            self.reports(count).into_iter().map(|report| (report.address, report.outcome)).collect();
        outcomes.sort_by_key(|(address, _)| *address);
        outcomes
    }

    /// The daemon dies. Ends when the marker has.
    fn die(self) {
        drop(self.socket);
        self.marker.join().unwrap();
    }
}

fn all(memory: &Memory) -> Vec<u64> {
    (0..memory.1).map(|page| memory.address(page)).collect()
}

#[test]
fn a_marked_page_comes_back_with_its_next_access_and_is_told_of_once() {
    let _alone = alone();
    let (memory, daemon) = (Memory::new(64), Daemon::new());
    daemon.mark_and_wait(&all(&memory));
    assert!(memory.is_whole(0..32), "by reading");
    for page in 32..64 {
        memory.word(page).store(expected(page), Ordering::Relaxed);
    }
    let accessed: Vec<_> = all(&memory).into_iter().map(|address| (address, Outcome::Accessed)).collect();
    assert_eq!(daemon.outcomes(64), accessed);
    assert!(memory.is_whole(0..64));
    daemon.mark_and_wait(&[memory.address(5)]);
    assert!(memory.is_whole(0..64));
    let again = daemon.reports(1);
    assert_eq!((again[0].address, again[0].outcome), (memory.address(5), Outcome::Accessed));
    daemon.die();
    assert!(memory.is_whole(0..64));
}

#[test]
fn system_calls_that_meet_a_marked_page_go_on() {
    let _alone = alone();
    let (memory, daemon) = (Memory::new(8), Daemon::new());
    daemon.mark_and_wait(&all(&memory));
    let (from, to) = rustix::pipe::pipe().unwrap();
    // SAFETY: the pages are the test's.
    let bytes =
        |first: usize| unsafe { std::slice::from_raw_parts(memory.0.add(first * PAGE_SIZE), 2 * PAGE_SIZE) };
    assert_eq!(rustix::io::write(&to, bytes(0)), Ok(2 * PAGE_SIZE), "from pages 0 and 1");
    // SAFETY: as above; nobody else uses pages 2 and 3.
    let read = unsafe {
        libc::read(std::os::fd::AsRawFd::as_raw_fd(&from), memory.0.add(2 * PAGE_SIZE).cast(), 2 * PAGE_SIZE)
    };
    assert_eq!(read, 2 * PAGE_SIZE as isize, "into pages 2 and 3");
    assert_eq!(memory.word(3).load(Ordering::Relaxed), expected(1));
    // Another process's system call, of one page that the kernel looks up by itself.
    let mut word = [0_u8; 8];
    let own = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: 8 };
    let theirs = libc::iovec { iov_base: ptr::from_ref(memory.word(4)).cast_mut().cast(), iov_len: 8 };
    // SAFETY: both ranges are the test's.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const own, 1, &raw const theirs, 1, 0) };
    assert_eq!(read, 8);
    assert_eq!(u64::from_ne_bytes(word), expected(4));
    // A futex on a marked page: the kernel reads the word, and the waiter leaves as it is another.
    // SAFETY: the word is the test's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            memory.word(5).as_ptr(),
            libc::FUTEX_WAIT,
            77,
            ptr::null::<libc::timespec>(),
        )
    };
    assert_eq!((result, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EAGAIN)));
    let touched: Vec<_> = daemon.outcomes(6).into_iter().map(|(address, _)| address).collect();
    assert_eq!(touched, (0..6).map(|page| memory.address(page)).collect::<Vec<_>>());
    daemon.die();
    assert!(memory.is_whole(4..8));
}

/// A forked child that checks something and ends.
fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child makes system calls and looks at memory only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(!check());
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: a child of this test's.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn forked_children_have_what_is_marked() {
    let _alone = alone();
    let (memory, wiped, daemon) = (Memory::new(256), Memory::new(4), Daemon::new());
    // SAFETY: the mapping is the test's.
    unsafe { libc::madvise(wiped.0.cast(), 4 * PAGE_SIZE, libc::MADV_WIPEONFORK) };
    daemon.mark_and_wait(&[all(&memory), all(&wiped)].concat());
    let child = || {
        let zeros = (0..4).all(|page| wiped.word(page).load(Ordering::Relaxed) == 0);
        // A grandchild, made before the child has got all.
        zeros && in_child(|| memory.is_whole(0..256)) && memory.is_whole(0..256)
    };
    assert!(in_child(child));
    assert!(in_child(|| {
        // SAFETY: the child's own copy.
        unsafe { libc::madvise(memory.0.add(8 * PAGE_SIZE).cast(), 8 * PAGE_SIZE, libc::MADV_DONTNEED) };
        (8..16).all(|page| memory.word(page).load(Ordering::Relaxed) == 0) && memory.is_whole(16..256)
    }));
    assert!(memory.is_whole(0..256) && wiped.is_whole(0..4), "and so has their parent");
    daemon.reports(260);
    // What is shared with no child any more is taken again, or refused: never lost.
    daemon.mark(&all(&memory));
    daemon.die();
    assert!(memory.is_whole(0..256));
}

#[test]
fn what_the_program_does_to_its_memory_holds_for_marked_pages() {
    let _alone = alone();
    let (memory, daemon) = (Memory::new(64), Daemon::new());
    daemon.mark_and_wait(&all(&memory));
    let at = |page: usize| memory.0.wrapping_add(page * PAGE_SIZE).cast::<libc::c_void>();
    // SAFETY: all of it is the test's.
    unsafe {
        assert_eq!(libc::madvise(at(0), 4 * PAGE_SIZE, libc::MADV_DONTNEED), 0);
        assert_eq!(libc::munmap(at(4), 4 * PAGE_SIZE), 0);
        assert_eq!(libc::mprotect(at(8), 4 * PAGE_SIZE, libc::PROT_READ), 0);
        assert_eq!(libc::mlock(at(12), 4 * PAGE_SIZE), 0);
        let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        assert_eq!(libc::mmap(at(16), 4 * PAGE_SIZE, 3, fixed, -1, 0), at(16));
    }
    assert!((0..4).all(|page| memory.word(page).load(Ordering::Relaxed) == 0), "dropped");
    assert!(memory.is_whole(8..16), "read-only, or locked");
    assert!((16..20).all(|page| memory.word(page).load(Ordering::Relaxed) == 0), "mapped anew");
    let elsewhere = Memory::new(8);
    // SAFETY: as above; what was at `elsewhere` is given up.
    let moved = unsafe {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        libc::mremap(at(32), 8 * PAGE_SIZE, 8 * PAGE_SIZE, flags, elsewhere.0)
    };
    assert_eq!(moved, elsewhere.0.cast());
    let found = |page: usize| elsewhere.word(page).load(Ordering::Relaxed);
    assert!((0..8).all(|page| found(page) == expected(32 + page)), "moved, with what was marked");
    assert!(memory.is_whole(20..32) && memory.is_whole(40..64));
    daemon.die();
    assert!(memory.is_whole(8..16) && memory.is_whole(20..32) && memory.is_whole(40..64));
    assert!((0..8).all(|page| found(page) == expected(32 + page)));
}

#[test]
fn when_the_daemon_dies_all_is_in_its_place_and_nobody_waits() {
    let _alone = alone();
    let (memory, daemon) = (Memory::new(FRAMES), Daemon::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) || rounds == 0 {
                assert!(memory.is_whole(0..FRAMES));
                rounds += 1;
            }
        });
        daemon.mark(&all(&memory)[..2048]);
        daemon.die();
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert!(memory.is_whole(0..FRAMES));
    // And the memory is the kernel's own again: another descriptor can have it.
    let other = Daemon::new();
    other.mark_and_wait(&[memory.address(7)]);
    assert!(memory.is_whole(0..FRAMES));
    other.die();
}

#[test]
fn what_must_not_be_marked_is_refused() {
    let _alone = alone();
    let (memory, daemon) = (Memory::new(32), Daemon::new());
    let refused = |address: u64, reason: Errno| {
        daemon.mark(&[address]);
        assert_eq!(daemon.outcomes(1), [(address, Outcome::Refused(reason))]);
    };
    exclude(memory.address(3) as usize + 5, 8);
    refused(memory.address(3), Errno::PERM);
    let own = Area::new(PAGE_SIZE).unwrap();
    own.words(0, 1)[0].store(1, Ordering::Relaxed);
    refused(own.address() as u64, Errno::INVAL);
    refused(memory.address(0) + 1, Errno::PERM);
    static SHARED: AtomicU64 = AtomicU64::new(5);
    SHARED.fetch_add(1, Ordering::Relaxed);
    refused(ptr::from_ref(&SHARED).expose_provenance() as u64 & !(PAGE_SIZE as u64 - 1), Errno::INVAL);
    let sparse = Memory::new(100);
    // SAFETY: the mapping is the test's.
    unsafe { libc::madvise(sparse.0.cast(), 50 * PAGE_SIZE, libc::MADV_DONTNEED) };
    refused(sparse.address(70), Errno::NODATA);
    daemon.mark_and_wait(&[memory.address(4)]);
    refused(memory.address(4), Errno::ALREADY);
    daemon.die();
}

/// Threads use, drop and move memory while all of it is marked again and again. Each has pages of its own,
/// and knows what they hold.
#[test]
fn nothing_is_lost_while_threads_use_drop_and_move_what_is_marked() {
    let _alone = alone();
    const THREADS: u64 = 3;
    const PAGES: usize = 64;
    const ROUNDS: u64 = 1500;
    let daemon = Daemon::new();
    let memories: Vec<_> = (0..THREADS).map(|_| Memory::new(PAGES)).collect();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (thread, memory) in memories.iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let mut random = 0x2545_F491_4F6C_DD1D_u64 + thread as u64;
                println!("thread {thread}: seed {random}");
                let mut next = || {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random as usize
                };
                let mut values: Vec<u64> = (0..PAGES).map(expected).collect();
                for round in 0..ROUNDS {
                    let page = next() % PAGES;
                    let found = memory.word(page).load(Ordering::Relaxed);
                    assert_eq!(found, values[page], "page {page}, round {round}");
                    match next() % 16 {
                        0 => {
                            let at = memory.0.wrapping_add(page * PAGE_SIZE);
                            // SAFETY: this thread's page.
                            unsafe { libc::madvise(at.cast(), PAGE_SIZE, libc::MADV_DONTNEED) };
                            values[page] = 0;
                        }
                        1 => {
                            let at = memory.0.wrapping_add(page * PAGE_SIZE).cast();
                            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                            // SAFETY: as above.
                            assert_eq!(unsafe { libc::mmap(at, PAGE_SIZE, 3, flags, -1, 0) }, at);
                            values[page] = 0;
                        }
                        2 => assert!(in_child(|| memory.word(page).load(Ordering::Relaxed) == values[page])),
                        _ => {
                            values[page] = next() as u64;
                            memory.word(page).store(values[page], Ordering::Relaxed);
                        }
                    }
                }
                for (page, value) in values.into_iter().enumerate() {
                    assert_eq!(memory.word(page).load(Ordering::Relaxed), value, "page {page} in the end");
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let addresses: Vec<u64> = memories.iter().flat_map(all).collect();
        let mut accessed = 0;
        while done.load(Ordering::Relaxed) < THREADS && !std::thread::panicking() {
            let _ = send(&daemon.socket, &wire::encode_orders(&addresses), SendFlags::DONTWAIT);
            let mut packet = [0; wire::MOST_BYTES];
            while let Ok((read, _)) = recv(&daemon.socket, &mut packet[..], RecvFlags::DONTWAIT) {
                let reports = wire::decode_reports(&packet[..read]).unwrap();
                accessed += reports.iter().filter(|report| report.outcome == Outcome::Accessed).count();
            }
            std::thread::yield_now();
        }
        assert!(accessed > 0, "accesses stopped at marked pages");
    });
    daemon.die();
}
