//! Another process's memory, brought in for a system call of this one (process_vm_readv(2),
//! process_vm_writev(2)).
//!
//! In inline mode the kernel cannot have a fault of another process's memory served either. So the caller
//! asks that process's evictor by a word of its entry in the run's state, and calls again. A page may be gone
//! by then: the caller asks anew.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_core::page::PAGE_SIZE;
use spillway_sys::uffd::Fault;

use crate::inline::Inline;
use crate::kernel::Kernel;
use crate::pages::address::page_number_of;
use crate::process::worker::Worker;

/// A request: the address of the first page, with these in its low bits.
const LESS_ONE: u64 = 0x3F;
const WRITE: u64 = 1 << 6;
const VALID: u64 = 1 << 7;
/// Pages of one request.
const MOST_PAGES: usize = LESS_ONE as usize + 1;
/// For how long another process may stay silent: it may be stopped.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Times that a page is asked for.
const TRIES: usize = 64;
const MOMENT: Duration = Duration::from_micros(20);

/// What became of memory that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// What is managed of it was brought in.
    Ready,
    /// The process is none of the run.
    NotOurs,
    /// The process does not answer.
    Silent,
}

impl<K: Kernel> Inline<K> {
    /// Has the process `pid` bring in what it manages of a range, and not take it for its own alone where
    /// others `write`.
    #[must_use]
    pub fn bring_in_elsewhere(&self, pid: u32, range: Range<usize>, write: bool) -> Foreign {
        let run = self.attachment().run;
        let Some(entry) = run.processes().find(|&entry| run.process(entry).pid() == pid) else {
            return Foreign::NotOurs;
        };
        let process = run.process(entry);
        let word = process.wanted_memory();
        let until_ns = K::now_ns() + PATIENCE_NS;
        // Waits until the word is as it should be, while there is a process to wait for.
        let wait = |done: &dyn Fn() -> bool| {
            while !done() {
                if process.pid() != pid || K::now_ns() > until_ns {
                    return false;
                }
                K::sleep(MOMENT);
            }
            true
        };
        let first = range.start & !(PAGE_SIZE - 1);
        for start in (first..range.end).step_by(MOST_PAGES * PAGE_SIZE) {
            let pages = (range.end - start).div_ceil(PAGE_SIZE).min(MOST_PAGES) as u64;
            let request = start as u64 | (pages - 1) | if write { WRITE } else { 0 } | VALID;
            let post = || word.compare_exchange(0, request, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if !wait(&post) {
                return Foreign::Silent;
            }
            self.attachment().wake_evictor_of(entry);
            if !wait(&|| word.load(Ordering::Acquire) != request) {
                let _ = word.compare_exchange(request, 0, Ordering::AcqRel, Ordering::Relaxed);
                return Foreign::Silent;
            }
        }
        Foreign::Ready
    }
}

impl<K: Kernel> Worker<K> {
    /// Somebody waits for memory of this process.
    pub(crate) fn is_asked_by_others(&self) -> bool {
        self.at.process().wanted_memory().load(Ordering::Acquire) != 0
    }

    /// Brings in what other processes ask for. False where none does.
    pub(crate) fn bring_in_for_others(&mut self) -> bool {
        let at = self.at;
        let process = at.process();
        let request = process.wanted_memory().load(Ordering::Acquire);
        if request == 0 {
            return false;
        }
        // Where handlers serve faults, they serve the kernel's too.
        if request & VALID != 0 && at.kernel.is_inline() {
            let write = request & WRITE != 0;
            if write {
                // Before a page is locked below: who locks it later, to evict it, sees this.
                self.engine.has_foreign_writers.store(true, Ordering::SeqCst);
            }
            let first = request as usize & !(PAGE_SIZE - 1);
            let pages = (request & LESS_ONE) as usize + 1;
            (0..pages).for_each(|page| self.bring_in_for_other(first + page * PAGE_SIZE, write));
        }
        let _ = process.wanted_memory().compare_exchange(request, 0, Ordering::AcqRel, Ordering::Relaxed);
        true
    }

    fn bring_in_for_other(&mut self, address: usize, write: bool) {
        for _ in 0..TRIES {
            if !self.engine.regions().contains(address) {
                return;
            }
            let word = self.engine.table.find(page_number_of(address));
            let info = word.as_ref().map(|word| word.peek());
            let is_mapped = info.is_some_and(|info| info.is_mapped());
            let is_protected = is_mapped && info.is_some_and(|info| info.protected_in().is_some());
            if word.is_some_and(|word| word.is_locked()) || self.engine.gate.is_frozen() {
                K::sleep(MOMENT);
            } else if is_mapped && !(write && is_protected) {
                return;
            } else {
                let fault = Fault { address, write, write_protected: write && is_protected, thread_id: 0 };
                if !self.serve_fault(fault) {
                    return;
                }
            }
        }
    }
}
