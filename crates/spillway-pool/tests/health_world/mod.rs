//! One world with a clock: its donors, who asks them, when, and what must hold at which time.

#[path = "../network/cut.rs"]
mod cut;
mod donors;
mod promises;
mod readers;
mod watchers;
mod workers;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use spillway_pool::bits::bits_of;
use spillway_pool::new_donor::NewDonor;
use spillway_pool::placement::Dice;
use spillway_pool::table::{Table, Terms, words_of};
use spillway_pool::words::Condition;
use spillway_pool::write::{Step, Write};

use donors::{Answer, Asker, Donor, Request};
use promises::Promises;
use readers::Reader;
use watchers::Watcher;
use workers::Crew;

const DONORS: usize = 4;
const DONOR_EXTENTS: u32 = 12;
const EXTENTS: u32 = 6;
/// Slots of an extent that hold a page.
const LIVE_SLOTS: u32 = 200;
const READERS: usize = 3;

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;
/// Until then donors get into trouble.
const TROUBLE_US: u64 = 20 * SECOND;
/// From then on all are well, and by the end all is as it was.
const END_US: u64 = 80 * SECOND;
/// Sooner than that the world does not end.
const LEAST_END_US: u64 = 31 * SECOND;
const MEAN_TROUBLE_US: u64 = 700 * MS;
/// How often the user's promises are looked at where nothing happens.
const GLANCE_US: u64 = 20 * MS;

/// What happens at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Glance,
    Trouble,
    /// A donor gets better, unless something else has happened to it since.
    Recovery(usize, u32),
    /// The watcher of a donor asks it, or goes on beginning a new life of it.
    Watch(usize),
    BeginLife(usize),
    /// A reader reads on.
    Read(usize),
    /// A donor of which an answer is awaited has been silent for longer than is usual for it.
    Silent(usize, u64),
    /// The supervisor looks the table over; a worker goes on.
    Survey,
    Work(usize),
    /// An answer comes; or it is not waited for any longer.
    Answer(Request, Answer),
    TimeUp(Request),
}

/// What is drawn for a world.
struct Shape {
    /// How long a donor is waited for at most.
    timeout_us: u64,
    bytes_per_s: u64,
    /// One message of so many is lost on its way, and sent once more.
    loses_one_in: usize,
    /// Now and then an answer takes four times as long.
    has_outliers: bool,
    /// No donor gets into any trouble.
    is_calm: bool,
    /// Readers rest for so long between two pages.
    gap_us: u64,
    /// They pause now and then.
    has_pauses: bool,
}

pub struct World {
    dice: Dice,
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Events and requests so far, so that each has its number.
    number: u64,
    words: Rc<Vec<AtomicU64>>,
    bug: &'static str,
    shape: Shape,
    donors: Vec<Donor>,
    watchers: Vec<Watcher>,
    readers: Vec<Reader>,
    crew: Crew,
    promises: Promises,
    pub counts: Counts,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    pub hedged: u64,
    pub died: u64,
    pub stalled: u64,
    pub cut_off: u64,
    pub slowed: u64,
    pub went_down: u64,
    pub came_up: u64,
    pub lives: u64,
    pub suspected: u64,
    pub chunks: u64,
    pub yielded: u64,
    pub copies: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.hedged += other.hedged;
        self.died += other.died;
        self.stalled += other.stalled;
        self.cut_off += other.cut_off;
        self.slowed += other.slowed;
        self.went_down += other.went_down;
        self.came_up += other.came_up;
        self.lives += other.lives;
        self.suspected += other.suspected;
        self.chunks += other.chunks;
        self.yielded += other.yielded;
        self.copies += other.copies;
    }
}

fn terms() -> Terms {
    Terms { extents: EXTENTS, wanted: 2, least: 1, joining: 0, coding: None }
}

fn new_donor(donor: usize) -> NewDonor {
    NewDonor { capacity: DONOR_EXTENTS, domain: donor as u32, text: format!("d{donor}") }
}

/// One of these, by chance.
fn one_of<T: Copy>(dice: &mut Dice, all: &[T]) -> T {
    all[dice.below(all.len())]
}

impl Shape {
    fn draw(seed: u64, dice: &mut Dice) -> Self {
        Self {
            timeout_us: one_of(dice, &[300 * MS, SECOND, 2 * SECOND]),
            bytes_per_s: one_of(dice, &[2_000_000, 8_000_000, 40_000_000, 400_000_000]),
            loses_one_in: one_of(dice, &[0, 0, 300, 3_000]),
            has_outliers: dice.below(2) == 0,
            is_calm: seed % 8 == 7,
            gap_us: one_of(dice, &[2 * MS, 8 * MS, 40 * MS]),
            has_pauses: dice.below(2) == 0,
        }
    }
}

impl World {
    pub fn new(seed: u64, bug: &'static str) -> Self {
        let mut dice = Dice::new(seed ^ 0x5_0000_0000);
        let new: Vec<NewDonor> = (0..DONORS).map(new_donor).collect();
        let words: Vec<AtomicU64> = (0..words_of(&new, terms())).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &new, terms());
        let shape = Shape::draw(seed, &mut dice);
        let donors = (0..DONORS).map(|_| Donor::draw(&mut dice)).collect();
        let watchers = (0..DONORS).map(|_| Watcher::new(shape.timeout_us, bug)).collect();
        let mut world = Self {
            dice,
            now_us: 0,
            events: BinaryHeap::new(),
            number: 0,
            words: Rc::new(words),
            bug,
            donors,
            watchers,
            readers: (0..READERS).map(|_| Reader::default()).collect(),
            crew: Crew::new(shape.bytes_per_s, bug),
            promises: Promises::default(),
            shape,
            counts: Counts::default(),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        (0..EXTENTS).for_each(|extent| self.fill(extent));
        (0..DONORS).for_each(|donor| self.note_change(donor));
        for donor in 0..DONORS {
            let wait_us = self.dice.below(100 * MS as usize) as u64;
            self.after(wait_us, Event::Watch(donor));
        }
        (0..READERS).for_each(|reader| self.after(50 * MS, Event::Read(reader)));
        self.after(MS, Event::Glance);
        self.after(SECOND, Event::Trouble);
        self.after(200 * MS, Event::Survey);
    }

    fn chance(&mut self, one_in: usize) -> bool {
        one_in > 0 && self.dice.below(one_in) == 0
    }

    fn after(&mut self, wait_us: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((self.now_us + wait_us, self.number, event)));
    }

    fn words(&self) -> Rc<Vec<AtomicU64>> {
        Rc::clone(&self.words)
    }

    fn table<'a>(&self, words: &'a [AtomicU64]) -> Table<'a> {
        Table::known(words).with_bug(self.bug)
    }

    fn now_ms(&self) -> u64 {
        1 + self.now_us / MS
    }

    /// Writes pages of an extent to all donors that it gets.
    fn fill(&mut self, extent: u32) {
        let words = self.words();
        let table = self.table(&words);
        let chooser = table.chooser();
        let mut write = Write::new(extent, bits_of(0..LIVE_SLOTS), self.dice.next_u64());
        loop {
            match write.step(&table, &chooser) {
                Step::Send { place } => write.sent(place, true),
                Step::Done(_) => return,
                Step::Again | Step::Wait => {}
            }
        }
    }

    /// Runs the world; what went wrong.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(Reverse((at_us, _, event))) = self.events.pop() {
            if at_us > END_US {
                break;
            }
            self.now_us = at_us;
            self.happen(event).and_then(|()| self.keep_promises()).map_err(|error| {
                format!("at {}.{:06} s: {error}", self.now_us / SECOND, self.now_us % SECOND)
            })?;
            if event == Event::Glance && self.now_us > LEAST_END_US && self.is_as_it_was().is_ok() {
                break;
            }
        }
        self.is_as_it_was()
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Glance => self.after(GLANCE_US, Event::Glance),
            Event::Trouble => self.trouble(),
            Event::Recovery(donor, troubles) => self.recover(donor, troubles),
            Event::Watch(donor) => self.watch(donor),
            Event::BeginLife(donor) => self.go_on_beginning(donor),
            Event::Read(reader) => self.read(reader)?,
            Event::Silent(reader, number) => self.hedge(reader, number)?,
            Event::Survey => self.survey(),
            Event::Work(worker) => self.work(worker)?,
            Event::Answer(request, answer) => {
                if let Some(answer) = self.arrive(request, answer) {
                    self.hear(request, answer)?;
                }
            }
            Event::TimeUp(request) => self.hear(request, Answer::None)?,
        }
        Ok(())
    }

    fn hear(&mut self, request: Request, answer: Answer) -> Result<(), String> {
        match request.who {
            Asker::Watcher => {
                self.hear_watched(request, answer);
                Ok(())
            }
            Asker::Reader(reader) => self.hear_read(reader, request, answer),
            Asker::Worker(worker) => self.hear_copied(worker, request, answer),
        }
    }

    /// At its end every donor is used, every copy is there, and nobody is late who is as quick as others.
    fn is_as_it_was(&self) -> Result<(), String> {
        let words = self.words();
        let table = Table::known(&words);
        for donor in 0..DONORS {
            if table.donor(donor).condition != Condition::Up || table.room(donor).0 == 0 {
                return Err(format!("at the end donor {donor} is not used: {:?}", table.donor(donor)));
            }
        }
        let left = spillway_pool::survey::survey(&table, self.now_ms(), 0).tasks;
        if !left.is_empty() {
            return Err(format!("a repair does not end: {left:?}"));
        }
        self.are_hedges_few()
    }
}
