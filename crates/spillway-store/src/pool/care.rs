//! The supervisor's threads for a pool. One for each donor asks it for a page again and again: so a donor
//! that dies is known before a fault finds out, one that is back is used again, and one that has lost what it
//! held begins a new life. One more makes lost copies anew ([`super::rebuilder`]).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_nbd::proof::{Purpose, RunKey};
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::health::{Event, Health, Verdict};
use spillway_pool::words::{Condition, DonorWord};

use super::begin::{asked_of_each, begin_at, token_of};
use super::rebuilder::Rebuilder;
use super::shared::{Shared, Way, now_ms};
use super::site::Site;
use crate::nbd::connection::{Attempt, ConnectError, Connection};
use crate::nbd::known_address;
use crate::{Lane, Patience, ReadRequest, StoreError};

/// How often a donor is asked.
const PERIOD: Duration = Duration::from_millis(100);
/// How often the table is looked over.
const SURVEY_PERIOD: Duration = Duration::from_millis(200);
/// A donor that has lost what it held is asked for memory again only after so long: whoever has begun to take
/// some of its former life has done so by then.
const NEW_LIFE_PAUSE: Duration = Duration::from_secs(1);
/// How long [`Care::stop`] waits for work that is under way.
const MOST_STOP: Duration = Duration::from_secs(3);

/// The threads that look after a pool.
pub(super) struct Care {
    site: Arc<Site>,
    /// Locked by a thread that is at work.
    at_work: Vec<Arc<Mutex<()>>>,
}

impl Care {
    pub(super) fn start(shared: Arc<Shared>, held: Vec<OwnedFd>, tell: fn(&str)) -> Self {
        let donors = shared.table().donors();
        let site = Arc::new(Site::new(shared, held, tell));
        let mut care = Self { site, at_work: Vec::new() };
        for donor in 0..donors {
            let mut watcher = Watcher::new(Arc::clone(&care.site), donor);
            care.spawn("pool watch", PERIOD, move || watcher.look());
        }
        let mut rebuilder = Rebuilder::new(Arc::clone(&care.site));
        care.spawn("pool rebuild", SURVEY_PERIOD, move || rebuilder.look());
        care
    }

    fn spawn(&mut self, name: &str, period: Duration, mut work: impl FnMut() + Send + 'static) {
        let (site, at_work) = (Arc::clone(&self.site), Arc::<Mutex<()>>::default());
        self.at_work.push(Arc::clone(&at_work));
        let body = move || {
            loop {
                std::thread::sleep(period);
                let Ok(_at_work) = at_work.lock() else { return };
                if site.is_over() {
                    return;
                }
                work();
            }
        };
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(body) {
            self.site.tell(&format!("the pool's donors are not looked after: {error}"));
        }
    }

    /// Has no work begin any more, waits a little for what is under way, and gives back the connections on
    /// which the run was begun.
    pub(super) fn stop(self) -> Vec<OwnedFd> {
        self.site.end();
        let until = Instant::now() + MOST_STOP;
        for at_work in &self.at_work {
            while at_work.try_lock().is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Where a thread has it after all, the connections end with the process.
        self.site.let_go()
    }
}

impl Drop for Care {
    fn drop(&mut self) {
        self.site.end();
    }
}

/// Asks one donor how it is.
struct Watcher {
    site: Arc<Site>,
    donor: usize,
    health: Health,
    way: Option<(Way, Box<dyn Lane>)>,
    /// The user knows that it is away.
    has_told: bool,
    has_told_refusal: bool,
}

impl Watcher {
    fn new(site: Arc<Site>, donor: usize) -> Self {
        let most_us = site.shared.spec.patience.timeout.as_micros() as u64;
        let health = Health::new(most_us);
        Self { site, donor, health, way: None, has_told: false, has_told_refusal: false }
    }

    fn name(&self) -> String {
        self.site.shared.name(self.donor)
    }

    fn look(&mut self) {
        let word = self.site.shared.table().donor(self.donor);
        let begin = Instant::now();
        let (event, reason) = match self.ask(word) {
            Ok(()) => (Event::Answer { took_us: begin.elapsed().as_micros() as u64 }, String::new()),
            Err(error) => {
                self.way = None;
                self.find_out(word, &error)
            }
        };
        let site = Arc::clone(&self.site);
        // At its end a run is forgotten by its donors, and that is no loss.
        if site.is_over() {
            return;
        }
        match self.health.hear(site.shared.table().donor(self.donor).condition, event) {
            Verdict::Same => {}
            Verdict::CameUp => {
                site.shared.table().come_up(self.donor);
                if std::mem::take(&mut self.has_told) {
                    site.tell(&format!("pool: donor {} answers again", self.name()));
                    site.owe_news();
                }
            }
            Verdict::WentDown => {
                site.shared.complain(self.donor, word, Condition::Down);
                self.tell_away(&reason);
            }
            Verdict::NewLife => self.begin_life(),
        }
        if event == Event::Away {
            self.tell_away(&reason);
        }
        site.shared.table().set_silence_us(self.donor, self.health.silence_us());
    }

    fn tell_away(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.has_told, true) {
            let name = self.name();
            self.site
                .tell(&format!("pool: donor {name} is away ({reason}): its pages are read from the others"));
            self.site.owe_news();
        }
    }

    /// Reads a page from it.
    fn ask(&mut self, word: DonorWord) -> Result<(), StoreError> {
        if self.way.as_ref().is_none_or(|(way, _)| way.word().life != word.life) {
            let timeout = self.site.shared.spec.patience.timeout;
            let patience = Patience { timeout, reconnect: Duration::ZERO };
            let way = self.site.shared.open_way(self.donor, word, patience)?;
            let lane = way.store.open_lane()?;
            self.way = Some((way, lane));
        }
        let Some((_, lane)) = &mut self.way else { return Ok(()) };
        let mut page = [0; PAGE_SIZE];
        let mut batch = [ReadRequest { slot: 0, page: &mut page, outcome: Ok(()) }];
        lane.read(&mut batch);
        let [ReadRequest { outcome, .. }] = batch;
        match outcome {
            // One answer is as good as another, as far as being there goes.
            Err(error @ StoreError::Gone { .. }) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether a donor that did not give a page is away, or has lost what it held.
    fn find_out(&self, word: DonorWord, error: &StoreError) -> (Event, String) {
        let shared = &self.site.shared;
        let (spec, token) = (shared.donor_spec(self.donor), token_of(&shared.token, word.life));
        let Some(address) = known_address(spec, &token) else { return (Event::Away, error.to_string()) };
        let key = RunKey::derive(&token, &spec.to_string());
        let attempt = Attempt::of(shared.spec.patience.timeout);
        let opened =
            Connection::open(&address, "", (&key, Purpose::Lane), attempt, shared.spec.patience.timeout);
        match opened {
            Ok(connection) if connection.is_private => (Event::Away, reason_of(error)),
            Ok(_) | Err(ConnectError::Lost | ConnectError::AnotherServer) => (Event::Lost, String::new()),
            // What it said, or did not say, to the question tells more.
            Err(ConnectError::Silent(_) | ConnectError::Mute(_)) => (Event::Away, reason_of(error)),
            Err(other) => (Event::Away, other.to_string()),
        }
    }

    /// The donor is there and knows nothing of the run: what it held is lost, and it is asked for memory
    /// anew.
    fn begin_life(&mut self) {
        let site = Arc::clone(&self.site);
        let (shared, name) = (&site.shared, self.name());
        let table = shared.table();
        // A life that could not begin yet goes on beginning.
        let is_begun = table.room(self.donor).0 == 0 && table.donor(self.donor).condition == Condition::Down;
        if !is_begun {
            table.begin_life(self.donor, now_ms());
            site.tell(&format!(
                "pool: donor {name} has lost what it held (it was restarted, or the run was away for too \
                 long): what was there is copied from the others"
            ));
            site.owe_news();
            std::thread::sleep(NEW_LIFE_PAUSE);
        }
        if site.is_over() {
            return;
        }
        let token = token_of(&shared.token, table.donor(self.donor).life);
        match begin_at(shared.donor_spec(self.donor), asked_of_each(&shared.spec), &token) {
            Ok((slots, fd)) => {
                site.hold(self.donor, fd);
                table.set_memory(self.donor, slots / EXTENT_SLOTS);
                table.come_up(self.donor);
                (self.has_told, self.has_told_refusal) = (false, false);
            }
            Err(error) => {
                table.set_memory(self.donor, 0);
                if !std::mem::replace(&mut self.has_told_refusal, true) {
                    site.tell(&format!("pool: donor {name} is not used: {}", reason_of(&error)));
                }
                std::thread::sleep(NEW_LIFE_PAUSE);
            }
        }
    }
}

fn reason_of(error: &StoreError) -> String {
    match error {
        StoreError::Gone { reason, .. } | StoreError::Io { reason, .. } => reason.clone(),
        StoreError::Unusable { reason, remedy, .. } => format!("{reason}; {remedy}"),
        StoreError::Full { .. } | StoreError::WrongSeal { .. } | StoreError::SealsSpent { .. } => {
            error.to_string()
        }
    }
}
