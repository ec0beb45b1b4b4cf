//! Listed donors that are NBD servers of another kind, and only store. Such a server promises no memory to
//! one run alone, and does not say whether it still has what it was given. So a run claims its export
//! ([`crate::claim`]), by a name that is another one in each of the donor's lives; and whoever opens a
//! connection to it looks for that name first ([`crate::nbd::mark`]).

use std::sync::Arc;

use super::donor_store::token_of;
use super::shared::Shared;
use crate::claim::{self, Claimant, Owner};
use crate::nbd::mark_of;
use crate::{Claim, Lane, Patience, SharedParts, Store, StoreError, StoreSpec};

/// A server whose export a run has claimed in one of the donor's lives.
pub(super) struct ServerClaim {
    store: Arc<dyn Store>,
    slot: u32,
    own: Claimant,
}

impl ServerClaim {
    /// Claims a server's export, which others may open too, for the run that has this token in this life of
    /// the donor.
    pub(super) fn take(
        own: &StoreSpec,
        (store, slot): (Arc<dyn Store>, u32),
        token: &str,
        wish: Claim,
    ) -> Result<Self, StoreError> {
        let mut lane = store.open_lane()?;
        let claimant = Claimant::this_process(&mark_of(own, token));
        let wish = match claim::owner(&mut *lane, slot, &claimant)? {
            Owner::Another(other) if is_of_earlier_life(own, token, &other) => Claim::Take,
            _ => wish,
        };
        claim::claim(&mut *lane, store.uri(), slot, &claimant, wish)?;
        let claim = Self { slot, own: claimant, store: Arc::clone(&store) };
        is_shown_to_others(own, &*store, token).inspect_err(|_| claim.give_back())?;
        Ok(claim)
    }

    /// The run does not begin.
    pub(super) fn give_back(&self) {
        if let Ok(mut lane) = self.store.open_lane() {
            // Else the next run finds a claim of a process that is gone.
            let _ = claim::give_back(&mut *lane, self.slot, &self.own);
        }
    }
}

/// The claim was made by this run, and the donor has begun a life since.
fn is_of_earlier_life(own: &StoreSpec, token: &str, other: &Claimant) -> bool {
    let (run, life) = token.split_once('/').unwrap_or((token, "1"));
    let life = life.parse().unwrap_or(1);
    (1..life).any(|life| mark_of(own, &token_of(run, life)) == other.run)
}

/// What one connection has written must be what another reads.
fn is_shown_to_others(own: &StoreSpec, store: &dyn Store, token: &str) -> Result<(), StoreError> {
    let capacity_slots = store.capacity_slots();
    let parts = SharedParts { capacity_slots, fd: None, held: Vec::new(), spill: None, notice: None };
    let other = crate::nbd::open_one_of_several(own, parts, token, Patience::default())?;
    match other.open_lane() {
        Ok(_) => Ok(()),
        Err(error @ StoreError::Gone { .. }) => Err(own.unusable(
            format!("what is written by one connection is not read by another ({error})"),
            "name a server that shows all its connections the same export",
        )),
        Err(error) => Err(error),
    }
}

/// Who claims a server in one life of the donor: this process, for the run.
pub(super) fn claimant(shared: &Shared, donor: usize, life: u16) -> Option<Claimant> {
    let mark = mark_of(shared.donor_spec(donor)?, &token_of(&shared.token, life));
    Some(Claimant::this_process(&mark))
}

/// Says that the claim is this process's from now on, where another process of the run has made it.
pub(super) fn renew(lane: &mut dyn Lane, slot: u32, own: &Claimant) -> Result<(), StoreError> {
    match claim::owner(lane, slot, own)? {
        Owner::Own => claim::put(lane, slot, own),
        Owner::Nobody | Owner::Another(_) => Ok(()),
    }
}

/// Looks whether the claim stands, and writes it again where somebody has wiped it.
pub(super) fn keep(lane: &mut dyn Lane, slot: u32, own: &Claimant, uri: &str) -> Result<(), StoreError> {
    match claim::keep(lane, slot, own)? {
        None => Ok(()),
        Some(Claimant { host, pid, .. }) => Err(StoreError::Gone {
            store: uri.to_owned(),
            reason: format!("another run has taken the export (process {pid} on {host})"),
        }),
    }
}

/// The run is over: gives back what it has claimed, of all donors at the same time.
pub(super) fn leave_all(shared: &Shared) {
    let table = shared.table();
    std::thread::scope(|scope| {
        for donor in (0..table.donors()).filter(|donor| table.is_claimed(*donor)) {
            scope.spawn(move || leave(shared, donor));
        }
    });
}

fn leave(shared: &Shared, donor: usize) -> Option<()> {
    let word = shared.table().donor(donor);
    let own = claimant(shared, donor, word.life)?;
    let way = shared.open_way(donor, word, Patience::HURRY).ok()?;
    let mut lane = way.store.open_lane().ok()?;
    let slot = way.store.claim_slot()?;
    claim::give_back(&mut *lane, slot, &own).ok()
}
