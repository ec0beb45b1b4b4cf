//! Which instruction waits for a page, of one fetch in so much lost time ([`crate::run::sites`]).

use crate::kernel::Kernel;
use crate::process::worker::Worker;
use crate::run::sites::SAMPLE_NS;

impl<K: Kernel> Worker<K> {
    /// A fault that fetches is about to be served: where enough time was lost since the last sample, it is
    /// one.
    pub(crate) fn sample_site(&mut self) {
        let samples = self.unsampled_ns / SAMPLE_NS;
        if samples == 0 {
            return;
        }
        self.unsampled_ns %= SAMPLE_NS;
        if let Some(instruction) = self.instruction {
            self.at.run.sites().note(self.at.entry, instruction, samples);
        }
    }
}
