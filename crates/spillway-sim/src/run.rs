//! From a configuration to what its world came to.

use std::sync::atomic::Ordering;
use std::time::Duration;

use spillway_pager::run::state::{Counter, RunState, slot_ranges};

use crate::actor::life;
use crate::config::Config;
use crate::pager;
use crate::process::Process;
use crate::store_model::StoreModel;
use crate::supervisor::{self, pid_of};
use crate::tasks::Wait;
use crate::world::{self, Outcome, World, fail, turn, wait, with};

/// Runs the world of a configuration to its end.
#[must_use]
pub fn run_world(config: &Config, is_traced: bool) -> Outcome {
    world::run(config.clone(), is_traced, || {
        with(|world| world.spawn("director".to_owned(), None, Box::new(direct)));
    })
}

/// Sets the stage, waits for the end of all processes and looks at what they left.
fn direct() {
    if let Err(reason) = with(set_up) {
        return fail(|| format!("the world cannot be made: {reason}"));
    }
    loop {
        wait(Wait::Sleep, Some(Duration::from_millis(20)));
        if with(|world| !world.processes.iter().any(|process| process.is_alive)) {
            break;
        }
    }
    // A child whose parent was killed is waited for as long as that.
    wait(Wait::Sleep, Some(Duration::from_secs(30)));
    with(|world| {
        world.check_end();
        let by_tape = world.run.map_or(0, |run| run.counter(Counter::PagesByTape).load(Ordering::Relaxed));
        if by_tape > 0 {
            world.counts.insert("pages by tape", by_tape);
        }
        world.is_over = true;
    });
    turn();
}

fn set_up(world: &mut World) -> Result<(), String> {
    let config = world.config.clone();
    for (number, store) in config.stores.iter().enumerate() {
        world.stores.push(StoreModel::new(number, store).map_err(|error| error.to_string())?);
    }
    let capacities: Vec<u32> = world.stores.iter().map(|store| store.capacity_slots).collect();
    let slots = slot_ranges(&capacities).last().map_or(0, |range| range.end);
    let create = if config.sealed { RunState::create_sealed } else { RunState::create };
    let (_, run) = create(config.limit_pages, slots).map_err(|error| error.to_string())?;
    let run: &'static RunState = Box::leak(Box::new(run));
    world.run = Some(run);
    let entry = run.claim_process(pid_of(0)).ok_or("no entry is free")?;
    let engine = pager::new_engine(&config).map_err(|error| error.to_string())?;
    world.processes.push(Process { is_alive: true, is_inline: config.inline, entry, ..Process::default() });
    supervisor::spawn(world);
    pager::spawn(world, 0, engine, false);
    life::spawn_program(world, 0, config.threads, config.operations);
    Ok(())
}
