//! The supervisor's own use of the run's stores: it drops what dead processes held, claims exports that
//! others may open too, and has stores looked after while nobody needs them.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spillway_store::claim::{self, Claimant, Claimed};
use spillway_store::{Claim, SharedParts, Store, StoreError, StoreSpec, Tell};

use crate::run::state::{RunState, slot_ranges};
use crate::run::store_health::{self, Voice};
use crate::run::store_watch::{StoreWatch, Watched};

/// The stores of a run, in the order of its settings.
pub(crate) struct OwnStores {
    token: String,
    stores: Vec<Opened>,
    watch: StoreWatch,
    /// Who is told, once stores are looked after.
    tell: Option<Tell>,
}

/// A store, as the supervisor has it open.
struct Opened {
    spec: StoreSpec,
    capacity_slots: u32,
    /// What the run's processes get of it.
    fd: Option<OwnedFd>,
    /// The same of a pool's last resort.
    spill: Option<OwnedFd>,
    /// What a store that is supervised needs for it, while it is not.
    held: Mutex<Vec<OwnedFd>>,
    store: Option<Arc<dyn Store>>,
    /// The claim on it: its slot, and whose it is.
    claim: Option<(u32, Claimant)>,
}

impl Opened {
    fn parts(&self) -> Option<SharedParts> {
        let copy = |fd: &Option<OwnedFd>| fd.as_ref().map(OwnedFd::try_clone).transpose().ok();
        let (fd, spill) = (copy(&self.fd)?, copy(&self.spill)?);
        Some(SharedParts { capacity_slots: self.capacity_slots, fd, held: Vec::new(), spill, notice: None })
    }

    fn held(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn supervise(&self, tell: Tell) {
        if let Some(store) = &self.store {
            store.supervise(std::mem::take(&mut *self.held()), tell);
        }
    }

    fn pause(&self) {
        if let Some(store) = &self.store {
            self.held().extend(store.pause());
        }
    }

    fn open(&mut self, token: &str) {
        self.store = self.parts().and_then(|parts| self.spec.open(parts, token).ok());
    }

    /// Claims the export for this process, which goes on in place of the one that has. On a thread of its
    /// own: the server may have no connection left but what processes of the run give back, and those are to
    /// be served meanwhile.
    fn go_on_claiming(&mut self) {
        let (Some(store), Some((slot, claimant))) = (&self.store, &mut self.claim) else { return };
        *claimant = Claimant::this_process(&claimant.run);
        let (store, slot, claimant) = (Arc::clone(store), *slot, claimant.clone());
        let claim = move || {
            if let Ok(mut lane) = store.open_lane()
                && store.claim_slot().is_some()
            {
                let _ = claim::put(&mut *lane, slot, &claimant);
            }
        };
        // Without it another run finds a claim of a process that is gone, and says whose it was.
        let _ = std::thread::Builder::new().name("claim".into()).spawn(claim);
    }
}

/// The run's state, for those who tell of stores.
struct SharedRun(Arc<RunState>);

impl AsRef<RunState> for SharedRun {
    fn as_ref(&self) -> &RunState {
        &self.0
    }
}

impl OwnStores {
    /// Opens stores that were prepared. One that cannot be opened by now is told of by who needs it.
    pub(crate) fn open(token: String, prepared: Vec<(StoreSpec, SharedParts)>) -> Self {
        let opened = |(spec, parts): (StoreSpec, SharedParts)| {
            let SharedParts { capacity_slots, fd, held, spill, notice: _ } = parts;
            let held = Mutex::new(held);
            let mut opened = Opened { spec, capacity_slots, fd, spill, held, store: None, claim: None };
            opened.open(&token);
            opened
        };
        let stores = prepared.into_iter().map(opened).collect();
        Self { token, stores, watch: StoreWatch::default(), tell: None }
    }

    /// The stores in the order of the settings; none where one could not be opened.
    pub(crate) fn opened(&self) -> Vec<Option<Arc<dyn Store>>> {
        self.stores.iter().map(|opened| opened.store.clone()).collect()
    }

    /// What the run's processes get, store by store: its shared part, and its last resort.
    pub(crate) fn fds(&self) -> impl Iterator<Item = [Option<&OwnedFd>; 2]> {
        self.stores.iter().map(|opened| [&opened.fd, &opened.spill].map(Option::as_ref))
    }

    /// Another run can have an export of these after this one.
    pub(crate) fn may_be_used_by_others(&self) -> bool {
        self.stores.iter().any(|opened| opened.claim.is_some())
    }

    /// Claims the exports that others may open too. Returns what the user should know.
    pub(crate) fn claim(&mut self) -> Result<Vec<String>, StoreError> {
        let mut notices = Vec::new();
        let mut claimant = None;
        for Opened { spec, store, claim, .. } in &mut self.stores {
            let Some((store, Ok(mut lane))) = store.as_ref().map(|store| (store, store.open_lane())) else {
                continue;
            };
            let Some(slot) = store.claim_slot().filter(|_| spec.claim() != Claim::None) else { continue };
            // Not the run's token, which is for its processes alone.
            let own = claimant.get_or_insert_with(|| Claimant::this_process(&run_number()));
            let claimed = claim::claim(&mut *lane, store.uri(), slot, own, spec.claim())?;
            if let Claimed::TakenFrom(Claimant { host, pid, .. }) = claimed {
                let uri = store.uri();
                notices.push(format!(
                    "store {uri} is taken over from a run that is gone (process {pid} on {host})"
                ));
            }
            *claim = Some((slot, own.clone()));
        }
        Ok(notices)
    }

    /// Looks after them from now on, and has what happens to them told.
    pub(crate) fn watch(&mut self, run: RunState, tell: Tell) {
        let run = Arc::new(run);
        let mut watched = Vec::new();
        for (index, Opened { spec, store, claim, .. }) in self.stores.iter().enumerate() {
            let Some(store) = store else { continue };
            store.listen(store_health::listener(SharedRun(Arc::clone(&run)), index, Voice::Supervisor(tell)));
            if !matches!(spec, StoreSpec::Nbd { .. } | StoreSpec::NbdUnix { .. }) {
                continue;
            }
            if let Ok(lane) = store.open_lane() {
                watched.push(Watched { uri: store.uri().to_owned(), lane, claim: claim.clone() });
            }
        }
        self.watch = StoreWatch::start(watched, tell);
        self.tell = Some(tell);
        self.stores.iter().for_each(|opened| opened.supervise(tell));
    }

    /// Before this process is copied: no other thread of it is to be amid something.
    pub(crate) fn pause_watch(&self) {
        self.watch.pause();
        self.stores.iter().for_each(Opened::pause);
    }

    /// In a copy of this process, which goes on in its place: opens what only one of them may use, and says
    /// that the stores are claimed by this one now.
    pub(crate) fn go_on_in_copy(&mut self) {
        for opened in &mut self.stores {
            // Their locks may have been held by threads that are not in the copy.
            std::mem::forget(opened.store.take());
            opened.open(&self.token);
            opened.go_on_claiming();
            if let Some(tell) = self.tell {
                opened.supervise(tell);
            }
        }
    }

    /// Gives back what rests.
    pub(crate) fn tend(&self) {
        self.stores.iter().filter_map(|opened| opened.store.as_ref()).for_each(|store| store.tend());
    }

    /// The stores that are open, each with its slots among the run's.
    pub(crate) fn with_slots(&self) -> Vec<(Range<u32>, Arc<dyn Store>)> {
        let capacities: Vec<u32> = self.stores.iter().map(|opened| opened.capacity_slots).collect();
        let opened = slot_ranges(&capacities).into_iter().zip(&self.stores);
        opened.filter_map(|(range, opened)| Some((range, Arc::clone(opened.store.as_ref()?)))).collect()
    }
}

impl Drop for OwnStores {
    /// The run is over. Gives the claims back, and tells donors, which else would keep its memory for a run
    /// that was lost. A server that does not answer at once keeps no command from ending.
    fn drop(&mut self) {
        self.watch = StoreWatch::default();
        for opened in &mut self.stores {
            opened.pause();
            if let Some(store) = opened.store.take() {
                store.leave();
            }
            if let (Some((slot, own)), Some(parts)) = (&opened.claim, opened.parts()) {
                let opened_anew = opened.spec.in_a_hurry().open(parts, &self.token);
                if let Ok(store) = opened_anew
                    && let Ok(mut lane) = store.open_lane()
                    && store.claim_slot().is_some()
                {
                    let _ = claim::give_back(&mut *lane, *slot, own);
                }
            }
            if let Some(fd) = &opened.fd {
                opened.spec.end(fd);
            }
            opened.spec.end_held(&opened.held());
        }
    }
}

/// Tells stores that were prepared that nobody of the run will use them.
pub(crate) fn end(prepared: &[(StoreSpec, SharedParts)]) {
    for (spec, parts) in prepared {
        if let Some(fd) = &parts.fd {
            spec.end(fd);
        }
        spec.end_held(&parts.held);
    }
}

/// A number that no other run has.
fn run_number() -> String {
    let mut bytes = [0_u8; 16];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    format!("{:032x}", u128::from_ne_bytes(bytes))
}
