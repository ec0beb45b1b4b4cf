//! Management ends: for a range that the program locks in memory, or for good.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use spillway_core::page_word::PageInfo;
use spillway_core::transitions::{Service, service};
use spillway_store::{Notice, NoticeKind};

use crate::kernel::{ForkAdvice, Kernel, planted};
use crate::pages::address::{page_numbers, target, target_of};
use crate::pages::error::{Failure, PageError};
use crate::process::worker::Worker;
use crate::run::state::Counter;
use crate::space::gone::Gone;

impl<K: Kernel> Worker<K> {
    /// Brings all pages of a range in and ends its management, before the program locks it in memory.
    pub(crate) fn unmanage(&mut self, range: Range<usize>) -> usize {
        // What is native is in already; managed for a moment, it is counted like the rest.
        self.manage_native(&range);
        self.engine.leaving_ranges.fetch_add(1, Ordering::AcqRel);
        let parts = self.engine.take_regions(&range);
        for (part, on_fork) in parts {
            let engine = self.engine;
            let (from, to) = page_numbers(&part);
            let mut gone = Gone::default();
            // All words stay locked until the range is not registered any more, so that none comes to life
            // again.
            for page_number in from..to {
                let Ok(word) = engine.table.find_or_make(page_number) else { continue };
                let info = self.lock_settled(page_number, word);
                gone.local += u64::from(self.bring_in_for_good(page_number, info));
                gone.managed += u64::from(!info.is_absent());
                self.drop_slot(info.slot());
            }
            let _ = self.at.kernel.unregister(target_of(part.clone()));
            for (page_number, word) in engine.table.range(from, to) {
                self.unlock(page_number, word, word.peek().forgotten());
            }
            self.settle_gone_pages(gone);
            if !on_fork.is_dropped {
                let _ = self.at.kernel.advise_on_fork(target_of(part.clone()), ForkAdvice::Inherit);
            }
            self.at.run.count(Counter::UnmanagedBytes, part.len() as u64);
        }
        self.engine.leaving_ranges.fetch_sub(1, Ordering::AcqRel);
        0
    }

    /// The same for good: what cannot be had answers with SIGBUS from now on, in either fault mode, for where
    /// nothing is the kernel will give zeros. True when the page was charged before.
    fn bring_in_for_good(&mut self, page_number: u64, info: PageInfo) -> bool {
        // The kernel says so where it is busy, and where the program has just unmapped the page.
        const TRIES: usize = 64;
        for _ in 0..TRIES {
            match self.bring_in(page_number, info) {
                Ok(was_local) => return was_local,
                Err(Failure::Retry) if planted!(K, "locked-page-given-up") => return info.is_local(),
                Err(Failure::Retry) => K::sleep(Duration::from_micros(50)),
                Err(Failure::Refused(_)) => break,
            }
        }
        if !planted!(K, "locked-page-unpoisoned") {
            self.poison_for_good(page_number);
        }
        info.is_local()
    }

    fn poison_for_good(&self, page_number: u64) {
        let page = target(page_number, 1);
        loop {
            match self.at.kernel.poison(page) {
                // Its mappings change at this moment (ioctl_userfaultfd(2)).
                Err(Errno::AGAIN) if !planted!(K, "poison-refused-once") => {
                    K::sleep(Duration::from_micros(50));
                }
                // Poisoned already, or unmapped by the program.
                Ok(()) | Err(Errno::EXIST | Errno::NOENT | Errno::AGAIN) => return,
                Err(error) => {
                    let _ = self.stop_before_wrong_data("poison a page that is lost", error);
                    return;
                }
            }
        }
    }

    /// Makes a locked page local and mapped without charging it. True when it was charged before.
    fn bring_in(&mut self, page_number: u64, info: PageInfo) -> Result<bool, Failure> {
        match service(info) {
            Service::Fetch(slot) => {
                if let Err(error) = self.fetch(page_number, slot) {
                    self.refuse(page_number, &error);
                    return Err(error.into());
                }
                self.map_fetched(page_number, false)?;
                Ok(false)
            }
            Service::Remap(frame) => self.remap(page_number, frame).map(|()| true),
            Service::LetRetry => Ok(true),
            Service::MapZeros | Service::CopyBack(_) => Ok(false),
            Service::Refuse => Err(PageError::EmptyFrame.into()),
        }
    }

    /// Contents can no longer be told apart from zeros: the program must not go on.
    pub(crate) fn stop_before_wrong_data(&self, what: &'static str, error: Errno) -> usize {
        let lost = PageError::Kernel { what, error };
        let reason = lost.to_string();
        let text = format!("{reason}; the program is stopped before it reads wrong data");
        self.tell(&Notice::new(NoticeKind::ProgramStopped, &text).because(&reason));
        K::stop_program()
    }
}
