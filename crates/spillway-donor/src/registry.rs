//! Which exports exist, who uses them, and when a private one goes.
//!
//! A *named* export is made on first use, is seen by everybody, and stays until the donor stops or is told to
//! drop it. A *private* one belongs to a run: it goes some grace time after the run's last connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::export::Export;
use crate::frames::FramePool;
use crate::lock;

/// Most exports of either kind. Each costs some KiB without any page.
pub const MAX_EXPORTS: usize = 1024;

/// For whom an export is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visitor {
    /// Anybody, by the export's name alone.
    Anyone,
    /// A run, by its token, that begins: its private export is made.
    Run(String),
    /// A further connection of a run: its private export must still be there, because what the run has
    /// written would be lost otherwise.
    Lane(String),
}

/// Why an export cannot be opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// The private export is not there (any more).
    #[error("this donor holds no memory of that run: it was restarted, or the run was away for too long")]
    Lost,
    /// There are as many exports as there may be.
    #[error("this donor has {MAX_EXPORTS} exports, the most it can have: drop one")]
    TooMany,
}

/// All exports of a donor.
#[derive(Debug)]
pub struct Registry {
    pool: Arc<FramePool>,
    size_bytes: u64,
    grace: Duration,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    named: BTreeMap<String, Entry>,
    /// By token and name.
    private: HashMap<(String, String), Entry>,
}

#[derive(Debug)]
struct Entry {
    export: Arc<Export>,
    connections: usize,
    /// When the last connection went.
    idle_since: Instant,
}

impl Entry {
    fn new(registry: &Registry) -> Self {
        let export = Arc::new(Export::new(Arc::clone(&registry.pool), registry.size_bytes));
        Self { export, connections: 0, idle_since: Instant::now() }
    }
}

/// An export that a connection has open.
#[derive(Debug)]
pub struct Attachment {
    registry: Arc<Registry>,
    visitor: Visitor,
    name: String,
    /// The export that the connection uses.
    pub export: Arc<Export>,
}

impl Registry {
    /// No exports yet. Each will show `size_bytes`.
    #[must_use]
    pub fn new(pool: Arc<FramePool>, size_bytes: u64, grace: Duration) -> Arc<Self> {
        Arc::new(Self { pool, size_bytes, grace, entries: Mutex::default() })
    }

    /// Size of every export.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The memory that is lent.
    #[must_use]
    pub fn pool(&self) -> &FramePool {
        &self.pool
    }

    /// Names of the named exports, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.entries).named.keys().cloned().collect()
    }

    /// Whether a run's private export is there.
    #[must_use]
    pub fn has_private(&self, token: &str, name: &str) -> bool {
        lock(&self.entries).private.contains_key(&(token.to_owned(), name.to_owned()))
    }

    /// Opens an export, making it where the visitor may.
    pub fn open(self: &Arc<Self>, name: &str, visitor: &Visitor) -> Result<Attachment, OpenError> {
        let mut entries = lock(&self.entries);
        if !entries.exists(name, visitor) {
            if matches!(visitor, Visitor::Lane(_)) {
                return Err(OpenError::Lost);
            }
            entries.make_room()?;
            entries.insert(name, visitor, Entry::new(self));
        }
        let entry = entries.get_mut(name, visitor).ok_or(OpenError::Lost)?;
        entry.connections += 1;
        let export = Arc::clone(&entry.export);
        drop(entries);
        Ok(Attachment { registry: Arc::clone(self), visitor: visitor.clone(), name: name.to_owned(), export })
    }

    /// Drops a named export with all it holds. Whoever has it open gets errors from now on. `false` where
    /// there is none.
    pub fn drop_named(&self, name: &str) -> bool {
        let entry = lock(&self.entries).named.remove(name);
        match entry {
            Some(entry) => {
                entry.export.drop_contents();
                true
            }
            None => false,
        }
    }

    /// Drops the private exports whose grace time is over.
    pub fn drop_expired(&self, now: Instant) {
        let expired = |entry: &Entry| {
            entry.connections == 0 && now.saturating_duration_since(entry.idle_since) >= self.grace
        };
        let gone: Vec<_> = lock(&self.entries)
            .private
            .extract_if(|_, entry| expired(entry))
            .map(|(_, entry)| entry)
            .collect();
        // Giving many frames back takes a while; nobody waits for it.
        drop(gone);
    }

    fn leave(&self, attachment: &Attachment) {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&attachment.name, &attachment.visitor);
        // A named export may have been dropped, and made anew, meanwhile.
        if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.export, &attachment.export)) {
            entry.connections -= 1;
            entry.idle_since = Instant::now();
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.registry.leave(self);
    }
}

impl Entries {
    fn exists(&mut self, name: &str, visitor: &Visitor) -> bool {
        self.get_mut(name, visitor).is_some()
    }

    fn get_mut(&mut self, name: &str, visitor: &Visitor) -> Option<&mut Entry> {
        match visitor {
            Visitor::Anyone => self.named.get_mut(name),
            Visitor::Run(token) | Visitor::Lane(token) => {
                self.private.get_mut(&(token.clone(), name.to_owned()))
            }
        }
    }

    fn insert(&mut self, name: &str, visitor: &Visitor, entry: Entry) {
        match visitor {
            Visitor::Anyone => {
                self.named.insert(name.to_owned(), entry);
            }
            Visitor::Run(token) | Visitor::Lane(token) => {
                self.private.insert((token.clone(), name.to_owned()), entry);
            }
        }
    }

    /// Makes room for one more export, at the expense of named ones that nobody uses and that hold nothing.
    fn make_room(&mut self) -> Result<(), OpenError> {
        if self.named.len() + self.private.len() < MAX_EXPORTS {
            return Ok(());
        }
        self.named.retain(|_, entry| entry.connections > 0 || entry.export.stored_pages() > 0);
        if self.named.len() + self.private.len() < MAX_EXPORTS { Ok(()) } else { Err(OpenError::TooMany) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(grace: Duration) -> Arc<Registry> {
        Registry::new(Arc::new(FramePool::new(16).unwrap()), 16 * 4096, grace)
    }

    fn put(attachment: &Attachment, byte: u8) {
        let page = [byte; 4096];
        let mut reservation = attachment.export.reserve(0, 4096).unwrap();
        attachment.export.write(&mut reservation, 0, &page).unwrap();
    }

    fn first_byte(attachment: &Attachment) -> u8 {
        let mut byte = [0xee];
        attachment.export.read(0, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn named_exports_persist_until_dropped() {
        let registry = registry(Duration::ZERO);
        put(&registry.open("", &Visitor::Anyone).unwrap(), 1);
        registry.drop_expired(Instant::now());
        let again = registry.open("", &Visitor::Anyone).unwrap();
        assert_eq!(first_byte(&again), 1);
        assert_eq!(registry.names(), [""]);
        assert!(registry.drop_named("") && !registry.drop_named(""));
        assert_eq!(registry.pool().taken(), 0);
        let fresh = registry.open("", &Visitor::Anyone).unwrap();
        drop(again); // must not count as the fresh one's leaving
        assert_eq!(first_byte(&fresh), 0);
        assert_eq!(lock(&registry.entries).named[""].connections, 1);
    }

    #[test]
    fn private_exports_are_apart_and_go_after_the_grace_time() {
        let registry = registry(Duration::from_secs(30));
        let first = registry.open("e", &Visitor::Run("one".into())).unwrap();
        let second = registry.open("e", &Visitor::Run("two".into())).unwrap();
        put(&first, 1);
        put(&second, 2);
        assert_eq!((first_byte(&first), first_byte(&second)), (1, 2));
        assert!(registry.names().is_empty());
        assert_eq!(first_byte(&registry.open("e", &Visitor::Lane("one".into())).unwrap()), 1);

        drop(first);
        let now = Instant::now();
        registry.drop_expired(now + Duration::from_secs(29));
        assert!(registry.has_private("one", "e"));
        registry.drop_expired(now + Duration::from_secs(31));
        assert!(!registry.has_private("one", "e") && registry.has_private("two", "e"));
        assert_eq!(registry.pool().taken(), 1);
        assert_eq!(registry.open("e", &Visitor::Lane("one".into())).unwrap_err(), OpenError::Lost);
    }

    #[test]
    fn the_number_of_exports_is_limited_and_empty_ones_make_room() {
        let registry = registry(Duration::ZERO);
        let open: Vec<_> =
            (0..MAX_EXPORTS).map(|n| registry.open(&n.to_string(), &Visitor::Anyone).unwrap()).collect();
        assert_eq!(registry.open("more", &Visitor::Anyone).unwrap_err(), OpenError::TooMany);
        drop(open);
        registry.open("more", &Visitor::Anyone).unwrap();
    }
}
