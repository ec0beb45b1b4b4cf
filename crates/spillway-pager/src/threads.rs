//! The pager's threads: fault handlers, one pinned to each CPU, and the evictor.

use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Result;
use rustix::thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity};
use spillway_sys::raw_thread::{self, FileTable, ThreadMemory, exit_thread};
use spillway_sys::uffd::RawMessage;

use crate::address_space::fault_mode;
use crate::attach::AttachError;
use crate::background::Background;
use crate::engine::{Worker, now_ns};
use crate::message;
use crate::readers::Lead;
use crate::regions::OnFork;

/// Starts a pager thread.
#[allow(unsafe_code)]
pub(crate) fn start(
    memory: &'static ThreadMemory,
    files: FileTable,
    entry: extern "C" fn(usize) -> !,
    argument: usize,
) -> Result<()> {
    // SAFETY: each memory is used by one thread of the process, which never ends; a forked child, in which that
    // thread does not run, lays the memory out afresh. Pager threads use neither malloc nor libc's threads.
    unsafe { raw_thread::start(memory, files, entry, argument) }.map(|_| ())
}

/// The value whose address a thread was started with.
#[allow(unsafe_code)]
pub(crate) fn argument<T>(address: usize) -> &'static T {
    // SAFETY: threads are started only with addresses of values that are never dropped.
    unsafe { &*std::ptr::with_exposed_provenance(address) }
}

/// Takes over a leaked box that only this thread knows.
#[allow(unsafe_code)]
fn take_box<T>(address: usize) -> Box<T> {
    // SAFETY: start_handler leaked it for this one thread.
    unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut(address)) }
}

/// Gives this thread, which shares the program's file table so far, an empty one of its own. The kernel copies none of the
/// descriptors that are to be closed, of which there may be very many.
#[allow(unsafe_code)]
pub(crate) fn leave_file_table() -> Result<()> {
    const SYS_CLOSE_RANGE: usize = 436;
    const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
    let arguments = [0, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0, 0, 0];
    // SAFETY: takes no address, and leaves the table of the program's threads as it is.
    let result = unsafe { spillway_sys::raw::syscall(SYS_CLOSE_RANGE, arguments) };
    if result < 0 { Err(rustix::io::Errno::from_raw_os_error(-result as i32)) } else { Ok(()) }
}

/// The CPUs on which this process may run.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).take(8).collect()
}

struct Handler {
    worker: Worker,
    cpu: Option<usize>,
    may_lead: bool,
}

/// Starts a fault handler, on `cpu` if given: a fault is served fastest on the CPU of the thread that raised it.
pub(crate) fn start_handler(
    memory: &'static ThreadMemory,
    worker: Worker,
    cpu: Option<usize>,
    may_lead: bool,
) -> Result<()> {
    let handler = Box::into_raw(Box::new(Handler { worker, cpu, may_lead }));
    start(memory, FileTable::Shared, handler_main, handler.expose_provenance())
}

extern "C" fn handler_main(handler: usize) -> ! {
    let Handler { mut worker, cpu, may_lead } = *take_box::<Handler>(handler);
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
    let mut messages = [RawMessage::default()];
    let readers = &worker.at.readers;
    let mut lead = Lead::default();
    loop {
        if !may_lead {
            readers.wait_for_crowd();
        }
        // One at a time, so that the other handlers get the rest.
        match worker.at.uffd.read(&mut messages) {
            Ok([message]) => {
                if let Some(fault) = message.fault() {
                    let process = worker.at.process();
                    let busy_handlers = process.busy_handlers();
                    busy_handlers.fetch_add(1, Ordering::Relaxed);
                    readers.note(fault.thread_id);
                    match worker.engine.calls.slot_at(fault.address) {
                        Some(slot) => worker.answer_call(slot),
                        None => {
                            worker.place_near(fault.thread_id);
                            worker.serve_fault(fault);
                        }
                    }
                    busy_handlers.fetch_sub(1, Ordering::Relaxed);
                    if may_lead {
                        readers.look(&mut lead, cpu);
                    }
                }
            }
            Ok(_) => {}
            Err(_) => exit_thread(),
        }
    }
}

const SUPERVISION_NS: u64 = 1_000_000_000;
const IDLE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

impl Worker {
    fn answer_call(&mut self, slot: usize) {
        let calls = &self.engine.calls;
        match calls.take(slot) {
            Some(request) => {
                let result = self.serve_call(request);
                calls.answer(&self.at.uffd, slot, result);
            }
            None => calls.let_go(&self.at.uffd, slot),
        }
    }

    /// Reads ahead, keeps some of the local limit free, so that faults need not wait for evictions, and evicts when other
    /// processes ask for it.
    pub(crate) fn evict_forever(&mut self) -> ! {
        let run = self.at.run;
        self.at.readers.note_evictor();
        let mut supervised_ns = now_ns();
        let mut background = Background::new(self.at);
        loop {
            if now_ns() - supervised_ns > SUPERVISION_NS {
                self.stop_without_supervisor();
                self.review_in_background(&mut background);
                supervised_ns = now_ns();
            }
            if self.bring_in_for_others() || self.read_ahead() {
                continue;
            }
            let requested = self.at.process().requested_pages().swap(0, Ordering::AcqRel);
            let short = self.is_short();
            if (requested > 0 || short && self.may_evict_ahead(&mut background))
                && self.evict_passing_gate() > 0
            {
                continue;
            }
            let word = run.evictor_futex(self.at.entry);
            word.store(1, Ordering::Release);
            // Either this sees what is asked, or who asks sees that the evictor sleeps.
            fence(Ordering::SeqCst);
            if self.engine.read_ahead.is_asked() || self.is_asked_by_others() {
                continue;
            }
            if let Some(_pass) = self.engine.gate.enter()
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
        let until_ns = now_ns() + SUPERVISION_NS;
        while word.load(Ordering::Acquire) == 1 && now_ns() < until_ns {
            let pause = self.at.readers.watch().map_or(IDLE, |ns| Timespec { tv_sec: 0, tv_nsec: ns.into() });
            let _ = futex::wait(word, futex::Flags::empty(), 1, Some(&pause));
        }
    }

    /// Nobody is left to give back what processes of this run held, or to keep far pages from reading as zeros
    /// while a process dies: the run ends, as its first program does when the supervisor is killed.
    fn stop_without_supervisor(&self) {
        let mut polled = [PollFd::new(&self.at.control, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0) {
            message::to_program("'spillway run' was killed, so its programs end too");
            message::stop_program();
        }
    }

    fn evict_passing_gate(&mut self) -> usize {
        let engine = self.engine;
        let Some(_pass) = engine.gate.enter() else { return 0 };
        self.evict_batch()
    }

    /// In a forked child: registers what the parent had managed, but for what the child does not inherit.
    pub(crate) fn adopt_after_fork(&mut self) -> std::result::Result<(), AttachError> {
        self.engine.calls.reset_all();
        self.engine.holds.reset();
        self.engine.forget_protection();
        let regions: Vec<_> = self.engine.regions().iter().collect();
        for (range, on_fork) in regions {
            if on_fork != OnFork::Drop {
                self.at
                    .managed()
                    .register(range.start, range.len(), fault_mode())
                    .map_err(|error| AttachError::Kernel("register memory after a fork", error))?;
            }
            if on_fork != OnFork::Keep {
                self.forget(range.clone());
            }
            if on_fork == OnFork::Wipe {
                self.map(range);
            }
        }
        self.set_inherited(false);
        Ok(())
    }
}
