//! The pager of a simulated process: the real engine, attached to the simulated kernel, run and stores.

use std::sync::Arc;
use std::time::Duration;

use spillway_core::page::{PAGE_SHIFT, PAGE_SIZE};
use spillway_core::size::Size;
use spillway_pager::inline::Inline;
use spillway_pager::process::attachment::{Attachment, OpenStore};
use spillway_pager::process::engine::{Engine, EngineConfig};
use spillway_pager::process::worker::Worker;
use spillway_pager::run::settings::{Block, FaultMode, FetchSettings, PoolSettings, Seal, Settings};
use spillway_pager::run::state::{Counter, RunState, slot_ranges};
use spillway_pager::seal::sealing::Sealing;
use spillway_pager::threads::calls::Operation;
use spillway_pager::threads::leader::FaultHandlers;
use spillway_policy::dcm;
use spillway_store::LatencyClass;
use spillway_sys::ranges::FrameRange;
use spillway_sys::uffd::Fault;

use crate::config::{BlockConfig, Config, StoreKind};
use crate::own_memory;
use crate::process::{Pager, SimKernel};
use crate::store;
use crate::supervisor::pid_of;
use crate::tape;
use crate::tasks::Wait;
use crate::world::{self, World, wait, with};

impl Pager {
    /// Asks for something, as a hook does.
    #[must_use]
    pub fn call(&self, operation: Operation, arguments: [usize; 4]) -> usize {
        let name = format!("{operation:?}");
        with(|world| {
            let what = arguments[0] as u64;
            world.note(60, what, || format!("calls {name} {:#x} {:#x}", arguments[0], arguments[1]));
        });
        let result = self.engine.calls.call(operation, arguments);
        with(|world| world.note(61, result as u64, || format!("{name} answers {result:#x}")));
        result
    }
}

/// The engine of a process that nobody has forked.
///
/// # Errors
/// Where the machine gives no address space.
pub fn new_engine(config: &Config) -> rustix::io::Result<&'static Engine<SimKernel>> {
    let engine = Engine::new(EngineConfig {
        limit_pages: config.limit_pages as usize,
        replacement: replacement(config),
        seed: config.seed,
        victim_window_pages: config.victim_window_pages,
        reserve_bytes: config.reserve_pages << PAGE_SHIFT,
        cpus: 4,
        huge_streams: config.huge_streams,
    })?;
    Ok(Box::leak(Box::new(engine)))
}

fn replacement(config: &Config) -> dcm::Config {
    dcm::Config {
        inactive_share: config.inactive_percent as f64 / 100.0,
        return_share: config.return_percent as f64 / 100.0,
        thread_buffer_pages: config.thread_buffer_pages,
        thread_inactive: config.thread_inactive,
        ..dcm::Config::default()
    }
}

fn settings(world: &World) -> Settings {
    let config = &world.config;
    let pages = |pages: u64| Size::from_bytes(pages << PAGE_SHIFT);
    Settings {
        local_bytes: pages(config.limit_pages),
        stores: world.stores.iter().map(|store| store.uri.clone()).collect(),
        store_slots: world.stores.iter().map(|store| store.capacity_slots).collect(),
        block: match config.block {
            BlockConfig::Streams => Block::Streams,
            BlockConfig::Elastic { most_pages } => Block::Elastic(pages(most_pages)),
            BlockConfig::Static { pages: count } => Block::Static(pages(count)),
        },
        fault_mode: if config.inline { FaultMode::Inline } else { FaultMode::Thread },
        fault_mode_reason: "drawn".to_owned(),
        replacement: replacement(config),
        pool: PoolSettings {
            reserve_bytes: pages(config.reserve_pages),
            victim_window_pages: config.victim_window_pages,
            // Else each page leaves by a move.
            by_reference: !config.seed.is_multiple_of(3),
            copy_share: [0.0, 0.125, 1.0][config.seed as usize % 5 % 3],
            ..PoolSettings::default()
        },
        fetch: FetchSettings {
            overlap: config.overlap,
            strides: config.strides,
            huge_streams: config.huge_streams,
        },
        seal: if config.sealed { Seal::All } else { Seal::None },
    }
}

/// As `attach` of the pager does for a live process.
fn attachment(world: &World, process: usize, run: &'static RunState) -> Attachment<SimKernel> {
    let settings = settings(world);
    let ranges = slot_ranges(&settings.store_slots);
    let entry = world.processes[process].entry;
    let sealing = Sealing::of_run(run, entry).ok().map(Arc::new);
    let stores: Vec<OpenStore> = ranges
        .into_iter()
        .enumerate()
        .map(|(number, range)| {
            let model = &world.stores[number];
            // As a live run refuses it.
            let is_sealed = settings.seal == Seal::All && model.config.kind != StoreKind::Compressed;
            let sealing = sealing.clone().filter(|_| is_sealed);
            OpenStore { store: store::handle(model, number), range, sealing }
        })
        .collect();
    let classes = || stores.iter().map(|open| open.store.latency_class());
    let waits = classes().any(|class| class == LatencyClass::Remote);
    let headroom_pages = (world.config.limit_pages / 64).clamp(16, 512);
    Attachment {
        kernel: SimKernel { process },
        descriptors: Vec::new(),
        run,
        entry,
        // A leader is a matter of CPUs, of which there are none here.
        handlers: FaultHandlers::new(true),
        placement: None,
        low_headroom_pages: if waits { headroom_pages } else { 0 },
        headroom_pages,
        writes_long: classes().any(|class| class == LatencyClass::Compression),
        max_block_pages: spillway_pager::fault::block_size::max_block_pages(
            settings.block,
            world.config.limit_pages,
        ),
        settings,
        stores,
    }
}

/// The pager's first thread in a process: brings it up, starts the handlers and becomes the evictor.
pub fn spawn(world: &mut World, process: usize, engine: &'static Engine<SimKernel>, is_forked: bool) {
    let body = move || {
        world::turn();
        let attached = with(|world| world.run.map(|run| attachment(world, process, run)));
        let Some(at) = attached else { return };
        // As the supervisor's welcome: a child that was given up meanwhile is stopped.
        let announced = with(|world| world.processes[process].child);
        if announced.is_some_and(|child| at.process().claim() != child.claim) {
            with(|world| world.end_process(process));
            return world::turn();
        }
        at.process().set_pid(pid_of(process));
        with(|world| world.processes[process].is_connected = true);
        let at: &'static Attachment<SimKernel> = Box::leak(Box::new(at));
        let mut worker = match Worker::new(engine, at) {
            Ok(worker) => worker,
            Err(error) => return world::fail(|| format!("no worker: {error}")),
        };
        match with(|world| if is_forked { Ok(None) } else { tape::deck(&world.config) }) {
            Ok(deck) => deck.into_iter().for_each(|deck| engine.tape(deck)),
            Err(error) => return world::fail(|| format!("no tape: {error}")),
        }
        if is_forked && let Err(error) = worker.adopt_after_fork() {
            return world::fail(|| format!("a child cannot be managed: {error}"));
        }
        at.run.count(Counter::Processes, 1);
        with(|world| {
            world.processes[process].pager = Some(Pager { engine, at, inline: None });
            for number in 0..world.config.handlers {
                let body = move || serve(process, engine, at);
                world.spawn(format!("handler {process}.{number}"), Some(process), Box::new(body));
            }
        });
        world::turn();
        engine.gate.thaw();
        with(|world| {
            world.processes[process].is_ready = true;
            world.tasks.wake_where(|task| task.wait == Wait::Process(process));
        });
        worker.evict_forever()
    };
    world.spawn(format!("evictor {process}"), Some(process), Box::new(body));
}

/// A handler: one message at a time.
fn serve(process: usize, engine: &'static Engine<SimKernel>, at: &'static Attachment<SimKernel>) {
    let mut worker = match Worker::new(engine, at) {
        Ok(worker) => worker,
        Err(error) => return world::fail(|| format!("no worker: {error}")),
    };
    loop {
        world::turn();
        let Some(message) = with(|world| world.read_message(process)) else {
            wait(Wait::Message, None);
            continue;
        };
        // Read, and not looked at for a while: by then it may be about nothing any more.
        if with(|world| world.draws.one_in(16)) {
            let time = with(|world| world.draws.below(1_000_000));
            wait(Wait::Sleep, Some(Duration::from_nanos(time)));
        }
        let (address, write, write_protected) = (message.address, message.write, message.write_protected);
        worker.answer(Fault { address, write, write_protected, thread_id: message.task as u32 + 1 });
    }
}

/// Waits until a process's pager works.
#[must_use]
pub fn wait_until_ready(process: usize) -> Option<Pager> {
    loop {
        let (pager, is_ready) = with(|world| {
            let process = &world.processes[process];
            (process.pager, process.is_ready)
        });
        if is_ready {
            return pager;
        }
        wait(Wait::Process(process), None);
    }
}

/// Makes what a process of inline mode serves its own faults with.
pub fn ready_inline(process: usize, pager: &mut Pager) {
    if !with(|world| world.processes[process].is_inline) {
        return;
    }
    let places = with(|world| world.draws.within(1..=2)) as usize;
    match Inline::with_places(pager.engine, pager.at, places) {
        Ok(inline) => pager.inline = Some(Box::leak(Box::new(inline))),
        Err(error) => world::fail(|| format!("no place to serve faults: {error}")),
    }
    with(|world| world.processes[process].pager = Some(*pager));
}

/// The engine that a forked child finds in its memory, its frames with what they hold. The two kernels' page
/// tables of the pager's own areas are made to agree.
pub fn forked_engine(
    parent: usize,
    child: usize,
    engine: &Engine<SimKernel>,
) -> Option<&'static Engine<SimKernel>> {
    let copy = match engine.for_child() {
        Ok(copy) => copy,
        Err(error) => {
            world::fail(|| format!("a fork while a lock of the pager's is held ({error})"));
            return None;
        }
    };
    let copy: &'static Engine<SimKernel> = Box::leak(Box::new(copy));
    share(parent, child, engine.frames.all(), copy.frames.all());
    share(parent, child, engine.reserve.all(), copy.reserve.all());
    share(parent, child, engine.stages.all(), copy.stages.all());
    share(parent, child, engine.calls.doorbells(), copy.calls.doorbells());
    Some(copy)
}

fn share(parent: usize, child: usize, from: FrameRange<'_>, to: FrameRange<'_>) {
    with(|world| {
        let (before, after) = world.processes.split_at_mut(child);
        let (parent, child) = (&mut before[parent].space, &mut after[0].space);
        let range = from.start()..from.start() + from.bytes();
        parent.share_own(child, range.clone(), to.start());
        let full: Vec<usize> = parent.own_within(range).map(|(address, _)| address - from.start()).collect();
        for offset in full {
            own_memory::fill(to.part(offset, PAGE_SIZE), &own_memory::contents(from.part(offset, PAGE_SIZE)));
        }
    });
}
