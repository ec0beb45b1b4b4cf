//! What a seed means: the machine, the run, the program and everything that goes wrong in one simulated
//! world.

use spillway_pager::run::settings::Strides;

use crate::draws::Draws;
pub use crate::store_config::{StoreConfig, StoreFaults, StoreKind};
pub use crate::tape_config::TapeConfig;

/// In what order tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// At each turn another task with a chance of one in so many, whichever.
    Uniform {
        /// 1: at every turn.
        switch_one_in: u64,
    },
    /// The runnable task of the highest priority runs, and priorities fall at a few points (Burckhardt et
    /// al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", 2010): long runs of one
    /// task.
    Priorities {
        /// Turns between two changes, on average.
        change_one_in: u64,
    },
}

/// What the kernel and the machine do that they may do at any time. Chances are one in so many; 0 for never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// A move or a copy stops half-way.
    pub partial_one_in: u64,
    /// An operation says EAGAIN and does nothing.
    pub again_one_in: u64,
    /// A move moves more than it counts.
    pub miscounts_one_in: u64,
    /// A thread that waits for a page is woken for no reason, once in so many turns.
    pub spurious_wake_one_in: u64,
    /// There is no shared page of zeros.
    pub no_zero_page: bool,
    /// The page map cannot be read.
    pub no_page_map: bool,
    /// A process cannot advise itself.
    pub no_discard_pages: bool,
    /// A process may not read its accessed bits.
    pub no_accesses: bool,
    /// Discarding single pages stops half-way.
    pub discard_pages_fails_one_in: u64,
    /// A page that somebody refers to may get another frame, as where the kernel swaps.
    pub replaces_frames: bool,
    /// Sleeps take up to so many times as long as asked.
    pub sleep_stretch: u64,
}

/// What the simulated program does: weights of its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// Single reads and writes.
    pub touch: u64,
    /// Of these, writes in a hundred.
    pub write_percent: u64,
    /// Runs of neighbouring pages.
    pub stream: u64,
    /// Pages written with zeros.
    pub zero: u64,
    /// MADV_DONTNEED, of which the hooks know.
    pub discard: u64,
    /// MADV_DONTNEED past the hooks.
    pub discard_past_hooks: u64,
    /// Mappings of new memory.
    pub map: u64,
    /// munmap(2), whole and in part.
    pub unmap: u64,
    /// mremap(2) to another place.
    pub remap: u64,
    /// mprotect(2) to another protection.
    pub protect: u64,
    /// mlock(2) and munlock(2) of a range.
    pub lock: u64,
    /// What a child gets of a range.
    pub on_fork: u64,
    /// fork(2) of the whole process.
    pub fork: u64,
    /// A device pins pages, writes to them, lets them go.
    pub pin: u64,
    /// A debugger comes and goes.
    pub trace: u64,
    /// System calls whose memory is held (inline mode).
    pub hold: u64,
    /// A process leaves inline mode.
    pub leave_inline: u64,
    /// Runs of pages in strides, backwards, and in rounds.
    pub stride: u64,
    /// Streams whose next range changes before they go on.
    pub change_ahead: u64,
    /// Rests of some milliseconds, in which evictors have their turn.
    pub rest: u64,
}

/// What one world is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What it was made from.
    pub seed: u64,
    /// In what order tasks run.
    pub strategy: Strategy,
    /// The local limit of the run.
    pub limit_pages: u64,
    /// Threads of the program serve their own faults.
    pub inline: bool,
    /// Threads of the first process.
    pub threads: usize,
    /// Processes at a time.
    pub processes: usize,
    /// Fault handlers of each process.
    pub handlers: usize,
    /// Operations of each thread.
    pub operations: usize,
    /// Pages that the first process maps at its start.
    pub program_pages: u64,
    /// Pages that are mapped at its start and were there before the pager came.
    pub adopted_pages: u64,
    /// New mappings may be left to the kernel while there is room.
    pub native: bool,
    /// Where far pages are, in the order in which they are filled.
    pub stores: Vec<StoreConfig>,
    /// How much is fetched at once.
    pub block: BlockConfig,
    /// Share of the limit in the inactive queue, in percent.
    pub inactive_percent: u64,
    /// Pages of each pager thread's buffer before the shared queues.
    pub thread_buffer_pages: u32,
    /// Each pager thread has an inactive queue of its own.
    pub thread_inactive: bool,
    /// Share of the limit within which a page that comes back is proactive, in percent.
    pub return_percent: u64,
    /// Of so many of the oldest pages those leave first that lie together.
    pub victim_window_pages: usize,
    /// Pages of zeros that are kept ready, at most.
    pub reserve_pages: u64,
    /// Pages of a system call that uses more than it holds, at most; with 0 none does.
    pub large_call_pages: u64,
    /// Reads are posted, and room is made while they are under way.
    pub overlap: bool,
    /// How pages are foreseen that no stream brings.
    pub strides: Strides,
    /// Streams go by huge pages.
    pub huge_streams: bool,
    /// Pages are sealed before they leave, but for those of `compressed:`.
    pub sealed: bool,
    /// What the first process does with a tape.
    pub tape: TapeConfig,
    /// What kernel and machine do now and then.
    pub machine: Machine,
    /// What the program does.
    pub habits: Habits,
    /// At these turns a process is killed.
    pub kills_at: Vec<u64>,
    /// At this turn the supervisor is killed; 0 for never.
    pub supervisor_dies_at: u64,
    /// A mistake that was planted.
    pub planted: Option<String>,
}

/// How much is fetched at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockConfig {
    /// What streams of faults have earned.
    Streams,
    /// dcm's blocks, which grow and are taken apart.
    Elastic {
        /// Pages of the largest.
        most_pages: u64,
    },
    /// Always so many pages.
    Static {
        /// Pages of each block.
        pages: u64,
    },
}

impl BlockConfig {
    fn draw(draws: &mut Draws, seed: u64) -> Self {
        if draws.one_in(4) {
            return Self::Static { pages: draws.pick(&[1, 2, 4, 8, 16]) };
        }
        match seed % 7 {
            4 => Self::Elastic { most_pages: [16, 16, 64][(seed / 7 % 3) as usize] },
            _ => Self::Streams,
        }
    }
}

/// What is set by hand, to shrink a failing world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Operations of each thread.
    pub operations: Option<usize>,
    /// Threads of the first process.
    pub threads: Option<usize>,
    /// A mistake that was planted.
    pub planted: Option<String>,
}

impl Config {
    /// What a seed means.
    #[must_use]
    pub fn of_seed(seed: u64, overrides: &Overrides) -> Self {
        let mut draws = Draws::new(seed);
        let draws = &mut draws;
        let strategy = match draws.below(3) {
            0 => Strategy::Uniform { switch_one_in: draws.pick(&[1, 1, 3, 10]) },
            1 => Strategy::Uniform { switch_one_in: draws.pick(&[30, 100, 400]) },
            _ => Strategy::Priorities { change_one_in: draws.pick(&[100, 1_000, 5_000]) },
        };
        // The pager's batches are of 64 pages: below some 96 pages nothing else has room.
        let limit_pages = match draws.below(16) {
            0 => draws.within(1024..=2304),
            1..=3 => draws.within(320..=640),
            _ => draws.within(96..=256),
        };
        let inline = draws.one_in(3);
        let threads: usize =
            if inline && draws.one_in(2) { 1 } else { draws.pick(&[1, 1, 2, 2, 3, 4, 6, 8]) };
        let operations = draws.pick(&[30, 60, 120, 240]) * 2 / (1 + threads.div_ceil(2));
        let program_pages = limit_pages * draws.within(5..=25) / 10;
        let stores = stores(draws, inline, limit_pages, program_pages);
        let habits = habits(draws, inline);
        let machine = Machine { replaces_frames: seed % 9 == 4, ..machine(draws) };
        // What was there before the pager came is found by the page map alone.
        let adopts = draws.one_in(3) && !machine.no_page_map;
        let kills = if draws.one_in(4) { draws.within(1..=2) } else { 0 };
        let config = Self {
            seed,
            strategy,
            limit_pages,
            inline,
            threads: overrides.threads.unwrap_or(threads),
            processes: draws.pick(&[1, 2, 3, 4]),
            handlers: draws.within(2..=4) as usize,
            operations: overrides.operations.unwrap_or(operations),
            program_pages,
            adopted_pages: if adopts { draws.within(1..=40) } else { 0 },
            native: draws.one_in(2),
            stores,
            block: BlockConfig::draw(draws, seed),
            inactive_percent: draws.pick(&[0, 0, 5, 20, 40]),
            return_percent: draws.pick(&[0, 25, 25]),
            thread_buffer_pages: if seed % 4 == 3 { [4, 64, 1024][(seed / 4 % 3) as usize] } else { 0 },
            thread_inactive: seed % 3 == 1,
            victim_window_pages: draws.pick(&[0, 64, 256]),
            reserve_pages: draws.pick(&[0, 128, 1024]),
            large_call_pages: 0,
            overlap: !seed.is_multiple_of(5),
            strides: strides(seed),
            huge_streams: false,
            sealed: seed / 5 % 3 == 1,
            tape: TapeConfig::None,
            machine,
            habits,
            kills_at: (0..kills).map(|_| draws.within(200..=60_000)).collect(),
            supervisor_dies_at: if draws.one_in(40) { draws.within(200..=60_000) } else { 0 },
            planted: overrides.planted.clone(),
        };
        config.of_its_kind()
    }
}

/// How pages are foreseen with this seed: as the store is with a quarter of them.
pub(crate) fn strides(seed: u64) -> Strides {
    match seed / 2 % 4 {
        0 => Strides::Auto,
        1 => Strides::Trend,
        2 | 3 if seed % 2 == 1 => Strides::Rounds,
        _ => Strides::Off,
    }
}

fn stores(draws: &mut Draws, inline: bool, limit_pages: u64, program_pages: u64) -> Vec<StoreConfig> {
    let count = draws.pick(&[1, 1, 1, 2, 3]);
    let has_faults = draws.one_in(3);
    let is_scarce = draws.one_in(5);
    (0..count)
        .map(|_| {
            // Inline mode is for stores of this machine's own memory.
            let kinds = [StoreKind::Ram, StoreKind::Compressed, StoreKind::Remote];
            let kind = draws.pick(if inline { &kinds[..2] } else { &kinds });
            let far_pages = program_pages.saturating_sub(limit_pages) + limit_pages / 4;
            let pages = match is_scarce {
                true => far_pages / draws.within(1..=3) / count as u64 + 16,
                false => 8 * (program_pages + limit_pages),
            };
            let slots = if kind == StoreKind::Compressed { pages.max(64) * 4 } else { pages.max(64) };
            let latency_ns = draws.pick(&[2_000, 50_000, 1_000_000]);
            let mut faults = if has_faults { faults(draws, kind, far_pages) } else { StoreFaults::default() };
            if kind == StoreKind::Ram {
                // The process's own memory: it is not emptied between the check of a page and its copy.
                faults.emptied_at_request = 0;
            }
            StoreConfig { kind, slots: slots as u32, latency_ns, faults }
        })
        .collect()
}

fn faults(draws: &mut Draws, kind: StoreKind, far_pages: u64) -> StoreFaults {
    let mut faults = StoreFaults { stalls_one_in: draws.pick(&[0, 50, 500]), ..StoreFaults::default() };
    for _ in 0..draws.within(1..=2) {
        let request = draws.within(20..=1_500);
        match draws.below(10) {
            0 => (faults.fails_at_request, faults.fails_for_requests) = (request, draws.within(1..=200)),
            1 => faults.dies_at_request = request,
            2 => faults.emptied_at_request = request,
            3 => faults.damages_one_in = draws.within(20..=400),
            4 => faults.forgets_one_in = draws.within(20..=400),
            5 => faults.misplaces_one_in = draws.within(20..=400),
            8 => faults.fails_once_one_in = draws.within(2..=200),
            9 => faults.garbles_once_one_in = draws.within(2..=200),
            6 => match draws.within(5..=200) {
                share if kind == StoreKind::Remote && share % 2 == 1 => {
                    faults.room_pages = 16 + far_pages * share / 300;
                }
                chance => faults.full_one_in = chance,
            },
            _ => faults.stalls_one_in = 20,
        }
    }
    faults
}

fn machine(draws: &mut Draws) -> Machine {
    let is_odd = draws.one_in(2);
    let mut often = |values: &[u64]| if is_odd { draws.pick(values) } else { 0 };
    let partial_one_in = often(&[0, 8, 40]);
    let again_one_in = often(&[0, 20, 200]);
    let miscounts_one_in = often(&[0, 4, 20]);
    let discard_pages_fails_one_in = often(&[0, 0, 10]);
    Machine {
        partial_one_in,
        again_one_in,
        miscounts_one_in,
        discard_pages_fails_one_in,
        spurious_wake_one_in: draws.pick(&[0, 50, 500, 5_000]),
        no_zero_page: draws.one_in(10),
        no_page_map: draws.one_in(20),
        no_discard_pages: draws.one_in(10),
        no_accesses: draws.one_in(4),
        replaces_frames: false,
        sleep_stretch: draws.pick(&[10, 100, 1_000]),
    }
}

fn habits(draws: &mut Draws, inline: bool) -> Habits {
    let mut some = |one_in: u64, most: u64| if draws.one_in(one_in) { 1 + draws.below(most) } else { 0 };
    let stream = some(2, 10);
    let zero = some(3, 4);
    let discard = some(2, 6);
    let discard_past_hooks = some(6, 3);
    let map = some(2, 4);
    let unmap = some(2, 4);
    let remap = some(3, 4);
    let protect = some(3, 4);
    let lock = some(6, 2);
    let on_fork = some(6, 2);
    let fork = some(3, 3);
    let pin = some(5, 3);
    let trace = some(10, 2);
    let hold = if inline { some(2, 6) } else { 0 };
    let leave_inline = if inline { some(8, 1) } else { 0 };
    let rest = some(2, 3);
    Habits {
        touch: 40,
        write_percent: draws.pick(&[5, 30, 50, 90]),
        stream,
        zero,
        discard,
        discard_past_hooks,
        map,
        unmap,
        remap,
        protect,
        lock,
        on_fork,
        fork,
        pin,
        trace,
        hold,
        leave_inline,
        stride: 0,
        change_ahead: 0,
        rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_one_world_and_seeds_vary() {
        let of = |seed| Config::of_seed(seed, &Overrides::default());
        assert_eq!(of(17), of(17));
        let all: Vec<Config> = (0..2_000).map(of).collect();
        assert!(all.iter().any(|config| config.inline) && all.iter().any(|config| !config.inline));
        for threads in [1, 8] {
            assert!(all.iter().any(|config| config.threads == threads));
        }
        for kind in [StoreKind::Ram, StoreKind::Compressed, StoreKind::Remote] {
            assert!(all.iter().flat_map(|config| &config.stores).any(|store| store.kind == kind));
        }
        let limits = all.iter().map(|config| config.limit_pages);
        assert!(limits.clone().min() < Some(128) && limits.max() > Some(1024));
        let remote_inline = |config: &Config| {
            config.inline && config.stores.iter().any(|store| store.kind == StoreKind::Remote)
        };
        assert!(!all.iter().any(remote_inline), "faults of inline mode never wait for another machine");
        let overrides = Overrides { operations: Some(3), threads: Some(1), planted: None };
        let shrunk = Config::of_seed(17, &overrides);
        assert_eq!((shrunk.operations, shrunk.threads, shrunk.limit_pages), (3, 1, of(17).limit_pages));
    }
}
