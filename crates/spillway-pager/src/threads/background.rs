//! What may be done in the background, and when: one budget ([`spillway_core::background`]) for all that is
//! done ahead of need.

use spillway_core::background::{BackgroundBudget, Faults, Verdict};
use spillway_core::latency::Recent;

use crate::kernel::Kernel;
use crate::process::attachment::Attachment;
use crate::run::state::Counter;

/// The budget and what it judges by.
pub(crate) struct Background {
    budget: BackgroundBudget,
    faults: Recent,
    pauses: u64,
}

impl Background {
    pub(crate) fn new<K: Kernel>(at: &Attachment<K>) -> Self {
        let budget = BackgroundBudget::new(at.settings.pool.background, K::now_ns());
        let faults = Recent::new(&at.run.fault_latency());
        Self { budget, faults, pauses: 0 }
    }

    /// Asks to move `bytes` now. The faults of all processes of the run count.
    pub(crate) fn ask<K: Kernel>(&mut self, at: &Attachment<K>, bytes: usize) -> Verdict {
        let faults = &mut self.faults;
        let verdict = self.budget.ask(K::now_ns(), bytes as u64, || {
            let (count, p90_ns) = faults.take(&at.run.fault_latency(), 0.9);
            Faults { count, p90_ns }
        });
        let pauses = self.budget.pauses();
        at.run.count(Counter::BackgroundPauses, pauses - self.pauses);
        self.pauses = pauses;
        verdict
    }
}
