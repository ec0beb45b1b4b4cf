//! The seam's live side: Linux, by userfaultfd(2), madvise(2) and what procfs tells.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Result;
use rustix::process::getpid;
use rustix::thread::{futex, nanosleep, sched_yield};
use spillway_core::page::{PAGE_SIZE, Page};
use spillway_sys::accesses::{self, OwnAccesses};
use spillway_sys::memory::{self, Outsiders, PageMap, PageMapEntry, ProcessStatus};
use spillway_sys::page_pipe::{self, FrameChanges, PagePipe};
use spillway_sys::ranges::{BounceRange, FrameRange, TargetRange};
use spillway_sys::uffd::{RegisterMode, Uffd};
use spillway_sys::{call_stubs, dispatch, own_copy};

use crate::kernel::message;
use crate::kernel::{ForkAdvice, Kernel, Look, MOST_POPULATED_PAGES, References};
use crate::run::told_uses::Asker;

/// Linux, as one process of a run uses it.
pub struct LiveKernel {
    /// Faults come from here, and calls.
    pub uffd: Uffd,
    /// In inline mode, the one that managed memory is registered with: its faults are signals. Frames and
    /// doorbells are with the other.
    pub signalling: Option<Uffd>,
    /// Inline mode was left for good, by this process or one that it was forked from.
    pub served_by_handlers: Arc<AtomicBool>,
    /// This process, to advise itself; without it no page is kept clean.
    pub own_process: Option<OwnedFd>,
    /// Who uses its memory; without it nothing counts as free of devices and debuggers.
    pub status: Option<ProcessStatus>,
    /// Which pages of this process are populated; without it nothing is left to the kernel.
    pub page_map: Option<PageMap>,
    /// What references are taken by, in inline mode.
    pub references: ReferencePlaces,
    /// Which pages are in use. The evictor's alone: the others do not have its descriptors.
    pub accesses: Mutex<AccessSource>,
    /// The supervisor sees the end of the process by the end of this connection, and answers the evictor; the
    /// pager's threads alone have it.
    pub control: Arc<OwnedFd>,
}

/// What references to pages are taken by; nothing where none are.
#[derive(Default)]
pub struct ReferencePlaces {
    /// Each has its references to itself.
    pub pipes: Vec<ReferencePlace>,
    /// Without it nobody knows whether frames stay.
    pub frame_changes: Option<FrameChanges>,
}

/// A pipe, and whether somebody has it.
pub struct ReferencePlace {
    is_taken: AtomicBool,
    pipe: Mutex<PagePipe>,
}

impl From<PagePipe> for ReferencePlace {
    fn from(pipe: PagePipe) -> Self {
        Self { is_taken: AtomicBool::new(false), pipe: Mutex::new(pipe) }
    }
}

/// Where accessed bits come from.
#[derive(Default)]
pub enum AccessSource {
    /// Nobody has asked yet.
    #[default]
    Untried,
    /// The process's own page tables.
    Open(OwnAccesses),
    /// This process may not read its page tables, but its supervisor may.
    Supervisor(Asker),
    /// A filter of system calls binds the process: neither is tried.
    Unavailable,
}

impl AccessSource {
    /// A process alone reads for itself if it may: nobody need be waited for.
    fn choose(of_many: bool) -> Self {
        if accesses::is_bound_by_a_filter() {
            return Self::Unavailable;
        }
        let own = if of_many { None } else { OwnAccesses::open().ok() };
        own.map_or_else(|| Self::Supervisor(Asker::default()), Self::Open)
    }
}

impl LiveKernel {
    /// The userfaultfd of managed memory, for the supervisor to keep: missing pages of a dying process block
    /// meanwhile.
    #[must_use]
    pub fn managed_fd(&self) -> BorrowedFd<'_> {
        self.managed().as_fd()
    }

    fn managed(&self) -> &Uffd {
        match &self.signalling {
            Some(uffd) if self.is_inline() => uffd,
            _ => &self.uffd,
        }
    }
}

fn fault_mode() -> RegisterMode {
    RegisterMode::MISSING | RegisterMode::WRITE_PROTECT
}

/// Times that a thread spins for another of the pager before it sleeps.
const SPINS: u32 = 100;

impl Kernel for LiveKernel {
    fn now_ns() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn thread_ns() -> u64 {
        let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        ran.tv_sec as u64 * 1_000_000_000 + ran.tv_nsec as u64
    }

    fn sleep(time: Duration) {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // Not libc's: a fault that is served inline would have its system call dispatched.
        let _ = nanosleep(&time);
    }

    fn relax(tries: u32) {
        if tries > SPINS {
            Self::sleep(Duration::from_micros(50));
        } else {
            std::hint::spin_loop();
        }
    }

    fn give_way() {
        sched_yield();
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn futex_wait(word: &AtomicU32, expected: u32, most: Duration) {
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&most));
    }

    fn futex_wake(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }

    fn tell(line: &str) {
        message::to_program(line);
    }

    fn own_pid() -> u32 {
        getpid().as_raw_nonzero().get().cast_unsigned()
    }

    fn stop_program() -> ! {
        message::stop_program()
    }

    fn is_inline(&self) -> bool {
        self.signalling.is_some() && !self.served_by_handlers.load(Ordering::Acquire)
    }

    fn register(&self, range: TargetRange) -> Result<()> {
        self.managed().register(range, fault_mode())
    }

    fn unregister(&self, range: TargetRange) -> Result<()> {
        self.managed().unregister(range)
    }

    fn hand_to_handlers(&self, range: TargetRange) -> Result<()> {
        let Some(signalling) = &self.signalling else { return Ok(()) };
        let _ = signalling.unregister(range);
        self.uffd.register(range, fault_mode())
    }

    fn leave_inline(&self) {
        dispatch::let_all_pass();
        call_stubs::set_direct(|_| true);
        self.served_by_handlers.store(true, Ordering::Release);
    }

    fn advise_on_fork(&self, range: TargetRange, advice: ForkAdvice) -> Result<()> {
        match advice {
            ForkAdvice::Inherit => memory::inherit(range, true),
            ForkAdvice::Keep => memory::wipe_on_fork(range, false),
            ForkAdvice::Wipe => memory::wipe_on_fork(range, true),
            ForkAdvice::Drop => memory::inherit(range, false),
        }
    }

    fn copy(&self, to: TargetRange, from: BounceRange<'_>, protected: bool) -> Result<usize> {
        self.managed().copy(to, from, protected)
    }

    fn copy_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()> {
        self.managed().copy_from_frame(to, from)
    }

    fn map_zeros(&self, to: TargetRange) -> Result<usize> {
        self.managed().map_zeros(to)
    }

    fn move_from_frame(&self, to: TargetRange, from: FrameRange<'_>) -> Result<()> {
        self.managed().move_from_frame(to, from)
    }

    fn move_reserved(&self, to: TargetRange, from: FrameRange<'_>) -> usize {
        self.managed().move_reserved(to, from)
    }

    fn move_to_frames(&self, to: FrameRange<'_>, from: TargetRange) -> Result<usize> {
        self.uffd.move_to_frames(to, from)
    }

    fn copy_to_frame(&self, to: FrameRange<'_>, from: TargetRange) -> Result<()> {
        self.uffd.copy_to_frame(to, from)
    }

    fn discard(&self, range: TargetRange) -> Result<()> {
        memory::discard(range)
    }

    fn discard_pages(&self, pages: &[TargetRange]) -> bool {
        self.own_process.as_ref().is_some_and(|process| memory::discard_pages(process, pages))
    }

    fn can_discard_pages(&self) -> bool {
        self.own_process.is_some()
    }

    fn frames_stay(&self) -> bool {
        self.references.frame_changes.as_ref().is_some_and(|changes| !changes.may_happen())
    }

    fn make_own_pages(&self, pages: &[TargetRange]) -> usize {
        self.own_process.as_ref().map_or(0, |process| page_pipe::make_own_pages(process, pages))
    }

    fn refer(&self, pages: &[TargetRange]) -> Option<References> {
        let is_free = |place: &ReferencePlace| !place.is_taken.swap(true, Ordering::Acquire);
        let place = self.references.pipes.iter().position(is_free)?;
        let taken = Self::lock(&self.references.pipes[place].pipe).refer(pages);
        let references = References { place, pages: taken.unwrap_or(0) };
        if references.pages == 0 {
            self.let_go(references);
            return None;
        }
        Some(references)
    }

    fn fill_frames(&self, to: FrameRange<'_>, from: &References) -> Result<()> {
        let mut pipe = Self::lock(&self.references.pipes[from.place].pipe);
        self.uffd.fill_frames(to, pipe.peek(to.pages())?)?;
        pipe.pass();
        Ok(())
    }

    fn pass_over(&self, references: &References, pages: usize) {
        let mut pipe = Self::lock(&self.references.pipes[references.place].pipe);
        let _ = pipe.peek(pages);
        pipe.pass();
    }

    fn let_go(&self, references: References) {
        let place = &self.references.pipes[references.place];
        Self::lock(&place.pipe).clear();
        place.is_taken.store(false, Ordering::Release);
    }

    fn write_protect(&self, range: TargetRange, on: bool) -> Result<()> {
        self.managed().write_protect(range, on)
    }

    fn poison(&self, range: TargetRange) -> Result<()> {
        self.managed().poison(range)
    }

    fn wake(&self, range: TargetRange) -> Result<()> {
        self.managed().wake(range)
    }

    fn wake_all(&self) {
        // Of the signalling one nobody waits.
        let _ = self.uffd.wake_all();
    }

    fn is_readable(&self, address: usize) -> bool {
        memory::is_readable(address)
    }

    fn is_forbidden(&self, address: usize) -> bool {
        memory::is_forbidden(address)
    }

    fn copy_what_is_there(&self, from: usize, to: &[AtomicU64]) -> usize {
        own_copy::copy_what_is_there(from, to)
    }

    fn make_own(&self, range: TargetRange) -> Result<()> {
        memory::make_own(range)
    }

    #[allow(unsafe_code)]
    unsafe fn target_page<'a>(&self, page: TargetRange) -> &'a Page {
        // SAFETY: by the caller's word.
        unsafe { memory::page_at(page) }
    }

    fn has_page_map(&self) -> bool {
        self.page_map.is_some()
    }

    fn page_map_entry(&self, address: usize) -> Option<PageMapEntry> {
        self.page_map.as_ref()?.entry(address).ok()
    }

    fn populated(&self, range: TargetRange) -> Option<[u64; MOST_POPULATED_PAGES / 64]> {
        self.page_map.as_ref()?.populated(range.start(), range.pages()).ok()
    }

    fn find_accesses(&self, of_many: bool) {
        let mut source = Self::lock(&self.accesses);
        if let AccessSource::Untried = *source {
            *source = AccessSource::choose(of_many);
        }
    }

    fn accesses(&self, range: TargetRange, visit: &mut dyn FnMut(u64, bool)) -> Look {
        match &mut *Self::lock(&self.accesses) {
            AccessSource::Open(own) => {
                own.walk(range, visit);
                Look::Told
            }
            AccessSource::Supervisor(asker) => {
                let (first_page, pages) = ((range.start() / PAGE_SIZE) as u64, range.bytes() / PAGE_SIZE);
                asker.ask(self.control.as_fd(), first_page, pages, visit)
            }
            AccessSource::Untried | AccessSource::Unavailable => Look::Never,
        }
    }

    fn reads_own_accesses(&self) -> bool {
        matches!(*Self::lock(&self.accesses), AccessSource::Open(_))
    }

    fn forget_accesses(&self, range: TargetRange) {
        // Part of the range may just have been unmapped, or locked: its bits tell nothing then.
        let _ = memory::forget_accesses(range);
    }

    fn outsiders(&self) -> Option<Outsiders> {
        self.status.as_ref()?.outsiders().ok()
    }

    fn ask_for_huge_pages(&self, range: TargetRange) -> Result<()> {
        memory::ask_for_huge_pages(range)
    }

    fn collapse(&self, range: TargetRange) -> Result<()> {
        memory::collapse(range)
    }

    #[allow(unsafe_code)]
    unsafe fn frame_page<'a>(&self, frame: FrameRange<'a>) -> &'a Page {
        // SAFETY: by the caller's word.
        unsafe { frame.page() }
    }

    fn discard_frames(&self, frames: FrameRange<'_>) -> Result<()> {
        memory::discard_own(frames)
    }

    #[allow(unsafe_code)]
    fn fill_own(&self, page: FrameRange<'_>, from: BounceRange<'_>) {
        // SAFETY: a stage is read through no reference.
        unsafe { page.write(from.contents()) }
    }

    fn populate_reserve(&self, pages: FrameRange<'_>) -> Result<()> {
        memory::populate(pages)
    }

    fn map_doorbell(&self, doorbell: FrameRange<'_>) {
        if self.uffd.map_own_zeros(doorbell).is_err() {
            let _ = self.uffd.wake_own(doorbell);
        }
    }

    fn touch_doorbell(doorbell: FrameRange<'_>) {
        memory::touch(doorbell);
    }

    fn unmap_doorbells(doorbells: FrameRange<'_>) {
        let _ = memory::discard_own(doorbells);
    }

    fn supervisor_is_gone(&self) -> bool {
        has_hung_up(&self.control)
    }
}

/// Whether the other side of a connection is gone. An answer that came too late may lie there unread.
fn has_hung_up(connection: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(connection, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
        && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn an_answer_that_nobody_reads_is_no_sign_of_death() {
        let (own, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        assert!(!has_hung_up(&own));
        rustix::io::write(&other, b"late").unwrap();
        assert!(!has_hung_up(&own));
        drop(other);
        assert!(has_hung_up(&own));
    }
}
