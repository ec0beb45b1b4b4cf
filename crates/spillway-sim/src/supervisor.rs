//! The supervisor: gives back what dead processes held, with the pager's own code, at the times at which it
//! learns of them.
//!
//! `spillway_pager::run::supervisor` hears of a process's end by its connection, and of a child that never
//! came by looking at the run's table; the same is done here without sockets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_pager::run::state::{PID_OF_ANOTHER_NAMESPACE, RunState, slot_ranges};
use spillway_store::Lane;

use crate::store::handle;
use crate::store_model::StoreModel;
use crate::tasks::Wait;
use crate::world::{World, turn, wait, with};

/// How long a child whose parent was killed may take to come.
const ORPHANS_PATIENCE_NS: u64 = 10_000_000_000;

/// Adds the supervisor's task to a world.
pub fn spawn(world: &mut World) {
    world.spawn("supervisor".to_owned(), None, Box::new(supervise));
}

fn supervise() {
    let (run, mut lanes) = with(|world| {
        let open = |(number, store): (usize, &StoreModel)| handle(store, number).open_lane().ok();
        let lanes: Vec<_> = world.stores.iter().enumerate().filter_map(open).collect();
        (world.run, lanes)
    });
    let Some(run) = run else { return };
    let mut orphans: Vec<(usize, u64)> = Vec::new();
    loop {
        let time = with(|world| 1_000_000 + world.draws.below(20_000_000));
        wait(Wait::Sleep, Some(Duration::from_nanos(time)));
        if with(|world| world.supervisor_is_gone) {
            return;
        }
        while let Some(entry) = with(|world| world.next_to_reap(run)) {
            with(|world| world.note(70, entry as u64, || format!("reaps entry {entry}")));
            reap(run, entry, &mut lanes);
        }
        reap_unborn(run, &mut orphans, &mut lanes);
    }
}

fn reap(run: &RunState, entry: usize, lanes: &mut [Box<dyn Lane>]) {
    let capacities: Vec<u32> = with(|world| world.stores.iter().map(|store| store.capacity_slots).collect());
    let ranges = slot_ranges(&capacities);
    turn();
    run.reap(entry, |slots| {
        for (range, lane) in ranges.iter().zip(lanes.iter_mut()) {
            let own: Vec<u32> =
                slots.iter().filter(|slot| range.contains(slot)).map(|slot| slot - range.start).collect();
            if !own.is_empty() {
                lane.discard(&own);
            }
        }
    });
    turn();
}

/// Entries that were claimed for a child whose parent was killed before it said whether there is one.
fn reap_unborn(run: &RunState, orphans: &mut Vec<(usize, u64)>, lanes: &mut [Box<dyn Lane>]) {
    let connected = with(|world| world.connected_entries(run));
    let now_ns = with(|world| world.clock_ns);
    let before = std::mem::take(orphans);
    // As many as there are, so that free entries are not looked at behind them.
    let entries = run.processes().take(run.process_count() as usize);
    let absent: Vec<usize> = entries.filter(|entry| !connected.contains(entry)).collect();
    for entry in absent {
        let process = run.process(entry);
        match (process.pid(), process.parent()) {
            (0 | PID_OF_ANOTHER_NAMESPACE, Some(parent)) if !connected.contains(&parent) => {
                let since =
                    before.iter().find(|(orphan, _)| *orphan == entry).map_or(now_ns, |known| known.1);
                if now_ns - since > ORPHANS_PATIENCE_NS {
                    reap(run, entry, lanes);
                } else {
                    orphans.push((entry, since));
                }
            }
            (0 | PID_OF_ANOTHER_NAMESPACE, _) => {}
            (pid, _) if with(|world| world.is_running(pid)) => {}
            _ => reap(run, entry, lanes),
        }
    }
}

/// The process that has a pid.
#[must_use]
pub fn pid_of(process: usize) -> u32 {
    process as u32 + 1_000
}

impl World {
    /// The entry of a process that has ended and was connected, once, when nothing of it is on its way any
    /// more.
    fn next_to_reap(&mut self, run: &RunState) -> Option<usize> {
        let is_due = |process: usize| !self.is_awaited(run, process);
        let dead = (0..self.processes.len()).find(|&number| {
            let process = &self.processes[number];
            !process.is_alive && !process.is_reaped && process.is_connected && is_due(number)
        })?;
        let dead = &mut self.processes[dead];
        dead.is_reaped = true;
        Some(dead.entry)
    }

    /// Whether a process has ended amid a change of what a store holds, and it is not known to be done. What
    /// is answered cannot be late.
    fn is_awaited(&self, run: &RunState, process: usize) -> bool {
        let entry = self.processes[process].entry;
        run.process(entry).unanswered_changes().load(Ordering::SeqCst) != 0 && self.has_on_its_way(process)
    }

    /// Entries of the processes that have come to the supervisor and live, or have not been given back.
    fn connected_entries(&self, run: &RunState) -> Vec<usize> {
        let connected = self.processes.iter().enumerate().filter(|(number, process)| {
            process.is_connected && (process.is_alive || !process.is_reaped && self.is_awaited(run, *number))
        });
        connected.map(|(_, process)| process.entry).collect()
    }

    fn is_running(&self, pid: u32) -> bool {
        let number = pid.checked_sub(pid_of(0)).map(|number| number as usize);
        number.and_then(|number| self.processes.get(number)).is_some_and(|process| process.is_alive)
    }
}
