//! The marker itself: one thread that takes pages out of their places, puts them back when they are accessed,
//! and knows of all that happens to the address space meanwhile.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, Result};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};
use spillway_sys::maps::Mapping;
use spillway_sys::memory::{Area, PageMap, inherit};
use spillway_sys::page::PAGE_SIZE;
use spillway_sys::uffd::events::{EVENTS, Event};
use spillway_sys::uffd::{Fault, RegisterMode, Uffd};

use crate::excluded::is_excluded;
use crate::heirs::{bequeath, inherited, wiped};
use crate::held::{Held, Page};
use crate::places::place_of;
use crate::program;
use crate::registered::Registered;
use crate::rights;
use crate::wire::{self, Hello, Outcome, Report};

/// Pages that are held at most.
pub const FRAMES: usize = 4096;
/// A page that nobody accesses for so long was not hot: it goes back.
const LONGEST_HELD_NS: u64 = 10_000_000_000;
/// How often old pages are looked for, and ranges in which none is held any more.
const TIDY_NS: u64 = 1_000_000_000;
/// Of a mapping that is registered, one page in so many may be missing at most: the program's first touch of
/// each of those is a fault for the marker, which takes longer than the kernel's own.
const MISSING_PART: usize = 16;
/// As many first touches in a second are nothing to speak of.
const FEW_FILLS: u64 = 1000;
/// Nothing is marked for so long when first touches were many, and accesses to marked pages few.
const REST_NS: u64 = 60_000_000_000;
/// Pages that are taken between two looks at what waits.
const TAKEN_AT_ONCE: usize = 8;
/// How often a page is tried again that cannot be taken while the address space changes.
const MOST_TRIES: usize = 100;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// For whom it works: once there is nobody it gives all back, and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Daemon {
    Lives,
    IsGone,
}

/// A marker, connected to the daemon.
#[derive(Debug)]
pub struct Marker {
    uffd: Uffd,
    map: PageMap,
    /// The process's directory in `/proc`: it is found there though the program changes its root.
    process: OwnedFd,
    socket: OwnedFd,
    frames: Area,
    held: Held,
    registered: Registered,
    /// Faults that could not be served while the address space changed.
    later: Vec<Fault>,
    reports: VecDeque<Report>,
    /// Of children that cannot be given what is held.
    children: Vec<Uffd>,
    tidied_ns: u64,
    /// First touches and accesses to marked pages that were served since then.
    filled: u64,
    accessed: u64,
    rests_until_ns: u64,
}

impl Marker {
    /// A marker on a connected socket, which has yet to say [`Hello`].
    ///
    /// # Errors
    /// EPERM without CAP_SYS_PTRACE; EINVAL, ENOSYS before Linux 6.8.
    pub fn new(socket: OwnedFd) -> Result<Self> {
        let uffd = Uffd::open_to_poll(EVENTS)?;
        let frames = Area::new(FRAMES * PAGE_SIZE)?;
        inherit(program::memory(frames.address()..frames.address() + frames.bytes()), false)?;
        uffd.register_own(frames.pages(0, FRAMES))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            map: PageMap::open()?,
            process: rustix::fs::open("/proc/self", flags, Mode::empty())?,
            uffd,
            socket,
            frames,
            held: Held::new(FRAMES),
            registered: Registered::default(),
            later: Vec::new(),
            reports: VecDeque::new(),
            children: Vec::new(),
            tidied_ns: now_ns(),
            filled: 0,
            accessed: 0,
            rests_until_ns: 0,
        })
    }

    /// What it says first, as one of this build.
    #[must_use]
    pub fn hello(&self, build: u64) -> Hello {
        let start = self.frames.address() as u64;
        Hello { build, frames: start..start + self.frames.bytes() as u64, refused: None }
    }

    /// The userfaultfd, which the daemon gets too.
    #[must_use]
    pub fn uffd(&self) -> &Uffd {
        &self.uffd
    }

    /// The socket to the daemon.
    #[must_use]
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// All descriptors that it needs.
    #[must_use]
    pub fn descriptors(&self) -> [RawFd; 4] {
        let fds = [self.uffd.as_fd(), self.map.as_fd(), self.process.as_fd(), self.socket.as_fd()];
        fds.map(|fd| fd.as_raw_fd())
    }

    /// Marks what the daemon names until that is gone; then gives all back.
    pub fn run(mut self) {
        let is_bound = rights::give_up().is_ok();
        while is_bound && self.turn() == Daemon::Lives {}
        self.retire();
    }

    fn turn(&mut self) -> Daemon {
        let mut wants = PollFlags::IN;
        wants.set(PollFlags::OUT, !self.reports.is_empty());
        let mut fds =
            [PollFd::new(&self.uffd, PollFlags::IN), PollFd::from_borrowed_fd(self.socket.as_fd(), wants)];
        let _ = poll(&mut fds, Some(&self.longest_wait()));
        let told = fds[1].revents();
        self.hear();
        if self.report() == Daemon::IsGone {
            return Daemon::IsGone;
        }
        if told.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            && self.take_orders() == Daemon::IsGone
        {
            return Daemon::IsGone;
        }
        if now_ns() > self.tidied_ns + TIDY_NS {
            self.tidy();
            let status = self.read("status").unwrap_or_default();
            if !rights::follow(&status) {
                return Daemon::IsGone;
            }
        }
        Daemon::Lives
    }

    fn longest_wait(&self) -> Timespec {
        const RETRY_NS: i64 = 100_000;
        let tv_nsec = if self.later.is_empty() { TIDY_NS as i64 - 1 } else { RETRY_NS };
        Timespec { tv_sec: 0, tv_nsec }
    }

    /// Serves all that waits.
    fn hear(&mut self) {
        for fault in std::mem::take(&mut self.later) {
            self.serve(fault);
        }
        loop {
            match self.uffd.read_event() {
                Ok(Some(event)) => self.note(event),
                Ok(None) => return,
                // The kernel tells again of a fork for which it had no descriptor.
                Err(_) => return sched_yield(),
            }
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Fault(fault) => self.serve(fault),
            Event::Forked(child) => self.bequeath(child),
            Event::Dropped { start, end } => self.lose(start..end),
            Event::Unmapped { start, end } => {
                self.lose(start..end);
                self.registered.subtract(&(start..end));
            }
            Event::Moved { from, to, bytes } => {
                self.registered.subtract(&(from..from + bytes));
                self.registered.add(to..to + bytes);
                for address in self.held.relocate(from..from + bytes, to) {
                    self.tell(address, Outcome::Gone);
                }
            }
        }
    }

    /// The program gave up what these addresses hold.
    fn lose(&mut self, range: Range<usize>) {
        for page in self.held.remove_range(range) {
            self.empty(page.frame);
            self.tell(page.address, Outcome::Gone);
        }
    }

    /// A frame that cannot be emptied is not used again.
    fn empty(&mut self, frame: usize) {
        if self.uffd.empty_frame(self.frames.pages(frame, 1)).is_ok() {
            self.held.release_frame(frame);
        }
    }

    fn bequeath(&mut self, child: Uffd) {
        if self.held.is_empty() {
            return;
        }
        // What is wiped must be zeros, and only the kernel knows it.
        let kept = match self.read("smaps") {
            Ok(smaps) => bequeath(child, inherited(self.held.all(), &wiped(&smaps)), &self.frames),
            Err(_) => Some(child),
        };
        self.children.extend(kept);
    }

    fn read(&self, name: &str) -> std::io::Result<String> {
        let file = openat(&self.process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        Ok(text)
    }

    /// An access waits for a page.
    fn serve(&mut self, fault: Fault) {
        let done = if self.held.frame_of(fault.address).is_some() {
            self.accessed += 1;
            self.give_back(fault.address, Outcome::Accessed)
        } else {
            self.fill(fault.address)
        };
        if !done {
            self.later.push(fault);
        }
    }

    /// Never touched, or dropped since: it holds zeros. Whether that is done.
    fn fill(&mut self, address: usize) -> bool {
        self.filled += 1;
        match self.uffd.map_zeros(program::page(address)) {
            Ok(_) => true,
            Err(Errno::AGAIN | Errno::NOMEM) => false,
            // A page is there, or its memory is none of ours any more.
            Err(_) => {
                let _ = self.uffd.wake(program::page(address));
                true
            }
        }
    }

    /// Puts a page back where it belongs, and wakes who waits for it. Whether that is done.
    fn give_back(&mut self, address: usize, outcome: Outcome) -> bool {
        let Some(frame) = self.held.frame_of(address) else { return true };
        let in_frame = self.frames.pages(frame, 1);
        match self.uffd.put_page_back(program::page(address), in_frame, &self.map) {
            Ok(()) => {
                self.held.remove(address);
                self.held.release_frame(frame);
                self.tell(address, outcome);
                true
            }
            Err(Errno::AGAIN | Errno::NOMEM | Errno::BUSY) => false,
            // Its mapping is locked now, or read-only: frames of another kind do not move there.
            Err(Errno::INVAL) => self.copy_back(Page { address, frame }, outcome),
            Err(_) => self.is_lost(Page { address, frame }),
        }
    }

    fn copy_back(&mut self, page: Page, outcome: Outcome) -> bool {
        match self.uffd.copy_from_frame(program::page(page.address), self.frames.pages(page.frame, 1)) {
            Ok(()) => {
                self.held.remove(page.address);
                self.empty(page.frame);
                self.tell(page.address, outcome);
                true
            }
            Err(Errno::AGAIN | Errno::NOMEM) => false,
            Err(_) => self.is_lost(page),
        }
    }

    /// Its addresses hold something else, or nothing.
    fn is_lost(&mut self, page: Page) -> bool {
        self.held.remove(page.address);
        self.empty(page.frame);
        let _ = self.uffd.wake(program::page(page.address));
        self.tell(page.address, Outcome::Gone);
        true
    }

    fn tell(&mut self, address: usize, outcome: Outcome) {
        self.reports.push_back(Report { address: address as u64, time_ns: now_ns(), outcome });
    }

    /// Sends what there is to tell, as far as the daemon takes it.
    fn report(&mut self) -> Daemon {
        while !self.reports.is_empty() {
            let count = self.reports.len().min(wire::MOST_REPORTS);
            let packet = wire::encode_reports(self.reports.iter().take(count));
            match send(&self.socket, &packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => drop(self.reports.drain(..count)),
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => return Daemon::Lives,
                Err(_) => return Daemon::IsGone,
            }
        }
        Daemon::Lives
    }

    /// Takes pages that the daemon names.
    fn take_orders(&mut self) -> Daemon {
        let mut packet = [0; wire::MOST_BYTES];
        let (read, _) = match recv(&self.socket, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Daemon::IsGone,
            Ok(read) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Daemon::Lives,
            Err(_) => return Daemon::IsGone,
        };
        let Some(mut addresses) = wire::decode_orders(&packet[..read]) else { return Daemon::IsGone };
        addresses.sort_unstable();
        let mappings =
            self.read("maps").map(|text| text.lines().filter_map(Mapping::parse).collect::<Vec<_>>());
        for some in addresses.chunks(TAKEN_AT_ONCE) {
            for &address in some {
                let mappings = mappings.as_deref().unwrap_or_default();
                if let Err(reason) = self.mark(address as usize, mappings) {
                    self.tell(address as usize, Outcome::Refused(reason));
                }
            }
            self.hear();
        }
        Daemon::Lives
    }

    /// Takes a page out of its place.
    fn mark(&mut self, address: usize, mappings: &[Mapping]) -> Result<()> {
        if !address.is_multiple_of(PAGE_SIZE) || is_excluded(address) {
            return Err(Errno::PERM);
        }
        if self.held.frame_of(address).is_some() {
            return Err(Errno::ALREADY);
        }
        let place = place_of(address, mappings).ok_or(Errno::INVAL)?;
        if now_ns() < self.rests_until_ns {
            return Err(Errno::CANCELED);
        }
        if !self.registered.contains(&(address..address + PAGE_SIZE)) {
            if !self.is_populated(&place) {
                return Err(Errno::NODATA);
            }
            self.uffd.register(program::memory(place.clone()), RegisterMode::MISSING)?;
            self.registered.add(place);
        }
        let frame = self.held.take_frame().ok_or(Errno::NOSPC)?;
        let taken = self.take(address, frame);
        if taken.is_err() {
            self.held.release_frame(frame);
            return taken;
        }
        self.held.insert(Page { address, frame }, now_ns());
        // It came to be excluded meanwhile.
        while is_excluded(address) && !self.give_back(address, Outcome::Returned) {
            self.hear();
        }
        Ok(())
    }

    /// Whether next to all pages of a range are there.
    fn is_populated(&self, range: &Range<usize>) -> bool {
        let pages = range.len() / PAGE_SIZE;
        let populated = |first: usize| {
            let count = PageMap::MOST_PAGES.min(pages - first);
            let found = self.map.populated(range.start + first * PAGE_SIZE, count).unwrap_or_default();
            found.iter().map(|bits| bits.count_ones() as usize).sum::<usize>()
        };
        let all: usize = (0..pages).step_by(PageMap::MOST_PAGES).map(populated).sum();
        pages - all <= pages / MISSING_PART
    }

    fn take(&mut self, address: usize, frame: usize) -> Result<()> {
        for _ in 0..MOST_TRIES {
            match self.uffd.take_page(self.frames.pages(frame, 1), program::page(address), &self.map) {
                Err(Errno::AGAIN) => self.hear(),
                other => return other,
            }
            // What was heard may have been that the range is no longer registered: its page must stay.
            if !self.registered.contains(&(address..address + PAGE_SIZE)) {
                return Err(Errno::NOENT);
            }
        }
        Err(Errno::AGAIN)
    }

    /// Gives old pages back, and ranges in which none is held.
    fn tidy(&mut self) {
        self.tidied_ns = now_ns();
        for address in self.held.held_since(self.tidied_ns.saturating_sub(LONGEST_HELD_NS)) {
            self.give_back(address, Outcome::Returned);
        }
        let (filled, accessed) = (std::mem::take(&mut self.filled), std::mem::take(&mut self.accessed));
        if filled > FEW_FILLS && filled / 4 > accessed {
            self.rests_until_ns = self.tidied_ns + REST_NS;
            for page in self.held.all().collect::<Vec<_>>() {
                self.give_back(page.address, Outcome::Returned);
            }
        }
        for range in self.registered.all().to_vec() {
            if !self.held.has_any_in(&range) {
                self.leave(range);
            }
        }
    }

    /// Faults of a range are the kernel's own again.
    fn leave(&mut self, range: Range<usize>) {
        // Where there is nothing of ours any more the kernel says so, and that is well.
        let _ = self.uffd.unregister(program::memory(range.clone()));
        self.registered.subtract(&range);
    }

    /// Gives every page back that it holds.
    fn retire(mut self) {
        while !self.held.is_empty() || !self.later.is_empty() {
            for page in self.held.all().collect::<Vec<_>>() {
                self.give_back(page.address, Outcome::Returned);
            }
            self.hear();
            sched_yield();
        }
        for range in self.registered.all().to_vec() {
            self.leave(range);
        }
        self.hear();
        let own = self.frames.address()..self.frames.address() + self.frames.bytes();
        if self.uffd.unregister(program::memory(own)).is_err() {
            // To unmap it would be an event that nobody hears.
            std::mem::forget(self.frames);
        }
    }
}
