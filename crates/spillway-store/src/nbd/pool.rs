//! The connections of one process to one server. Lanes borrow them for a batch at a time, so a process has as
//! many as its threads need at once, not one for each thread. Where the server takes no further connection,
//! lanes wait for each other.
//!
//! **Nobody waits for somebody who may wait for him.** A connection that is lent is either *busy*: its holder
//! waits for the server's answer on it and for nothing else, which ends by itself; or *parked*: something was
//! sent by it, and its holder is elsewhere, and may wait for a connection to another server. Only busy
//! connections are waited for ([`Holdings::busy`]). Where all that are lent are parked, a lane goes on trying
//! to connect, for as long as it would without them, and takes what comes back meanwhile. So no lanes can
//! wait for each other in a circle, whatever they hold.
//!
//! The lock is held for moments, never while anything is sent, received or waited for.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_nbd::handshake::ExportFlags;
use spillway_nbd::proof::{Purpose, RunKey};

use super::connection::{Address, Attempt, ConnectError, Connection};
use super::effort::Effort;
use super::holdings::{Holdings, Refusal};
use super::mark;
use crate::{Event, Listener, Patience, StoreError};

/// Most pages in one READ or WRITE: larger ones are no faster, and occupy both sides' buffers for longer.
const MAX_RUN_PAGES: usize = 256;
/// Pauses between attempts to connect again.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(5);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// An attempt to connect is given up after this, and made anew: the kernel's own second attempt comes later
/// and later.
pub(super) const ATTEMPT: Duration = Duration::from_secs(1);
/// How soon somebody who waits is told so: less than a second.
pub(super) const TELL_AFTER: Duration = Duration::from_millis(900);
/// How long to wait for another lane's connection before looking around.
const TURN: Duration = Duration::from_millis(100);
/// How long a process keeps a connection while another has none: opening one takes as long as some requests.
const SLICE: Duration = Duration::from_millis(200);
/// A server that has turned so many connections away has no room: one that is about to end turns few away.
const MANY_REFUSALS: u32 = 8;
/// Connections that nobody has used for so long are closed, but one.
const REST: Duration = Duration::from_secs(3);

/// What it takes to connect, and what was found out about the server.
pub(super) struct Pool {
    pub uri: String,
    pub capacity_slots: u32,
    pub address: Address,
    pub export: String,
    /// By which the donor knows that a connection is the run's.
    pub key: RunKey,
    pub patience: Patience,
    /// What it has can be had elsewhere too: it is not waited for where it has surely ended.
    is_one_of_several: bool,
    /// Why one of the lanes has given the server up: the others need not find out by waiting once more.
    given_up: OnceLock<StoreError>,
    features: OnceLock<Features>,
    listener: OnceLock<Listener>,
    state: Mutex<Holdings>,
    came_back: Condvar,
    /// Tells each attempt's replies from all others of this process.
    epochs: AtomicU32,
    /// How often the server has turned this process away that had no connection.
    refusals: AtomicU32,
    /// One lane at a time tries whether a silent server answers another connection.
    is_probing: AtomicBool,
    /// This process claims the export: see [`Self::open_claim_slot`].
    is_claimant: AtomicBool,
}

/// What a server's first connection says of it.
#[derive(Clone, Copy)]
pub(super) struct Features {
    pub flags: ExportFlags,
    pub max_run_pages: usize,
    /// The export is the run's own, and must be found so again.
    pub is_private: bool,
    /// Where the claim on an export is that others may open too.
    pub claim_slot: u32,
}

enum Place {
    Idle(Lent),
    ToOpen,
    Wait,
}

impl Pool {
    /// Without a connection yet.
    pub fn new(
        uri: String,
        capacity_slots: u32,
        address: Address,
        export: String,
        key: RunKey,
        patience: Patience,
    ) -> Self {
        Self {
            uri,
            capacity_slots,
            address,
            export,
            key,
            patience,
            is_one_of_several: false,
            given_up: OnceLock::new(),
            features: OnceLock::new(),
            listener: OnceLock::new(),
            state: Mutex::default(),
            came_back: Condvar::new(),
            epochs: AtomicU32::new(0),
            refusals: AtomicU32::new(0),
            is_probing: AtomicBool::new(false),
            is_claimant: AtomicBool::new(false),
        }
    }

    /// With this patience, and let go as soon as nobody listens there any more.
    pub fn one_of_several(self, patience: Patience) -> Self {
        Self { patience, is_one_of_several: true, ..self }
    }

    /// Before the first attempt to connect anew.
    pub fn first_pause(&self) -> Duration {
        if self.is_one_of_several { Duration::ZERO } else { FIRST_PAUSE }
    }

    fn state(&self) -> MutexGuard<'_, Holdings> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    pub fn features(&self) -> Option<Features> {
        self.features.get().copied()
    }

    pub fn next_epoch(&self) -> u32 {
        self.epochs.fetch_add(1, Ordering::Relaxed)
    }

    pub fn gone(&self, reason: impl Into<String>) -> StoreError {
        StoreError::Gone { store: self.uri.clone(), reason: reason.into() }
    }

    /// Gives the server up for all lanes.
    pub fn fail(&self, reason: impl Into<String>) -> StoreError {
        let error = self.given_up.get_or_init(|| self.gone(reason)).clone();
        self.came_back.notify_all();
        error
    }

    pub fn given_up(&self) -> Option<&StoreError> {
        self.given_up.get()
    }

    /// Slots that requests may name: up to that of the claim for who claims the export. No pager may touch
    /// that.
    pub fn limit_slots(&self) -> u32 {
        let claim_slot = self.features().filter(|_| self.is_claimant.load(Ordering::Relaxed));
        claim_slot.map_or(self.capacity_slots, |features| features.claim_slot + 1)
    }

    /// Lets requests name the slot of the claim on an export that others may open too, and returns it; `None`
    /// where the export is the run's own.
    pub fn open_claim_slot(&self) -> Option<u32> {
        let claim_slot = self.features().filter(|features| !features.is_private)?.claim_slot;
        self.is_claimant.store(true, Ordering::Relaxed);
        Some(claim_slot)
    }

    /// Nobody has a connection of this process.
    pub fn is_without_connection(&self) -> bool {
        self.state().open == 0
    }

    /// Borrows a connection that lies idle, or opens one, again and again; or waits for another lane's where
    /// the server takes no more.
    pub fn take(self: &Arc<Self>, effort: &Effort) -> Result<Lent, StoreError> {
        let mut pause = FIRST_PAUSE;
        let mut refusal = None;
        loop {
            if let Some(error) = self.given_up() {
                return Err(error.clone());
            }
            match self.place() {
                Place::Idle(connection) => return Ok(Lent { refusal, ..connection }),
                Place::Wait => self.wait_for_another(TURN),
                Place::ToOpen => match self.connect(effort.since.elapsed(), effort.give_up_at) {
                    Ok(connection) => return Ok(connection),
                    // A donor that is started anew there has nothing of what it had.
                    Err(error @ ConnectError::NobodyListens) if self.is_one_of_several => {
                        return Err(self.fail(effort.reason(&error)));
                    }
                    Err(error) => {
                        refusal = self.state().note_refusal(&error);
                        if refusal.is_none() {
                            self.wait_alone(effort, &error, pause)?;
                            pause = (pause * 2).min(LONGEST_PAUSE);
                        }
                    }
                },
            }
        }
    }

    /// After an attempt that failed while there is no connection to wait for: waits before the next, unless
    /// it is over.
    fn wait_alone(&self, effort: &Effort, error: &ConnectError, pause: Duration) -> Result<(), StoreError> {
        // A server that is there and has no room for us is waited for as one that is silent.
        let give_up_at = match error {
            ConnectError::TurnedAway => effort.give_up_at.max(effort.since + self.patience.timeout),
            _ => effort.give_up_at,
        };
        let left = give_up_at.saturating_duration_since(Instant::now());
        if error.is_final() || left.is_zero() {
            return Err(self.fail(effort.reason(error)));
        }
        let waited = effort.since.elapsed();
        self.tell_waiting(&effort.reason(error), waited, left);
        if *error == ConnectError::TurnedAway
            && self.refusals.fetch_add(1, Ordering::Relaxed) + 1 == MANY_REFUSALS
        {
            self.tell_crowded(error);
        }
        if self.is_without_connection() {
            sleep(pause.min(left));
        } else {
            // One that is parked may be put back.
            self.wait_for_another(pause.min(left));
        }
        Ok(())
    }

    /// A connection that lies idle, for what need not be done now.
    pub fn take_idle(self: &Arc<Self>) -> Option<Lent> {
        let mut state = self.state();
        if state.is_scarce() {
            // Who holds one and waits for something else would keep it from others.
            return None;
        }
        state.idle.pop().map(|(connection, _)| Lent::new(self, connection))
    }

    fn place(self: &Arc<Self>) -> Place {
        let mut state = self.state();
        if let Some((connection, _)) = state.idle.pop() {
            return Place::Idle(Lent::new(self, connection));
        }
        if state.busy() > 0 && state.is_scarce() { Place::Wait } else { Place::ToOpen }
    }

    /// Waits until a connection comes back, for so long at most.
    fn wait_for_another(&self, most: Duration) {
        let state = self.state();
        if state.idle.is_empty() && state.open > 0 {
            drop(self.came_back.wait_timeout(state, most));
        }
    }

    /// One attempt, for a lane that has waited for so long.
    fn connect(self: &Arc<Self>, waited: Duration, give_up_at: Instant) -> Result<Lent, ConnectError> {
        // A server that is slow to greet gets longer and longer; one that does not even take the connection
        // is asked anew each second.
        let greeting = ATTEMPT.max(waited / 2);
        let least = Instant::now() + ATTEMPT.min(self.patience.timeout);
        let attempt =
            Attempt { connect: ATTEMPT, until: (Instant::now() + greeting).min(give_up_at.max(least)) };
        let mut connection = Connection::open(
            &self.address,
            &self.export,
            (&self.key, Purpose::Lane),
            attempt,
            TELL_AFTER.min(self.patience.timeout),
        )?;
        let features = self.features.get_or_init(|| Features {
            flags: connection.flags,
            max_run_pages: (connection.blocks.maximum_bytes as usize / PAGE_SIZE).clamp(1, MAX_RUN_PAGES),
            is_private: connection.is_private,
            claim_slot: mark::claim_slot(connection.size_bytes),
        });
        if features.is_private && !connection.is_private {
            return Err(ConnectError::AnotherServer);
        }
        // A pool must know of a donor that has lost what it held.
        if self.is_one_of_several && !connection.is_private {
            let patience = attempt.until.saturating_duration_since(Instant::now());
            if !mark::is_marked(&mut connection, &self.key, self.next_epoch(), patience)? {
                return Err(ConnectError::Lost);
            }
        }
        if let Some(listener) = self.listener.get() {
            connection.be_kept_by(listener)?;
        }
        let mut state = self.state();
        state.note_opened();
        drop(state);
        Ok(Lent::new(self, connection))
    }

    /// Opens one beside a connection that is silent, unless somebody else of the process is at it.
    pub fn probe(self: &Arc<Self>, silent: Duration, give_up_at: Instant) -> Option<Lent> {
        if self.state().is_scarce() || self.is_probing.swap(true, Ordering::Acquire) {
            return None;
        }
        let connection = self.connect(silent, give_up_at).ok();
        self.is_probing.store(false, Ordering::Release);
        connection
    }

    /// A connection that was lent after this refusal has answered all that it was asked.
    fn note_answered_after(&self, refusal: &Refusal) {
        let says_crowded = self.state().says_crowded(refusal);
        if says_crowded {
            self.tell_crowded(&refusal.error);
        }
    }

    /// A borrowed connection is parked, or its holder waits for answers by it again.
    fn note_parked(&self, is_parked: bool) {
        let mut state = self.state();
        state.park(is_parked);
        drop(state);
        // Who waited for it as a busy one is to look again.
        self.came_back.notify_all();
    }

    /// A connection was lost: where the pages can be had elsewhere, others that lie idle are not tried one
    /// after the other, which were lost with it if the server has ended.
    pub fn note_loss(&self) {
        if self.is_one_of_several {
            let mut state = self.state();
            let idle = std::mem::take(&mut state.idle);
            state.open = state.open.saturating_sub(idle.len());
            drop(state);
            idle.into_iter().for_each(|(connection, _)| connection.take_leave());
        }
    }

    /// A borrowed connection is of no more use.
    fn forget_one(&self) {
        let mut state = self.state();
        state.note_lost();
        drop(state);
        self.came_back.notify_one();
    }

    /// Puts a borrowed connection back, which has answered all that it was asked.
    fn put_back(&self, connection: Connection) {
        let mut state = self.state();
        state.idle.push((connection, Instant::now()));
        drop(state);
        self.came_back.notify_one();
    }

    /// Closes connections that nobody uses.
    pub fn tend(&self) {
        let kept = usize::from(!self.is_starving());
        let mut closed = Vec::new();
        let mut state = self.state();
        // The first has rested longest.
        while state.idle.len() > kept
            && state.idle.first().is_some_and(|(_, since)| kept == 0 || since.elapsed() > REST)
        {
            closed.push(state.idle.remove(0));
            state.open -= 1;
        }
        drop(state);
        closed.into_iter().for_each(|(connection, _)| connection.take_leave());
    }

    /// Another process of the run has no connection.
    fn is_starving(&self) -> bool {
        self.listener.get().is_some_and(|listener| listener.is_starving())
    }

    fn hear(&self, event: Event<'_>) {
        if let Some(listener) = self.listener.get() {
            listener.hear(&self.uri, event);
        }
    }

    /// Somebody waits, for this reason.
    pub fn tell_waiting(&self, reason: &str, waited: Duration, left: Duration) {
        if waited + LONGEST_PAUSE >= TELL_AFTER {
            self.hear(Event::Waiting { reason, left });
        }
        if self.is_without_connection() {
            self.hear(Event::Starving);
        }
    }

    /// The server has answered.
    pub fn tell_answer(&self) {
        self.hear(Event::Answering);
    }

    fn tell_crowded(&self, error: &ConnectError) {
        self.hear(Event::Crowded { reason: &error.to_string() });
    }
}

/// A connection that a lane has borrowed. Dropped, it is closed and counted no more.
pub(super) struct Lent {
    connection: Connection,
    count: Count,
    /// Why there is no further one: its holder had to wait for this one.
    refusal: Option<Refusal>,
}

/// Counts a connection as open for as long as it lives.
struct Count {
    pool: Arc<Pool>,
    is_put_back: bool,
    is_parked: bool,
}

impl Lent {
    fn new(pool: &Arc<Pool>, connection: Connection) -> Self {
        let count = Count { pool: Arc::clone(pool), is_put_back: false, is_parked: false };
        Self { connection, count, refusal: None }
    }

    /// Its holder has sent something by it, and goes on to something else before it waits for the answer:
    /// nobody waits for this connection meanwhile.
    pub fn parked(mut self) -> Self {
        self.count.park(true);
        self
    }

    /// Its holder waits for answers by it from now on, and for nothing else.
    pub fn resumed(mut self) -> Self {
        self.count.park(false);
        self
    }

    /// Leaves it to the next, once all that it was asked is answered.
    pub fn give_back(self) {
        let Self { connection, mut count, refusal } = self;
        if let Some(refusal) = refusal {
            count.pool.note_answered_after(&refusal);
        }
        let is_others_turn = count.pool.is_starving() && connection.since.elapsed() >= SLICE;
        if !is_others_turn && !connection.is_worn_out() {
            count.is_put_back = true;
            count.pool.put_back(connection);
        } else {
            connection.take_leave();
        }
    }

    /// Closes it so that nothing more of what was sent reaches the server.
    pub fn abandon(self) {
        self.connection.reset_when_closed();
    }

    /// The same where writes were sent: the server may have received some, and do them at any later time.
    pub fn abandon_writes(self) {
        let Self { connection, count: _count, .. } = self;
        connection.reset_when_closed();
        connection.leave_behind();
    }
}

impl Deref for Lent {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Count {
    fn park(&mut self, is_parked: bool) {
        if std::mem::replace(&mut self.is_parked, is_parked) != is_parked {
            self.pool.note_parked(is_parked);
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.park(false);
        if !self.is_put_back {
            self.pool.forget_one();
        }
    }
}

/// A system call of our own, because the process that this runs in may have replaced libc's.
pub(crate) fn sleep(duration: Duration) {
    let request = rustix::time::Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    };
    // Woken early by a signal: the caller's clock decides.
    let _ = rustix::thread::nanosleep(&request);
}

#[cfg(test)]
mod tests;
