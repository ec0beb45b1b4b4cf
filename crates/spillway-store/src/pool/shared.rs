//! The pool as one process sees it: the table that the run shares, and the process's own ways to each donor.
//!
//! To each donor there are two ways, each a store of [`crate::nbd`] with its own connections and patience:
//! reads are given up soon, for another copy is asked then; a write that is given up costs a copy. A way that
//! was given up is of no more use, and another is opened once the table says that the donor came up again.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use spillway_pool::health::FIRST_SILENCE_US;
use spillway_pool::read::donors_of;
use spillway_pool::slabs::locate::Refusal;
use spillway_pool::table::Table;
use spillway_pool::words::{Condition, DonorWord, Place};
use spillway_pool::{EXTENT_SLOTS, MAX_DONORS};
use spillway_sys::shared_memory::SharedMemory;

use super::donor_store::{donor_spec, token_of};
use super::spill::LastResort;
use crate::memory::{no_memory_file, shared_file};
use crate::nbd::{Door, known_address};
use crate::spec::{Code, PoolSpec, Redundancy};
use crate::{Event, Hear, Listener, Patience, SharedParts, Store, StoreError, StoreSpec};

/// A donor that breaks a connection gets so long to take another, before a read goes elsewhere.
const READ_RECONNECT: Duration = Duration::from_millis(30);
/// The same for a write: no longer than a program may stand still. Who waits longer gains nothing where the
/// donor was ended: it comes back empty.
const WRITE_RECONNECT: Duration = Duration::from_millis(40);
/// A way that was given up is not tried anew sooner, while nobody has said that the donor is back.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// What a way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
}

/// A way to a donor.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) store: Arc<dyn Store>,
    pub(super) number: u64,
    word: DonorWord,
    opened: Instant,
}

#[derive(Default)]
struct Donor {
    /// The donor as a store, once it was asked for: donors may join while the run lasts.
    spec: OnceLock<StoreSpec>,
    /// For reading and for writing. Locked for moments, never while anything is sent or waited for.
    ways: [Mutex<Option<Way>>; 2],
}

/// What all lanes of a process share.
pub(super) struct Shared {
    pub(super) uri: String,
    pub(super) spec: PoolSpec,
    pub(super) token: String,
    memory: SharedMemory,
    donors: Vec<Donor>,
    resort: Option<LastResort>,
    listener: OnceLock<Listener>,
    numbers: AtomicU64,
}

/// Milliseconds of the machine's clock, which all processes of a run share.
pub(super) fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    1 + now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// How the run's pages outlive donors, as was settled when it began.
fn redundancy_of(table: &Table<'_>) -> Redundancy {
    match table.coding() {
        Some(coding) => Redundancy::Coded(Code { data: coding.data, parity: coding.parity }),
        None => Redundancy::Copies { copies: table.wanted_copies(), least: table.least_copies() },
    }
}

impl Shared {
    /// Maps the run's table into this process.
    pub(super) fn open(
        spec: &StoreSpec,
        pool: &PoolSpec,
        parts: SharedParts,
        run_token: &str,
    ) -> Result<Self, StoreError> {
        let SharedParts { fd, spill, .. } = parts;
        let file = shared_file(spec, fd)?;
        let memory = SharedMemory::map(&file).map_err(|errno| no_memory_file(spec, errno))?;
        let other_version =
            || spec.unusable("the run's table is another version's", "use one version of Spillway");
        let table = Table::open(memory.atomics_u64(0, memory.bytes() / 8)).ok_or_else(other_version)?;
        let is_known = |donor: usize| {
            table.is_spill(donor) || donor_spec(&table.text(donor), &pool.transport, None).is_some()
        };
        if !(0..table.donors()).all(is_known) {
            return Err(other_version());
        }
        let resort = table
            .spill()
            .zip(pool.spill.as_ref())
            .map(|(donor, wish)| LastResort::open(spec, wish, (donor, table.room(donor).0), spill));
        let resort = resort.transpose()?;
        let donors = (0..MAX_DONORS).map(|_| Donor::default()).collect();
        Ok(Shared {
            uri: spec.to_string(),
            spec: pool.with(redundancy_of(&table)),
            token: run_token.to_owned(),
            memory,
            donors,
            resort,
            listener: OnceLock::new(),
            numbers: AtomicU64::new(1),
        })
    }

    pub(super) fn table(&self) -> Table<'_> {
        Table::known(self.memory.atomics_u64(0, self.memory.bytes() / 8))
    }

    /// The last resort, if the pool has one.
    pub(super) fn last_resort(&self) -> Option<&LastResort> {
        self.resort.as_ref()
    }

    fn last_resort_at(&self, donor: usize) -> Option<&LastResort> {
        self.resort.as_ref().filter(|resort| resort.donor == donor)
    }

    /// What a donor is called in messages.
    pub(super) fn name(&self, donor: usize) -> String {
        if let Some(resort) = self.last_resort_at(donor) {
            return format!("the last resort file:{}", resort.path);
        }
        self.spec.listed().get(donor).map_or_else(|| self.table().text(donor), ToString::to_string)
    }

    /// A donor as a store of its own; `None` where its address is none.
    pub(super) fn donor_spec(&self, donor: usize) -> Option<&StoreSpec> {
        let place = &self.donors[donor].spec;
        if place.get().is_none() {
            let host = self.spec.listed().get(donor).map(|named| named.host.as_str());
            let _ = place.set(donor_spec(&self.table().text(donor), &self.spec.transport, host)?);
        }
        place.get()
    }

    /// Donors that take new pages now: among whom one that comes has its share.
    pub(super) fn well_donors(&self) -> usize {
        self.table().candidates().iter().filter(|donor| donor.is_well).count()
    }

    /// Where a donor is asked how it stands.
    pub(super) fn door(&self, donor: usize) -> Option<Door> {
        known_address(self.donor_spec(donor)?, &self.token).map(Door::known)
    }

    fn patience(&self, donor: usize, purpose: Purpose) -> Patience {
        match purpose {
            Purpose::Read => {
                let silence_us = match self.table().silence_us(donor) {
                    0 => FIRST_SILENCE_US,
                    known => known,
                };
                let timeout = Duration::from_micros(silence_us).min(self.spec.patience.timeout);
                Patience { timeout, reconnect: READ_RECONNECT }
            }
            Purpose::Write => Patience { timeout: self.spec.patience.timeout, reconnect: WRITE_RECONNECT },
        }
    }

    /// A way to a donor as it is now.
    pub(super) fn way(&self, donor: usize, purpose: Purpose) -> Result<Way, StoreError> {
        let word = self.table().donor(donor);
        if let Some(resort) = self.last_resort_at(donor) {
            let store = Arc::clone(&resort.store);
            return Ok(Way { store, number: 0, word, opened: Instant::now() });
        }
        let place = &self.donors[donor].ways[purpose as usize];
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(way) = &*place {
            let is_same = (way.word.life, way.word.epoch) == (word.life, word.epoch);
            if is_same && (!way.store.is_given_up() || way.opened.elapsed() < TRY_AGAIN) {
                return Ok(Way { word, ..way.clone() });
            }
        }
        let patience = self.patience(donor, purpose);
        let way = self.open_way(donor, word, patience)?;
        if let (Purpose::Write, Some(listener)) = (purpose, self.listener.get()) {
            way.store.listen(Arc::new(KeeperOfWrites(Listener::clone(listener))));
        }
        *place = Some(way.clone());
        Ok(way)
    }

    /// A way of its own, which nobody else uses.
    pub(super) fn open_way(
        &self,
        donor: usize,
        word: DonorWord,
        patience: Patience,
    ) -> Result<Way, StoreError> {
        let (capacity, _) = self.table().room(donor);
        let parts = SharedParts {
            capacity_slots: capacity * EXTENT_SLOTS,
            fd: None,
            held: Vec::new(),
            spill: None,
            notice: None,
        };
        let token = token_of(&self.token, word.life);
        let no_address = || StoreError::Gone {
            store: self.uri.clone(),
            reason: format!("donor {} has no address", self.name(donor)),
        };
        let spec = self.donor_spec(donor).ok_or_else(no_address)?;
        let store = crate::nbd::open_one_of_several(spec, parts, &token, patience)?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Ok(Way { store, number, word, opened: Instant::now() })
    }

    /// Notes that a way was given up. `word` is the donor's as it was when the way was used.
    pub(super) fn complain(&self, donor: usize, word: DonorWord, condition: Condition) {
        self.table().complain(donor, word, condition, now_ms());
    }

    /// Notes what a donor has made of writes; returns what the last resort could not do, if it was that.
    pub(super) fn note_written<'a>(
        &self,
        donor: usize,
        word: DonorWord,
        outcomes: impl Iterator<Item = &'a Result<(), StoreError>>,
    ) -> Option<StoreError> {
        let resort = self.last_resort_at(donor);
        let is_grave = |error: &&StoreError| resort.is_some() || matches!(error, StoreError::Gone { .. });
        let error = outcomes.filter_map(|outcome| outcome.as_ref().err()).find(is_grave)?;
        self.complain(donor, word, Condition::Down);
        resort.map(|resort| resort.failure(&self.uri, error.clone()))
    }

    /// Notes what has come of reads from a donor, where that is the last resort.
    pub(super) fn note_read<'a>(
        &self,
        donor: usize,
        outcomes: impl Iterator<Item = &'a Result<(), StoreError>>,
    ) {
        if let Some(resort) = self.last_resort_at(donor) {
            resort.note_read(outcomes);
        }
    }

    pub(super) fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// The ways that are open now.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> {
        let all = self.donors.iter().flat_map(|donor| &donor.ways);
        all.filter_map(|way| way.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    pub(super) fn hear(&self, event: Event<'_>) {
        if let Some(listener) = self.listener.get() {
            listener.hear(&self.uri, event);
        }
    }

    /// Until when a page or a slot of an extent is waited for whose donors are away.
    pub(super) fn waits_until_ms(&self, extent: u32, since_ms: u64) -> u64 {
        let table = self.table();
        let seen = table.snapshot(extent);
        let reconnect_ms = self.spec.patience.reconnect.as_millis() as u64;
        let until = |place: &Place| match table.donor(usize::from(place.donor)).condition {
            Condition::Down => table.ill_since_ms(usize::from(place.donor)),
            Condition::Up | Condition::Suspect => since_ms,
        };
        let whole = (0..seen.places.len()).filter(|&copy| table.is_whole(&seen, copy));
        let latest = whole.filter_map(|copy| seen.places[copy].as_ref().map(until)).max();
        latest.unwrap_or(since_ms).min(since_ms) + reconnect_ms
    }

    /// The same for a coded page with parts on these donors.
    pub(super) fn waits_until_for(&self, donors: &[usize], since_ms: u64) -> u64 {
        let table = self.table();
        let is_down = |donor: &&usize| table.donor(**donor).condition == Condition::Down;
        let since = donors.iter().filter(is_down).map(|&donor| table.ill_since_ms(donor));
        let reconnect_ms = self.spec.patience.reconnect.as_millis() as u64;
        since.max().unwrap_or(since_ms).min(since_ms) + reconnect_ms
    }

    /// Donors that have room for a page, though none could be found for it now: silent, or away and not for
    /// so long that they are given up. Where none can be reached, all: each may come back with room.
    pub(super) fn room_awaited(&self, since_ms: u64) -> RoomAwaited {
        let table = self.table();
        let reconnect_ms = self.spec.patience.reconnect.as_millis() as u64;
        let mut awaited = RoomAwaited { donors: Vec::new(), until_ms: 0 };
        let candidates = table.candidates();
        let can_none_be_reached = !candidates.iter().any(|candidate| candidate.is_well);
        for (donor, candidate) in candidates.iter().enumerate() {
            let may_have_room = candidate.free > 0 || can_none_be_reached;
            if !may_have_room || table.is_leaving(donor) || table.is_spill(donor) {
                continue;
            }
            let since_ms = match table.donor(donor).condition {
                Condition::Down => table.ill_since_ms(donor).min(since_ms),
                Condition::Up | Condition::Suspect => since_ms,
            };
            awaited.donors.push(donor);
            awaited.until_ms = awaited.until_ms.max(since_ms + reconnect_ms);
        }
        awaited
    }

    /// Donors by name, for a message.
    pub(super) fn names_of(&self, donors: &[usize]) -> String {
        let names: Vec<String> = donors.iter().map(|&donor| self.name(donor)).collect();
        names.join(" and ")
    }

    fn donors_named(&self, extent: u32) -> String {
        self.names_of(&donors_of(&self.table(), extent))
    }

    /// The error for a coded page of which too few parts are left.
    pub(super) fn parts_lost(&self, donors: &[usize]) -> StoreError {
        let reason = format!(
            "too few parts of the page's row are left: what donors {} had is gone",
            self.names_of(donors)
        );
        StoreError::Gone { store: self.uri.clone(), reason }
    }

    /// The error for a coded page of which too few parts can be had, though they may be there.
    pub(super) fn parts_out_of_reach(&self, donors: &[usize], refusal: Refusal) -> StoreError {
        let reason = format!(
            "too few parts of the page's row can be had: donors {} cannot be reached, or give nothing, for \
             {} s{}",
            self.names_of(donors),
            crate::nbd::connection::seconds(self.spec.patience.reconnect),
            self.of_resort(refusal)
        );
        StoreError::Gone { store: self.uri.clone(), reason }
    }

    /// The error for a page that the last resort has, does not give, and no donor can give either.
    pub(super) fn refused_by_resort(&self) -> StoreError {
        let refused = self.resort.as_ref().map(LastResort::refused).unwrap_or_default();
        StoreError::Gone { store: self.uri.clone(), reason: format!("no donor has the page, and {refused}") }
    }

    /// What is to be added where the last resort did not give a page either.
    fn of_resort(&self, refusal: Refusal) -> String {
        let refused = self.resort.as_ref().filter(|_| refusal != Refusal::None).map(LastResort::refused);
        refused.map(|refused| format!("; and {refused}")).unwrap_or_default()
    }

    /// The error for a page that no donor has any more.
    pub(super) fn lost(&self, extent: u32) -> StoreError {
        let reason = format!("no copy of the page is left on donors {}", self.donors_named(extent));
        StoreError::Gone { store: self.uri.clone(), reason }
    }

    /// The error for a page that none of its donors gives, though it may have it.
    pub(super) fn out_of_reach(&self, extent: u32, refusal: Refusal) -> StoreError {
        let reason = format!(
            "the donors of the page, {}, cannot be reached, or give nothing, for {} s{}",
            self.donors_named(extent),
            crate::nbd::connection::seconds(self.spec.patience.reconnect),
            self.of_resort(refusal)
        );
        StoreError::Gone { store: self.uri.clone(), reason }
    }
}

/// Has the connections of ways to donors kept. What happens to donors is told by the pool.
struct KeeperOfWrites(Listener);

impl Hear for KeeperOfWrites {
    fn hear(&self, _store: &str, _event: Event<'_>) {}

    fn keep(&self, number: u64, connection: BorrowedFd<'_>) -> bool {
        self.0.keep(number, connection)
    }

    fn let_go(&self, number: u64) {
        self.0.let_go(number);
    }

    fn is_starving(&self) -> bool {
        false
    }
}

/// Donors whose room is waited for, and until when.
pub(super) struct RoomAwaited {
    pub(super) donors: Vec<usize>,
    /// By the clock of [`now_ms`].
    pub(super) until_ms: u64,
}

impl Way {
    /// The donor's word that the way was had by.
    pub(super) fn word(&self) -> DonorWord {
        self.word
    }
}
