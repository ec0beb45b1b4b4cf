//! Which exports exist, who uses them, what they were promised, and when a private one goes.
//!
//! A *named* export is made on first use, takes memory that nobody was promised, and stays until the donor
//! stops or is told to drop it. By TLS it belongs to the name in its maker's certificate: others neither see
//! nor reach it, and may have one of the same name. Where nobody shows who he is, everybody sees it.
//!
//! A *private* export belongs to a run, which is promised all of its memory before it begins. It goes when
//! the run says that it has ended, or some grace time after the run's last connection was lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_nbd::run_standing::RunStanding;
use spillway_nbd::standing::Standing;
use spillway_tls::ClientName;

use crate::export::Export;
use crate::frames::FramePool;
use crate::journal::{Event, Journal};
use crate::lending::{Lending, Sample};
use crate::limits::Limits;
use crate::lock;
use crate::peer::Peer;
use crate::refusal::OpenError;
use crate::share::{Share, Shares};
use crate::status::ExportStatus;
pub use crate::visitor::{Terms, Visitor};

/// All exports of a donor.
#[derive(Debug)]
pub struct Registry {
    pool: Arc<FramePool>,
    size_bytes: u64,
    terms: Terms,
    journal: Arc<Journal>,
    /// No new run and no new client of a named export is let in.
    is_ending: AtomicBool,
    /// The same, and those that are there are asked to go elsewhere.
    is_draining: AtomicBool,
    lending: Mutex<Lending>,
    entries: Mutex<Entries>,
}

/// What a donor has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Bytes that may still be promised.
    pub free_bytes: u64,
    /// Bytes that are lent in all: these, and what is promised or taken.
    pub offered_bytes: u64,
}

#[derive(Debug, Default)]
struct Entries {
    named: BTreeMap<Named, Entry>,
    /// By token and name.
    private: HashMap<(String, String), Entry>,
    /// How many runs there were so far.
    runs: u64,
    /// What each client that has exports may hold, where that is limited.
    shares: Shares,
}

/// By what a named export is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    /// Whose it is, by certificate; everybody's where that is nobody.
    owner: Option<ClientName>,
    name: String,
}

impl Named {
    fn of(name: &str, peer: Peer) -> Self {
        let owner = match peer {
            Peer::Certificate(owner) => Some(owner),
            Peer::Address(_) | Peer::User(_) | Peer::Unknown => None,
        };
        Self { owner, name: name.to_owned() }
    }
}

#[derive(Debug)]
struct Entry {
    export: Arc<Export>,
    /// Who made it, by address or user.
    peer: Peer,
    /// The run's number; 0 for a named export.
    run: u64,
    connections: usize,
    /// When the last connection went.
    idle_since: Instant,
}

/// An export that a connection has open.
#[derive(Debug)]
pub struct Attachment {
    registry: Arc<Registry>,
    visitor: Visitor,
    name: Named,
    /// The export that the connection uses.
    pub export: Arc<Export>,
}

impl Attachment {
    /// Whether the connection is the one that began a run, which alone can end it.
    #[must_use]
    pub fn begins_run(&self) -> bool {
        matches!(self.visitor, Visitor::Run { .. })
    }

    /// Whether the connection is one by which a process of a run keeps its pages.
    #[must_use]
    pub fn is_lane(&self) -> bool {
        matches!(self.visitor, Visitor::Lane(_))
    }

    /// The run has ended: what it had is given back, and its promise with it, before this returns.
    pub fn end_run(&self) {
        let key = (self.visitor.token().unwrap_or_default().to_owned(), self.name.name.clone());
        let mut entries = lock(&self.registry.entries);
        if entries.private.get(&key).is_none_or(|entry| !Arc::ptr_eq(&entry.export, &self.export)) {
            return;
        }
        let entry = entries.private.remove(&key);
        drop(entries);
        if let Some(entry) = entry {
            let (run, peer, held) = (entry.run, entry.peer, held(&entry.export));
            entry.export.drop_contents();
            self.registry.journal.tell(&Event::RunEnded { run, peer, held });
        }
    }
}

fn held(export: &Export) -> Size {
    Size::from_bytes((export.stored_pages() * PAGE_SIZE) as u64)
}

impl Registry {
    /// No exports yet. A named one will show `size_bytes`.
    #[must_use]
    pub fn new(pool: Arc<FramePool>, size_bytes: u64, terms: Terms, journal: Arc<Journal>) -> Arc<Self> {
        let (is_ending, is_draining) = (AtomicBool::new(false), AtomicBool::new(false));
        let (lending, entries) = (Mutex::new(Lending::new(terms.keep_free.bytes())), Mutex::default());
        Arc::new(Self { pool, size_bytes, terms, journal, is_ending, is_draining, lending, entries })
    }

    /// Size of a named export, and most that a private one can have.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The memory that is lent.
    #[must_use]
    pub fn pool(&self) -> &FramePool {
        &self.pool
    }

    /// What is counted and told.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Names of the named exports that a client can open, in order.
    #[must_use]
    pub fn names(&self, peer: Peer) -> Vec<String> {
        let own = Named::of("", peer).owner;
        let entries = lock(&self.entries);
        entries.named.keys().filter(|named| named.owner == own).map(|named| named.name.clone()).collect()
    }

    /// Whether a run's private export is there.
    #[must_use]
    pub fn has_private(&self, token: &str, name: &str) -> bool {
        lock(&self.entries).private.contains_key(&(token.to_owned(), name.to_owned()))
    }

    /// Lets in nobody new from now on; further connections of runs that are there still come in, and these
    /// are told to go elsewhere.
    pub fn begin_to_end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Lets in no new run from now on and tells those that are there to go elsewhere; or no more of that.
    pub fn drain(&self, is_draining: bool, peer: Peer) {
        if self.is_draining.swap(is_draining, Ordering::Relaxed) == is_draining {
            return;
        }
        self.journal.tell(&Event::Drain { peer, is_draining });
    }

    /// Takes note of how the machine is off for memory. What is promised hangs on it, and whether runs are
    /// asked to go elsewhere.
    pub fn note_available(&self, sample: Sample) {
        let turned = lock(&self.lending).note(sample);
        if let Some(is_short) = turned {
            let (available, keep_free) = (Size::from_bytes(sample.available_bytes), self.terms.keep_free);
            self.journal.tell(&Event::Short { available, keep_free, is_short });
        }
    }

    /// Whether the machine is short of memory.
    #[must_use]
    pub fn is_short(&self) -> bool {
        lock(&self.lending).is_short()
    }

    /// What is kept free on the machine.
    #[must_use]
    pub fn keep_free(&self) -> Size {
        self.terms.keep_free
    }

    /// What may still be promised, and what is lent with it. Of what is promised already all may be taken
    /// any time.
    #[must_use]
    pub fn offer(&self) -> Offer {
        let frames = self.pool.standing();
        let bytes = |pages: usize| (pages * PAGE_SIZE) as u64;
        let committed_bytes = self.size_bytes.saturating_sub(bytes(frames.unpromised));
        let untaken_bytes = committed_bytes.saturating_sub(bytes(frames.taken));
        let spare_bytes = lock(&self.lending).spare_bytes().unwrap_or(u64::MAX);
        let free_bytes = bytes(frames.unpromised).min(spare_bytes.saturating_sub(untaken_bytes));
        let free_bytes = free_bytes - free_bytes % PAGE_SIZE as u64;
        Offer { free_bytes, offered_bytes: committed_bytes + free_bytes }
    }

    /// How the donor stands, for anybody who may connect.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let (runs, run_pages) = {
            let entries = lock(&self.entries);
            let pages = entries.private.values().map(|entry| entry.export.stored_pages()).sum::<usize>();
            (entries.private.len() as u64, pages)
        };
        let frames = self.pool.standing();
        let bytes = |pages: usize| (pages * PAGE_SIZE) as u64;
        let Offer { free_bytes, offered_bytes } = self.offer();
        Standing {
            offered_bytes,
            promised_bytes: bytes(frames.promised),
            free_bytes,
            held_bytes: bytes(frames.taken),
            run_bytes: bytes(run_pages),
            runs,
            is_draining: self.is_draining.load(Ordering::Relaxed) || self.is_ending.load(Ordering::Relaxed),
            is_short: self.is_short(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// What is there for each run, for anybody who may connect.
    #[must_use]
    pub fn runs(&self) -> Vec<RunStanding> {
        let entries = lock(&self.entries);
        let run = |entry: &Entry| RunStanding {
            number: entry.run,
            promised_bytes: entry.export.promised_bytes().unwrap_or(0),
            held_bytes: held(&entry.export).bytes(),
            is_lost: entry.connections == 0,
        };
        entries.private.values().map(run).collect()
    }

    /// Opens an export, making it where the visitor may.
    pub fn open(
        self: &Arc<Self>,
        name: &str,
        visitor: &Visitor,
        peer: Peer,
    ) -> Result<Attachment, OpenError> {
        let mut events = Vec::new();
        let opened = self.open_quietly(name, visitor, peer, &mut events);
        if let Err(error) = &opened {
            events.push(Event::Refused { peer, reason: error.to_string() });
        }
        for event in &events {
            self.journal.tell(event);
        }
        opened
    }

    fn open_quietly(
        self: &Arc<Self>,
        name: &str,
        visitor: &Visitor,
        peer: Peer,
        events: &mut Vec<Event>,
    ) -> Result<Attachment, OpenError> {
        let mut entries = lock(&self.entries);
        let name = Named::of(name, peer);
        let is_ending = self.is_ending.load(Ordering::Relaxed);
        if is_ending && !(entries.exists(&name, visitor) && visitor.token().is_some()) {
            return Err(OpenError::Ending);
        }
        if !entries.exists(&name, visitor) {
            if matches!(visitor, Visitor::Lane(_)) {
                return Err(OpenError::Lost);
            }
            if self.is_draining.load(Ordering::Relaxed) {
                return Err(OpenError::Draining);
            }
            if matches!(visitor, Visitor::Run { .. }) && self.is_short() {
                return Err(OpenError::Short { keep_free: self.terms.keep_free });
            }
            entries.make_room(&self.terms.limits, peer)?;
            let entry = self.make(&mut entries, visitor, peer)?;
            events.push(match visitor {
                Visitor::Anyone => Event::ExportMade { name: name.name.clone(), peer },
                _ => Event::RunGranted {
                    run: entry.run,
                    peer,
                    granted: Size::from_bytes(entry.export.size_bytes()),
                    free: Size::from_bytes(self.offer().free_bytes),
                },
            });
            entries.insert(&name, visitor, entry);
        }
        let entry = entries.get_mut(&name, visitor).ok_or(OpenError::Lost)?;
        if entry.connections == 0 && entry.run > 0 && events.is_empty() {
            events.push(Event::RunFound { run: entry.run, peer });
        }
        entry.connections += 1;
        let export = Arc::clone(&entry.export);
        Ok(Attachment { registry: Arc::clone(self), visitor: visitor.clone(), name, export })
    }

    fn make(&self, entries: &mut Entries, visitor: &Visitor, peer: Peer) -> Result<Entry, OpenError> {
        let share = self.terms.per_client.map(|most| entries.shares.of(peer, most));
        let (export, run) = match visitor {
            Visitor::Run { asked_bytes, .. } => {
                let export = self.grant(entries, *asked_bytes, share)?;
                entries.runs += 1;
                (export, entries.runs)
            }
            _ => (Export::new(Arc::clone(&self.pool), self.size_bytes, None).counted(share), 0),
        };
        Ok(Entry { export: Arc::new(export), peer, run, connections: 0, idle_since: Instant::now() })
    }

    /// Promises a run what it asks for, or, where it asks for nothing particular, what there is.
    fn grant(
        &self,
        entries: &Entries,
        asked_bytes: u64,
        share: Option<Arc<Share>>,
    ) -> Result<Export, OpenError> {
        let most_bytes = self.terms.per_run.map_or(self.size_bytes, |most| most.bytes().min(self.size_bytes));
        if asked_bytes > most_bytes && self.terms.per_run.is_some() {
            let (asked, most) = (Size::from_bytes(asked_bytes), Size::from_bytes(most_bytes));
            return Err(OpenError::TooLarge { asked, most });
        }
        let Offer { free_bytes, offered_bytes } = self.offer();
        let share_bytes = share.as_ref().map_or(u64::MAX, |share| (share.left() * PAGE_SIZE) as u64);
        let bytes = match asked_bytes {
            0 => most_bytes.min(free_bytes).min(share_bytes),
            asked => asked,
        };
        let frames = usize::try_from(bytes.div_ceil(PAGE_SIZE as u64)).unwrap_or(usize::MAX);
        if let Some(share) = &share
            && (share_bytes == 0 || !share.take(frames))
        {
            let most = Size::from_bytes((share.most() * PAGE_SIZE) as u64);
            let (asked, left) = (Size::from_bytes(asked_bytes), Size::from_bytes(share_bytes));
            return Err(OpenError::ShareSpent { asked, left, most });
        }
        let is_spare = frames > 0 && bytes <= free_bytes;
        let promise = if is_spare { self.pool.promise(frames).ok() } else { None };
        let Some(promise) = promise else {
            if let Some(share) = share {
                share.give_back(frames);
            }
            let (lost, lost_for) = self.lost(entries);
            let (asked, free) = (Size::from_bytes(asked_bytes), Size::from_bytes(free_bytes));
            let offered = Size::from_bytes(offered_bytes);
            return Err(OpenError::NoRoom { asked, free, offered, lost, lost_for });
        };
        let size_bytes = (frames * PAGE_SIZE) as u64;
        Ok(Export::new(Arc::clone(&self.pool), size_bytes, Some(promise)).counted(share))
    }

    /// What is promised to runs that are lost, and how long it is still kept for them.
    fn lost(&self, entries: &Entries) -> (Size, Duration) {
        let lost = || entries.private.values().filter(|entry| entry.connections == 0);
        let bytes = lost().filter_map(|entry| entry.export.promised_bytes()).sum();
        let left = lost().map(|entry| self.grace_left(entry)).max();
        (Size::from_bytes(bytes), left.unwrap_or_default())
    }

    fn grace_left(&self, entry: &Entry) -> Duration {
        self.terms.grace.saturating_sub(entry.idle_since.elapsed())
    }

    /// Drops a named export of a client's with all it holds. Whoever has it open gets errors from now on.
    /// `false` where there is none.
    pub fn drop_named(&self, name: &str, peer: Peer) -> bool {
        let entry = lock(&self.entries).named.remove(&Named::of(name, peer));
        match entry {
            Some(entry) => {
                let held = held(&entry.export);
                entry.export.drop_contents();
                self.journal.tell(&Event::ExportDropped { name: name.to_owned(), held, peer });
                true
            }
            None => false,
        }
    }

    /// Drops the private exports whose grace time is over.
    pub fn drop_expired(&self, now: Instant) {
        let grace = self.terms.grace;
        let expired = |entry: &Entry| {
            entry.connections == 0 && now.saturating_duration_since(entry.idle_since) >= grace
        };
        let gone: Vec<_> = lock(&self.entries)
            .private
            .extract_if(|_, entry| expired(entry))
            .map(|(_, entry)| entry)
            .collect();
        // Giving many frames back takes a while; nobody waits for it.
        for entry in gone {
            let (run, peer, held) = (entry.run, entry.peer, held(&entry.export));
            entry.export.drop_contents();
            self.journal.tell(&Event::RunExpired { run, peer, held });
        }
    }

    fn leave(&self, attachment: &Attachment) {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&attachment.name, &attachment.visitor);
        // A named export may have been dropped, and made anew, meanwhile.
        let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.export, &attachment.export)) else {
            return;
        };
        entry.connections -= 1;
        entry.idle_since = Instant::now();
        if entry.connections > 0 || entry.run == 0 {
            return;
        }
        let lost = Event::RunLost { run: entry.run, peer: entry.peer, grace: self.terms.grace };
        drop(entries);
        self.journal.tell(&lost);
        if self.terms.grace.is_zero() {
            self.drop_expired(Instant::now());
        }
    }

    /// Runs that are there, with connections or in their grace time.
    #[must_use]
    pub fn run_count(&self) -> usize {
        lock(&self.entries).private.len()
    }

    /// Whether an export is open.
    #[must_use]
    pub fn has_users(&self) -> bool {
        let entries = lock(&self.entries);
        entries.named.values().chain(entries.private.values()).any(|entry| entry.connections > 0)
    }

    /// What each export has, named ones first.
    #[must_use]
    pub fn status(&self) -> Vec<ExportStatus> {
        let entries = lock(&self.entries);
        let named = entries.named.iter().map(|(named, entry)| (named.name.clone(), entry));
        let mut private: Vec<_> = entries.private.iter().collect();
        private.sort_by_key(|(_, entry)| entry.run);
        let private = private.into_iter().map(|((_, name), entry)| (name.clone(), entry));
        named
            .chain(private)
            .map(|(name, entry)| ExportStatus {
                name,
                run: (entry.run > 0).then_some(entry.run),
                client: entry.peer.to_string(),
                connections: entry.connections as u64,
                promised_bytes: entry.export.promised_bytes(),
                held_bytes: held(&entry.export).bytes(),
                grace_left_s: (entry.run > 0 && entry.connections == 0)
                    .then(|| self.grace_left(entry).as_secs_f64()),
            })
            .collect()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.registry.leave(self);
    }
}

impl Entries {
    fn exists(&mut self, name: &Named, visitor: &Visitor) -> bool {
        self.get_mut(name, visitor).is_some()
    }

    fn get_mut(&mut self, name: &Named, visitor: &Visitor) -> Option<&mut Entry> {
        match visitor.token() {
            None => self.named.get_mut(name),
            Some(token) => self.private.get_mut(&(token.to_owned(), name.name.clone())),
        }
    }

    fn insert(&mut self, name: &Named, visitor: &Visitor, entry: Entry) {
        match visitor.token() {
            None => {
                self.named.insert(name.clone(), entry);
            }
            Some(token) => {
                self.private.insert((token.to_owned(), name.name.clone()), entry);
            }
        }
    }

    fn of(&self, peer: Peer) -> usize {
        self.named.values().chain(self.private.values()).filter(|entry| entry.peer == peer).count()
    }

    fn count(&self) -> usize {
        self.named.len() + self.private.len()
    }

    /// Makes room for one more export of a client, at the expense of named ones that nobody uses and that
    /// hold nothing.
    fn make_room(&mut self, limits: &Limits, peer: Peer) -> Result<(), OpenError> {
        if self.count() >= limits.exports || self.of(peer) >= limits.exports_per_client {
            self.named.retain(|_, entry| entry.connections > 0 || entry.export.stored_pages() > 0);
        }
        if self.of(peer) >= limits.exports_per_client {
            return Err(OpenError::TooManyOfClient(limits.exports_per_client));
        }
        if self.count() >= limits.exports { Err(OpenError::TooMany(limits.exports)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
