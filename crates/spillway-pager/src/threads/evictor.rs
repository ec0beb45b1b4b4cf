//! The evictor: one thread of each process that makes room ahead of need, for other processes of the run too,
//! reads ahead, and finds out which pages are in use.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use crate::kernel::Kernel;
use crate::process::worker::Worker;
use crate::threads::background::Background;
use crate::threads::density::Density;
use crate::threads::use_scan::UseScan;

const SUPERVISION_NS: u64 = 1_000_000_000;
const IDLE: Duration = Duration::from_secs(1);

impl<K: Kernel> Worker<K> {
    /// Reads ahead, keeps some of the local limit free, so that faults need not wait for evictions, and
    /// evicts when other processes ask for it.
    pub fn evict_forever(&mut self) -> ! {
        let run = self.at.run;
        self.at.handlers.note_evictor();
        let mut supervised_ns = K::now_ns();
        let mut background = Background::new(self.at);
        let mut density = Density::default();
        let mut use_scan = UseScan::default();
        let mut requested_pages = 0;
        loop {
            if K::now_ns() - supervised_ns > SUPERVISION_NS {
                self.stop_without_supervisor();
                self.at.stores.iter().for_each(|open| open.store.tend());
                self.review_in_background(&mut background, &mut density);
                supervised_ns = K::now_ns();
            }
            if self.bring_in_for_others()
                || self.answer_inquiry()
                || self.answer_heat()
                || self.read_ahead()
                || self.fill_wanted_stage()
                || self.scan_uses(&mut use_scan)
            {
                continue;
            }
            requested_pages =
                self.at.process().requested_pages().swap(0, Ordering::AcqRel).max(requested_pages);
            let short = self.is_short();
            if requested_pages > 0 || short && self.may_evict_ahead(&mut background) {
                let freed = self.evict_passing_gate() as u64;
                requested_pages = if freed > 0 { requested_pages.saturating_sub(freed) } else { 0 };
                if freed > 0 {
                    continue;
                }
            }
            let word = run.evictor_futex(self.at.entry);
            word.store(1, Ordering::Release);
            // Either this sees what is asked, or who asks sees that the evictor sleeps.
            fence(Ordering::SeqCst);
            K::turn();
            // A scan that is under way takes it up when it has ended, and goes no further while a fork is.
            let unused_asked =
                !use_scan.is_under_way() && self.at.process().unused_asked().load(Ordering::Acquire) != 0;
            if self.engine.read_streams.is_asked()
                || self.engine.stages.is_asked()
                || self.is_asked_by_others()
                || self.is_inquired()
                || unused_asked
            {
                continue;
            }
            if let Some(_pass) = self.engine.enter()
                && !self.engine.stores_full.load(Ordering::Relaxed)
            {
                self.flush_slots();
            }
            self.work_in_background(&mut background);
            self.sleep_and_watch(word);
            word.store(0, Ordering::Release);
        }
    }

    /// Sleeps until it is woken or a second has passed, with an eye on the leader of the readers.
    fn sleep_and_watch(&self, word: &AtomicU32) {
        let until_ns = K::now_ns() + SUPERVISION_NS;
        while word.load(Ordering::Acquire) == 1 && K::now_ns() < until_ns {
            let pause = self.at.handlers.watch().map_or(IDLE, Duration::from_nanos);
            K::futex_wait(word, 1, pause);
        }
    }

    /// Nobody is left to give back what processes of this run held, or to keep far pages from reading as
    /// zeros while a process dies: the run ends, as its first program does when the supervisor is killed.
    fn stop_without_supervisor(&self) {
        if self.at.kernel.supervisor_is_gone() {
            K::tell("'spillway run' was killed, so its programs end too");
            K::stop_program();
        }
    }

    fn evict_passing_gate(&mut self) -> usize {
        let engine = self.engine;
        let Some(_pass) = engine.enter() else { return 0 };
        self.evict_batch()
    }
}
