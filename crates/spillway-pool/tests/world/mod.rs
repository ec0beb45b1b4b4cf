//! One world: its machines, its runs, what happens to them, and what must hold.

mod actors;
#[path = "../network/cut.rs"]
mod cut;
#[path = "../network/directory.rs"]
mod directory;
mod donors;
#[path = "../network/forks.rs"]
mod forks;
mod supervisor;
mod trouble;

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use spillway_pool::MAX_COPIES;
use spillway_pool::hedge::Race;
use spillway_pool::new_donor::{NewDonor, SPILL_DOMAIN};
use spillway_pool::placement::{Chooser, Dice};
use spillway_pool::read;
use spillway_pool::rebuild::Rebuild;
use spillway_pool::round::Round;
use spillway_pool::survey::{Sweep, Task, left_on, survey};
use spillway_pool::table::{Table, Terms, words_of};
use spillway_pool::words::{Condition, DonorWord, Phase, Place};
use spillway_pool::write::Write;

use cut::{Cut, Reach, Who};
use directory::Directory;
use forks::Forks;

/// Donors that a world begins with, and with those that may join. In some worlds a last resort stands between
/// the two.
const FIRST_DONORS: usize = 4;
const DONORS: usize = 6;
/// At most so many donors die for good.
const MOST_GONE: u64 = 2;
const EXTENTS: u32 = 3;
/// Slots of an extent that are used.
const SLOTS: u32 = 4;
const DONOR_EXTENTS: u32 = 5;
/// Where there is a last resort, donors have too little room for all copies.
const SCARCE_EXTENTS: u32 = 1;
const SPILL_EXTENTS: u32 = 9;
const RUNS: usize = 2;
const WRITERS: usize = 3;
/// Copies that are made anew at the same time.
const REPAIRS: usize = 2;
const STEPS: u64 = 4000;
/// A write comes at most so many steps late.
const MOST_LATE: u64 = 300;
const PATIENCE: u64 = 60;
/// A read at the end takes at most so many steps.
const MOST_READING: u64 = 10_000;
type Version = u64;

/// How a donor's machine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Machine {
    Well,
    Frozen,
    Dead,
    /// Dead, and it never comes back.
    Gone,
    /// Of a last resort: it gives what it has and takes nothing.
    Full,
}

/// What is kept on one donor for one run: by life, extent and slot.
type Memory = HashMap<(u16, u32, u32), Held>;

/// What is kept in one slot, if anything is, and what a donor says of it: as it was written, or a lie. What
/// was copied from a lie is one too.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    version: Option<Version>,
    is_lie: bool,
}

struct Late {
    at: u64,
    donor: usize,
    life: u16,
    extent: u32,
    slot: u32,
    held: Held,
}

#[allow(clippy::large_enum_variant, reason = "there are few of them")]
enum Actor {
    Idle,
    Writing { page: Page, write: Write, sending: Vec<(Place, DonorWord)> },
    Reading(Reading),
}

/// A page that is being read.
struct Reading {
    slot: u32,
    tried: u8,
    race: Option<Race<read::Choice>>,
    /// Of which copies an answer is awaited.
    asked: Vec<read::Choice>,
    patience: u32,
    /// How often it came wrong.
    wrong: u32,
}

/// What a donor says to a read, or nothing at all.
type Answer = Result<Held, ()>;

/// An answer that comes by a connection.
enum Coming {
    /// The donor has said it when it was asked.
    Said(Answer),
    /// The donor says it when it comes: where, and which slot.
    Asked(Place, u32),
}

/// Answers that come by an actor's connections, by donor, in the order in which they were asked for.
type Connections = HashMap<usize, VecDeque<Coming>>;

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
    Writing { extent: u32, rebuild: Rebuild, to: Place, pages: Vec<(u32, Held)> },
}

struct Run {
    words: Vec<AtomicU64>,
    memory: Vec<Memory>,
    late: Vec<Late>,
    actors: Vec<Actor>,
    /// In worlds in which processes fork.
    forks: Option<Forks>,
    directory: Directory,
    connections: Vec<Connections>,
    repairs: Vec<Repair>,
    /// What the last look has found to be made anew.
    round: Round<Task>,
    chooser: Option<Rc<Chooser>>,
    sweep: Sweep,
    /// What each slot must hold.
    oracle: HashMap<u32, Version>,
    busy: Vec<u32>,
    /// Lives of donors as the donor's own machine counts them.
    lives: Vec<u16>,
    /// The same as the supervisor knows them.
    known_lives: Vec<u16>,
    /// Donors that died for good, of which the table says that they are away.
    known_gone: Vec<bool>,
    /// Donors that leave and had nothing left at the last look.
    emptied: Vec<bool>,
}

impl Reading {
    fn of(slot: u32) -> Self {
        Self { slot, tried: 0, race: None, asked: Vec::new(), patience: 0, wrong: 0 }
    }
}

impl Run {
    /// A lie has been said, and not been heard.
    fn awaits_a_lie(&self) -> bool {
        let coming = self.connections.iter().flat_map(HashMap::values).flatten();
        coming.into_iter().any(|coming| matches!(coming, Coming::Said(Ok(said)) if said.is_lie))
    }

    /// Whether those who are at a slot only read it, as parent and child may.
    fn shares(&self, slot: u32) -> bool {
        let writes = |actor: &Actor| matches!(actor, Actor::Writing { page, .. } if page.slot == slot);
        self.forks.is_some() && !self.actors.iter().any(writes)
    }

    /// Nothing is being made anew.
    fn rests(&self) -> bool {
        self.repairs.iter().all(|repair| matches!(repair, Repair::Idle))
    }
}

pub struct World {
    dice: Dice,
    now: u64,
    machines: Vec<Machine>,
    /// Donors that give wrong pages at times.
    lies: Vec<bool>,
    /// Who does not reach which donor.
    cuts: Vec<Option<(usize, Cut)>>,
    /// Who of a run does something now.
    acting: Who,
    /// Donors that are told to leave, by their machines.
    drained: Vec<bool>,
    /// Donors that there are so far, whether or not a run knows them.
    present: usize,
    runs: Vec<Run>,
    bug: &'static str,
    /// The number of the last resort, where there is one.
    spill: Option<usize>,
    /// Copies that are wanted of each extent.
    copies: usize,
    /// Some donors that die never come back.
    some_die: bool,
    /// Those that join are in failure domains of their own.
    joins_apart: bool,
    /// Never more donors ill, or with copies yet to be made, than copies less one.
    is_gentle: bool,
    /// Connections are lost so often that what is written comes twice.
    sends_twice: bool,
    /// Donors are told to leave and to stay again all the time, as if they were short of memory now and then.
    wavers: bool,
    next_version: Version,
    failure: Option<String>,
    pub reads: u64,
    /// Donors that were to leave, and may stay after all.
    pub stayed: u64,
    pub hedged: u64,
    /// Messages of who does not reach a donor that others may reach.
    pub cut_off: u64,
    /// Reads that came wrong.
    pub wrong: u64,
    pub rebuilt: u64,
    pub losses: u64,
    pub joined: u64,
    pub left: u64,
    /// Donors that came while the directory was away.
    pub unheard: u64,
    pub forked: u64,
    pub spilled: u64,
    pub returned: u64,
    /// Donors that never came back.
    pub gone: u64,
}

fn terms(wanted: usize) -> Terms {
    Terms { extents: EXTENTS, wanted, least: 1, joining: DONORS - FIRST_DONORS, coding: None }
}

/// Those that join come into the domains of others, or have their own.
fn new_donor(donor: usize, spill: Option<usize>, joins_apart: bool) -> NewDonor {
    let (domain, capacity) = match spill {
        Some(spill) if spill == donor => (SPILL_DOMAIN, SPILL_EXTENTS),
        _ if joins_apart => (donor as u32, memory_of(spill)),
        _ => ((donor % FIRST_DONORS) as u32, memory_of(spill)),
    };
    NewDonor { capacity, domain, text: format!("d{donor}") }
}

/// Extents of a donor's memory.
fn memory_of(spill: Option<usize>) -> u32 {
    if spill.is_some() { SCARCE_EXTENTS } else { DONOR_EXTENTS }
}

fn slot_of(index: u32) -> u32 {
    index / SLOTS * 512 + index % SLOTS
}

impl World {
    pub fn new(seed: u64, bug: &'static str) -> Self {
        let spill = (seed % 4 == 1).then_some(FIRST_DONORS);
        let present = FIRST_DONORS + usize::from(spill.is_some());
        let all = DONORS + usize::from(spill.is_some());
        let (copies, some_die) = (if seed % 7 < 2 { 3 } else { 2 }, matches!(seed % 7, 1 | 2));
        let joins_apart = some_die && spill.is_none() && seed.is_multiple_of(2);
        let of = |donor| new_donor(donor, spill, joins_apart);
        let donors: Vec<NewDonor> = (0..present).map(of).collect();
        let terms = terms(copies);
        let run = |number: u64| {
            let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
            let _ = Table::create(&words, &donors, terms);
            Run {
                words,
                memory: vec![Memory::new(); all],
                late: Vec::new(),
                actors: (0..WRITERS).map(|_| Actor::Idle).collect(),
                forks: (seed % 11 == 9).then(|| Forks::draw(seed ^ number << 40, WRITERS)),
                directory: Directory::draw(seed ^ number << 40, seed % 11 == 7),
                connections: (0..WRITERS).map(|_| Connections::new()).collect(),
                repairs: (0..REPAIRS).map(|_| Repair::Idle).collect(),
                round: Round::default(),
                chooser: None,
                sweep: Sweep::default(),
                oracle: HashMap::new(),
                busy: Vec::new(),
                lives: vec![1; all],
                known_lives: vec![1; all],
                known_gone: vec![false; all],
                emptied: vec![false; all],
            }
        };
        Self {
            dice: Dice::new(seed),
            now: 1,
            machines: vec![Machine::Well; all],
            lies: vec![false; all],
            cuts: vec![None; all],
            acting: Who::Supervisor,
            drained: vec![false; all],
            present,
            runs: (0..RUNS as u64).map(run).collect(),
            bug,
            spill,
            copies,
            some_die,
            joins_apart,
            is_gentle: !seed.is_multiple_of(3),
            sends_twice: seed % 5 == 2,
            wavers: seed % 5 == 3,
            next_version: 1,
            failure: None,
            reads: 0,
            stayed: 0,
            hedged: 0,
            cut_off: 0,
            wrong: 0,
            rebuilt: 0,
            losses: 0,
            joined: 0,
            left: 0,
            unheard: 0,
            forked: 0,
            spilled: 0,
            returned: 0,
            gone: 0,
        }
    }

    /// What chooses among the donors that a run knows.
    fn chooser(&mut self, run: usize, table: &Table<'_>) -> Rc<Chooser> {
        let known = &mut self.runs[run].chooser;
        match known {
            Some(chooser) if chooser.donors() == table.donors() => Rc::clone(chooser),
            _ => Rc::clone(known.insert(Rc::new(table.chooser()))),
        }
    }

    /// How who acts now in a run reaches a donor.
    fn reach(&self, run: usize, donor: usize) -> Reach {
        let cut = self.cuts[donor].filter(|(of, _)| *of == run);
        cut.map_or(Reach::Both, |(_, cut)| cut.reach(self.acting))
    }

    /// Time passes for directories; processes fork.
    fn fork_some(&mut self) {
        for run in &mut self.runs {
            run.directory.pass(self.now);
            if run.forks.as_mut().is_some_and(Forks::has_forked) {
                run.actors.push(Actor::Idle);
                run.connections.push(Connections::new());
                self.forked += 1;
            }
        }
    }

    /// A number that a process draws.
    fn drawn_by(&mut self, run: usize, actor: usize) -> u64 {
        match &mut self.runs[run].forks {
            Some(forks) => forks.next_of(actor),
            None => self.dice.next_u64(),
        }
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.dice.below(one_in) == 0
    }

    /// Runs the world; what went wrong.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.now += 1;
            self.trouble();
            self.fork_some();
            let run = self.dice.below(RUNS);
            self.land_late(run);
            let writers = self.runs[run].actors.len();
            match self.dice.below(writers + 3) {
                actor if actor < writers => self.act(run, actor)?,
                actor if actor == writers => self.watch(run),
                _ => self.repair(run),
            }
        }
        self.settle()?;
        if self.some_die {
            // Nothing is written after that: what is on them stays named.
            let donor = self.dice.below(self.present);
            self.die_for_good(donor);
            self.settle()?;
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// All donors come back that ever do; every repair must end, and every page must be there.
    fn settle(&mut self) -> Result<(), String> {
        for machine in self.machines.iter_mut().filter(|machine| **machine != Machine::Gone) {
            *machine = Machine::Well;
        }
        self.lies.fill(false);
        self.cuts.fill(None);
        self.runs.iter_mut().for_each(|run| run.directory.stay());
        // The last may still be leaving, and there must be room for what it has: no more are gone then.
        let last = self.drained.iter().rposition(|is_drained| *is_drained && !self.is_someone_gone());
        (0..self.machines.len()).for_each(|donor| self.drained[donor] = Some(donor) == last);
        for run in 0..RUNS {
            for step in 0..20_000 {
                // Nothing comes late any more, and nothing is left to do.
                if step > 2 * MOST_LATE && step % 500 == 0 && self.is_settled(run) {
                    break;
                }
                self.now += 1;
                self.land_late(run);
                let actor = self.dice.below(self.runs[run].actors.len());
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
            if !self.is_all_made(&table, &found.tasks) || !self.runs[run].rests() {
                return Err(format!("a repair does not end: {found:?}"));
            }
            self.drains_are_over(&table)?;
            self.are_used_again(&table)?;
            self.are_all_met(&table)?;
            self.copies_are_apart(&table)?;
            let returns = survey(&Table::open(&words).unwrap(), self.now, PATIENCE).returns;
            if !returns.is_empty() {
                return Err(format!("the last resort keeps what donors have room for: {returns:?}"));
            }
            self.runs[run].words = words;
            let slots: Vec<u32> = self.runs[run].oracle.keys().copied().collect();
            for slot in slots {
                if self.runs[run].busy.contains(&slot) {
                    continue;
                }
                self.runs[run].actors[0] = Actor::Reading(Reading::of(slot));
                self.runs[run].busy.push(slot);
                for step in 0.. {
                    if !matches!(self.runs[run].actors[0], Actor::Reading(_)) {
                        break;
                    }
                    if step > MOST_READING {
                        return Err(format!("a read of slot {slot} does not end"));
                    }
                    self.act(run, 0)?;
                }
            }
        }
        Ok(())
    }

    fn is_settled(&self, run: usize) -> bool {
        let Run { words, actors, .. } = &self.runs[run];
        let table = Table::open(words).unwrap();
        let mut found = survey(&table, self.now, PATIENCE);
        self.is_all_made(&table, &std::mem::take(&mut found.tasks))
            && found.work(1).is_empty()
            && self.drains_are_over(&table).is_ok()
            && self.runs[run].rests()
            && actors.iter().all(|actor| matches!(actor, Actor::Idle))
    }

    /// Whether every copy that is wanted is there. Where donors died for good, what is left need only have as
    /// many as there are failure domains with room.
    fn is_all_made(&self, table: &Table<'_>, tasks: &[Task]) -> bool {
        let is_there = |donor: &usize| self.machines[*donor] != Machine::Gone;
        let can_take = |extent: u32| {
            let seen = table.snapshot(extent);
            let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy));
            let holders = whole.filter_map(|copy| seen.places[copy]).map(|place| usize::from(place.donor));
            let has: Vec<usize> = holders.filter(is_there).map(|donor| self.domain(donor)).collect();
            // Who has more than all extents has room, if not at once.
            let is_ample = |donor: &usize| table.room(*donor).0 > EXTENTS;
            let has_room = |donor: &usize| is_ample(donor) || table.room(*donor).1 < table.room(*donor).0;
            let mut with_room = (0..table.donors()).filter(is_there).filter(has_room);
            with_room.any(|donor| !has.contains(&self.domain(donor)))
        };
        match self.is_someone_gone() {
            true => !tasks.iter().any(|task| can_take(task.extent)),
            false => tasks.is_empty(),
        }
    }

    /// Donors that may stay after all are as any other, if they say so before they die.
    fn are_used_again(&self, table: &Table<'_>) -> Result<(), String> {
        let is_closed = |donor: &usize| !self.drained[*donor] && table.is_leaving(*donor);
        let is_there = |donor: &usize| self.machines[*donor] != Machine::Gone;
        let closed = (0..table.donors()).filter(is_there).find(is_closed);
        closed
            .map_or(Ok(()), |donor| Err(format!("donor {donor} may stay, and is taken for one that leaves")))
    }

    /// Of donors that have come a run knows each that is there.
    fn are_all_met(&self, table: &Table<'_>) -> Result<(), String> {
        let is_there = |donor: &usize| self.machines[*donor] == Machine::Well && !self.drained[*donor];
        match (table.donors()..self.present).next().filter(is_there) {
            Some(donor) => Err(format!("donor {donor} has come, and is not known")),
            None => Ok(()),
        }
    }

    fn drains_are_over(&self, table: &Table<'_>) -> Result<(), String> {
        for donor in (0..table.donors()).filter(|donor| self.drained[*donor]) {
            if table.room(donor).0 > 0 {
                return Err(format!("donor {donor} is not left: {:?}", left_on(table, donor)));
            }
        }
        Ok(())
    }

    /// The failure domain of a donor by its name, since the table may have it wrong.
    fn domain(&self, donor: usize) -> usize {
        match donor {
            donor if Some(donor) == self.spill => DONORS,
            donor if self.joins_apart => donor,
            donor => donor % FIRST_DONORS,
        }
    }

    /// No two copies are in one domain, unless so many donors died that there are too few domains.
    fn copies_are_apart(&self, table: &Table<'_>) -> Result<(), String> {
        let there = (0..table.donors()).filter(|donor| self.machines[*donor] != Machine::Gone);
        let domains_left: HashSet<usize> = there.map(|donor| self.domain(donor)).collect();
        let may_share = self.is_someone_gone() && domains_left.len() < self.copies;
        for extent in 0..EXTENTS {
            let seen = table.snapshot(extent);
            let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy));
            let places = whole.filter_map(|copy| seen.places[copy]);
            let domains: Vec<usize> = places.map(|place| self.domain(usize::from(place.donor))).collect();
            let is_apart = domains.iter().enumerate().all(|(at, domain)| !domains[..at].contains(domain));
            let is_borne = may_share && domains.len() <= self.copies;
            if !is_apart && !is_borne {
                return Err(format!("extent {extent} has two copies in one domain: {seen:?}"));
            }
        }
        Ok(())
    }
}
