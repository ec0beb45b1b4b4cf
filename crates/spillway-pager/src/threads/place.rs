//! Which memory node a pager thread's frames come from: see [`crate::threads::placement`].

use rustix::thread::sched_getcpu;
use spillway_sys::memory_policy;

use crate::kernel::Kernel;
use crate::process::worker::Worker;
use crate::threads::leader::cpu_of;

impl<K: Kernel> Worker<K> {
    /// From now on this pager thread's frames come from the node of a thread of the program.
    pub(crate) fn place_near(&mut self, thread: u32) {
        if let Some(placement) = &self.at.placement
            && let Some(node) = placement.node_of_thread(thread, cpu_of)
        {
            self.place_on(node);
        }
    }

    /// From now on this pager thread's frames come from a node.
    pub(crate) fn place_on(&mut self, node: u16) {
        if self.placed_on != Some(node) && memory_policy::prefer_node(Some(node.into())).is_ok() {
            self.placed_on = Some(node);
        }
    }

    /// The node for whose sake this thread works, be it a handler or the faulting thread itself.
    pub(crate) fn node_served(&self) -> Option<u16> {
        let placement = self.at.placement.as_ref()?;
        self.placed_on.or_else(|| placement.node_of(sched_getcpu()))
    }
}
