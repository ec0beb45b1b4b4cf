//! Stages: huge pages of the pager's own in which the next 2 MiB of streams are made ready, and from which
//! they are moved to where they belong, in one step of the page table ([`crate::fault::huge_streams`]).
//!
//! A stage's huge page is fresh each time: what a page held before may still be referred to by a pipe or a
//! socket. What lies in a stage is charged to the local limit.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::io::Result;
use spillway_core::page::PAGE_SIZE;
use spillway_core::slots::Contents;
use spillway_sys::memory::{self, Area};
use spillway_sys::ranges::FrameRange;

use crate::kernel::Kernel;

/// Streams that have a stage at a time.
const MOST_STAGES: usize = 4;
/// Each stage may take at most this part of the local limit.
const LEAST_LIMIT_SHARE: usize = 16;
/// Ranges in a row that are not made ready, at most.
const MOST_SKIPS: u32 = 255;
/// A huge page that is at hand is cleared in less. Where it takes longer the kernel moves other pages out of
/// its way first, or the machine that this one is a guest of has to give memory for it. Of processor time:
/// who is made to wait for a CPU meets no such thing.
const SLOW_NS: u64 = 1_000_000;
/// One in so many nanoseconds may go to huge pages that took long, and no more of them are asked for until
/// that is so again,
const SLOW_ONE_IN: u64 = 4;
/// but for the first of a time in which there were none.
const SLOW_AT_FIRST_NS: u64 = 100_000_000;
/// Times that a range is left ready because one of its pages is busy.
const MOST_TRIES: u32 = 8;

/// Where a page of a stage comes from: its slot, and what that held.
pub(crate) type Source = (u32, Contents);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It takes no memory.
    #[default]
    Empty,
    /// Somebody is to fill it.
    Wanted,
    /// Somebody does, or takes what lies there.
    Busy,
    /// Nobody has it, and a fault may take what lies there.
    Ready,
}

#[derive(Debug, Default)]
struct Stage {
    state: State,
    /// Of the range that it is for.
    first_page: u64,
    sources: Vec<Source>,
    tries: u32,
    /// Nobody has asked for it since it was reviewed last.
    is_idle: bool,
}

/// What a fault finds of the range that it lies in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No stage is for it.
    Nothing,
    /// The stage is the caller's to fill.
    Yours(usize),
    /// Somebody is at it.
    Busy,
    /// It can be taken.
    Ready,
}

/// The stages of one process.
pub struct Stages {
    area: Area,
    /// The first page of the area that lies on a multiple of a range.
    shift_pages: usize,
    range_pages: usize,
    stages: Mutex<Vec<Stage>>,
    /// Stages that are not empty, and of these those that are wanted.
    used: AtomicU32,
    wanted: AtomicU32,
    is_off: AtomicBool,
    /// Ranges that are not made ready, after some that were in vain: how many, and how many are left.
    penalty: AtomicU32,
    skips: AtomicU32,
    /// No range is made ready before.
    paused_until_ns: AtomicU64,
}

impl Stages {
    /// As many as a limit allows, each for `range_pages`; none unless `on`. Nothing is taken from the machine
    /// yet.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn new(on: bool, range_pages: usize, limit_pages: usize) -> Result<Self> {
        let most = (limit_pages / range_pages / LEAST_LIMIT_SHARE).min(MOST_STAGES);
        let count = if on { most } else { 0 };
        Self::with(count, range_pages)
    }

    /// Empty ones, as a fork leaves them, which gives up what is ready before. For a simulated fork.
    ///
    /// # Errors
    /// ENOMEM where there is no address space.
    pub fn for_child(&self) -> Result<Self> {
        let count = self.stages.try_lock().map_or(0, |stages| stages.len());
        Self::with(count, self.range_pages)
    }

    fn with(count: usize, range_pages: usize) -> Result<Self> {
        let area = Area::new((count + 1) * range_pages * PAGE_SIZE)?;
        let range_bytes = range_pages * PAGE_SIZE;
        let shift_pages = (area.address().next_multiple_of(range_bytes) - area.address()) / PAGE_SIZE;
        if count > 0 {
            // Where it refuses, pages are moved one by one.
            let _ = memory::ask_for_own_huge_pages(area.pages(0, area.bytes() / PAGE_SIZE));
        }
        Ok(Self {
            area,
            shift_pages,
            range_pages,
            stages: Mutex::new((0..count).map(|_| Stage::default()).collect()),
            used: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            is_off: AtomicBool::new(count == 0),
            penalty: AtomicU32::new(0),
            skips: AtomicU32::new(0),
            paused_until_ns: AtomicU64::new(0),
        })
    }

    /// Notes how much processor time a huge page took. What took long is worth it where the page comes and
    /// goes often; it is kept to a share of the time.
    pub(crate) fn note_populated(&self, took_ns: u64, now_ns: u64) {
        if took_ns > SLOW_NS {
            let since_ns = now_ns.saturating_sub(SLOW_ONE_IN * SLOW_AT_FIRST_NS);
            let before_ns = self.paused_until_ns.load(Ordering::Relaxed).max(since_ns);
            self.paused_until_ns.store(before_ns + SLOW_ONE_IN * took_ns, Ordering::Relaxed);
        }
    }

    /// The first page of the range that a page lies in.
    pub(crate) fn range_of(&self, page_number: u64) -> u64 {
        page_number - page_number % self.range_pages as u64
    }

    /// No range is made ready any more: the machine has no huge pages.
    pub(crate) fn turn_off(&self) {
        self.is_off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    /// Whether any stage is in use.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire) != 0
    }

    /// Whether a stage is to be filled.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.wanted.load(Ordering::Acquire) != 0
    }

    /// The memory of a stage.
    pub(crate) fn range(&self, index: usize) -> FrameRange<'_> {
        self.area.pages(self.shift_pages + index * self.range_pages, self.range_pages)
    }

    /// That of all stages, filled or not.
    #[must_use]
    pub fn all(&self) -> FrameRange<'_> {
        self.area.pages(0, self.area.bytes() / PAGE_SIZE)
    }

    /// Pages that lie ready, all of them charged. `None` while somebody looks at the stages.
    #[must_use]
    pub fn ready_pages(&self) -> Option<usize> {
        let stages = self.stages.try_lock().ok()?;
        Some(stages.iter().filter(|stage| stage.state == State::Ready).count() * self.range_pages)
    }

    /// A range was made ready in vain, or could not be: more and more are skipped.
    pub(crate) fn note_vain(&self) {
        let penalty = (self.penalty.load(Ordering::Relaxed) * 2 + 1).min(MOST_SKIPS);
        self.penalty.store(penalty, Ordering::Relaxed);
        self.skips.store(penalty, Ordering::Relaxed);
    }

    /// A range that was made ready has come as a whole.
    pub(crate) fn note_use(&self) {
        self.penalty.store(0, Ordering::Relaxed);
    }

    fn skips(&self) -> bool {
        let left = self.skips.load(Ordering::Relaxed);
        self.skips.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    fn set(&self, stage: &mut Stage, state: State) {
        let counts = |state| (u32::from(state != State::Empty), u32::from(state == State::Wanted));
        let ((used, wanted), (was_used, was_wanted)) = (counts(state), counts(stage.state));
        // Added first: nobody sees less than there is.
        self.used.fetch_add(used, Ordering::AcqRel);
        self.used.fetch_sub(was_used, Ordering::AcqRel);
        self.wanted.fetch_add(wanted, Ordering::AcqRel);
        self.wanted.fetch_sub(was_wanted, Ordering::AcqRel);
        stage.state = state;
    }

    /// Asks for a range, unless a stage is for it already or none is empty.
    pub(crate) fn want<K: Kernel>(&self, first_page: u64) -> bool {
        let mut stages = K::lock(&self.stages);
        if let Some(stage) = stages.iter_mut().find(|stage| stage.is_for(first_page)) {
            stage.is_idle = false;
            return false;
        }
        let Some(stage) = stages.iter_mut().find(|stage| stage.state == State::Empty) else { return false };
        if K::now_ns() < self.paused_until_ns.load(Ordering::Relaxed) || self.skips() {
            return false;
        }
        (stage.first_page, stage.tries, stage.is_idle) = (first_page, 0, false);
        self.set(stage, State::Wanted);
        true
    }

    /// A stage that is to be filled, the caller's from now on: its index and its range.
    pub(crate) fn take_wanted<K: Kernel>(&self) -> Option<(usize, u64)> {
        let mut stages = K::lock(&self.stages);
        let index = stages.iter().position(|stage| stage.state == State::Wanted)?;
        self.set(&mut stages[index], State::Busy);
        Some((index, stages[index].first_page))
    }

    /// Whether a stage is for a range, whatever its state.
    pub(crate) fn has<K: Kernel>(&self, first_page: u64) -> bool {
        self.is_used() && K::lock(&self.stages).iter().any(|stage| stage.is_for(first_page))
    }

    /// What there is of a range. One that is wanted becomes the caller's to fill.
    pub(crate) fn find<K: Kernel>(&self, first_page: u64) -> Found {
        let mut stages = K::lock(&self.stages);
        let Some(index) = stages.iter().position(|stage| stage.is_for(first_page)) else {
            return Found::Nothing;
        };
        match stages[index].state {
            State::Wanted => {
                self.set(&mut stages[index], State::Busy);
                Found::Yours(index)
            }
            State::Ready => Found::Ready,
            State::Empty | State::Busy => Found::Busy,
        }
    }

    /// Takes what lies ready for a range: the stage is the caller's from now on.
    pub(crate) fn take_ready<K: Kernel>(&self, first_page: u64) -> Option<(usize, Vec<Source>)> {
        let mut stages = K::lock(&self.stages);
        let is_it = |stage: &Stage| stage.state == State::Ready && stage.first_page == first_page;
        let index = stages.iter().position(is_it)?;
        self.set(&mut stages[index], State::Busy);
        Some((index, std::mem::take(&mut stages[index].sources)))
    }

    /// Anything that lies ready; with `only_idle`, what nobody has asked for since the last time.
    pub(crate) fn take_any_ready<K: Kernel>(&self, only_idle: bool) -> Option<(usize, Vec<Source>)> {
        let mut stages = K::lock(&self.stages);
        let is_it = |stage: &Stage| stage.state == State::Ready && (stage.is_idle || !only_idle);
        let found = stages.iter().position(is_it);
        let Some(index) = found else {
            stages.iter_mut().for_each(|stage| stage.is_idle = true);
            return None;
        };
        self.set(&mut stages[index], State::Busy);
        Some((index, std::mem::take(&mut stages[index].sources)))
    }

    /// What the caller has is ready. False where it was left so too often: it is the caller's still.
    pub(crate) fn leave_ready<K: Kernel>(&self, index: usize, sources: &mut Vec<Source>) -> bool {
        let mut stages = K::lock(&self.stages);
        let stage = &mut stages[index];
        stage.tries += 1;
        if stage.tries > MOST_TRIES {
            return false;
        }
        std::mem::swap(&mut stage.sources, sources);
        self.set(stage, State::Ready);
        true
    }

    /// The caller's stage has no memory any more. Room for `sources` is kept.
    pub(crate) fn leave_empty<K: Kernel>(&self, index: usize, mut sources: Vec<Source>) {
        sources.clear();
        let mut stages = K::lock(&self.stages);
        stages[index].sources = sources;
        self.set(&mut stages[index], State::Empty);
    }

    /// Room for the sources of the caller's stage.
    pub(crate) fn take_room<K: Kernel>(&self, index: usize) -> Vec<Source> {
        let mut sources = std::mem::take(&mut K::lock(&self.stages)[index].sources);
        sources.clear();
        sources.reserve(self.range_pages);
        sources
    }
}

impl Stage {
    fn is_for(&self, first_page: u64) -> bool {
        self.state != State::Empty && self.first_page == first_page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::live::LiveKernel as K;

    fn stages() -> Stages {
        Stages::new(true, 8, 256).unwrap()
    }

    #[test]
    fn there_are_as_many_as_the_limit_allows() {
        let of = |on, limit_pages| Stages::new(on, 512, limit_pages).unwrap();
        assert!(of(true, 8191).is_off() && of(false, 1 << 20).is_off());
        let few = of(true, 8192);
        assert!(!few.is_off() && few.want::<K>(0) && !few.want::<K>(512));
        assert_eq!(few.range(0).start() % (2 << 20), 0);
        let many = of(true, 1 << 20);
        assert_eq!((0..9).filter(|range| many.want::<K>(512 * range)).count(), MOST_STAGES);
    }

    #[test]
    fn a_stage_is_one_workers_at_a_time() {
        let stages = stages();
        assert_eq!((stages.find::<K>(16), stages.is_used()), (Found::Nothing, false));
        assert!(stages.want::<K>(16) && !stages.want::<K>(16) && stages.is_asked());
        assert_eq!(stages.find::<K>(16), Found::Yours(0));
        assert_eq!((stages.find::<K>(16), stages.take_wanted::<K>()), (Found::Busy, None));
        assert!(stages.leave_ready::<K>(0, &mut Vec::new()) && stages.has::<K>(16));
        assert_eq!((stages.find::<K>(16), stages.ready_pages()), (Found::Ready, Some(8)));
        // Busy now and then, but not for ever.
        let tries = (0..20).take_while(|_| {
            let (index, mut sources) = stages.take_ready::<K>(16).unwrap();
            stages.leave_ready::<K>(index, &mut sources)
        });
        assert_eq!(tries.count(), MOST_TRIES as usize - 1);
        stages.leave_empty::<K>(0, Vec::new());
        assert!(!stages.is_used() && !stages.is_asked() && !stages.has::<K>(16));
    }

    #[test]
    fn a_machine_that_is_slow_to_give_huge_pages_is_left_alone_for_a_while() {
        let stages = stages();
        let now = K::now_ns();
        let is_made_ready = || {
            let is_wanted = stages.want::<K>(16) && stages.take_wanted::<K>().is_some();
            if is_wanted {
                stages.leave_empty::<K>(0, Vec::new());
            }
            is_wanted
        };
        // At first some may take long.
        (0..9).for_each(|_| stages.note_populated(SLOW_AT_FIRST_NS / 10, now));
        (0..1_000).for_each(|_| stages.note_populated(SLOW_NS / 2, now));
        assert!(is_made_ready());
        stages.note_populated(SLOW_AT_FIRST_NS, now + 3_600_000_000_000);
        assert!(!is_made_ready());
        stages.paused_until_ns.store(now, Ordering::Relaxed);
        assert!(is_made_ready(), "the pause is over");
    }

    #[test]
    fn what_nobody_asks_for_is_given_up_and_ranges_in_vain_have_others_skipped() {
        let stages = stages();
        assert!(stages.want::<K>(16) && stages.take_wanted::<K>().is_some());
        assert!(stages.leave_ready::<K>(0, &mut Vec::new()));
        assert!(stages.take_any_ready::<K>(true).is_none(), "it was asked for just now");
        assert!(stages.take_any_ready::<K>(true).is_some());
        stages.leave_empty::<K>(0, Vec::new());
        let skipped = || (0..).take_while(|_| !stages.want::<K>(0)).count();
        for expected in [1, 3, 7] {
            stages.note_vain();
            assert_eq!(skipped(), expected);
            assert!(stages.take_wanted::<K>().is_some());
            stages.leave_empty::<K>(0, Vec::new());
        }
        stages.note_use();
        stages.note_vain();
        assert_eq!(skipped(), 1);
    }
}
