//! A process of the run: what the kernel, the program and the oracle know of it.

use std::collections::{BTreeMap, VecDeque};

use spillway_pager::inline::Inline;
use spillway_pager::process::attachment::Attachment;
use spillway_pager::process::engine::Engine;
use spillway_pager::run::state::Child;

use crate::program::Program;
use crate::shadow::Shadow;
use crate::space::{Faults, Space};
use crate::tasks::TaskId;

/// The kernel, as one process of the world has it.
#[derive(Clone, Copy, Debug)]
pub struct SimKernel {
    /// The number of the process.
    pub process: usize,
}

/// The pager of one process, since its last fork.
#[derive(Clone, Copy)]
pub struct Pager {
    /// The state of the pager.
    pub engine: &'static Engine<SimKernel>,
    /// Its tie to the run.
    pub at: &'static Attachment<SimKernel>,
    /// What serves faults in inline mode.
    pub inline: Option<&'static Inline<SimKernel>>,
}

/// A fault that waits for a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whose fault it is.
    pub task: TaskId,
    /// The address of the page.
    pub address: usize,
    /// The access was a write.
    pub write: bool,
    /// The page is there but protected.
    pub write_protected: bool,
}

/// One process of the machine.
#[derive(Default)]
pub struct Process {
    /// Its memory, as the kernel has it.
    pub space: Space,
    /// Faults that no handler has read.
    pub queue: VecDeque<Message>,
    /// It has neither ended nor been killed.
    pub is_alive: bool,
    /// Its faults are served by its own threads.
    pub is_inline: bool,
    /// Threads that have handlers take over the faults of its memory: what other threads touch first
    /// meanwhile is counted once that is done.
    pub handing_over: usize,
    /// Of those nobody finds where the page map cannot be read: so many are charged to nobody for good.
    pub uncounted: usize,
    /// A debugger is attached.
    pub is_traced: bool,
    /// Its pager, once that has begun.
    pub pager: Option<Pager>,
    /// The supervisor has welcomed it.
    pub is_connected: bool,
    /// Its pager serves its faults.
    pub is_ready: bool,
    /// The supervisor has given back what it held.
    pub is_reaped: bool,
    /// What it must read.
    pub shadow: Shadow,
    /// What its program has mapped, and what its threads do.
    pub program: Program,
    /// Its place in the run's table.
    pub entry: usize,
    /// As what its parent announced it.
    pub child: Option<Child>,
    /// Lines of the pager's.
    pub told: Vec<String>,
    /// What each thread does at this moment, and since which turn and when.
    pub operations: BTreeMap<usize, (u64, u64, String)>,
}

impl Process {
    /// To whom faults of managed memory go.
    #[must_use]
    pub fn faults(&self) -> Faults {
        if self.is_inline { Faults::Signals } else { Faults::Handlers }
    }
}
