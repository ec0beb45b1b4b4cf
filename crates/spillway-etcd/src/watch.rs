//! A watch on what is registered under a prefix: a thread that has etcd tell it of changes as they happen.
//!
//! It looks at all keys first and then has every change after that look told, so it misses none. One that
//! broke looks like one where nothing happens, and etcd may have lost its data: so no watch lasts longer than
//! [`LASTS`], and each begins with a look. While there is none, whoever wants to know asks for himself.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spillway_store::spec::EtcdPool;

use crate::answer::{Pair, Told};
use crate::gateway::Gateway;

/// A watch is begun anew after so long.
const LASTS: Duration = Duration::from_secs(10);
/// After one that could not be begun.
const PAUSE: Duration = Duration::from_secs(1);

/// A watch, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Watch(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    found: BTreeMap<String, String>,
    /// Every change is told at this time.
    is_live: bool,
    /// How often something has changed.
    changes: u64,
    is_over: bool,
}

impl Seen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to go on.
    fn hear(&self, told: Told) -> bool {
        let mut state = self.state();
        match told {
            Told::Begun => state.is_live = true,
            Told::Put((key, value)) => {
                let before = state.found.insert(key, value.clone());
                state.changes += u64::from(before != Some(value));
            }
            Told::Deleted(key) => state.changes += u64::from(state.found.remove(&key).is_some()),
        }
        self.changed.notify_all();
        !state.is_over
    }

    fn begin(&self, found: Vec<Pair>) {
        let mut state = self.state();
        let found = found.into_iter().collect();
        state.changes += u64::from(state.found != found);
        state.found = found;
        self.changed.notify_all();
    }

    /// Whether to begin another.
    fn end(&self) -> bool {
        let mut state = self.state();
        state.is_live = false;
        !state.is_over
    }
}

impl Watch {
    /// Begins one; `None` where there can be no thread for it, or no way to etcd any more.
    pub(crate) fn start(pool: &EtcdPool, prefix: String) -> Option<Self> {
        let seen = Arc::<Seen>::default();
        let (own, mut gateway) = (Arc::clone(&seen), Gateway::new(pool).ok()?);
        let body = move || {
            while own.end() {
                // Why it ended is of no matter: the next look says what is so.
                let _ = gateway.under_at(&prefix).and_then(|(found, revision)| {
                    own.begin(found);
                    gateway.watch(&prefix, revision, LASTS, |told| own.hear(told))
                });
                let was_live = own.state().is_live;
                if own.end() && !was_live {
                    std::thread::sleep(PAUSE);
                }
            }
        };
        std::thread::Builder::new().name("etcd watch".into()).spawn(body).ok()?;
        Some(Self(seen))
    }

    /// What is registered now; `None` where etcd has to be asked.
    pub(crate) fn found(&self) -> Option<Vec<Pair>> {
        let state = self.0.state();
        let pairs = || state.found.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        state.is_live.then(pairs)
    }

    /// How many changes there were so far.
    pub(crate) fn changes(&self) -> u64 {
        self.0.state().changes
    }

    /// Waits for a change after so many, for so long at most; whether there is one.
    pub(crate) fn await_change(&self, known: u64, most: Duration) -> bool {
        let state = self.0.state();
        let is_same = |state: &mut State| state.changes == known;
        let waited = self.0.changed.wait_timeout_while(state, most, is_same);
        waited.is_ok_and(|(state, _)| state.changes != known)
    }
}

impl Drop for Watch {
    /// Its thread ends with the next change, or when the watch is over.
    fn drop(&mut self) {
        self.0.state().is_over = true;
    }
}
