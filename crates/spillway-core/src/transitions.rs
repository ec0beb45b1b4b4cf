//! The steps of the page-state machine: what a fault, an unmapping and a write-back make of a page's word.
//!
//! Each step locks the word, has the pager do what it says to mappings, frames and stores, and unlocks. A
//! write-back is the one that lets go of the lock while it works: its frame does not change meanwhile, and a
//! touch in between cancels its ownership (dcm section 3.4), so that it finds at the end that the page has
//! gone and only gives frame and slot back.

use crate::page_word::{Epoch, PageInfo, PageState, Queue};

/// How to serve a fault, by the state in which it found the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Map a page of zeros. Takes a frame from the budget.
    MapZeros,
    /// Bring the page from this slot. Takes a frame from the budget.
    Fetch(u32),
    /// Map the page's own frame again.
    Remap(u32),
    /// Copy the page back from this frame, which its write-back still reads. Takes a frame from the budget.
    CopyBack(u32),
    /// The page is local: lift its write protection if it has one, and let the thread try again. If it turns
    /// out not to be mapped, the program has discarded it: map zeros.
    LetRetry,
    /// The page is lost.
    Refuse,
}

/// What a fault on a page in this state needs.
#[must_use]
pub fn service(info: PageInfo) -> Service {
    match info.state {
        PageState::Absent => Service::MapZeros,
        PageState::Far { slot, .. } => Service::Fetch(slot),
        PageState::Inactive { frame, .. } => Service::Remap(frame),
        PageState::Writeback { frame } => Service::CopyBack(frame),
        PageState::Mapped { .. } => Service::LetRetry,
        PageState::Poisoned { .. } => Service::Refuse,
    }
}

fn mapped(info: PageInfo, queue: Queue, slot: Option<u32>, protected_in: Option<Epoch>) -> PageInfo {
    info.queued_as(PageState::Mapped { proactive: queue == Queue::Proactive, slot, protected_in })
}

/// A page whose first touch was served, or one that the kernel filled before it came under management.
#[must_use]
pub fn first_touched(info: PageInfo, queue: Queue) -> PageInfo {
    mapped(info, queue, None, None)
}

/// A page that was fetched from `slot`, which holds it still; write-protected in an epoch, or not at all.
#[must_use]
pub fn fetched(info: PageInfo, slot: u32, queue: Queue, protected_in: Option<Epoch>) -> PageInfo {
    mapped(info, queue, Some(slot), protected_in)
}

/// A page that was touched while it was local: mapped again from its frame, or copied back amid its
/// write-back, which has its slot from here on. It is known to be used.
#[must_use]
pub fn re_referenced(info: PageInfo) -> PageInfo {
    let slot = match info.state {
        PageState::Inactive { slot, .. } => slot,
        _ => None,
    };
    mapped(info, Queue::Proactive, slot, None)
}

/// Whether the queue entry of `generation` still speaks of this page, in one of the queues of mapped pages.
#[must_use]
pub fn is_queued_mapped(info: PageInfo, generation: u8) -> bool {
    info.generation == generation && info.is_mapped()
}

/// Whether the queue entry of `generation` still speaks of this page, in the inactive queue.
#[must_use]
pub fn is_queued_inactive(info: PageInfo, generation: u8) -> bool {
    info.generation == generation && info.queue() == Some(Queue::Inactive)
}

/// The mapped page once it lies unmapped in `frame`; `epoch` is the present one, by which it may be clean.
#[must_use]
pub fn unmapped(info: PageInfo, frame: u32, epoch: Epoch) -> PageInfo {
    info.queued_as(PageState::Inactive { frame, slot: info.slot(), is_clean: info.is_clean(epoch) })
}

/// What became of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The page is far; its frame is free.
    Stored,
    /// The page was touched or discarded meanwhile; its frame is free and what was written is of no use.
    Cancelled,
}

/// Ends the write-back from `frame` of a page whose word the caller has locked: `stored` is how the page is
/// kept (`Some(slot)`, or `None` for zeros), `left` the time at which it leaves.
#[must_use]
pub fn finish_writeback(info: PageInfo, frame: u32, stored: Option<u32>, left: u32) -> (PageInfo, Finish) {
    if info.state != (PageState::Writeback { frame }) {
        return (info, Finish::Cancelled);
    }
    (gone(info, stored, left), Finish::Stored)
}

/// The page once it has left, kept in a slot or, being zeros, nowhere.
#[must_use]
pub fn gone(info: PageInfo, stored: Option<u32>, left: u32) -> PageInfo {
    let state = stored.map_or(PageState::Absent, |slot| PageState::Far { slot, left });
    PageInfo { state, ..info }
}

#[cfg(all(test, loom))]
mod races {
    //! One page of memory, one frame, one slot, all modelled; a thread that writes and reads back through
    //! faults, and an evictor. Whatever the interleaving, the program reads what it wrote last.

    use super::*;
    use crate::page_word::PageWord;
    use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
    use loom::sync::{Arc, Mutex};

    /// A page's contents where it is mapped; `None` where it is not.
    #[derive(Default)]
    struct ModelPage {
        word: AtomicU64,
        mapped: Mutex<Option<u32>>,
        frame: Mutex<Option<u32>>,
        slot: Mutex<Option<u32>>,
        wakes: AtomicU32,
    }

    impl ModelPage {
        fn word(&self) -> PageWord<'_> {
            PageWord(&self.word)
        }

        fn unlock(&self, info: PageInfo) {
            if self.word().unlock(info) {
                self.wakes.fetch_add(1, SeqCst);
            }
        }

        /// Serves one fault; false when the page is busy (its thread will be woken).
        fn fault(&self) -> bool {
            let Some(info) = self.word().lock_or_leave_waiter() else { return false };
            let service = service(info);
            let contents = match service {
                Service::MapZeros => Some(0),
                Service::Fetch(_) => *self.slot.lock().unwrap(),
                Service::Remap(_) => self.frame.lock().unwrap().take(),
                Service::CopyBack(_) => *self.frame.lock().unwrap(),
                Service::LetRetry | Service::Refuse => None,
            };
            if let Some(contents) = contents {
                let before = self.mapped.lock().unwrap().replace(contents);
                assert_eq!(before, None, "mapped twice");
            }
            self.unlock(match service {
                Service::MapZeros => first_touched(info, Queue::Active),
                Service::Fetch(slot) => fetched(info, slot, Queue::Active, None),
                Service::Remap(_) | Service::CopyBack(_) => re_referenced(info),
                Service::LetRetry | Service::Refuse => info,
            });
            true
        }

        /// The program's access: a fault each time the page is not mapped, waiting for wakes as the kernel
        /// does.
        fn access(&self, write: Option<u32>) -> u32 {
            loop {
                let wakes = self.wakes.load(SeqCst);
                if let Some(contents) = self.mapped.lock().unwrap().as_mut() {
                    if let Some(value) = write {
                        *contents = value;
                    }
                    return *contents;
                }
                if !self.fault() {
                    while self.wakes.load(SeqCst) == wakes && self.mapped.lock().unwrap().is_none() {
                        loom::thread::yield_now();
                    }
                }
            }
        }

        fn unmap(&self) {
            let generation = self.word().peek().generation;
            let Some(info) = self.word().try_lock() else { return };
            if !is_queued_mapped(info, generation) || self.frame.lock().unwrap().is_some() {
                return self.unlock(info);
            }
            let contents = self.mapped.lock().unwrap().take();
            *self.frame.lock().unwrap() = contents;
            self.unlock(unmapped(info, 7, Epoch::MIN));
        }

        fn write_back(&self) {
            let Some(info) = self.word().try_lock() else { return };
            let PageState::Inactive { frame, .. } = info.state else { return self.unlock(info) };
            self.unlock(PageInfo { state: PageState::Writeback { frame }, ..info });
            let contents = *self.frame.lock().unwrap();
            assert!(contents.is_some(), "the frame was taken from under its write-back");
            *self.slot.lock().unwrap() = contents;
            let info = loop {
                if let Some(info) = self.word().try_lock() {
                    break info;
                }
                loom::thread::yield_now();
            };
            let (info, finish) = finish_writeback(info, 7, Some(3), 0);
            *self.frame.lock().unwrap() = None;
            if finish == Finish::Cancelled {
                *self.slot.lock().unwrap() = None;
            }
            self.unlock(info);
        }
    }

    fn check(evictor: fn(&ModelPage)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let page = Arc::new(ModelPage::default());
            assert_eq!(page.access(Some(1)), 1);
            let other = Arc::clone(&page);
            let thread = loom::thread::spawn(move || evictor(&other));
            assert_eq!(page.access(None), 1);
            assert_eq!(page.access(Some(2)), 2);
            assert_eq!(page.access(None), 2);
            thread.join().unwrap();
            assert_eq!(page.access(None), 2, "a write was lost");
        });
    }

    #[test]
    fn loom_fault_against_unmap() {
        check(|page| page.unmap());
    }

    #[test]
    fn loom_fault_against_unmap_and_write_back() {
        check(|page| {
            page.unmap();
            page.write_back();
        });
    }

    #[test]
    fn loom_two_faulting_threads_and_an_evictor() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let page = Arc::new(ModelPage::default());
            assert_eq!(page.access(Some(1)), 1);
            page.unmap();
            let threads = [
                loom::thread::spawn({
                    let page = Arc::clone(&page);
                    move || assert_eq!(page.access(None), 1)
                }),
                loom::thread::spawn({
                    let page = Arc::clone(&page);
                    move || page.write_back()
                }),
            ];
            assert_eq!(page.access(None), 1);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(page.access(None), 1);
        });
    }

    /// A page, and two write-backs with a frame and a slot each.
    #[derive(Default)]
    struct TwoWriters {
        word: AtomicU64,
        mapped: Mutex<Option<u32>>,
        frames: [Mutex<Option<u32>>; 2],
        slots: [Mutex<Option<u32>>; 2],
    }

    impl TwoWriters {
        fn lock(&self) -> PageInfo {
            loop {
                match PageWord(&self.word).try_lock() {
                    Some(info) => return info,
                    None => loom::thread::yield_now(),
                }
            }
        }

        fn unlock(&self, info: PageInfo) {
            let _ = PageWord(&self.word).unlock(info);
        }

        /// Maps the page wherever it is, and returns what it holds.
        fn touch(&self) -> u32 {
            let info = self.lock();
            let (contents, next) = match service(info) {
                Service::Remap(frame) => {
                    (self.frames[frame as usize].lock().unwrap().take(), re_referenced(info))
                }
                Service::CopyBack(frame) => {
                    (*self.frames[frame as usize].lock().unwrap(), re_referenced(info))
                }
                Service::Fetch(slot) => {
                    (*self.slots[slot as usize].lock().unwrap(), fetched(info, slot, Queue::Active, None))
                }
                Service::LetRetry => (*self.mapped.lock().unwrap(), info),
                other => panic!("{other:?}"),
            };
            *self.mapped.lock().unwrap() = contents;
            self.unlock(next);
            contents.unwrap()
        }

        fn unmap(&self, frame: u32) {
            let info = self.lock();
            let contents = self.mapped.lock().unwrap().take();
            *self.frames[frame as usize].lock().unwrap() = contents;
            self.unlock(unmapped(info.without_slot(), frame, Epoch::MIN));
        }

        /// From a frame into the slot of that number; not at all if it is cancelled before.
        fn write_back(&self, frame: u32) {
            let written = PageWord(&self.word).peek().state == PageState::Writeback { frame };
            if written {
                let contents = *self.frames[frame as usize].lock().unwrap();
                assert!(contents.is_some(), "the frame was taken from under its write-back");
                *self.slots[frame as usize].lock().unwrap() = contents;
            }
            let (info, finish) = finish_writeback(self.lock(), frame, Some(frame), 0);
            assert!(written || finish == Finish::Cancelled, "a link that was cut is whole again");
            if finish == Finish::Cancelled {
                *self.slots[frame as usize].lock().unwrap() = None;
            }
            let freed = self.frames[frame as usize].lock().unwrap().take();
            assert!(freed.is_some(), "freed twice");
            self.unlock(info);
        }

        fn begin_write_back(&self, frame: u32) {
            let info = self.lock();
            assert!(matches!(info.state, PageState::Inactive { frame: in_frame, .. } if in_frame == frame));
            self.unlock(PageInfo { state: PageState::Writeback { frame }, ..info });
        }
    }

    /// dcm's Fig. 8: one write-back is cancelled by a touch, and the page leaves again, by another thread,
    /// before the first looks at its descriptor.
    #[test]
    fn loom_a_cancelled_write_back_leaves_the_next_alone() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let page = Arc::new(TwoWriters::default());
            page.unlock(first_touched(page.lock(), Queue::Active));
            *page.mapped.lock().unwrap() = Some(1);
            page.unmap(0);
            page.begin_write_back(0);
            let first = loom::thread::spawn({
                let page = Arc::clone(&page);
                move || page.write_back(0)
            });
            assert_eq!(page.touch(), 1);
            page.unmap(1);
            page.begin_write_back(1);
            page.write_back(1);
            first.join().unwrap();
            assert_eq!(page.lock().state, PageState::Far { slot: 1, left: 0 });
            let kept = [*page.slots[0].lock().unwrap(), *page.slots[1].lock().unwrap()];
            // The first may have been stored before the touch; its slot is the page's no more.
            assert_eq!(kept[1], Some(1));
            assert!(page.frames.iter().all(|frame| frame.lock().unwrap().is_none()));
        });
    }
}
