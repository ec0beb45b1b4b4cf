//! Fault handlers: pager threads, one pinned to each CPU, that read the kernel's messages and answer them.

use std::sync::atomic::Ordering;

use rustix::io::Result;
use rustix::thread::{CpuSet, sched_setaffinity};
use spillway_sys::raw_thread::{FileTable, ThreadMemory, exit_thread};
use spillway_sys::uffd::{Fault, RawMessage};

use crate::kernel::Kernel;
use crate::kernel::live::LiveKernel;
use crate::process::worker::Worker;
use crate::threads::leader::Lead;
use crate::threads::raw;

struct Handler {
    worker: Worker<LiveKernel>,
    cpu: Option<usize>,
    may_lead: bool,
}

/// Starts a fault handler, on `cpu` if given: a fault is served fastest on the CPU of the thread that raised
/// it.
pub(crate) fn start(
    memory: &'static ThreadMemory,
    worker: Worker<LiveKernel>,
    cpu: Option<usize>,
    may_lead: bool,
) -> Result<()> {
    raw::start_owning(memory, FileTable::Shared, run, Handler { worker, cpu, may_lead })
}

fn run(handler: Handler) -> ! {
    let Handler { mut worker, cpu, may_lead } = handler;
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
    let mut messages = [RawMessage::default()];
    let handlers = &worker.at.handlers;
    let mut lead = Lead::default();
    loop {
        if !may_lead {
            handlers.wait_for_crowd();
        }
        // One at a time, so that the other handlers get the rest.
        match worker.at.kernel.uffd.read(&mut messages) {
            Ok([message]) => {
                if let Some(fault) = message.fault() {
                    let process = worker.at.process();
                    process.busy_handlers().fetch_add(1, Ordering::Relaxed);
                    handlers.note(fault.thread_id);
                    worker.answer(fault);
                    process.busy_handlers().fetch_sub(1, Ordering::Relaxed);
                    if may_lead && handlers.steer(&mut lead, cpu) {
                        // It looks after the leader.
                        worker.at.wake_evictor();
                    }
                }
            }
            Ok(_) => {}
            Err(_) => exit_thread(),
        }
    }
}

impl<K: Kernel> Worker<K> {
    /// Answers what one message of the kernel says: a call's doorbell rang, or a page is missing.
    pub fn answer(&mut self, fault: Fault) {
        match self.engine.calls.slot_at(fault.address) {
            Some(slot) => self.answer_call(slot),
            None => {
                self.place_near(fault.thread_id);
                self.serve_fault(fault);
            }
        }
    }

    fn answer_call(&mut self, slot: usize) {
        let calls = &self.engine.calls;
        match calls.take(slot) {
            Some(request) => {
                let result = self.serve_call(request);
                calls.answer(&self.at.kernel, slot, result);
            }
            None => calls.let_go(&self.at.kernel, slot),
        }
    }
}
