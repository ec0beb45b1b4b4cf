//! Worlds of a certain kind, for what seldom meets by chance.

use spillway_pager::run::settings::Strides;

use crate::config::{
    BlockConfig, Config, Habits, Machine, StoreConfig, StoreFaults, StoreKind, Strategy, TapeConfig, strides,
};

impl Config {
    /// The world as its seed's kind has it: of fifty seeds some have one.
    pub(crate) fn of_its_kind(self) -> Self {
        match self.seed % 50 {
            3 => self.of_change_overs(),
            7 => self.of_first_writes(),
            23 | 41 => self.of_references(),
            33 => self.of_threads_queues(),
            13 => self.of_moves(),
            21 => self.of_native_moves(),
            29 => self.of_readers(),
            37 => self.of_calls_over_gaps(),
            43 => self.of_lost_pages(),
            17 => self.of_passing_failures(),
            47 => self.of_strides(),
            9 | 27 => self.of_tapes(),
            19 | 31 | 49 => self.of_huge_streams(),
            11 | 39 => self.of_changes_ahead(),
            22 => self.of_elastic_overlap(),
            28 => self.of_refused_slots(),
            36 => self.of_elastic_turns(),
            38 => self.of_large_calls(),
            44 => self.of_late_writes(),
            _ => self,
        }
    }

    /// Streams of first writes with room to spare, as the reserve of zeros is for.
    fn of_first_writes(self) -> Self {
        let machine = Machine { miscounts_one_in: 4, no_page_map: false, ..self.machine };
        let habits = Habits { stream: 60, map: 8, unmap: 8, write_percent: 95, ..self.habits };
        Self {
            limit_pages: 2304,
            program_pages: 700,
            threads: self.threads.min(2),
            operations: self.operations.min(120),
            native: false,
            block: BlockConfig::Streams,
            reserve_pages: 1024,
            kills_at: Vec::new(),
            machine,
            habits,
            ..self
        }
    }

    /// Threads that use far memory while one of them has the process leave inline mode.
    fn of_change_overs(self) -> Self {
        // Who has faults under way waits for the hand-over's end: who rests may wake amid it, and go on where
        // nothing is local.
        let habits =
            Habits { touch: 60, stream: 6, rest: 40, leave_inline: 1, fork: 1, unmap: 0, ..self.habits };
        let stores = vec![self.ample_ram()];
        Self {
            limit_pages: 120,
            program_pages: 400,
            threads: self.threads.max(6),
            // What is not mapped is to be far.
            inactive_percent: 0,
            operations: 60,
            native: false,
            kills_at: Vec::new(),
            inline: true,
            stores,
            habits,
            ..self
        }
    }

    /// Clean pages that mremap(2) moves, in inline mode, where only words tell that they are.
    fn of_moves(self) -> Self {
        let machine = Machine { no_page_map: false, no_discard_pages: false, ..self.machine };
        // Where many pages are written, none are protected.
        let habits = Habits {
            touch: 60,
            remap: 8,
            write_percent: 6,
            stream: 0,
            pin: 0,
            lock: 0,
            protect: 0,
            discard: 0,
            fork: 0,
            ..self.habits
        };
        let limit_pages = self.limit_pages.min(120);
        let stores = vec![self.ample_ram()];
        Self {
            limit_pages,
            program_pages: 200,
            operations: 2_500,
            kills_at: Vec::new(),
            inline: true,
            threads: self.threads.min(2),
            native: false,
            block: BlockConfig::Static { pages: 1 },
            machine,
            habits,
            stores,
            ..self
        }
    }

    /// A store that is fast, never fails and takes whatever the program has.
    fn ample_ram(&self) -> StoreConfig {
        StoreConfig {
            kind: StoreKind::Ram,
            slots: 8 * (self.program_pages + self.limit_pages) as u32,
            latency_ns: 1_000,
            faults: StoreFaults::default(),
        }
    }

    /// Memory left to the kernel that mremap(2) moves while others want its room.
    fn of_native_moves(self) -> Self {
        let habits = Habits { touch: 10, stream: 10, map: 30, unmap: 30, remap: 60, pin: 0, ..self.habits };
        Self {
            strategy: Strategy::Uniform { switch_one_in: 1 },
            limit_pages: 320,
            program_pages: 400,
            threads: self.threads.clamp(3, 4),
            operations: 600,
            native: true,
            adopted_pages: 0,
            kills_at: Vec::new(),
            habits,
            ..self
        }
    }

    /// Streams of far memory, several at a time, as huge pages are for.
    fn of_huge_streams(self) -> Self {
        Self {
            limit_pages: 512,
            program_pages: 900,
            threads: self.threads.min(3),
            operations: self.operations.max(120),
            native: false,
            huge_streams: true,
            block: BlockConfig::Streams,
            stores: vec![self.ample_ram()],
            machine: Machine { no_page_map: false, ..self.machine },
            habits: Habits { touch: 10, stream: 60, pin: 0, lock: 0, ..self.habits },
            ..self
        }
    }

    /// Streams by huge pages, whose next ranges change while they lie ready: pages of them are discarded,
    /// written, foreseen, moved, and leave. A store that takes long has that happen while they are read too.
    fn of_changes_ahead(self) -> Self {
        let latency_ns = if (self.seed / 50).is_multiple_of(3) { 1_000_000 } else { 1_000 };
        let store = StoreConfig { latency_ns, ..self.ample_ram() };
        // What is to have left by the time that the stream goes on stays no longer than the limit says.
        let habits = Habits {
            change_ahead: 60,
            touch: 20,
            stream: 4,
            zero: 2,
            write_percent: 50,
            remap: 2,
            unmap: 1,
            map: 1,
            protect: 0,
            pin: 0,
            lock: 0,
            ..self.habits
        };
        Self {
            limit_pages: 256,
            program_pages: 500,
            threads: self.threads.min(3),
            operations: 40,
            native: false,
            kills_at: Vec::new(),
            huge_streams: true,
            block: BlockConfig::Streams,
            strides: if self.seed % 50 == 11 { Strides::Rounds } else { Strides::Off },
            stores: vec![store],
            machine: Machine { no_page_map: false, ..self.machine },
            habits,
            ..self
        }
    }

    /// Buffers that can hold all that is local, and inactive queues of handlers that rest while one thread
    /// faults now by one of them, now by another.
    fn of_threads_queues(self) -> Self {
        let is_far = (self.seed / 50).is_multiple_of(2);
        let ample = self.ample_ram();
        let remote = StoreConfig { kind: StoreKind::Remote, latency_ns: 50_000, ..ample.clone() };
        Self {
            limit_pages: 120,
            program_pages: 300,
            threads: if is_far { 1 } else { self.threads.min(3) },
            handlers: 4,
            operations: 200,
            inline: self.inline && !is_far,
            native: false,
            stores: vec![if is_far { remote } else { ample }],
            inactive_percent: [0, 0, 40][(self.seed / 100 % 3) as usize],
            thread_buffer_pages: 1024,
            thread_inactive: true,
            kills_at: Vec::new(),
            habits: Habits { touch: 60, pin: 0, lock: 0, ..self.habits },
            ..self
        }
    }

    /// System calls in inline mode with memory that begins outside of what is managed, while memory left to
    /// the kernel is taken over.
    fn of_calls_over_gaps(self) -> Self {
        let habits = Habits { hold: 60, touch: 10, stream: 10, map: 30, unmap: 30, pin: 0, ..self.habits };
        let stores = vec![self.ample_ram()];
        Self { inline: true, habits, stores, ..self.of_native_moves() }
    }

    /// System calls that use more memory than may be local.
    fn of_large_calls(self) -> Self {
        let habits = Habits { hold: 60, touch: 30, stream: 10, unmap: 2, lock: 0, pin: 0, ..self.habits };
        let stores = vec![self.ample_ram()];
        Self {
            limit_pages: 120,
            program_pages: 600,
            operations: 60,
            native: false,
            kills_at: Vec::new(),
            inline: true,
            large_call_pages: 600,
            stores,
            habits,
            ..self
        }
    }

    /// Walks in strides over far pages of two stores, which may spoil what they hold. Blocks grow with the
    /// limit, and so does what may be foreseen.
    fn of_strides(self) -> Self {
        let spoils = (self.seed / 50).is_multiple_of(3);
        let faults = StoreFaults { damages_one_in: if spoils { 150 } else { 0 }, ..StoreFaults::default() };
        let last = if self.inline { StoreKind::Compressed } else { StoreKind::Remote };
        let store = |kind, slots, faults| StoreConfig { kind, slots, latency_ns: 50_000, faults };
        let stores = vec![store(StoreKind::Ram, 400, StoreFaults::default()), store(last, 4 * 8_192, faults)];
        let habits = Habits { stride: 60, touch: 10, stream: 2, fork: 1, pin: 0, lock: 0, ..self.habits };
        let strides = if (self.seed / 50).is_multiple_of(2) { Strides::Rounds } else { Strides::Trend };
        Self {
            limit_pages: 1_024,
            program_pages: 1_800,
            threads: self.threads.min(3),
            operations: 120,
            native: false,
            block: BlockConfig::Streams,
            kills_at: Vec::new(),
            machine: Machine { no_page_map: false, ..self.machine },
            strides,
            stores,
            habits,
            ..self
        }
    }

    /// Elastic blocks of a store that answers later, among threads for which there is little room: reads are
    /// posted, and faults wait for room beside them. Now and then a device keeps some.
    fn of_elastic_overlap(self) -> Self {
        let latency_ns = if (self.seed / 50).is_multiple_of(2) { 50_000 } else { 1_000_000 };
        let stores = vec![StoreConfig { kind: StoreKind::Remote, latency_ns, ..self.ample_ram() }];
        let pin = if (self.seed / 50).is_multiple_of(3) { 4 } else { 0 };
        Self {
            limit_pages: self.limit_pages.clamp(128, 320),
            program_pages: 600,
            threads: self.threads.max(3),
            operations: 160,
            inline: false,
            native: false,
            block: BlockConfig::Elastic { most_pages: 16 },
            overlap: true,
            stores,
            habits: Habits { touch: 60, stream: 8, pin, lock: 0, ..self.habits },
            ..self
        }
    }

    /// Elastic blocks that leave, are taken apart and come back while another thread is about to lock them:
    /// a store that answers at once, few pages, and threads that run long while others stand.
    fn of_elastic_turns(self) -> Self {
        Self {
            strategy: Strategy::Priorities { change_one_in: 100 },
            limit_pages: 128,
            program_pages: 300,
            threads: self.threads.max(6),
            operations: 240,
            native: false,
            block: BlockConfig::Elastic { most_pages: 8 },
            kills_at: Vec::new(),
            stores: vec![self.ample_ram()],
            habits: Habits { touch: 60, stream: 20, pin: 0, lock: 0, fork: 0, ..self.habits },
            ..self
        }
    }

    /// Threads that write to single pages while these leave, after forks and reads of zeros, and beside
    /// devices.
    fn of_references(self) -> Self {
        let replaces_frames = (self.seed / 50).is_multiple_of(3);
        let machine = Machine {
            no_page_map: false,
            no_discard_pages: false,
            no_zero_page: false,
            replaces_frames,
            ..self.machine
        };
        let pin = if (self.seed / 50) % 3 == 1 { 8 } else { 0 };
        let habits = Habits { touch: 80, write_percent: 80, stream: 0, pin, lock: 0, fork: 2, ..self.habits };
        let stores = vec![self.ample_ram()];
        Self {
            limit_pages: 120,
            program_pages: 300,
            // In inline mode devices keep what they were given before the pager came.
            adopted_pages: if pin > 0 { 40 } else { self.adopted_pages },
            threads: self.threads.max(4),
            inactive_percent: 0,
            operations: 200,
            native: false,
            kills_at: Vec::new(),
            inline: true,
            machine,
            stores,
            habits,
            ..self
        }
    }

    /// Walks over far pages that go the same way each time, with a tape of that, with a wrong one, or while
    /// one is recorded.
    fn of_tapes(self) -> Self {
        let tape = match self.seed / 50 % 4 {
            0 | 2 => TapeConfig::Fitting,
            1 => TapeConfig::Wrong,
            _ => TapeConfig::Recorded,
        };
        let strides = strides(self.seed / 50);
        Self { tape, strides, ..self.of_strides() }
    }

    /// Pages that are lost and then locked, on a kernel that is busy.
    fn of_lost_pages(self) -> Self {
        let machine = Machine { again_one_in: 4, ..self.machine };
        let habits = Habits { lock: 20, fork: 0, ..self.habits };
        let faults = StoreFaults { dies_at_request: 150, ..StoreFaults::default() };
        let stores = vec![StoreConfig {
            kind: StoreKind::Compressed,
            slots: 4 * (self.program_pages + self.limit_pages) as u32,
            latency_ns: 1_000,
            faults,
        }];
        Self { limit_pages: 128, program_pages: 300, kills_at: Vec::new(), machine, habits, stores, ..self }
    }

    /// Reads that fail or come wrong and are right when they are made again.
    fn of_passing_failures(self) -> Self {
        let faults = StoreFaults { fails_once_one_in: 20, garbles_once_one_in: 20, ..StoreFaults::default() };
        let stores = vec![StoreConfig {
            kind: StoreKind::Remote,
            slots: 8 * (self.program_pages + self.limit_pages) as u32,
            latency_ns: 50_000,
            faults,
        }];
        Self { limit_pages: 128, program_pages: 400, inline: false, stores, ..self }
    }

    /// A store that takes no page in some slots, and has plenty of others.
    fn of_refused_slots(self) -> Self {
        let slots = 8 * (self.program_pages + self.limit_pages) as u32;
        let refuses_from = (self.seed / 50 % 3 * 700) as u32;
        let faults = StoreFaults { refuses_from, refuses_slots: 1_100, ..StoreFaults::default() };
        let stores =
            vec![StoreConfig { kind: StoreKind::Remote, slots: 4_000 + slots, latency_ns: 2_000, faults }];
        let habits = Habits { touch: 60, stream: 10, write_percent: 90, ..self.habits };
        Self {
            limit_pages: 128,
            program_pages: 600,
            operations: self.operations.max(400),
            native: false,
            inline: false,
            habits,
            stores,
            ..self
        }
    }

    /// Processes that are killed amid writes to a server, and others that are short of slots.
    fn of_late_writes(self) -> Self {
        let slots = 3 * (self.program_pages + self.limit_pages) as u32;
        let faults = StoreFaults::default();
        let stores = vec![StoreConfig { kind: StoreKind::Remote, slots, latency_ns: 2_000_000, faults }];
        let habits = Habits { touch: 60, stream: 20, fork: 12, write_percent: 90, ..self.habits };
        Self {
            limit_pages: 128,
            program_pages: 400,
            processes: 4,
            operations: 80,
            threads: self.threads.min(3),
            native: false,
            inline: false,
            kills_at: (1..=5).map(|kill| kill * 12_000 + self.seed * 7 % 12_000).collect(),
            supervisor_dies_at: 0,
            habits,
            stores,
            ..self
        }
    }

    /// Devices that read what the program reads too.
    fn of_readers(self) -> Self {
        let machine = Machine { no_page_map: false, no_discard_pages: false, ..self.machine };
        let habits =
            Habits { touch: 60, write_percent: 5, pin: 8, stream: 0, fork: 0, lock: 0, ..self.habits };
        Self {
            limit_pages: 120,
            program_pages: 200,
            operations: 1_000,
            native: false,
            machine,
            habits,
            ..self
        }
    }
}
