//! One donor under the supervisor's eyes. A thread asks it for a page again and again: so a donor that dies
//! is known before a fault finds out, one that is back is used again, one that has lost what it held begins a
//! new life, and one that is drained is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_nbd::proof::{Purpose, RunKey};
use spillway_nbd::standing::Standing;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::health::{Event, Health, Verdict};
use spillway_pool::words::{Condition, DonorWord};

use super::begin::{Begun, Share, begin_with_share, reason_of};
use super::claimed::{claimant, keep, renew};
use super::donor_store::token_of;
use super::shared::{Way, now_ms};
use super::site::Site;
use crate::claim::Claimant;
use crate::nbd::connection::{Attempt, ConnectError, Connection};
use crate::nbd::known_address;
use crate::nbd::mark::is_marked;
use crate::spec::Members;
use crate::{Claim, Lane, Notice, NoticeKind, Patience, ReadRequest, StoreError};

/// How often a donor is asked.
const PERIOD: Duration = Duration::from_millis(100);
/// How often it is asked whether it is being drained, and how long its answer is waited for.
const STANDING_PERIOD: Duration = Duration::from_secs(1);
const STANDING_PATIENCE: Duration = Duration::from_millis(500);
/// A donor that has lost what it held is asked for memory again only after so long: whoever has begun to take
/// some of its former life has done so by then.
const NEW_LIFE_PAUSE: Duration = Duration::from_secs(1);

/// Asks one donor how it is.
pub(super) struct Watcher {
    site: Arc<Site>,
    donor: usize,
    health: Health,
    way: Option<(Way, Box<dyn Lane>)>,
    /// Where it is a server of another kind: the slot of the run's claim on it, and who claims.
    claim: Option<(u32, Claimant)>,
    /// The user knows that it is away.
    has_told: bool,
    has_told_refusal: bool,
    /// Why it is left at present.
    leaving: Leaving,
    /// When it was asked last whether it is to be left.
    asked_standing: Instant,
}

/// Why a run leaves a donor, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Not,
    /// Somebody has it drained.
    Drained,
    /// Its machine is short of memory.
    Short,
}

impl Leaving {
    fn of(standing: &Standing) -> Self {
        match (standing.is_draining, standing.is_short) {
            (true, _) => Self::Drained,
            (false, true) => Self::Short,
            (false, false) => Self::Not,
        }
    }
}

impl Watcher {
    /// Begins to look after a donor.
    pub(super) fn start(site: &Arc<Site>, donor: usize) {
        let most_us = site.shared.spec.patience.timeout.as_micros() as u64;
        let mut watcher = Self {
            site: Arc::clone(site),
            donor,
            health: Health::new(most_us),
            way: None,
            claim: None,
            has_told: false,
            has_told_refusal: false,
            leaving: Leaving::Not,
            asked_standing: Instant::now(),
        };
        site.spawn("pool watch", PERIOD, move || watcher.look());
    }

    fn name(&self) -> String {
        self.site.shared.name(self.donor)
    }

    fn look(&mut self) {
        let word = self.site.shared.table().donor(self.donor);
        let begin = Instant::now();
        // To connect takes longer than to ask.
        let is_connected = self.way.is_some();
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
                site.shared.table().come_up(self.donor, word.life);
                if std::mem::take(&mut self.has_told) {
                    let name = self.name();
                    let text = format!("pool: donor {name} answers again");
                    site.tell(Notice::new(NoticeKind::DonorBack, &text).about(&name));
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
        if let Event::Answer { took_us } = event
            && is_connected
        {
            site.shared.table().set_usual_us(self.donor, took_us, self.health.usual_us());
        }
        // A server of another kind knows nothing of that.
        if matches!(event, Event::Answer { .. })
            && self.claim.is_none()
            && self.asked_standing.elapsed() >= STANDING_PERIOD
        {
            self.asked_standing = Instant::now();
            self.ask_standing();
        }
    }

    /// Whether the donor is being drained, as it says itself.
    fn ask_standing(&mut self) {
        let shared = &self.site.shared;
        let Some(door) = shared.door(self.donor) else { return };
        // Who does not answer this is asked again; a donor that is away is found out by other means.
        let Ok(standing) = crate::nbd::standing(&door, STANDING_PATIENCE) else { return };
        self.note_leaving(Leaving::of(&standing));
    }

    /// A donor that has been left says that it is being drained still.
    fn is_still_drained(&self) -> bool {
        let door = self.site.shared.door(self.donor);
        let standing = door.and_then(|door| crate::nbd::standing(&door, STANDING_PATIENCE).ok());
        standing.is_some_and(|standing| standing.is_to_be_left())
    }

    fn note_leaving(&mut self, leaving: Leaving) {
        let table = self.site.shared.table();
        let is_leaving = leaving != Leaving::Not;
        if table.is_leaving(self.donor) == is_leaving {
            return;
        }
        table.set_leaving(self.donor, is_leaving);
        let name = self.name();
        let (kind, what) = match (leaving, std::mem::replace(&mut self.leaving, leaving)) {
            (Leaving::Drained, _) => {
                (NoticeKind::DonorDraining, "is being drained: its pages are moved to others")
            }
            (Leaving::Short, _) => {
                (NoticeKind::DonorShort, "is short of memory: its pages are moved to others")
            }
            (Leaving::Not, Leaving::Short) => {
                (NoticeKind::DonorStays, "is short of memory no more: it is used again")
            }
            (Leaving::Not, _) => (NoticeKind::DonorStays, "is drained no more: it is used again"),
        };
        self.site.tell(Notice::new(kind, &format!("pool: donor {name} {what}")).about(&name));
        if !is_leaving {
            // What was written to others alone meanwhile is to come to it.
            self.site.owe_news();
        }
    }

    fn tell_away(&mut self, reason: &str) {
        let (_, used_extents) = self.site.shared.table().room(self.donor);
        if self.leaving != Leaving::Not && used_extents == 0 {
            // It was left, and may be switched off: nobody misses it.
            return;
        }
        if !std::mem::replace(&mut self.has_told, true) {
            let name = self.name();
            let text = format!("pool: donor {name} is away ({reason}): its pages are read from the others");
            self.site.tell(Notice::new(NoticeKind::DonorAway, &text).about(&name).because(reason));
            self.site.owe_news();
        }
    }

    /// Reads a page from it.
    fn ask(&mut self, word: DonorWord) -> Result<(), StoreError> {
        if self.way.as_ref().is_none_or(|(way, _)| way.word().life != word.life) {
            let timeout = self.site.shared.spec.patience.timeout;
            let patience = Patience { timeout, reconnect: Duration::ZERO };
            let way = self.site.shared.open_way(self.donor, word, patience)?;
            let mut lane = way.store.open_lane()?;
            self.claim = self.claim_on(&way);
            if let Some((slot, own)) = &self.claim {
                renew(&mut *lane, *slot, own)?;
            }
            self.way = Some((way, lane));
        }
        let Some((_, lane)) = &mut self.way else { return Ok(()) };
        if let Some((slot, own)) = &self.claim {
            return keep(&mut **lane, *slot, own, &self.site.shared.uri);
        }
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

    fn claim_on(&self, way: &Way) -> Option<(u32, Claimant)> {
        let shared = &self.site.shared;
        let own = claimant(shared, self.donor, way.word().life)
            .filter(|_| shared.table().is_claimed(self.donor))?;
        Some((way.store.claim_slot()?, own))
    }

    /// Whether a donor that did not give a page is away, or has lost what it held.
    fn find_out(&self, word: DonorWord, error: &StoreError) -> (Event, String) {
        let shared = &self.site.shared;
        let token = token_of(&shared.token, word.life);
        let known = shared.donor_spec(self.donor);
        let Some((spec, address)) = known.and_then(|spec| Some((spec, known_address(spec, &token)?))) else {
            return (Event::Away, error.to_string());
        };
        let key = RunKey::derive(&token, &spec.to_string());
        let attempt = Attempt::of(shared.spec.patience.timeout);
        let opened =
            Connection::open(&address, "", (&key, Purpose::Lane), attempt, shared.spec.patience.timeout);
        match opened {
            Ok(connection) if connection.is_private => (Event::Away, reason_of(error)),
            Ok(mut connection) if shared.table().is_claimed(self.donor) => {
                match is_marked(&mut connection, &key, 0, shared.spec.patience.timeout) {
                    Ok(true) => (Event::Away, reason_of(error)),
                    Ok(false) => (Event::Lost, String::new()),
                    Err(other) => (Event::Away, other.to_string()),
                }
            }
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
            let text = format!(
                "pool: donor {name} has lost what it held (it was restarted, or the run was away for too \
                 long): what was there is copied from the others"
            );
            site.tell(Notice::new(NoticeKind::DonorLost, &text).about(&name));
            site.owe_news();
            std::thread::sleep(NEW_LIFE_PAUSE);
        }
        let Some(spec) = shared.donor_spec(self.donor).filter(|_| !site.is_over()) else { return };
        if table.is_leaving(self.donor) && self.is_still_drained() {
            return std::thread::sleep(NEW_LIFE_PAUSE);
        }
        let life = table.donor(self.donor).life;
        let share = (Share::asked(&shared.spec, shared.well_donors() + 1), false);
        // Who has taken a server's export from the run keeps it.
        let others = matches!(shared.spec.members, Members::Listed(_)).then_some(Claim::Free);
        match begin_with_share(spec, share, &token_of(&shared.token, life), others) {
            Ok(Begun { slots, fd, claim }) => {
                site.hold(self.donor, fd);
                table.set_claimed(self.donor, claim.is_some());
                table.set_memory(self.donor, slots / EXTENT_SLOTS);
                // One that is being drained takes no run.
                self.note_leaving(Leaving::Not);
                table.come_up(self.donor, life);
                (self.has_told, self.has_told_refusal) = (false, false);
            }
            Err(error) => {
                table.set_memory(self.donor, 0);
                // That it has been left is known.
                let is_news = !table.is_leaving(self.donor);
                if is_news && !std::mem::replace(&mut self.has_told_refusal, true) {
                    let reason = reason_of(&error);
                    let text = format!("pool: donor {name} is not used: {reason}");
                    site.tell(Notice::new(NoticeKind::DonorUnused, &text).about(&name).because(&reason));
                }
                std::thread::sleep(NEW_LIFE_PAUSE);
            }
        }
    }
}
