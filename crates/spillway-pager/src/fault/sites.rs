//! Which instruction waits for a page, of one fetch in so much lost time ([`crate::run::sites`]), and in
//! which calls, where somebody asks ([`crate::run::stacks`]).

use spillway_core::page::PAGE_SIZE;

use crate::kernel::Kernel;
use crate::process::worker::Worker;
use crate::run::sites::SAMPLE_NS;
use crate::run::stacks::Origin;

impl<K: Kernel> Worker<K> {
    /// A fault that fetches is about to be served: where enough time was lost since the last sample, it is
    /// one.
    pub(crate) fn sample_site(&mut self) {
        let samples = self.unsampled_ns / SAMPLE_NS;
        if samples == 0 {
            return;
        }
        self.unsampled_ns %= SAMPLE_NS;
        if let Some(origin) = self.origin {
            self.at.run.sites().note(self.at.entry, origin.instruction, samples);
            self.sample_stack(origin, samples);
        }
    }

    /// Copies the thread's stack where somebody asks. Memory that is managed or about to be is left out: it
    /// may be far, and the kernel would have to wait for it.
    fn sample_stack(&self, origin: Origin, samples: u64) {
        let stacks = self.at.run.stacks();
        if origin.stack_pointer == 0 || !stacks.is_asked(K::now_ns) {
            return;
        }
        stacks.note(self.at.entry, origin, samples, |to| {
            let start = origin.stack_pointer as usize;
            let end = start.saturating_add(size_of_val(to));
            let mut behind = start;
            while behind < end {
                let next = (behind & !(PAGE_SIZE - 1)).saturating_add(PAGE_SIZE).min(end);
                if !self.engine.outline.excludes(&(behind..next)) {
                    break;
                }
                behind = next;
            }
            self.at.kernel.copy_what_is_there(start, &to[..(behind - start) / 8])
        });
    }
}
