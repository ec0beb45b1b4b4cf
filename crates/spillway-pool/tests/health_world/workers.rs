//! The supervisor's workers that make copies anew, at the pace that they keep together: as in a run, each
//! asks before it begins a copy, and rests before each chunk.

use super::*;
use spillway_core::page::PAGE_SIZE;
use spillway_pool::bits::slots_of;
use spillway_pool::pace::Pace;
use spillway_pool::rebuild::{self, End, Moved, Rebuild};
use spillway_pool::round::Round;
use spillway_pool::survey::{Sweep, Task, drop_surplus, place_for, survey};
use spillway_pool::words::{DonorWord, Phase, Place};

pub(super) const WORKERS: usize = 4;
/// How often the table is looked over; an extent of which a donor is away is made anew after so long.
pub(super) const SURVEY_PERIOD_US: u64 = 200 * MS;
const AWAY_PATIENCE_MS: u64 = 2_000;
const MOST_TASKS: usize = 32;
/// Memory that nobody names is free after so long.
const SWEEP_PATIENCE_MS: u64 = 4_000;

/// Where a chunk goes.
#[derive(Clone, Copy)]
struct Chunk {
    from: Place,
    to: Place,
    pages: u64,
    begun_us: u64,
    /// By whom it is being read or written now, as known when that was asked; and by which number.
    word: DonorWord,
    awaited: u64,
    is_read: bool,
}

enum Job {
    /// It has left the round.
    Off,
    /// It is about to take something up.
    Idle,
    /// It rests before a chunk.
    Resting(Box<Rebuild>, Chunk),
    Copying(Box<Rebuild>, Chunk),
}

pub(super) struct Crew {
    pace: Pace,
    jobs: Vec<Job>,
    /// The extent that each makes anew.
    extents: [u32; WORKERS],
    round: Round<Task>,
    copies: usize,
    sweep: Sweep,
}

impl Crew {
    pub(super) fn new(bytes_per_s: u64, bug: &'static str) -> Self {
        Self {
            pace: Pace::new(bytes_per_s).with_bug(bug),
            jobs: (0..WORKERS).map(|_| Job::Off).collect(),
            extents: [0; WORKERS],
            round: Round::default(),
            copies: 0,
            sweep: Sweep::default(),
        }
    }
}

impl World {
    pub(super) fn survey(&mut self) {
        let words = self.words();
        let table = self.table(&words);
        let mut found = survey(&table, self.now_ms(), AWAY_PATIENCE_MS);
        for extent in std::mem::take(&mut found.lost) {
            table.clear_extent(extent);
        }
        let is_empty = |extent: &u32| table.state(*extent).phase == Phase::Unplaced;
        (0..EXTENTS).filter(is_empty).for_each(|extent| self.fill(extent));
        let _ = self.crew.sweep.look(&table, self.now_ms(), SWEEP_PATIENCE_MS);
        (0..EXTENTS).for_each(|extent| drop(drop_surplus(&table, extent)));
        let round = Round::new(found.work(MOST_TASKS), 2 * MOST_TASKS);
        (self.crew.round, self.crew.copies) = (round, 0);
        // Who makes them is there in any case, and the others as far as there is work for them.
        for worker in 0..self.crew.round.tasks().clamp(1, WORKERS) {
            self.crew.jobs[worker] = Job::Idle;
            self.after(0, Event::Work(worker));
        }
    }

    fn leave(&mut self, worker: usize) {
        self.crew.jobs[worker] = Job::Off;
        if self.crew.jobs.iter().all(|job| matches!(job, Job::Off)) {
            let wait_us = if self.crew.copies > 0 { 1 } else { SURVEY_PERIOD_US };
            self.after(wait_us, Event::Survey);
        }
    }

    /// A worker goes on.
    pub(super) fn work(&mut self, worker: usize) -> Result<(), String> {
        match std::mem::replace(&mut self.crew.jobs[worker], Job::Idle) {
            Job::Off => self.crew.jobs[worker] = Job::Off,
            Job::Idle => return self.take_up(worker),
            Job::Resting(rebuild, chunk) => return self.rest_or_copy(worker, rebuild, chunk),
            Job::Copying(rebuild, chunk) => self.crew.jobs[worker] = Job::Copying(rebuild, chunk),
        }
        Ok(())
    }

    fn take_up(&mut self, worker: usize) -> Result<(), String> {
        let words = self.words();
        let table = self.table(&words);
        let may_begin = self.crew.pace.may_begin(worker, self.now_us, table.reads());
        self.is_begin_in_order(worker, may_begin)?;
        let Some(task) = may_begin.then(|| self.crew.round.take(&table)).flatten() else {
            self.leave(worker);
            return Ok(());
        };
        match place_for(&table, &table.chooser(), task.extent, self.dice.next_u64()) {
            Some((copy, place)) => {
                self.crew.extents[worker] = task.extent;
                self.step(worker, Box::new(Rebuild::new(task.extent, copy, place)))
            }
            None => {
                self.after(1, Event::Work(worker));
                Ok(())
            }
        }
    }

    fn step(&mut self, worker: usize, mut rebuild: Box<Rebuild>) -> Result<(), String> {
        let words = self.words();
        let table = self.table(&words);
        loop {
            match rebuild.step(&table) {
                rebuild::Step::Again => {}
                rebuild::Step::Move { from, to, slots } => {
                    let pages = slots_of(&slots).count() as u64;
                    let word = DonorWord::FIRST;
                    let chunk = Chunk { from, to, pages, begun_us: 0, word, awaited: 0, is_read: false };
                    return self.rest_or_copy(worker, rebuild, chunk);
                }
                rebuild::Step::Done(end) => {
                    self.crew.copies += usize::from(end == End::Whole);
                    self.counts.copies += u64::from(end == End::Whole);
                    drop(drop_surplus(&table, self.crew.extents[worker]));
                    self.crew.jobs[worker] = Job::Idle;
                    self.after(1, Event::Work(worker));
                    return Ok(());
                }
            }
        }
    }

    fn rest_or_copy(&mut self, worker: usize, rebuild: Box<Rebuild>, mut chunk: Chunk) -> Result<(), String> {
        let words = self.words();
        let table = self.table(&words);
        let rest_us = self.crew.pace.rest_us(worker, self.now_us, table.reads());
        self.is_rest_in_order(worker, rest_us)?;
        if rest_us > 0 {
            self.crew.jobs[worker] = Job::Resting(rebuild, chunk);
            self.after(rest_us, Event::Work(worker));
            return Ok(());
        }
        chunk.begun_us = self.now_us;
        let from = chunk.from;
        self.ask_for_chunk(worker, &mut chunk, from);
        self.crew.jobs[worker] = Job::Copying(rebuild, chunk);
        Ok(())
    }

    fn ask_for_chunk(&mut self, worker: usize, chunk: &mut Chunk, place: Place) {
        let words = self.words();
        let donor = usize::from(place.donor);
        chunk.word = self.table(&words).donor(donor);
        let patience_us = self.shape.timeout_us;
        chunk.awaited = self.send(Asker::Worker(worker), donor, place.life, chunk.pages, patience_us);
    }

    pub(super) fn hear_copied(
        &mut self,
        worker: usize,
        request: Request,
        answer: Answer,
    ) -> Result<(), String> {
        let words = self.words();
        let table = self.table(&words);
        let (mut rebuild, mut chunk) = match std::mem::replace(&mut self.crew.jobs[worker], Job::Idle) {
            Job::Copying(rebuild, chunk) if chunk.awaited == request.number => (rebuild, chunk),
            other => {
                self.crew.jobs[worker] = other;
                return Ok(());
            }
        };
        let is_good = answer == Answer::Good;
        if !is_good {
            table.complain(request.donor, chunk.word, Condition::Down, self.now_ms());
        }
        if is_good && !chunk.is_read {
            chunk.is_read = true;
            let to = chunk.to;
            self.ask_for_chunk(worker, &mut chunk, to);
            self.crew.jobs[worker] = Job::Copying(rebuild, chunk);
            return Ok(());
        }
        self.note_tried(self.now_us - chunk.begun_us);
        rebuild.copied(
            &table,
            match (is_good, chunk.is_read) {
                (true, _) => Moved::All,
                (false, false) => Moved::NotRead,
                (false, true) => Moved::NotWritten,
            },
        );
        if is_good {
            let (bytes, took_us) = (chunk.pages * PAGE_SIZE as u64, self.now_us - chunk.begun_us);
            self.crew.pace.copied(worker, bytes, took_us, self.now_us);
            self.counts.chunks += 1;
            self.note_chunk(worker, bytes, took_us)?;
        }
        self.step(worker, rebuild)
    }
}
