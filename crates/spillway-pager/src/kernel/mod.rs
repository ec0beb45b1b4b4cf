//! The seam between the pager and the kernel: all that the pager asks of it, and nothing that the pager
//! decides.
//!
//! Everything above is generic over [`Kernel`] and monomorphised, so that live code pays nothing for it.
//! Below lies either Linux ([`live`]) or a simulated kernel that draws every step from a seed
//! (`spillway-sim`).
//!
//! Time, locks and waits are part of it: each call of a method here, and each of the functions that have no
//! `self`, is a place where the simulator may let another thread go on.

pub mod live;
pub mod message;

/// Whether a mistake is planted at this place, for the simulator to find. Only builds with the feature
/// `planted-bugs` have any.
#[allow(unused_macros)]
macro_rules! planted {
    ($kernel:ty, $mistake:literal) => {
        cfg!(feature = "planted-bugs") && <$kernel as $crate::kernel::Kernel>::has_planted($mistake)
    };
}
#[allow(unused_imports)]
pub(crate) use planted;

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Result;
use spillway_core::page::Page;
use spillway_core::seals::NONCE_BYTES;
use spillway_sys::memory::{Outsiders, PageMapEntry};
pub use spillway_sys::page_pipe::{MOST_REFERENCES, READ_PAGES};
use spillway_sys::ranges::{BounceRange, FrameRange, TargetRange};

/// Pages that [`Kernel::populated`] tells of at once: those of 2 MiB.
pub const MOST_POPULATED_PAGES: usize = 512;

/// What forked children are to get of a range (madvise(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkAdvice {
    /// They get the range after all (`MADV_DOFORK`).
    Inherit,
    /// They get its contents after all (`MADV_KEEPONFORK`).
    Keep,
    /// They get zeros in its place (`MADV_WIPEONFORK`).
    Wipe,
    /// They get nothing there (`MADV_DONTFORK`).
    Drop,
}

impl ForkAdvice {
    /// The advice that a request names by its place in this list.
    #[must_use]
    pub fn from_word(word: usize) -> Self {
        [Self::Inherit, Self::Keep, Self::Wipe, Self::Drop][word.min(3)]
    }
}

/// What became of a look at accessed bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All that is mapped was told.
    Told,
    /// Nothing is known this time, or not all.
    NotNow,
    /// There is no way to know.
    Never,
}

/// References to what some pages hold, for as long as [`Kernel::let_go`] is not called.
#[derive(Debug)]
#[must_use]
pub struct References {
    /// Where the kernel's side has them.
    pub place: usize,
    /// To how many pages.
    pub pages: usize,
}

/// What the pager asks of the kernel, for one process. Operations on pages keep userfaultfd's semantics,
/// `errno`s included (`Documentation/admin-guide/mm/userfaultfd.rst` and `docs/concepts/userfaultfd.md`).
pub trait Kernel: Send + Sync + Sized + 'static {
    /// Pages of a huge page.
    const HUGE_PAGES: usize = 512;

    // Time, turns and other threads.

    /// Nanoseconds of the monotonic clock.
    fn now_ns() -> u64;
    /// Nanoseconds that the calling thread has run.
    fn thread_ns() -> u64;
    /// Sleeps for as long as is said, or longer.
    fn sleep(time: Duration);
    /// Waits a little for another thread of the pager; `tries` counts how often it has for the same thing.
    fn relax(tries: u32);
    /// Gives way to whoever can run (sched_yield(2)).
    fn give_way();
    /// Locks what threads of one process share, also after a thread has died with it.
    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T>;
    /// A place, amid the pager's own work, where another thread may go on. Live: nothing.
    fn turn() {}
    /// Sleeps while `word` holds `expected`, until woken or until the time is over (futex(2)).
    fn futex_wait(word: &AtomicU32, expected: u32, most: Duration);
    /// Wakes one thread that sleeps on `word`, of whatever process.
    fn futex_wake(word: &AtomicU32);
    /// Says one line to the user.
    fn tell(line: &str);
    /// The number of this process, as it sees itself.
    fn own_pid() -> u32;
    /// Ends the program at once, where going on would mean wrong data.
    fn stop_program() -> !;
    /// Whether a mistake was planted for the simulator to find. Live: never.
    fn has_planted(_mistake: &str) -> bool {
        false
    }

    /// What holds at this place in all of the pager's threads together. Live: nobody looks.
    fn must_hold(_what: &str, _is_so: impl FnOnce() -> bool) {}

    /// A page is about to be sealed under a nonce, which must have served for no other page of the run. Live:
    /// nothing.
    fn seals(_nonce: [u8; NONCE_BYTES], _page: &Page) {}

    // What is managed.

    /// Threads of the program serve their own faults.
    fn is_inline(&self) -> bool;
    /// Has missing and write-protected pages of `range` fault to the pager.
    fn register(&self, range: TargetRange) -> Result<()>;
    /// Ends that. Pages that are not there will read as zeros.
    fn unregister(&self, range: TargetRange) -> Result<()>;
    /// From now on faults of `range` go to handlers, no longer to the faulting thread.
    fn hand_to_handlers(&self, range: TargetRange) -> Result<()>;
    /// Inline mode is over, for this process and those that it forks.
    fn leave_inline(&self);
    /// What forked children get of the range. ENOMEM where part of it is not mapped: the rest is advised.
    /// EINVAL where part of it is a file's, and may not be wiped.
    fn advise_on_fork(&self, range: TargetRange, advice: ForkAdvice) -> Result<()>;

    // Pages come in. All wake who waits for the pages that came.

    /// Copies pages to where none are. Returns the bytes copied, fewer than asked where a page cannot go.
    /// EEXIST where the first is there; ENOENT where it is not registered; EAGAIN while the address space
    /// changes.
    fn copy(&self, to: TargetRange, from: BounceRange<'_>, protected: bool) -> Result<usize>;
    /// The same from frames, whose contents stay.
    fn copy_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()>;
    /// Maps the machine's shared page of zeros. EINVAL where the machine has none for this process.
    fn map_zeros(&self, to: TargetRange) -> Result<usize>;
    /// Moves a page out of its frame. Errors as [`Self::move_to_frames`], and EEXIST where a page is there.
    fn move_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()>;
    /// Moves pages of zeros that are ready. Returns the bytes that the kernel says it moved, which may be too
    /// few: what is missing in `from` has gone.
    fn move_reserved(&self, to: TargetRange, from: FrameRange<'_>) -> usize;

    // Pages go out.

    /// Moves pages into empty frames, without waking anybody. Returns the bytes that went. EBUSY for a page
    /// that is pinned or shared since a fork; EINVAL where protections differ or forbid writing; ENOENT where
    /// nothing is.
    fn move_to_frames(&self, to: FrameRange<'_>, from: TargetRange) -> Result<usize>;
    /// Copies a page into an empty frame.
    fn copy_to_frame(&self, to: FrameRange<'_>, from: TargetRange) -> Result<()>;
    /// Drops pages, which read as zeros where nothing faults for them (`MADV_DONTNEED`).
    fn discard(&self, range: TargetRange) -> Result<()>;
    /// Drops single pages. False where some may be left, and where this process cannot advise itself.
    fn discard_pages(&self, pages: &[TargetRange]) -> bool;
    /// [`Self::discard_pages`] can be had.
    fn can_discard_pages(&self) -> bool;

    // Pages go out by reference ([`crate::evict::by_reference`]).

    /// The frame of a page that is the process's own, and that somebody refers to, stays the same whatever
    /// the kernel does by itself. False also where that cannot be known.
    fn frames_stay(&self) -> bool;
    /// As [`Self::make_own`], for single pages. Returns how many of the first are the process's own now.
    fn make_own_pages(&self, pages: &[TargetRange]) -> usize;
    /// Refers to what the first of some single pages hold, and go on to hold until they are dropped: at most
    /// [`MOST_REFERENCES`]. `None` where there is no way to at this moment, or not to the first.
    fn refer(&self, pages: &[TargetRange]) -> Option<References>;
    /// Puts what the next pages hold that are referred to, at most [`READ_PAGES`], into as many empty frames.
    /// After an error these are empty, and the same pages are next.
    fn fill_frames(&self, to: FrameRange<'_>, from: &References) -> Result<()>;
    /// Goes on behind the next pages that are referred to, at most [`READ_PAGES`].
    fn pass_over(&self, references: &References, pages: usize);
    /// Refers to the rest no more.
    fn let_go(&self, references: References);

    // What a page's mapping says.

    /// Write-protects pages (`on`), or lifts that and wakes who waits.
    fn write_protect(&self, range: TargetRange, on: bool) -> Result<()>;
    /// Makes pages that are not there answer each access with SIGBUS, and wakes who waits for them.
    fn poison(&self, range: TargetRange) -> Result<()>;
    /// Lets each thread try again that waits for a page of the range.
    fn wake(&self, range: TargetRange) -> Result<()>;
    /// Lets each thread try again that waits for any page.
    fn wake_all(&self);
    /// A read of the page of an address would succeed.
    fn is_readable(&self, address: usize) -> bool;
    /// The page of an address is mapped without permission to read it.
    fn is_forbidden(&self, address: usize) -> bool;
    /// Copies what lies from an address on as far as it is there; returns the bytes. Raises no fault.
    fn copy_what_is_there(&self, from: usize, to: &[AtomicU64]) -> usize;
    /// Gives the process pages of its own where it shares them since a fork. Goes as far as it can.
    fn make_own(&self, range: TargetRange) -> Result<()>;
    /// What a page that is mapped holds.
    ///
    /// # Safety
    /// It can be read, and nobody writes to it or unmaps it, while the reference lives.
    #[allow(unsafe_code)]
    unsafe fn target_page<'a>(&self, page: TargetRange) -> &'a Page;
    /// The page map can be read.
    fn has_page_map(&self) -> bool;
    /// The page map's entry of the page at an address, of the program's or of the pager's own; `None` where
    /// it cannot be had.
    fn page_map_entry(&self, address: usize) -> Option<PageMapEntry>;
    /// Which of the pages of a range are not missing, a bit each; `None` where it cannot be known. At most
    /// [`MOST_POPULATED_PAGES`].
    fn populated(&self, range: TargetRange) -> Option<[u64; MOST_POPULATED_PAGES / 64]>;
    /// Tells `visit` of the pages of a range that are mapped, by number, and whether each was accessed since
    /// [`Self::forget_accesses`]. What it tells is a guess: it may be out of date, or wrong.
    fn accesses(&self, range: TargetRange, visit: &mut dyn FnMut(u64, bool)) -> Look;
    /// Finds out how accessed bits can be read, once and for all. One `of_many` processes of a run leaves
    /// that to the supervisor.
    fn find_accesses(&self, of_many: bool);
    /// Whether [`Self::accesses`] waits for nobody, as this process has found before.
    fn reads_own_accesses(&self) -> bool;
    /// Clears the accessed bits of a range, as far as that can be done.
    fn forget_accesses(&self, range: TargetRange);
    /// Who uses the memory of this process beside its threads; `None` where it cannot be known.
    fn outsiders(&self) -> Option<Outsiders>;
    /// Huge pages, please (`MADV_HUGEPAGE`).
    fn ask_for_huge_pages(&self, range: TargetRange) -> Result<()>;
    /// Makes 2 MiB one huge page (`MADV_COLLAPSE`).
    fn collapse(&self, range: TargetRange) -> Result<()>;

    // The pager's own pages.

    /// What a frame holds whose page is in Writeback.
    ///
    /// # Safety
    /// Nobody moves, fills or discards the frame while the reference lives.
    #[allow(unsafe_code)]
    unsafe fn frame_page<'a>(&self, frame: FrameRange<'a>) -> &'a Page;
    /// Gives the memory of frames back to the machine: they are empty then.
    fn discard_frames(&self, frames: FrameRange<'_>) -> Result<()>;
    /// Writes a page of a stage, which is there and which nobody else has.
    fn fill_own(&self, page: FrameRange<'_>, from: BounceRange<'_>);
    /// Has the kernel zero pages of the reserve, which are there then.
    fn populate_reserve(&self, pages: FrameRange<'_>) -> Result<()>;
    /// Maps a call's doorbell and wakes who waits there.
    fn map_doorbell(&self, doorbell: FrameRange<'_>);
    /// Reads a doorbell, on a thread of the program: a fault, and so a message, where it is not mapped.
    fn touch_doorbell(doorbell: FrameRange<'_>);
    /// Unmaps doorbells: they ring again.
    fn unmap_doorbells(doorbells: FrameRange<'_>);

    // The run.

    /// Nobody is left who would give back what this process holds.
    fn supervisor_is_gone(&self) -> bool;
}
