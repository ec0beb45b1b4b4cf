//! One world of coded pages: its machines, its run, what happens to them, and what must hold.

mod actors;
#[path = "../network/cut.rs"]
mod cut;
#[path = "../network/directory.rs"]
mod directory;
mod discards;
#[path = "../network/forks.rs"]
mod forks;
mod keeper;
mod mover;
mod processes;
mod reading;
mod second_run;
mod settling;
mod trouble;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;

use spillway_pool::code::Code;
use spillway_pool::new_donor::{NewDonor, SPILL_DOMAIN};
use spillway_pool::placement::{Chooser, Dice};
use spillway_pool::slabs::append::Append;
use spillway_pool::slabs::census::{Census, Reason, judge};
use spillway_pool::slabs::hope::RoomWait;
use spillway_pool::slabs::reclaim::{Reclaim, parts_left_on};
use spillway_pool::slabs::room::{Coding, MAX_PARTS};
use spillway_pool::slabs::words::{Seat, SlabPhase};
use spillway_pool::table::{Table, Terms, words_of};
use spillway_pool::words::Place;

use cut::{Cut, Reach, Who};
use directory::Directory;
use forks::Forks;
use keeper::Keeper;
use reading::{Answer, Connections, Reader};
use waiting::Hopes;

/// Donors that a world begins with, and with those that may join.
const FIRST_DONORS: usize = 7;
const DONORS: usize = 10;
/// Donors that may join.
const JOINING: usize = 2;
/// The number of the last resort in worlds that have one.
const SPILL: usize = FIRST_DONORS;
const DATA: usize = 3;
const PARITY: usize = 2;
const PARTS: usize = DATA + PARITY;
const SLABS: u32 = 12;
/// The same in worlds where donors have room for more slabs than there are numbers.
const FEW_SLABS: u32 = 9;
const ROWS: u16 = 6;
const SLOTS: u32 = 36;
const DONOR_EXTENTS: u32 = 7;
/// The same in worlds with a last resort, where donors do not suffice.
const FEW_EXTENTS: u32 = 4;
/// What the last resort holds, in worlds where it is large and where it is small.
const SPILL_EXTENTS: u32 = 40;
const FEW_SPILL_EXTENTS: u32 = 9;
const ACTORS: usize = 4;
const STEPS: u64 = 6000;
/// A write comes at most so many steps late.
const MOST_LATE: u64 = 400;
/// A thread stands still for at most so many steps, and then goes on.
const MOST_STOPPED: u64 = 200;
/// After so long nothing comes late any more.
const SWEEP_PATIENCE: u64 = MOST_LATE + MOST_STOPPED + 1;
/// Who still writes to a slab in which nothing lives is waited for for so long.
const WRITE_PATIENCE: u64 = 40;
/// A donor that is away counts as one that comes back for so long.
const PATIENCE: u64 = 60;

/// A page: which slot's, and which version of it.
type Page = [u8; 16];
/// What is kept on one donor: by life, extent and row.
type Memory = HashMap<(u16, u32, u16), Page>;

fn page_of(slot: u32, version: u64) -> Page {
    let mut page = [0; 16];
    page[..8].copy_from_slice(&(u64::from(slot) + 1).to_le_bytes());
    page[8..].copy_from_slice(&version.to_le_bytes());
    page
}

fn check_of(page: &Page) -> u32 {
    let words = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| page[at + byte])));
    // One after the other: what donors change in both words alike, as two lies may, is to be seen.
    let first = Dice::new(words[0]).next_u64();
    Dice::new(first ^ words[1]).next_u64() as u32 | 1
}

/// How a donor's machine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Machine {
    Well,
    Frozen,
    Dead,
}

/// What a donor does late: it stores a page, or forgets a whole extent.
enum Deed {
    Store((u16, u32, u16), Page),
    Discard(Place),
}

struct Late {
    at: u64,
    donor: usize,
    deed: Deed,
}

/// One page on its way to a donor.
type Message = (usize, Place, u16, Page);

/// Pages on their way to a slab's parts.
struct Sending {
    left: Vec<Message>,
    has_failed: bool,
    /// Parts to which something may come late, a bit each.
    late: u16,
}

impl Sending {
    fn of(left: Vec<Message>) -> Self {
        Self { left, has_failed: false, late: 0 }
    }
}

/// What who sends a page to a donor knows then.
struct Sent {
    is_stored: bool,
    /// Something was sent by a connection that has not answered.
    may_come_late: bool,
}

/// Pages that are being written: which, and since when room is waited for.
struct Writing {
    append: Append,
    pages: Vec<(u32, u64)>,
    sending: Option<Sending>,
    wait: RoomWait,
}

#[allow(clippy::large_enum_variant, reason = "there are few of them")]
enum Actor {
    Idle,
    Writing(Writing),
    Reading(Reader),
}

pub struct World {
    dice: Dice,
    /// Another run on the same donors, in some worlds.
    second: Option<Box<World>>,
    now: u64,
    code: Code,
    words: Vec<AtomicU64>,
    machines: Vec<Machine>,
    /// Donors that give wrong pages at times.
    lies: Vec<bool>,
    /// Who does not reach which donor.
    cuts: Vec<Option<Cut>>,
    /// Who of the run does something now.
    acting: Who,
    drained: Vec<bool>,
    present: usize,
    /// Extents of each donor.
    extents: u32,
    has_spill: bool,
    /// It takes no pages now.
    spill_refuses: bool,
    memory: Vec<Memory>,
    late: Vec<Late>,
    lives: Vec<u16>,
    actors: Vec<Actor>,
    connections: Vec<Connections>,
    /// By actor: until when it stands still.
    stopped: Vec<u64>,
    /// In worlds in which processes fork.
    forks: Option<Forks>,
    directory: Directory,
    keeper: Keeper,
    hopes: Hopes,
    /// What each slot must hold.
    oracle: BTreeMap<u32, u64>,
    busy: Vec<u32>,
    bug: &'static str,
    /// The supervisor lives on: what it waits for, it knows.
    is_settling: bool,
    /// Never more parts of a slab ill than there is parity.
    is_gentle: bool,
    /// Connections are lost so often that what is written comes twice.
    sends_twice: bool,
    /// Donors are told to leave and to stay again all the time, as if they were short of memory now and then.
    wavers: bool,
    next_version: u64,
    pub reads: u64,
    pub decoded: u64,
    /// Donors that were to leave, and may stay after all.
    pub stayed: u64,
    pub hedged: u64,
    /// Requests that hedges took.
    asked_beside: u64,
    /// Messages of who does not reach a donor that others may reach.
    pub cut_off: u64,
    pub moved: u64,
    /// Steps of a worker while another was at work too.
    pub beside: u64,
    /// Pages that were moved and had to be decoded.
    pub gathered: u64,
    pub freed: u64,
    pub discarded: u64,
    pub compacted: u64,
    pub spilled: u64,
    /// Looks that found a last resort full.
    pub full: u64,
    pub losses: u64,
    pub joined: u64,
    pub left: u64,
    /// Donors that came while the directory was away.
    pub unheard: u64,
    pub forked: u64,
    /// Writes that waited for room in vain, and that were refused since others had.
    pub vain: u64,
    pub refused: u64,
    /// Looks that found no room and nothing to be done for it.
    pub looked_in_vain: u64,
}

fn terms(slabs: u32) -> Terms {
    let coding = Coding { data: DATA, parity: PARITY, slabs, slots: SLOTS, rows: ROWS };
    Terms { extents: 0, wanted: PARTS, least: DATA, joining: JOINING, coding: Some(coding) }
}

fn new_donor(donor: usize, capacity: u32) -> NewDonor {
    let domain = (donor % FIRST_DONORS) as u32;
    NewDonor { capacity, domain, text: format!("d{donor}") }
}

impl World {
    pub fn new(seed: u64, bug: &'static str) -> Self {
        let second = (seed % 6 == 5).then(|| Box::new(Self::of_one_run(seed, !seed, bug)));
        Self { second, ..Self::of_one_run(seed, seed, bug) }
    }

    fn of_one_run(seed: u64, dice: u64, bug: &'static str) -> Self {
        let has_spill = seed % 4 == 1;
        let extents = if has_spill { FEW_EXTENTS } else { DONOR_EXTENTS };
        let mut donors: Vec<NewDonor> = (0..FIRST_DONORS).map(|donor| new_donor(donor, extents)).collect();
        if has_spill {
            let is_small = seed % 8 == 5;
            let capacity = if is_small { FEW_SPILL_EXTENTS } else { SPILL_EXTENTS };
            let domain = SPILL_DOMAIN;
            donors.push(NewDonor { capacity, domain, text: String::new() });
        }
        let terms = terms(if seed % 7 == 4 { FEW_SLABS } else { SLABS });
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, terms);
        Self {
            dice: Dice::new(dice),
            second: None,
            now: 1,
            code: Code::new(DATA, PARITY).unwrap(),
            words,
            machines: vec![Machine::Well; DONORS],
            lies: vec![false; DONORS],
            cuts: vec![None; DONORS],
            acting: Who::Supervisor,
            drained: vec![false; DONORS],
            present: donors.len(),
            extents,
            has_spill,
            spill_refuses: false,
            memory: vec![Memory::new(); DONORS],
            late: Vec::new(),
            lives: vec![1; DONORS],
            actors: (0..ACTORS).map(|_| Actor::Idle).collect(),
            connections: (0..ACTORS).map(|_| Connections::new()).collect(),
            stopped: vec![0; ACTORS],
            forks: (seed % 22 == 19).then(|| Forks::draw(dice, ACTORS)),
            directory: Directory::draw(dice, seed % 22 == 8),
            keeper: Keeper::default(),
            hopes: Hopes::default(),
            oracle: BTreeMap::new(),
            busy: Vec::new(),
            bug,
            is_settling: false,
            is_gentle: !seed.is_multiple_of(3),
            sends_twice: seed % 5 == 2,
            wavers: seed % 5 == 3,
            next_version: 1,
            reads: 0,
            decoded: 0,
            stayed: 0,
            hedged: 0,
            asked_beside: 0,
            cut_off: 0,
            moved: 0,
            beside: 0,
            gathered: 0,
            freed: 0,
            discarded: 0,
            compacted: 0,
            spilled: 0,
            full: 0,
            losses: 0,
            joined: 0,
            left: 0,
            unheard: 0,
            forked: 0,
            vain: 0,
            refused: 0,
            looked_in_vain: 0,
        }
    }

    /// How who acts now reaches a donor.
    fn reach(&self, donor: usize) -> Reach {
        self.cuts[donor].map_or(Reach::Both, |cut| cut.reach(self.acting))
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.dice.below(one_in) == 0
    }

    /// Does something with the table.
    fn with_table<R>(&mut self, act: impl FnOnce(&mut Self, &Table<'_>) -> R) -> R {
        let words = std::mem::take(&mut self.words);
        let result = act(self, &Table::open(&words).unwrap().with_bug(self.bug));
        self.words = words;
        result
    }

    /// Runs the world; what went wrong.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.now += 1;
            self.with_table(|world, table| world.trouble(table));
            if self.second.is_some() && self.chance(2) {
                self.with_second(World::step)?;
            } else {
                self.step()?;
            }
        }
        self.with_table(|world, table| world.settle(table))?;
        self.with_second(|second| second.with_table(|world, table| world.settle(table)))
    }

    /// One step of the run.
    fn step(&mut self) -> Result<(), String> {
        self.with_table(|world, table| world.land_late(table))?;
        self.fork_some();
        let actors = self.actors.len();
        match self.dice.below(actors + 5) {
            actor if actor < actors => self.with_table(|world, table| world.act(table, actor))?,
            actor if actor == actors => self.with_table(|world, table| world.watch(table)),
            _ => self.with_table(|world, table| world.keep(table))?,
        }
        self.with_table(|world, table| world.note_changes(table));
        Ok(())
    }

    fn is_away(&self, donor: usize) -> bool {
        self.machines[donor] != Machine::Well || self.cuts[donor].is_some()
    }

    fn is_spill(&self, donor: usize) -> bool {
        self.has_spill && donor == SPILL
    }

    fn land_late(&mut self, table: &Table<'_>) -> Result<(), String> {
        let mut at = 0;
        while at < self.late.len() {
            let due = &self.late[at];
            if due.at > self.now || self.machines[due.donor] != Machine::Well {
                at += 1;
                continue;
            }
            match self.late.swap_remove(at) {
                Late { donor, deed: Deed::Store(key, page), .. } => {
                    self.may_be_stored(table, donor, key, &page)?;
                    self.memory[donor].insert(key, page);
                }
                Late { deed: Deed::Discard(place), .. } => self.forget_extent(table, place)?,
            }
        }
        Ok(())
    }

    /// What comes late never comes over a page that counts.
    fn may_be_stored(
        &self,
        table: &Table<'_>,
        donor: usize,
        (life, extent, row): (u16, u32, u16),
        page: &Page,
    ) -> Result<(), String> {
        let place = Place { donor: donor as u8, life, extent };
        let is_hit = |(slot, version): &(&u32, &u64)| {
            let Some(seat) = table.seat(**slot).filter(|seat| seat.row == row) else { return false };
            let seen = table.see_slab(seat.slab);
            let is_there = seen.word.generation == seat.generation && table.is_current(place);
            let is_free = !self.busy.contains(slot) && page_of(**slot, **version) != *page;
            is_there && is_free && seen.places[usize::from(seat.part)] == Some(place)
        };
        match self.oracle.iter().find(is_hit) {
            Some((slot, _)) => Err(format!("{page:?} comes late over slot {slot} at {place:?}, row {row}")),
            None => Ok(()),
        }
    }

    /// Whether a donor serves this life of the run: else it says that it knows nothing of it.
    fn serves(&self, place: Place) -> bool {
        let donor = usize::from(place.donor);
        let is_mistaken = self.bug == "earlier-part-gathered";
        self.machines[donor] == Machine::Well && (self.lives[donor] == place.life || is_mistaken)
    }

    fn write_to(&mut self, place: Place, row: u16, page: Page) -> Sent {
        let (donor, key) = (usize::from(place.donor), (place.life, place.extent, row));
        if self.is_spill(donor) {
            if !self.spill_refuses {
                self.memory[donor].insert(key, page);
                self.spilled += 1;
            }
            return Sent { is_stored: !self.spill_refuses, may_come_late: false };
        }
        let reach = self.reach(donor);
        if reach != Reach::Both && self.serves(place) {
            self.cut_off += 1;
            if reach == Reach::There {
                self.memory[donor].insert(key, page);
            } else if self.chance(2) {
                // It is sent again and again, and comes once that is over.
                self.delay(donor, key, page);
            }
            return Sent { is_stored: false, may_come_late: reach == Reach::None };
        }
        if self.serves(place) {
            let is_lost = !self.is_settling && self.chance(50);
            let is_sent_twice = self.sends_twice && !is_lost && !self.is_settling && self.chance(20);
            if is_sent_twice {
                // By a connection that was lost, and by another: it comes once more.
                let at = self.now + MOST_LATE / 2 + self.dice.below(MOST_LATE as usize / 2) as u64;
                self.late.push(Late { at, donor, deed: Deed::Store(key, page) });
            }
            match self.dice.below(5) {
                _ if !is_lost => {
                    self.memory[donor].insert(key, page);
                }
                0 => {
                    self.memory[donor].insert(key, page);
                }
                1..4 => self.delay(donor, key, page),
                _ => {}
            }
            return Sent { is_stored: !is_lost, may_come_late: is_lost || is_sent_twice };
        }
        // One that is dead, or is there again with nothing, refuses the connection.
        let is_frozen = self.machines[donor] == Machine::Frozen && self.lives[donor] == place.life;
        if is_frozen {
            self.delay(donor, key, page);
        }
        Sent { is_stored: false, may_come_late: is_frozen }
    }

    fn delay(&mut self, donor: usize, key: (u16, u32, u16), page: Page) {
        let at = self.now + self.dice.below(MOST_LATE as usize) as u64;
        self.late.push(Late { at, donor, deed: Deed::Store(key, page) });
    }

    /// `Err` where there is no answer; zeros where the donor holds nothing there.
    fn read_from(&mut self, place: Place, row: u16) -> Answer {
        let donor = usize::from(place.donor);
        let is_lost = !self.is_settling && !self.is_spill(donor) && self.chance(60);
        if self.reach(donor) != Reach::Both {
            self.cut_off += 1;
            return Err(());
        }
        if !self.serves(place) || is_lost {
            return Err(());
        }
        let mut page = self.memory[donor].get(&(place.life, place.extent, row)).copied().unwrap_or_default();
        let is_lie = self.lies[donor] && self.chance(2);
        if is_lie {
            page[self.dice.below(16)] ^= 1 << self.dice.below(8);
        }
        Ok((page, is_lie))
    }

    /// The page of a part that these others give, and those that are zeros.
    fn decode(&self, part: usize, zero_parts: u16, came: &[(usize, Page)]) -> Page {
        let zeros = [0; 16];
        let mut sources: [Option<&[u8]>; MAX_PARTS] = [None; MAX_PARTS];
        (0..DATA).filter(|part| zero_parts >> part & 1 == 1).for_each(|part| sources[part] = Some(&zeros));
        came.iter().for_each(|(part, page)| sources[*part] = Some(page));
        let mut page = [0; 16];
        assert!(self.code.decode(&sources[..PARTS], part, &mut page));
        page
    }

    /// What a write of these pages sends.
    fn messages(&self, sending: &spillway_pool::slabs::append::Sending, pages: &[Page]) -> Vec<Message> {
        use spillway_pool::slabs::append::seat_of;
        let mut messages = Vec::new();
        let mut rows: BTreeMap<u16, [Page; DATA]> = BTreeMap::new();
        for (index, page) in pages.iter().enumerate().take(sending.pages) {
            let seat = seat_of(&sending.rows, DATA, index);
            rows.entry(seat.row).or_default()[usize::from(seat.part)] = *page;
            if let Some(place) = sending.places[usize::from(seat.part)] {
                messages.push((usize::from(seat.part), place, seat.row, *page));
            }
        }
        for (row, data) in rows {
            let mut parity = [[0; 16]; PARITY];
            let data: Vec<&[u8]> = data.iter().map(|page| &page[..]).collect();
            let mut out: Vec<&mut [u8]> = parity.iter_mut().map(|page| &mut page[..]).collect();
            assert!(self.code.encode(&data, &mut out));
            for (number, page) in parity.into_iter().enumerate() {
                if let Some(place) = sending.places[DATA + number] {
                    messages.push((DATA + number, place, row, page));
                }
            }
        }
        messages
    }

    fn chooser(table: &Table<'_>) -> Chooser {
        table.chooser()
    }
}
