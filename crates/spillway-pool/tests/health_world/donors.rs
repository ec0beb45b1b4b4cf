//! The donors: how quick each is, what becomes of it, and what it answers when.

use super::*;
use cut::{Cut, Reach, Who};

/// After so long a connection is refused.
const REFUSAL_US: u64 = 100;
/// Each page of a chunk takes so much more than an answer as such.
const PAGE_US: u64 = 15;
/// What was lost is sent again after so long, and so long again.
const RESEND_US: u64 = 200 * MS;

/// How a donor's machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Well,
    /// It says nothing, and goes on later.
    Stalled,
    /// The donor's process is gone: its machine refuses connections.
    Off,
    /// The machine is gone: nobody says anything.
    Dark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    Watcher,
    Reader(usize),
    Worker(usize),
}

/// One request that is sent to a donor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    pub(super) who: Asker,
    pub(super) donor: usize,
    pub(super) number: u64,
    pub(super) sent_us: u64,
    /// Which life of the donor's it is meant for.
    life: u16,
    /// How often the donor had died.
    deaths: u32,
    pages: u64,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answer {
    Good,
    /// The donor knows nothing of the run.
    Strange,
    /// The connection is refused, or has broken.
    Broken,
    /// It was silent for too long.
    None,
}

pub(super) struct Donor {
    pub(super) machine: Machine,
    /// How long it takes to answer, and how many times that it takes now.
    base_us: u64,
    factor: u64,
    pub(super) cut: Option<Cut>,
    /// The life of the run that it knows.
    pub(super) life: Option<u16>,
    /// Requests that wait until it goes on, or is reached again.
    held: Vec<Request>,
    deaths: u32,
    troubles: u32,
}

impl Donor {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        // From 0.1 ms to 100 ms.
        let base_us = (100 << dice.below(10)) * (100 + dice.below(96)) as u64 / 100;
        Self {
            machine: Machine::Well,
            base_us,
            factor: 1,
            cut: None,
            life: Some(1),
            held: Vec::new(),
            deaths: 0,
            troubles: 0,
        }
    }

    /// The shortest and the longest time that its answers take now, but for those that are unusual.
    pub(super) fn usual_us(&self) -> (u64, u64) {
        let least_us = self.base_us * self.factor;
        (least_us, least_us + least_us / 2)
    }

    fn reach(&self, who: Asker) -> Reach {
        let who = match who {
            Asker::Watcher | Asker::Worker(_) => Who::Supervisor,
            Asker::Reader(reader) => Who::Actor(reader),
        };
        self.cut.map_or(Reach::Both, |cut| cut.reach(who))
    }

    /// Whether the supervisor can have an answer of it.
    pub(super) fn is_there(&self) -> bool {
        self.machine == Machine::Well && self.reach(Asker::Watcher) == Reach::Both
    }

    /// Whether everybody can reach it.
    pub(super) fn is_there_for_all(&self) -> bool {
        self.machine == Machine::Well && self.cut.is_none()
    }

    /// Whether what is asked or answered now waits until the donor goes on, or is reached again.
    fn is_held(&self, who: Asker) -> bool {
        let is_reached = self.reach(who) == Reach::Both;
        matches!(self.machine, Machine::Stalled | Machine::Dark) || !is_reached
    }
}

impl World {
    /// Sends something to a donor, and waits for its answer for so long.
    pub(super) fn send(&mut self, who: Asker, donor: usize, life: u16, pages: u64, patience_us: u64) -> u64 {
        self.number += 1;
        let deaths = self.donors[donor].deaths;
        let request = Request { who, donor, number: self.number, sent_us: self.now_us, life, deaths, pages };
        self.after(patience_us, Event::TimeUp(request));
        self.travel(request);
        request.number
    }

    /// A request comes to its donor, which answers it after its time.
    fn travel(&mut self, request: Request) {
        let donor = &mut self.donors[request.donor];
        if donor.is_held(request.who) {
            donor.held.push(request);
            return;
        }
        if donor.machine == Machine::Off || donor.deaths != request.deaths {
            self.after(REFUSAL_US, Event::Answer(request, Answer::Broken));
            return;
        }
        let usual_us = donor.usual_us();
        let mut took_us = usual_us.0 + self.dice.below((usual_us.1 - usual_us.0) as usize) as u64;
        took_us += request.pages * PAGE_US;
        if self.shape.has_outliers && self.chance(100) {
            took_us *= 4;
        }
        if self.chance(self.shape.loses_one_in) {
            took_us += RESEND_US << self.dice.below(4);
        }
        self.note_took(request.donor, took_us, usual_us.1 + request.pages * PAGE_US);
        self.after(took_us, Event::Answer(request, Answer::Good));
    }

    /// What comes of an answer that is about to arrive; `None` where it does not come now.
    pub(super) fn arrive(&mut self, request: Request, answer: Answer) -> Option<Answer> {
        if answer != Answer::Good {
            return Some(answer);
        }
        let donor = &mut self.donors[request.donor];
        if donor.deaths != request.deaths {
            return (donor.machine != Machine::Dark).then_some(Answer::Broken);
        }
        if donor.is_held(request.who) {
            donor.held.push(request);
            return None;
        }
        let is_known = donor.life == Some(request.life);
        Some(if is_known { Answer::Good } else { Answer::Strange })
    }

    pub(super) fn trouble(&mut self) {
        if self.now_us >= TROUBLE_US {
            for donor in 0..DONORS {
                self.heal(donor);
                self.donors[donor].factor = 1;
                self.note_change(donor);
            }
            return;
        }
        let wait_us = self.dice.below(2 * MEAN_TROUBLE_US as usize) as u64;
        self.after(wait_us, Event::Trouble);
        if self.shape.is_calm {
            return;
        }
        let donor = self.dice.below(DONORS);
        let is_ill = |donor: &Donor| donor.machine != Machine::Well || donor.cut.is_some();
        if is_ill(&self.donors[donor]) {
            return;
        }
        // Most of the time one at a time, so that something is left to read.
        if self.donors.iter().any(is_ill) && !self.chance(5) {
            return;
        }
        self.donors[donor].troubles += 1;
        let troubles = self.donors[donor].troubles;
        self.break_one(donor);
        self.note_change(donor);
        let lasts_us = one_of(&mut self.dice, &[50 * MS, 300 * MS, SECOND, 6 * SECOND]);
        let lasts_us = lasts_us + self.dice.below(lasts_us as usize) as u64;
        self.after(lasts_us, Event::Recovery(donor, troubles));
    }

    fn break_one(&mut self, donor: usize) {
        let reader = self.dice.below(READERS);
        match self.dice.below(7) {
            0 => {
                self.counts.stalled += 1;
                self.donors[donor].machine = Machine::Stalled;
            }
            1 => self.die(donor, Machine::Off),
            2 => self.die(donor, Machine::Dark),
            // Away and back again, empty, before anybody looks.
            3 => self.die(donor, Machine::Well),
            4 => {
                self.counts.cut_off += 1;
                self.donors[donor].cut = Some(Cut::draw(reader, &mut self.dice));
            }
            _ => {
                self.counts.slowed += 1;
                self.donors[donor].factor = one_of(&mut self.dice, &[1, 4, 20, 100]);
            }
        }
    }

    fn die(&mut self, donor: usize, machine: Machine) {
        self.counts.died += 1;
        let dead = &mut self.donors[donor];
        (dead.machine, dead.life, dead.deaths) = (machine, None, dead.deaths + 1);
        let held = std::mem::take(&mut dead.held);
        if machine != Machine::Dark {
            held.into_iter()
                .for_each(|request| self.after(REFUSAL_US, Event::Answer(request, Answer::Broken)));
        }
    }

    pub(super) fn recover(&mut self, donor: usize, troubles: u32) {
        if self.donors[donor].troubles == troubles {
            self.heal(donor);
        }
    }

    /// It goes on, is reached again, or is started again with nothing.
    fn heal(&mut self, donor: usize) {
        let ill = &mut self.donors[donor];
        if ill.machine == Machine::Well && ill.cut.is_none() {
            return;
        }
        (ill.machine, ill.cut) = (Machine::Well, None);
        let held = std::mem::take(&mut ill.held);
        held.into_iter().for_each(|request| self.travel(request));
        self.note_change(donor);
    }
}
