//! What other threads than the supervisor's see of a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use spillway_store::Store;

use crate::run::settings::Settings;
use crate::run::state::RunState;

/// Whether the run's pagers are at work.
#[derive(Clone)]
pub struct BusyPagers(Arc<RunState>);

impl BusyPagers {
    /// Looks at this run, by a mapping of its own.
    pub(super) fn new(run: Arc<RunState>) -> Self {
        Self(run)
    }

    /// Some process's pager serves a fault or a request now.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.processes().any(|entry| self.0.process(entry).busy_handlers().load(Ordering::Relaxed) > 0)
    }

    /// Some store takes too few connections, and the run's processes take turns with those that there are.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.0.all_store_notes().any(|notes| notes.are_of_turns())
    }
}

/// A view of a run for another thread: what is counted, and the stores as the supervisor has them open.
pub struct RunView {
    /// What the processes share.
    pub run: RunState,
    /// The settings, with the capacities that the stores have offered.
    pub settings: Settings,
    /// The stores in the order of the settings; none where the supervisor could not open it.
    pub stores: Vec<Option<Arc<dyn Store>>>,
}
