//! Seeded worlds in which the pool's core runs as it does in a run: donors crash, restart empty, freeze, lose
//! messages and get writes late; processes are killed between any two steps; the supervisor rebuilds beside
//! writes. An oracle knows what every slot must hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use spillway_pool::MAX_COPIES;
use spillway_pool::bits::{bits_of, slots_of};
use spillway_pool::placement::{Chooser, Dice};
use spillway_pool::read::{self, Found};
use spillway_pool::rebuild::{self, Moved, Rebuild};
use spillway_pool::survey::{Sweep, drop_surplus, place_for, survey};
use spillway_pool::table::{NewDonor, Table, Which, words_of};
use spillway_pool::words::{Condition, DonorWord, Place};
use spillway_pool::write::{self, Outcome, Write, without_barred};

const DONORS: usize = 4;
const COPIES: usize = 2;
const EXTENTS: u32 = 3;
/// Slots of an extent that are used.
const SLOTS: u32 = 4;
const DONOR_EXTENTS: u32 = 5;
const RUNS: usize = 2;
const WRITERS: usize = 3;
const STEPS: u64 = 4000;
/// A write comes at most so many steps late.
const MOST_LATE: u64 = 300;
const PATIENCE: u64 = 60;
/// Worlds that are right without a mistake.
const SEEDS: u64 = 400;
/// Worlds in which a planted mistake is looked for; the rarest is found by seed 456.
const SEEDS_FOR_A_MISTAKE: u64 = 4_000;

type Version = u64;

/// How a donor's machine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Machine {
    Well,
    Frozen,
    Dead,
}

/// What is kept on one donor for one run: by life, extent and slot.
type Memory = HashMap<(u16, u32, u32), Version>;

struct Late {
    at: u64,
    donor: usize,
    life: u16,
    extent: u32,
    slot: u32,
    version: Version,
}

#[allow(clippy::large_enum_variant, reason = "there are few of them")]
enum Actor {
    Idle,
    Writing { page: Page, write: Write, sending: Option<(Place, DonorWord)> },
    Reading { slot: u32, tried: u8, at: Option<read::Choice>, patience: u32 },
}

/// What is being written.
#[derive(Clone, Copy)]
struct Page {
    slot: u32,
    version: Version,
}

#[allow(clippy::large_enum_variant, reason = "there are few of them")]
enum Repair {
    Idle,
    Stepping { extent: u32, rebuild: Rebuild },
    Reading { extent: u32, rebuild: Rebuild, from: Place, to: Place, slots: Vec<u32> },
    Writing { extent: u32, rebuild: Rebuild, to: Place, pages: Vec<(u32, Option<Version>)> },
}

struct Run {
    words: Vec<AtomicU64>,
    memory: Vec<Memory>,
    late: Vec<Late>,
    actors: Vec<Actor>,
    repair: Repair,
    sweep: Sweep,
    /// What each slot must hold.
    oracle: HashMap<u32, Version>,
    busy: Vec<u32>,
    /// Lives of donors as the donor's own machine counts them.
    lives: Vec<u16>,
    /// The same as the supervisor knows them.
    known_lives: Vec<u16>,
}

struct World {
    dice: Dice,
    now: u64,
    machines: Vec<Machine>,
    runs: Vec<Run>,
    chooser: Chooser,
    bug: &'static str,
    /// Never more donors ill, or with copies yet to be made, than copies less one.
    is_gentle: bool,
    next_version: Version,
    reads: u64,
    rebuilt: u64,
    losses: u64,
}

fn slot_of(index: u32) -> u32 {
    index / SLOTS * 512 + index % SLOTS
}

impl World {
    fn new(seed: u64, bug: &'static str) -> Self {
        let donors: Vec<NewDonor> = (0..DONORS)
            .map(|donor| NewDonor {
                capacity: DONOR_EXTENTS,
                domain: donor as u32,
                text: format!("d{donor}"),
            })
            .collect();
        let run = || {
            let words: Vec<AtomicU64> = (0..words_of(&donors, EXTENTS)).map(|_| AtomicU64::new(0)).collect();
            let _ = Table::create(&words, &donors, EXTENTS, COPIES, 1);
            Run {
                words,
                memory: vec![Memory::new(); DONORS],
                late: Vec::new(),
                actors: (0..WRITERS).map(|_| Actor::Idle).collect(),
                repair: Repair::Idle,
                sweep: Sweep::default(),
                oracle: HashMap::new(),
                busy: Vec::new(),
                lives: vec![1; DONORS],
                known_lives: vec![1; DONORS],
            }
        };
        let domains: Vec<u32> = (0..DONORS as u32).collect();
        Self {
            dice: Dice::new(seed),
            now: 1,
            machines: vec![Machine::Well; DONORS],
            runs: (0..RUNS).map(|_| run()).collect(),
            chooser: Chooser::new(&domains, COPIES),
            bug,
            is_gentle: !seed.is_multiple_of(3),
            next_version: 1,
            reads: 0,
            rebuilt: 0,
            losses: 0,
        }
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.dice.below(one_in) == 0
    }

    /// Runs the world; what went wrong.
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.now += 1;
            self.trouble();
            let run = self.dice.below(RUNS);
            self.land_late(run);
            match self.dice.below(WRITERS + 3) {
                actor if actor < WRITERS => self.act(run, actor)?,
                actor if actor == WRITERS => self.watch(run),
                _ => self.repair(run),
            }
        }
        self.settle()
    }

    /// All donors come back; every repair must end, and every page must be there.
    fn settle(&mut self) -> Result<(), String> {
        for machine in &mut self.machines {
            *machine = Machine::Well;
        }
        for run in 0..RUNS {
            for _ in 0..20_000 {
                self.now += 1;
                self.land_late(run);
                let actor = self.dice.below(WRITERS);
                if !matches!(self.runs[run].actors[actor], Actor::Idle) {
                    self.act(run, actor)?;
                }
                self.watch(run);
                self.repair(run);
                self.repair(run);
            }
            let words = std::mem::take(&mut self.runs[run].words);
            let table = Table::open(&words).unwrap().with_bug(self.bug);
            let found = survey(&table, self.now, PATIENCE);
            if !found.tasks.is_empty() || !matches!(self.runs[run].repair, Repair::Idle) {
                return Err(format!("a repair does not end: {found:?}"));
            }
            self.runs[run].words = words;
            let slots: Vec<u32> = self.runs[run].oracle.keys().copied().collect();
            for slot in slots {
                if self.runs[run].busy.contains(&slot) {
                    continue;
                }
                self.runs[run].actors[0] = Actor::Reading { slot, tried: 0, at: None, patience: 0 };
                self.runs[run].busy.push(slot);
                while matches!(self.runs[run].actors[0], Actor::Reading { .. }) {
                    self.act(run, 0)?;
                }
            }
        }
        Ok(())
    }

    fn is_all_well(&self) -> bool {
        let is_failing = |actor: &Actor| matches!(actor, Actor::Writing { write, .. } if write.has_missed());
        self.machines.iter().all(|machine| *machine == Machine::Well)
            && !self.runs.iter().flat_map(|run| &run.actors).any(is_failing)
            && self.runs.iter().all(|run| {
                let table = Table::open(&run.words).unwrap();
                let found = survey(&table, u64::MAX, PATIENCE);
                let up = (0..DONORS).all(|donor| table.donor(donor).condition == Condition::Up);
                let lives = (0..DONORS).all(|donor| table.donor(donor).life == run.lives[donor]);
                let full = (0..EXTENTS).all(|extent| {
                    let seen = table.snapshot(extent);
                    let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy)).count();
                    seen.state.phase != spillway_pool::words::Phase::Placed || whole >= COPIES
                });
                found.tasks.is_empty() && found.lost.is_empty() && up && lives && full
            })
    }

    /// In a gentle world a donor that does not take a write is the only one that is ill.
    fn may_lose(&self) -> bool {
        let is_known = |run: &Run| run.known_lives == run.lives;
        !self.is_gentle
            || self.machines.iter().all(|machine| *machine == Machine::Well) && self.runs.iter().all(is_known)
    }

    fn trouble(&mut self) {
        if !self.chance(40) {
            return;
        }
        let donor = self.dice.below(DONORS);
        if self.machines[donor] != Machine::Well {
            // It thaws, or comes back: empty, since it was dead.
            self.machines[donor] = Machine::Well;
            return;
        }
        if self.is_gentle && !self.is_all_well() {
            return;
        }
        match self.dice.below(4) {
            0 | 1 => self.machines[donor] = Machine::Frozen,
            2 => self.machines[donor] = Machine::Dead,
            // Away and back again, empty, before anybody looks.
            _ => {}
        }
        if self.machines[donor] != Machine::Frozen {
            for run in &mut self.runs {
                run.memory[donor].clear();
                run.lives[donor] += 1;
                run.late.retain(|late| late.donor != donor);
            }
        }
    }

    fn land_late(&mut self, run: usize) {
        let (now, machines) = (self.now, self.machines.clone());
        let Run { late, memory, .. } = &mut self.runs[run];
        let mut at = 0;
        while at < late.len() {
            let is_due = late[at].at <= now && machines[late[at].donor] == Machine::Well;
            if is_due {
                let Late { donor, life, extent, slot, version, .. } = late.swap_remove(at);
                memory[donor].insert((life, extent, slot), version);
            } else {
                at += 1;
            }
        }
    }

    /// Whether a donor serves this life of the run: else it says that it knows nothing of it.
    fn serves(&self, run: usize, place: Place) -> bool {
        let donor = usize::from(place.donor);
        self.machines[donor] == Machine::Well
            && (self.runs[run].lives[donor] == place.life || self.bug == "earlier-life-read")
    }

    fn write_to(&mut self, run: usize, place: Place, slot: u32, version: Version) -> bool {
        let (donor, key) = (usize::from(place.donor), (place.life, place.extent, slot % 512));
        if self.serves(run, place) {
            let is_lost = self.chance(60) && self.may_lose();
            if !is_lost || self.chance(2) {
                self.runs[run].memory[donor].insert(key, version);
            }
            return !is_lost;
        }
        if self.machines[donor] == Machine::Frozen && self.runs[run].lives[donor] == place.life {
            let at = self.now + self.dice.below(MOST_LATE as usize) as u64;
            let late = Late { at, donor, life: place.life, extent: place.extent, slot: slot % 512, version };
            self.runs[run].late.push(late);
        }
        false
    }

    /// `Err` where there is no answer, `Ok(None)` where the donor holds nothing there.
    fn read_from(&mut self, run: usize, place: Place, slot: u32) -> Result<Option<Version>, ()> {
        if !self.serves(run, place) || self.chance(60) {
            return Err(());
        }
        let key = (place.life, place.extent, slot % 512);
        Ok(self.runs[run].memory[usize::from(place.donor)].get(&key).copied())
    }

    fn act(&mut self, run: usize, actor: usize) -> Result<(), String> {
        let words = std::mem::take(&mut self.runs[run].words);
        let table = Table::open(&words).unwrap().with_bug(self.bug);
        let before = std::mem::replace(&mut self.runs[run].actors[actor], Actor::Idle);
        let after = self.act_on(run, &table, before);
        self.runs[run].words = words;
        self.runs[run].actors[actor] = after?;
        Ok(())
    }

    fn act_on(&mut self, run: usize, table: &Table<'_>, before: Actor) -> Result<Actor, String> {
        match before {
            Actor::Idle => Ok(self.begin(run, table)),
            Actor::Writing { page, write, sending } => {
                Ok(self.go_on_writing(run, table, page, write, sending))
            }
            Actor::Reading { slot, tried, at, patience } => {
                self.go_on_reading(run, table, (slot, tried), at, patience)
            }
        }
    }

    fn begin(&mut self, run: usize, table: &Table<'_>) -> Actor {
        let slot = slot_of(self.dice.below((EXTENTS * SLOTS) as usize) as u32);
        if self.runs[run].busy.contains(&slot) {
            return Actor::Idle;
        }
        self.runs[run].busy.push(slot);
        if self.chance(2) && self.runs[run].oracle.contains_key(&slot) {
            return Actor::Reading { slot, tried: 0, at: None, patience: 0 };
        }
        let wanted = bits_of([slot]);
        if without_barred(table, slot / 512, &wanted) != wanted {
            self.free(run, slot);
            return Actor::Idle;
        }
        self.next_version += 1;
        let write = Write::new(slot / 512, wanted, self.dice.next_u64());
        let page = Page { slot, version: self.next_version };
        Actor::Writing { page, write, sending: None }
    }

    fn free(&mut self, run: usize, slot: u32) {
        self.runs[run].busy.retain(|busy| *busy != slot);
    }

    fn go_on_writing(
        &mut self,
        run: usize,
        table: &Table<'_>,
        page: Page,
        mut write: Write,
        sending: Option<(Place, DonorWord)>,
    ) -> Actor {
        let Page { slot, version } = page;
        if self.chance(150) {
            // Killed. What was on its way came or did not; nobody has read the slot's new contents.
            if let Some((place, _)) = sending
                && self.serves(run, place)
                && self.chance(2)
            {
                let key = (place.life, place.extent, slot % 512);
                self.runs[run].memory[usize::from(place.donor)].insert(key, version);
            }
            self.runs[run].oracle.remove(&slot);
            self.free(run, slot);
            return Actor::Idle;
        }
        if let Some((place, seen)) = sending {
            let is_stored = self.write_to(run, place, slot, version);
            if !is_stored {
                table.complain(usize::from(place.donor), seen, Condition::Down, self.now);
            }
            write.sent(is_stored);
            return Actor::Writing { page, write, sending: None };
        }
        match write.step(table, &self.chooser) {
            write::Step::Again => Actor::Writing { page, write, sending: None },
            write::Step::Send { place } => {
                let seen = table.donor(usize::from(place.donor));
                Actor::Writing { page, write, sending: Some((place, seen)) }
            }
            write::Step::Done(outcome) => {
                match outcome {
                    Outcome::Stored { .. } => self.runs[run].oracle.insert(slot, version),
                    _ => self.runs[run].oracle.remove(&slot),
                };
                self.free(run, slot);
                Actor::Idle
            }
        }
    }

    fn go_on_reading(
        &mut self,
        run: usize,
        table: &Table<'_>,
        (slot, tried): (u32, u8),
        at: Option<read::Choice>,
        patience: u32,
    ) -> Result<Actor, String> {
        let extent = slot / 512;
        let Some(choice) = at else {
            let turn = self.dice.below(MAX_COPIES);
            return match read::choose(table, extent, slot, tried, patience > 0, turn) {
                Found::At(choice) => Ok(Actor::Reading { slot, tried, at: Some(choice), patience }),
                Found::Later if patience < 200 => {
                    Ok(Actor::Reading { slot, tried: 0, at: None, patience: patience + 1 })
                }
                Found::Later if self.machines.iter().any(|machine| *machine != Machine::Well) => {
                    // Given up: the program ends. Nobody reads the page any more.
                    self.runs[run].oracle.remove(&slot);
                    self.free(run, slot);
                    Ok(Actor::Idle)
                }
                Found::Later => Ok(Actor::Reading { slot, tried: 0, at: None, patience: 1 }),
                Found::Lost if self.is_gentle => Err(format!("slot {slot} is lost though one donor was ill")),
                Found::Lost => {
                    self.losses += 1;
                    self.runs[run].oracle.remove(&slot);
                    self.free(run, slot);
                    Ok(Actor::Idle)
                }
            };
        };
        let seen = table.donor(usize::from(choice.place.donor));
        let Ok(version) = self.read_from(run, choice.place, slot) else {
            table.complain(usize::from(choice.place.donor), seen, Condition::Suspect, self.now);
            return Ok(Actor::Reading { slot, tried: tried | 1 << choice.copy, at: None, patience });
        };
        if !read::still_counts(table, extent, choice) {
            return Ok(Actor::Reading { slot, tried: 0, at: None, patience });
        }
        let expected = self.runs[run].oracle.get(&slot).copied();
        if version != expected {
            let seen = table.snapshot(extent);
            return Err(format!("slot {slot} has {version:?} at {choice:?} for {expected:?}: {seen:?}"));
        }
        self.reads += 1;
        self.free(run, slot);
        Ok(Actor::Idle)
    }

    /// The supervisor asks each donor.
    fn watch(&mut self, run: usize) {
        let (known, machines) = (&mut self.runs[run], &self.machines);
        for donor in (0..DONORS).filter(|donor| machines[*donor] == Machine::Well) {
            known.known_lives[donor] = known.lives[donor];
        }
        let Run { words, lives, .. } = &self.runs[run];
        let table = Table::open(words).unwrap();
        for (donor, &life) in lives.iter().enumerate() {
            match self.machines[donor] {
                Machine::Well if life != table.donor(donor).life => {
                    while table.donor(donor).life != life {
                        table.begin_life(donor, self.now);
                    }
                    table.set_memory(donor, DONOR_EXTENTS);
                    table.come_up(donor);
                }
                Machine::Well => table.come_up(donor),
                Machine::Frozen | Machine::Dead => {
                    table.complain(donor, table.donor(donor), Condition::Down, self.now);
                }
            }
        }
    }

    fn repair(&mut self, run: usize) {
        let words = std::mem::take(&mut self.runs[run].words);
        let table = Table::open(&words).unwrap().with_bug(self.bug);
        let before = std::mem::replace(&mut self.runs[run].repair, Repair::Idle);
        self.runs[run].repair = match before {
            Repair::Idle => self.plan(run, &table),
            Repair::Stepping { extent, mut rebuild } => match rebuild.step(&table) {
                rebuild::Step::Again => Repair::Stepping { extent, rebuild },
                rebuild::Step::Move { from, to, slots } => {
                    let slots = slots_of(&slots).collect();
                    Repair::Reading { extent, rebuild, from, to, slots }
                }
                rebuild::Step::Done(end) => {
                    self.rebuilt += u64::from(end == rebuild::End::Whole);
                    drop_surplus(&table, extent);
                    Repair::Idle
                }
            },
            Repair::Reading { extent, mut rebuild, from, to, slots } => {
                let pages: Result<Vec<_>, ()> =
                    slots.iter().map(|&slot| Ok((slot, self.read_from(run, from, slot)?))).collect();
                match pages {
                    Ok(pages) => Repair::Writing { extent, rebuild, to, pages },
                    Err(()) => {
                        rebuild.copied(&table, Moved::NotRead);
                        Repair::Stepping { extent, rebuild }
                    }
                }
            }
            Repair::Writing { extent, mut rebuild, to, pages } => {
                let mut moved = Moved::All;
                for (slot, version) in pages {
                    if let Some(version) = version
                        && !self.write_to(run, to, slot, version)
                    {
                        moved = Moved::NotWritten;
                    }
                }
                rebuild.copied(&table, moved);
                Repair::Stepping { extent, rebuild }
            }
        };
        self.runs[run].words = words;
    }

    fn plan(&mut self, run: usize, table: &Table<'_>) -> Repair {
        let found = survey(table, self.now, PATIENCE);
        for extent in found.lost {
            table.clear_extent(extent);
        }
        (0..EXTENTS).for_each(|extent| drop_surplus(table, extent));
        self.runs[run].sweep.look(table, self.now, MOST_LATE + 1);
        let Some(task) = found.tasks.first() else { return Repair::Idle };
        match place_for(table, &self.chooser, task.extent, self.dice.next_u64()) {
            Some((copy, place)) => {
                Repair::Stepping { extent: task.extent, rebuild: Rebuild::new(task.extent, copy, place) }
            }
            None => Repair::Idle,
        }
    }
}

fn first_failure(bug: &'static str, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| World::new(seed, bug).run().err().map(|error| (seed, error)))
}

#[test]
fn no_page_is_wrong_or_lost_and_every_repair_ends() {
    let (mut reads, mut rebuilt, mut losses) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed, "");
        if let Err(error) = world.run() {
            panic!("seed {seed}: {error}");
        }
        (reads, rebuilt, losses) = (reads + world.reads, rebuilt + world.rebuilt, losses + world.losses);
    }
    // The worlds are of use only if much happens in them.
    assert!(reads > 10_000 && rebuilt > 1_000 && losses > 100, "{reads} {rebuilt} {losses}");
}

#[test]
fn planted_mistakes_are_found() {
    let mistakes = [
        "missed-write-not-marked",
        "last-copy-dropped",
        "written-slot-not-dirty",
        "dirty-after-recheck",
        "new-copy-not-written",
        "dirty-slots-not-copied",
        "whole-without-closing",
        "closing-not-checked",
        "rebuilding-copy-read",
        "earlier-life-read",
        "forgotten-slot-read",
        "write-not-announced",
    ];
    // The first half and the second side by side.
    std::thread::scope(|scope| {
        for half in mistakes.chunks(mistakes.len() / 2) {
            scope.spawn(|| half.iter().for_each(|bug| assert_is_found(bug)));
        }
    });
}

fn assert_is_found(bug: &'static str) {
    let found = first_failure(bug, 0..SEEDS_FOR_A_MISTAKE);
    let (seed, _) = found.unwrap_or_else(|| panic!("{bug} is not found"));
    eprintln!("{bug}: seed {seed}");
}

#[test]
fn bars_are_seen_by_who_writes_next() {
    let donors: Vec<NewDonor> =
        (0..2).map(|donor| NewDonor { capacity: 4, domain: donor, text: String::new() }).collect();
    let words: Vec<AtomicU64> = (0..words_of(&donors, 2)).map(|_| AtomicU64::new(0)).collect();
    let table = Table::create(&words, &donors, 2, 2, 1);
    let chooser = Chooser::new(&[0, 1], 2);
    let mut write = Write::new(0, bits_of([3, 4]), 1);
    let outcome = loop {
        match write.step(&table, &chooser) {
            write::Step::Again => {}
            write::Step::Send { .. } => write.sent(false),
            write::Step::Done(outcome) => break outcome,
        }
    };
    assert_eq!(outcome, Outcome::Unreachable);
    let left = without_barred(&table, 0, &bits_of([2, 3, 4, 5]));
    assert_eq!(slots_of(&left).collect::<Vec<_>>(), [2, 5]);
    assert_eq!(slots_of(&table.bits(0, Which::Barred)).collect::<Vec<_>>(), [3, 4]);
}
