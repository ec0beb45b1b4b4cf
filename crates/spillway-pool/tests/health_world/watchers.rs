//! The supervisor's watchers, one for each donor: as in a run, each asks its donor for a page, hears of what
//! came of that, and says so in the table.

use super::*;
use spillway_pool::health::{self, Health, Verdict};
use spillway_pool::words::DonorWord;

/// How often a donor is asked.
pub(super) const PERIOD_US: u64 = 100 * MS;
/// A donor that has lost what it held is asked for memory only after so long.
pub(super) const NEW_LIFE_PAUSE_US: u64 = SECOND;

pub(super) struct Watcher {
    health: Health,
    /// The donor's word when this look began.
    word: DonorWord,
    /// The life for which there is a connection.
    way: Option<u16>,
    is_connected: bool,
    /// Since when, and by which number, an answer is awaited.
    begun_us: u64,
    awaited: u64,
    /// It did not give the page: what has become of it?
    finds_out: bool,
}

impl Watcher {
    pub(super) fn new(timeout_us: u64, bug: &'static str) -> Self {
        Self {
            health: Health::new(timeout_us).with_bug(bug),
            word: DonorWord::FIRST,
            way: None,
            is_connected: false,
            begun_us: 0,
            awaited: 0,
            finds_out: false,
        }
    }

    pub(super) fn silence_us(&self) -> u64 {
        self.health.silence_us()
    }
}

impl World {
    pub(super) fn watch(&mut self, donor: usize) {
        let words = self.words();
        let word = self.table(&words).donor(donor);
        let watcher = &mut self.watchers[donor];
        (watcher.word, watcher.begun_us, watcher.finds_out) = (word, self.now_us, false);
        watcher.is_connected = watcher.way == Some(word.life);
        watcher.way = Some(word.life);
        self.ask_watched(donor, word.life);
    }

    fn ask_watched(&mut self, donor: usize, life: u16) {
        let awaited = self.send(Asker::Watcher, donor, life, 0, self.shape.timeout_us);
        self.watchers[donor].awaited = awaited;
    }

    pub(super) fn hear_watched(&mut self, request: Request, answer: Answer) {
        let donor = request.donor;
        let watcher = &mut self.watchers[donor];
        if watcher.awaited != request.number {
            return;
        }
        let event = match (watcher.finds_out, answer) {
            (false, Answer::Good) => {
                health::Event::Answer { took_us: (self.now_us - watcher.begun_us).max(1) }
            }
            (false, _) => {
                (watcher.way, watcher.finds_out) = (None, true);
                let life = watcher.word.life;
                return self.ask_watched(donor, life);
            }
            (true, Answer::Strange) => health::Event::Lost,
            // It is there, and did not answer in time.
            (true, _) => health::Event::Away,
        };
        self.watchers[donor].awaited = 0;
        self.follow(donor, event);
    }

    fn follow(&mut self, donor: usize, event: health::Event) {
        let words = self.words();
        let table = self.table(&words);
        let watcher = &mut self.watchers[donor];
        let word = watcher.word;
        let verdict = watcher.health.hear(table.donor(donor).condition, event);
        match verdict {
            Verdict::Same => {}
            Verdict::CameUp => {
                self.counts.came_up += 1;
                table.come_up(donor, word.life);
            }
            Verdict::WentDown => {
                self.counts.went_down += 1;
                table.complain(donor, word, Condition::Down, 1 + self.now_us / MS);
            }
            Verdict::NewLife => return self.begin_life(donor),
        }
        table.set_silence_us(donor, watcher.health.silence_us());
        if let health::Event::Answer { took_us } = event
            && watcher.is_connected
        {
            table.set_usual_us(donor, took_us, watcher.health.usual_us());
        }
        self.after(PERIOD_US, Event::Watch(donor));
    }

    fn begin_life(&mut self, donor: usize) {
        let words = self.words();
        let table = self.table(&words);
        let is_begun = table.room(donor).0 == 0 && table.donor(donor).condition == Condition::Down;
        if is_begun {
            return self.go_on_beginning(donor);
        }
        table.begin_life(donor, self.now_ms());
        self.after(NEW_LIFE_PAUSE_US, Event::BeginLife(donor));
    }

    /// The donor is asked for memory.
    pub(super) fn go_on_beginning(&mut self, donor: usize) {
        let words = self.words();
        let table = self.table(&words);
        let life = table.donor(donor).life;
        if !self.donors[donor].is_there() {
            table.set_memory(donor, 0);
            return self.after(NEW_LIFE_PAUSE_US + PERIOD_US, Event::Watch(donor));
        }
        self.counts.lives += 1;
        self.donors[donor].life = Some(life);
        table.set_memory(donor, DONOR_EXTENTS);
        table.come_up(donor, life);
        self.after(PERIOD_US, Event::Watch(donor));
    }
}
