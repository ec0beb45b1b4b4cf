//! Inline mode: a fault is a signal, and the thread that has it serves it itself.
//!
//! That spares the hand-over to a handler and back, two switches of thread. Its price: the kernel cannot have
//! a fault served in the middle of a system call, which fails with EFAULT instead. So [`Inline::make_ready`]
//! brings in what a system call is about to use, under a [`Hold`].
//!
//! The program's threads have the program's file table, so the descriptors that serving takes are there too,
//! by the same high numbers as in the pager's, and the preload library keeps the program from closing them.
//! Where all places to serve a fault are taken, a handler is asked to.
//!
//! A program that does what this cannot serve leaves inline mode for good ([`crate::space::hand_over`]).

pub(crate) mod descriptors;
pub mod foreign;
pub mod undisturbed;

use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use spillway_core::page::PAGE_SIZE;
use spillway_store::StoreError;
use spillway_sys::memory::PageMapEntry;
use spillway_sys::process;
use spillway_sys::raw_thread::control_block;
use spillway_sys::uffd::Fault;

use crate::inline::undisturbed::undisturbed;
use crate::kernel::live::LiveKernel;
use crate::kernel::{Kernel, planted};
use crate::pages::address::{page_number_of, target, target_of};
use crate::process::attachment::Attachment;
use crate::process::engine::Engine;
use crate::process::worker::Worker;
use crate::run::stacks::Origin;
use crate::run::state::Counter;
use crate::space::holds::{Frame, Hold};
use crate::threads::calls::Operation;

/// A place to serve faults for so much of the local limit.
const BYTES_OF_LIMIT_EACH: usize = 32 << 20;
/// No program has memory from here on.
const END_OF_ADDRESSES: usize = 1 << 47;
/// Times that a page is asked for before its system call is left to fail.
const TRIES: usize = 64;

/// Serves the faults of this process's threads where they happen.
pub struct Inline<K: Kernel = LiveKernel> {
    engine: &'static Engine<K>,
    at: &'static Attachment<K>,
    workers: Vec<Mutex<Worker<K>>>,
    /// Others than the thread that serves a fault may use the program's memory: see
    /// [`crate::evict::in_place`].
    has_company: AtomicBool,
}

/// Why a process cannot serve its own faults.
#[derive(Debug, thiserror::Error)]
pub enum InlineError {
    /// The kernel refuses something.
    #[error("the kernel refused to open what faults are served with: {0}")]
    Kernel(#[from] Errno),
    /// The program has something else by a number that is needed.
    #[error(
        "the program has a file open by the number {0}, which --fault-mode inline needs; \
         use --fault-mode thread"
    )]
    Taken(RawFd),
    /// A store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A page that a system call uses.
enum Page {
    Ready,
    Lost,
    /// Under management, and such that the system call fails there.
    Forbidden,
    NotOurs,
}

impl Inline<LiveKernel> {
    /// On a thread of the program, once paging works. `pager_thread` has the descriptors of `at` in its
    /// table.
    pub(crate) fn new(
        engine: &'static Engine<LiveKernel>,
        at: &'static Attachment<LiveKernel>,
        pager_thread: Pid,
    ) -> std::result::Result<Self, InlineError> {
        // PIDFD_THREAD (Linux 6.9): the pager's thread has a table of its own.
        let of_a_thread = PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());
        if let Some(&taken) = at.descriptors.iter().find(|&&number| process::is_open(number)) {
            return Err(InlineError::Taken(taken));
        }
        // Where the program has all of its numbers in use, these are the only ones free: each is used to move
        // the next.
        let (&own, shared) = at.descriptors.split_last().ok_or(Errno::MFILE)?;
        let pager = process::move_to(pidfd_open(pager_thread, of_a_thread)?, own)?;
        for &number in shared {
            let fd = pidfd_getfd(&pager, number, PidfdGetfdFlags::empty())?;
            std::mem::forget(process::move_to(fd, number)?);
        }
        std::mem::forget(pager);
        // Each holds memory; who finds none free asks a handler.
        let limit_bytes = at.run.budget().limit_pages.load(Ordering::Relaxed) as usize * PAGE_SIZE;
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        let count = (limit_bytes / BYTES_OF_LIMIT_EACH).clamp(1, cpus);
        undisturbed::reset();
        Ok(Self::with_places(engine, at, count)?)
    }
}

impl<K: Kernel> Inline<K> {
    /// With `places` to serve faults at a time.
    ///
    /// # Errors
    /// A store's, where it lets no further lane be opened.
    pub fn with_places(
        engine: &'static Engine<K>,
        at: &'static Attachment<K>,
        places: usize,
    ) -> std::result::Result<Self, StoreError> {
        let worker = || Ok(Worker { is_in_program: true, ..Worker::new(engine, at)? });
        let workers = (0..places).map(|_| Ok(Mutex::new(worker()?)));
        let workers = workers.collect::<std::result::Result<_, _>>()?;
        Ok(Self { engine, at, workers, has_company: AtomicBool::new(true) })
    }

    pub(crate) fn attachment(&self) -> &'static Attachment<K> {
        self.at
    }

    /// The calling thread is the only one that uses the program's memory, until [`Self::note_company`].
    pub fn note_alone(&self) {
        self.has_company.store(false, Ordering::Release);
    }

    /// A thread, or a process that shares this memory, is about to be made; or managed memory not to be read.
    pub fn note_company(&self) {
        self.has_company.store(true, Ordering::Release);
    }

    /// In a forked child: gives up what its parent served faults with.
    pub(crate) fn close(&self) {
        self.at.descriptors.iter().for_each(|&fd| process::close(fd));
    }

    /// Whether a descriptor of the program's table is one of ours.
    #[must_use]
    pub fn owns_descriptor(&self, fd: RawFd) -> bool {
        self.at.descriptors.contains(&fd)
    }

    /// Our descriptors in the program's table.
    #[must_use]
    pub fn descriptors(&self) -> &[RawFd] {
        &self.at.descriptors
    }

    /// A system call has come as a signal.
    pub fn count_call_by_signal(&self) {
        self.at.run.count(Counter::CallsBySignal, 1);
    }

    /// The most bytes that one system call should hold.
    #[must_use]
    pub fn most_held_bytes(&self) -> usize {
        let limit = self.at.run.budget().limit_pages.load(Ordering::Relaxed) as usize * PAGE_SIZE;
        (limit / 16).clamp(64 << 10, 4 << 20)
    }

    /// Room for what a system call uses, as [`Holds::take`](crate::space::holds::Holds::take) has it.
    #[must_use]
    pub fn hold(&self, at: Frame) -> Option<Hold<'static>> {
        self.engine.holds.take(at)
    }

    /// Managed memory is about to become such as cannot be read.
    pub fn note_unreadable(&self, range: Range<usize>) {
        if self.may_leave(&range) {
            self.note_company();
        }
    }

    /// Whether some of a range is under management, or will be once there is less room.
    #[must_use]
    pub fn may_leave(&self, range: &Range<usize>) -> bool {
        self.passing_gate(|| {
            // One lock after the other: who has both takes that of native memory first.
            let native = self.engine.native_within(range);
            let managed = self.engine.regions().within(range);
            !native.is_empty() || !managed.is_empty()
        })
    }

    /// Whether a page of an address is under management, so that a signal there may be ours.
    #[must_use]
    pub fn manages(&self, address: usize) -> bool {
        self.passing_gate(|| self.engine.regions().contains(address))
    }

    /// Whether a page that is not under management was, a moment ago, when the access faulted (mlock(2) in
    /// another thread): then the access is to be made again. Elsewhere the kernel says that it would fail
    /// again: a hole of a file may be read, and not be written because the file's disk is full.
    #[must_use]
    pub fn was_given_up(&self, address: usize, write: bool) -> bool {
        // Before the look at the page: what is over by then has left the page to the kernel.
        let is_under_way = self.is_giving_up();
        let page = address & !(PAGE_SIZE - 1);
        let kernel = &self.at.kernel;
        let is_had = if write {
            kernel.make_own(target(page_number_of(page), 1)).is_ok()
        } else {
            kernel.is_readable(page)
        };
        if is_had {
            return true;
        }
        if is_under_way {
            Self::pause();
        }
        is_under_way
    }

    /// Whether a page that answers with SIGBUS as a lost one does is not lost, but kept back for the moment
    /// in which handlers take over ([`crate::space::hand_over`]): then the access is to be made again.
    #[must_use]
    pub fn was_kept_back(&self, address: usize) -> bool {
        if self.engine.gate.is_frozen() {
            Self::pause();
            return true;
        }
        let page = address & !(PAGE_SIZE - 1);
        // A page that is lost has its marker still.
        let is_marked = self.at.kernel.page_map_entry(page).is_none_or(PageMapEntry::is_populated);
        let is_there =
            self.engine.table.find(page_number_of(page)).is_some_and(|word| word.peek().is_mapped());
        !self.at.kernel.is_inline() && (is_there || !is_marked)
    }

    /// Inline mode is over in this process.
    #[must_use]
    pub fn was_left(&self) -> bool {
        !self.at.kernel.is_inline()
    }

    fn is_giving_up(&self) -> bool {
        self.engine.leaving_ranges.load(Ordering::Acquire) > 0
    }

    /// Takes locks only while no fork can be on its way, which would leave them locked in the child.
    fn passing_gate<T>(&self, question: impl FnOnce() -> T) -> T {
        undisturbed(|| {
            loop {
                if let Some(_pass) = self.engine.enter() {
                    return question();
                }
                Self::pause();
            }
        })
    }

    /// Serves a fault of the calling thread, which then accesses the page again; false when the page cannot
    /// be had. `origin` is where the thread needs it.
    #[must_use]
    pub fn serve(&self, address: usize, write: bool, was_there: bool, origin: Origin) -> bool {
        undisturbed(|| self.serve_now(address, write, was_there, origin))
    }

    fn serve_now(&self, address: usize, write: bool, was_there: bool, origin: Origin) -> bool {
        let fault = Fault {
            address: address & !(PAGE_SIZE - 1),
            write,
            write_protected: was_there && write,
            // Its control block tells it apart from others.
            thread_id: (control_block() >> 6) as u32,
        };
        if self.engine.gate.is_frozen() {
            // Another thread forks.
            Self::pause();
            return true;
        }
        let served = match self.workers.iter().find_map(|worker| worker.try_lock().ok()) {
            Some(mut worker) => {
                worker.is_alone = !self.has_company.load(Ordering::Acquire);
                worker.origin = Some(origin);
                worker.serve_fault(fault)
            }
            None => {
                let flags = usize::from(fault.write) | usize::from(fault.write_protected) << 1;
                let arguments = [fault.address, flags, fault.thread_id as usize, 0];
                self.engine.calls.call(Operation::Serve, arguments) == 0
            }
        };
        let word = self.engine.table.find(page_number_of(address));
        if word.is_some_and(|word| word.is_locked()) {
            Self::pause();
        }
        served
    }

    /// Brings in what a system call will use of `range`, ready to be written, under `hold` if there is one.
    /// What is not ours is left alone. No more than `room` bytes, from which they are taken, and no more is
    /// held: what is held makes no room for the rest. False when a page cannot be had.
    #[must_use]
    pub fn make_ready(&self, range: Range<usize>, hold: Option<&Hold<'_>>, room: &mut usize) -> bool {
        if range.is_empty() {
            return true;
        }
        let mut page = range.start & !(PAGE_SIZE - 1);
        let mut held_until = page;
        while page < range.end && *room > 0 {
            if page >= held_until {
                let most = if planted!(K, "held-beyond-room") { usize::MAX } else { *room };
                held_until = page.saturating_add(most).min(range.end);
                hold.into_iter().for_each(|hold| hold.add(&(page..held_until)));
            }
            match self.make_page_ready(page) {
                Page::Ready => {
                    *room = room.saturating_sub(PAGE_SIZE);
                    page += PAGE_SIZE;
                }
                Page::Lost => return false,
                Page::Forbidden => page += PAGE_SIZE,
                Page::NotOurs => page = self.pass_unmanaged(page..range.end, room),
            }
        }
        true
    }

    /// Holds what a system call will use of `range`, and says whether all of it is sure to be there for it as
    /// it lies. Waits for nothing and takes no lock, so that the program's signals may come meanwhile; where
    /// it says no, [`Self::make_ready`] knows more.
    #[must_use]
    pub fn is_ready(&self, range: &Range<usize>, hold: &Hold<'_>) -> bool {
        hold.add(range);
        K::turn();
        // The kernel says so where there can be no memory.
        if range.end > END_OF_ADDRESSES || self.engine.gate.is_frozen() {
            return false;
        }
        let mut page = range.start & !(PAGE_SIZE - 1);
        let mut unknown: Option<Range<usize>> = None;
        while page < range.end {
            if let Some(word) = self.engine.table.find(page_number_of(page)) {
                if word.is_locked() {
                    return false;
                }
                let info = word.peek();
                if !(info.is_mapped() && info.protected_in().is_none()) {
                    if !info.is_absent() {
                        return false;
                    }
                    unknown.get_or_insert(page..page).end = page + PAGE_SIZE;
                }
            } else {
                unknown.get_or_insert(page..page).end = page + PAGE_SIZE;
            }
            page += PAGE_SIZE;
        }
        // What is nobody's now, and may have been ours a moment ago.
        unknown.is_none_or(|pages| self.engine.outline.excludes(&pages)) && !self.is_giving_up()
    }

    fn make_page_ready(&self, page: usize) -> Page {
        let mut tries = 0;
        while tries < TRIES {
            let (mut was_there, mut is_leaving) = (false, false);
            if let Some(word) = self.engine.table.find(page_number_of(page)) {
                while word.is_locked() || self.engine.gate.is_frozen() {
                    Self::pause();
                }
                let info = word.peek();
                // Perhaps protected since it was fetched.
                was_there = info.is_mapped();
                is_leaving = info.is_under_write_back();
                if was_there && info.protected_in().is_none() {
                    return Page::Ready;
                }
            }
            if !was_there && !self.manages(page) {
                if self.is_giving_up() && !self.at.kernel.is_readable(page) {
                    Self::pause();
                    continue;
                }
                return Page::NotOurs;
            }
            if !was_there && self.at.kernel.is_forbidden(page) {
                // The kernel will say so. Brought in it could not be read, not even to take it out again.
                return Page::Forbidden;
            }
            // A page under write-back may have to wait for the end of that, which a store takes its time for.
            tries += usize::from(!is_leaving);
            if !self.serve(page, true, was_there, Origin::default()) {
                return Page::Lost;
            }
        }
        Page::Ready
    }

    /// Goes on to the next managed page of a range whose first was not managed, which may be that first page
    /// by now. Memory left to the kernel may be taken over while the system call lasts: its pages must be
    /// there by then.
    fn pass_unmanaged(&self, range: Range<usize>, room: &mut usize) -> usize {
        let behind_first = range.start + PAGE_SIZE;
        let (managed, native) = self.passing_gate(|| {
            if planted!(K, "locked-in-the-other-order") {
                let regions = self.engine.regions();
                return (regions.within(&range), self.engine.native_within(&range));
            }
            let native = self.engine.native_within(&range);
            let managed = self.engine.regions().within(&range);
            (managed, native)
        });
        let is_managed_now = managed.first().is_some_and(|(part, _)| part.start <= range.start);
        if is_managed_now {
            return range.start;
        }
        let mut next = managed.first().map_or(range.end, |(part, _)| part.start.max(behind_first));
        if self.is_giving_up() {
            // Some of what is no region any more may be on its way out.
            next = next.min(behind_first);
        }
        for part in native.into_iter().filter(|part| part.start < next) {
            let start = part.start & !(PAGE_SIZE - 1);
            let bytes = (part.end.min(next) - start).next_multiple_of(PAGE_SIZE).min(*room);
            let made = self.at.kernel.make_own(target_of(start..start + bytes));
            if made.is_err() && self.is_managed_anywhere(start..start + bytes) {
                // Taken over since, so that its pages did not come.
                return start;
            }
            *room -= bytes;
        }
        next
    }

    fn is_managed_anywhere(&self, range: Range<usize>) -> bool {
        self.passing_gate(|| !self.engine.regions().within(&range).is_empty())
    }

    /// For as long as another thread may take with a page.
    fn pause() {
        K::sleep(Duration::from_micros(20));
    }
}
