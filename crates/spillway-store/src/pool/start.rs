//! The start of a run on a pool: by which redundancy, with how much room. Where nobody says how pages are to
//! outlive donors, they are coded if that costs no room, and copied if not.

use std::os::fd::OwnedFd;

use spillway_core::page::PAGE_SIZE;
use spillway_pool::EXTENT_BYTES;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::MAX_DONORS;
use spillway_pool::new_donor::NewDonor;
use spillway_pool::placement::capacity;
use spillway_pool::slabs::room::{Coding, SPARE_SLABS, least_spill_extents};
use spillway_pool::table::{Table, Terms, words_of};
use spillway_sys::shared_memory::SharedMemory;

use super::attempt::{Attempt, Failure};
use super::begin::{Begun, begin_listed, begin_registered, reason_of};
use crate::memory::no_memory_file;
use crate::spec::{Code, Members, PoolSpec, Redundancy};
use crate::{SharedParts, StoreError, StoreSpec};

/// Asks each donor for memory, and makes the table that the run's processes share.
pub(crate) fn prepare(spec: &StoreSpec, pool: &PoolSpec, run_token: &str) -> Result<SharedParts, StoreError> {
    crate::nbd::let_relays_start();
    let begin_with = |redundancy, is_offer| {
        begin_or_leave(&Attempt { spec, pool: &pool.with(redundancy), run_token, is_offer })
    };
    if pool.redundancy != Redundancy::Unsaid {
        return begin_with(pool.redundancy, false).map_err(Failure::error);
    }
    let why_copied = match begin_with(Redundancy::Coded(Code::USUAL), true) {
        Ok(parts) => return Ok(parts),
        Err(Failure::Any(error)) => return Err(error),
        Err(Failure::TooFew(_)) => None,
        Err(Failure::NoRoom(error)) => Some(reason_of(&error)),
    };
    let parts = begin_with(Redundancy::USUAL_COPIES, false).map_err(Failure::error)?;
    let notice = why_copied.map(|reason| {
        let Code { data, parity } = Code::USUAL;
        format!(
            "pool: pages are kept on 2 donors each, so one may die at a time, and not in {data} parts of \
             data and {parity} of parity: {reason}"
        )
    });
    Ok(SharedParts { notice, ..parts })
}

/// Begins, or leaves the donors that have promised something.
fn begin_or_leave(attempt: &Attempt<'_>) -> Result<SharedParts, Failure> {
    let mut held = Vec::new();
    let begun = begin(attempt, &mut held);
    if begun.is_err() {
        // Donors would keep what they have promised for a run that was lost.
        held.iter().for_each(Begun::end);
    }
    let (capacity_slots, fd, spill) = begun?;
    let held = held.into_iter().map(|begun| begun.fd).collect();
    Ok(SharedParts { capacity_slots, fd: Some(fd), held, spill, notice: None })
}

fn begin(attempt: &Attempt<'_>, held: &mut Vec<Begun>) -> Result<(u32, OwnedFd, Option<OwnedFd>), Failure> {
    let Attempt { spec, pool, .. } = *attempt;
    let (mut donors, joining) = match &pool.members {
        Members::Listed(_) if attempt.is_offer && pool.domain_count() < pool.redundancy.width() => {
            return Err(Failure::TooFew(spec.unusable("its donors are too few", "name more of them")));
        }
        Members::Listed(listed) => (begin_listed(attempt, listed, held).map_err(Failure::Any)?, 0),
        Members::Etcd(etcd) => (begin_registered(attempt, etcd, held)?, MAX_DONORS),
    };
    let most = extents_on(pool.redundancy, &donors);
    if attempt.is_offer {
        pays(attempt, most, &donors).map_err(Failure::NoRoom)?;
    }
    // Of a slab the last resort has no more than the parts that are data.
    let data = pool.redundancy.code().map_or(1, |code| code.data as u32);
    let least = pool.redundancy.code().map_or(1, |code| least_spill_extents(code.data));
    let extents = (most.saturating_mul(data).max(least), least);
    let spill = pool.spill.as_ref().map(|wish| super::spill::prepare(spec, wish, extents));
    let spill = spill.transpose().map_err(Failure::NoRoom)?;
    let spilled = spill.as_ref().map_or(0, |(donor, _)| donor.capacity / data);
    let terms = terms(attempt, (most, spilled), joining).map_err(Failure::NoRoom)?;
    let spill = spill.map(|(donor, fd)| {
        donors.push(donor);
        fd
    });
    let claimed: Vec<bool> = held.iter().map(|begun| begun.claim.is_some()).collect();
    let (slots, fd) = make_table(spec, (&donors, &claimed), terms).map_err(Failure::Any)?;
    Ok((slots, fd, spill))
}

/// The table of a run with these donors, of which the claimed ones are servers of another kind.
fn make_table(
    spec: &StoreSpec,
    (donors, claimed): (&[NewDonor], &[bool]),
    terms: Terms,
) -> Result<(u32, OwnedFd), StoreError> {
    let bytes = (words_of(donors, terms) * 8).next_multiple_of(PAGE_SIZE);
    let made = SharedMemory::create("spillway-pool", bytes);
    let (fd, memory) = made.map_err(|errno| no_memory_file(spec, errno))?;
    let table = Table::create(memory.atomics_u64(0, bytes / 8), donors, terms);
    claimed.iter().enumerate().for_each(|(donor, is_claimed)| table.set_claimed(donor, *is_claimed));
    Ok((table.slots(), fd))
}

/// Extents for whose copies, or parts, these donors have room.
fn extents_on(redundancy: Redundancy, donors: &[NewDonor]) -> u32 {
    let room: Vec<(u32, u32)> = donors.iter().map(|donor| (donor.domain, donor.capacity)).collect();
    capacity(&room, redundancy.width()).min(u32::MAX / EXTENT_SLOTS)
}

fn mib_of(pages: u64) -> u64 {
    (pages * PAGE_SIZE as u64) >> 20
}

/// Whether donors have no less room for coded pages than for copies, or at least as much as is asked for.
fn pays(attempt: &Attempt<'_>, slabs: u32, donors: &[NewDonor]) -> Result<(), StoreError> {
    let Redundancy::Coded(code) = attempt.pool.redundancy else { return Ok(()) };
    if attempt.pool.size.is_some() || attempt.pool.spill.is_some() {
        return Ok(());
    }
    let coded = u64::from(Coding::of_slabs(code.data, code.parity, slabs).slots);
    let copied = u64::from(extents_on(Redundancy::USUAL_COPIES, donors)) * u64::from(EXTENT_SLOTS);
    if coded >= copied {
        return Ok(());
    }
    let reason =
        format!("that would have room for {} MiB of pages in place of {}", mib_of(coded), mib_of(copied));
    Err(attempt.spec.unusable(reason, "lend more, and as much on each donor"))
}

/// What donors and the last resort have room for, in extents, and what the user asks for of it.
fn terms(
    attempt: &Attempt<'_>,
    (on_donors, spilled): (u32, u32),
    joining: usize,
) -> Result<Terms, StoreError> {
    let Attempt { spec, pool, .. } = *attempt;
    let most = on_donors.saturating_add(spilled).min(u32::MAX / EXTENT_SLOTS);
    let wanted = pool.size.map(|size| pool.extents_for(size.bytes()));
    let remedy = "give the donors more memory, name more of them, or ask for less";
    let code = pool.redundancy.code();
    let coding = |slabs| code.map(|code| Coding::of_slabs(code.data, code.parity, slabs));
    if let Some(size) = pool.size.filter(|_| wanted.is_some_and(|wanted| wanted > u64::from(most))) {
        let asked = size.bytes().div_ceil(EXTENT_BYTES) * 2;
        let has = match coding(most) {
            Some(coding) => format!(
                "{} room for {} MiB of pages in {} parts of data and {} of parity",
                if spilled > 0 { "its donors and its last resort have" } else { "its donors have" },
                mib_of(coding.slots.into()),
                coding.data,
                coding.parity
            ),
            None => {
                let also = match spilled {
                    0 => String::new(),
                    extents => format!(", its last resort for {} MiB", u64::from(extents) * 2),
                };
                format!(
                    "its donors have room for {} MiB of pages on {} donors each{also}",
                    u64::from(on_donors) * 2,
                    pool.redundancy.width()
                )
            }
        };
        return Err(spec.unusable(format!("{has}, and {asked} MiB were asked for"), remedy));
    }
    let extents = wanted.map_or(most, |wanted| wanted as u32);
    match coding(extents) {
        Some(coding) if coding.slots == 0 => Err(spec.unusable(
            format!(
                "its donors have room for {extents} extents of 2M each in {} failure domains, and what is \
                 coded needs {} to begin with",
                coding.parts(),
                SPARE_SLABS + 1
            ),
            remedy,
        )),
        Some(coding) => {
            let (wanted, least) = (coding.parts(), coding.data);
            Ok(Terms { extents: 0, wanted, least, joining, coding: Some(coding) })
        }
        None => {
            let least = match pool.redundancy {
                Redundancy::Copies { least, .. } => least,
                Redundancy::Unsaid | Redundancy::Coded(_) => 1,
            };
            Ok(Terms { extents, wanted: pool.redundancy.width(), least, joining, coding: None })
        }
    }
}
