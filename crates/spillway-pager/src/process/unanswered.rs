//! What this process has told servers to change, and has no answer to. A server may do it at any later time,
//! after the end of the process too: until it is known to be done, nobody else may have these slots.

use std::sync::atomic::Ordering;

use spillway_store::Lane;

use crate::kernel::{Kernel, planted};
use crate::process::attachment::{Attachment, OpenStore};

/// Changes what a store holds. Whether each request has its answer. Where others serve the store, the change
/// is counted in the process's entry of the run's state, from before the first byte is sent until it is
/// answered: for ever where that does not come.
pub(crate) fn change<K: Kernel>(
    at: &Attachment<K>,
    open: &OpenStore,
    lane: &mut dyn Lane,
    change: impl FnOnce(&mut dyn Lane),
) -> bool {
    let is_counted = open.store.latency_class().waits_for_others() && !planted!(K, "changes-not-counted");
    let process = at.process();
    if is_counted {
        process.unanswered_changes().fetch_add(1, Ordering::SeqCst);
    }
    change(lane);
    let has_answered = lane.has_answered();
    if is_counted && has_answered {
        process.unanswered_changes().fetch_sub(1, Ordering::SeqCst);
    }
    has_answered
}
