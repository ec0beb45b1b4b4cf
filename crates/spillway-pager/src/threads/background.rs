//! What may be done in the background, and when: one budget ([`spillway_core::background`]) for all that is
//! done ahead of need.

use spillway_core::background::{BackgroundBudget, Verdict};

use crate::kernel::Kernel;
use crate::process::attachment::Attachment;

/// The budget of a process.
pub(crate) struct Background {
    budget: BackgroundBudget,
}

impl Background {
    pub(crate) fn new<K: Kernel>(at: &Attachment<K>) -> Self {
        Self { budget: BackgroundBudget::new(at.settings.pool.background, K::now_ns()) }
    }

    /// Asks to move `bytes` at `now_ns`, by the kernel's steady clock.
    pub(crate) fn ask(&mut self, now_ns: u64, bytes: usize) -> Verdict {
        self.budget.ask(now_ns, bytes as u64)
    }
}
