//! From one userfaultfd to another, for which the kernel has no step: meanwhile pages that are not there read
//! as zeros.

use std::time::Duration;

use rustix::io::Result;
use spillway_pager::kernel::Kernel;
use spillway_sys::ranges::TargetRange;

use crate::kernel::pages_of;
use crate::process::SimKernel;
use crate::space::{Entry, Faults};
use crate::tasks::Wait;
use crate::world::{World, turn, wait, with};

/// For so long a busy machine may keep a thread from its processors.
const MOST_AWAY_NS: u64 = 10_000_000;

impl SimKernel {
    pub(super) fn hand_over(&self, range: TargetRange) -> Result<()> {
        let process = self.process;
        let _ = self.unregister(range);
        let there = with(|world| world.populated_pages(process, range));
        take_long();
        self.turning(|world, process| {
            let came = world.populated_pages(process, range).saturating_sub(there);
            (0..came).for_each(|_| world.count("pages touched amid a hand-over"));
            if world.config.machine.no_page_map {
                world.processes[process].uncounted += came;
            }
            world.processes[process].space.register(pages_of(range), Faults::Handlers)
        })
    }
}

/// A thread between two calls: others have turns, or it waits for a processor while those wake that rested.
fn take_long() {
    let (turns, away_ns) = with(|world| {
        let is_away = world.draws.one_in(2);
        (world.draws.within(0..=30), is_away.then(|| world.draws.below(MOST_AWAY_NS)))
    });
    (0..turns).for_each(|_| turn());
    if let Some(away_ns) = away_ns {
        wait(Wait::Sleep, Some(Duration::from_nanos(away_ns)));
    }
}

impl World {
    fn populated_pages(&self, process: usize, range: TargetRange) -> usize {
        let space = &self.processes[process].space;
        pages_of(range).filter(|&page| space.entry(page) != Entry::Missing).count()
    }
}
