//! The start of a run on a pool.

use std::net::ToSocketAddrs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::MAX_DONORS;
use spillway_pool::draw::{Offer, Wish, draw, share};
use spillway_pool::new_donor::{NewDonor, TEXT_BYTES};
use spillway_pool::placement::capacity;
use spillway_pool::slabs::room::{Coding, SPARE_SLABS, least_spill_extents};
use spillway_pool::survey::EXTENT_BYTES;
use spillway_pool::table::{Table, Terms, words_of};
use spillway_sys::shared_memory::SharedMemory;
use twox_hash::XxHash3_64;

use crate::membership::{self, Member};
use crate::memory::no_memory_file;
use crate::spec::{EtcdPool, Members, PoolDonor, PoolSpec, Transport};
use crate::{Claim, SharedParts, StoreError, StoreSpec};

/// How long a donor is waited for that is asked what it has left.
const STANDING_PATIENCE: Duration = Duration::from_secs(2);

/// Asks each donor for memory, and makes the table that the run's processes share.
pub(crate) fn prepare(spec: &StoreSpec, pool: &PoolSpec, run_token: &str) -> Result<SharedParts, StoreError> {
    crate::nbd::let_relays_start();
    let mut held = Vec::new();
    let begun = begin(spec, pool, run_token, &mut held);
    if begun.is_err() {
        // Donors would keep what they have promised for a run that was lost.
        held.iter().for_each(crate::nbd::end);
    }
    let (capacity_slots, fd, spill) = begun?;
    Ok(SharedParts { capacity_slots, fd: Some(fd), held, spill })
}

fn begin(
    spec: &StoreSpec,
    pool: &PoolSpec,
    run_token: &str,
    held: &mut Vec<OwnedFd>,
) -> Result<(u32, OwnedFd, Option<OwnedFd>), StoreError> {
    let (mut donors, joining) = match &pool.members {
        Members::Listed(listed) => (begin_listed(spec, pool, listed, run_token, held)?, 0),
        Members::Etcd(etcd) => (begin_registered(spec, pool, etcd, run_token, held)?, MAX_DONORS),
    };
    let most = extents_on(pool, &donors);
    // Of a slab the last resort has no more than the parts that are data.
    let data = pool.code.map_or(1, |code| code.data as u32);
    let least = pool.code.map_or(1, |code| least_spill_extents(code.data));
    let extents = (most.saturating_mul(data).max(least), least);
    let spill = pool.spill.as_ref().map(|wish| super::spill::prepare(spec, wish, extents)).transpose()?;
    let spilled = spill.as_ref().map_or(0, |(donor, _)| donor.capacity / data);
    let terms = terms(spec, pool, (most, spilled), joining)?;
    let spill = spill.map(|(donor, fd)| {
        donors.push(donor);
        fd
    });
    let bytes = (words_of(&donors, terms) * 8).next_multiple_of(PAGE_SIZE);
    let (fd, memory) =
        SharedMemory::create("spillway-pool", bytes).map_err(|errno| no_memory_file(spec, errno))?;
    let words = memory.atomics_u64(0, bytes / 8);
    let table = Table::create(words, &donors, terms);
    Ok((table.slots(), fd, spill))
}

/// Extents for whose copies, or parts, these donors have room.
fn extents_on(pool: &PoolSpec, donors: &[NewDonor]) -> u32 {
    let room: Vec<(u32, u32)> = donors.iter().map(|donor| (donor.domain, donor.capacity)).collect();
    capacity(&room, pool.width()).min(u32::MAX / EXTENT_SLOTS)
}

/// What donors and the last resort have room for, in extents, and what the user asks for of it.
fn terms(
    spec: &StoreSpec,
    pool: &PoolSpec,
    (on_donors, spilled): (u32, u32),
    joining: usize,
) -> Result<Terms, StoreError> {
    let most = on_donors.saturating_add(spilled).min(u32::MAX / EXTENT_SLOTS);
    let wanted = pool.size.map(|size| pool.extents_for(size.bytes()));
    let remedy = "give the donors more memory, name more of them, or ask for less";
    let coding = |slabs| pool.code.map(|code| Coding::of_slabs(code.data, code.parity, slabs));
    if let Some(size) = pool.size.filter(|_| wanted.is_some_and(|wanted| wanted > u64::from(most))) {
        let asked = size.bytes().div_ceil(EXTENT_BYTES) * 2;
        let has = match coding(most) {
            Some(coding) => format!(
                "{} room for {} MiB of pages in {} parts of data and {} of parity",
                if spilled > 0 { "its donors and its last resort have" } else { "its donors have" },
                (u64::from(coding.slots) * PAGE_SIZE as u64) >> 20,
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
                    pool.copies
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
        None => Ok(Terms { extents, wanted: pool.copies, least: pool.least, joining, coding: None }),
    }
}

/// Donors that the user has named: each must be usable.
fn begin_listed(
    spec: &StoreSpec,
    pool: &PoolSpec,
    listed: &[PoolDonor],
    run_token: &str,
    held: &mut Vec<OwnedFd>,
) -> Result<Vec<NewDonor>, StoreError> {
    let asked = asked_of_each(pool, listed.len());
    let mut donors = Vec::with_capacity(listed.len());
    for (donor, domain) in listed.iter().zip(pool.domain_numbers()) {
        let asked = (asked, pool.spill.is_some());
        let (text, slots, fd) = begin_donor(spec, (donor, &pool.transport), asked, run_token)?;
        held.push(fd);
        donors.push(NewDonor { capacity: slots / EXTENT_SLOTS, domain, text });
        if slots < EXTENT_SLOTS {
            return Err(spec.unusable(
                format!("donor {donor} has {} KiB left, which holds no extent of 2M", slots * 4),
                "give it more memory, or leave it out",
            ));
        }
    }
    Ok(donors)
}

/// Donors that are registered: those that can be used, if they are enough.
fn begin_registered(
    spec: &StoreSpec,
    pool: &PoolSpec,
    etcd: &EtcdPool,
    run_token: &str,
    held: &mut Vec<OwnedFd>,
) -> Result<Vec<NewDonor>, StoreError> {
    let directory = membership::open(etcd)
        .ok_or_else(|| spec.unusable("this process does not ask etcd", "start it by 'spillway run'"))?;
    let mut directory = directory.map_err(|reason| spec.unusable(reason, "then try again"))?;
    let remedy = "see that etcd runs there, or name the donors: pool:HOST:PORT,HOST:PORT";
    let mut members = directory.look().map_err(|reason| spec.unusable(reason, remedy))?;
    members.retain(|member| !member.is_draining);
    let places = MAX_DONORS - pool.spill_places();
    let asked = asked_of_each(pool, members.len().min(places));
    let (mut donors, mut failures) = (Vec::new(), Vec::new());
    for member in drawn(&members, pool, (places, asked), run_token) {
        match begin_member(member, &pool.transport, asked, run_token) {
            Ok((donor, fd)) => {
                held.push(fd);
                donors.push(donor);
            }
            // It may have died a moment ago, and is still registered.
            Err(reason) => failures.push(format!("{}: {reason}", member.address)),
        }
    }
    let domains: std::collections::BTreeSet<u32> = donors.iter().map(|donor| donor.domain).collect();
    if domains.len() >= pool.width() {
        return Ok(donors);
    }
    let failures = if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
    Err(spec.unusable(
        format!(
            "{} need {} donors that fail apart, and {} can be used now, in {} failure domains{failures}",
            match pool.code {
                Some(code) => format!("{} parts of data and {} of parity", code.data, code.parity),
                None => format!("{} copies of a page", pool.copies),
            },
            pool.width(),
            donors.len(),
            domains.len()
        ),
        format!(
            "start more of them (spillway donor --memory SIZE --listen ADDR:PORT --pool {etcd}), or ask for \
             {}",
            if pool.code.is_some() { "less: data=, parity=" } else { "fewer copies" }
        ),
    ))
}

/// The donors that this run begins with: where there are more than it has places for, other runs draw others.
fn drawn<'a>(
    members: &'a [Member],
    pool: &PoolSpec,
    (places, asked): (usize, Option<Size>),
    run_token: &str,
) -> Vec<&'a Member> {
    let offer = |member: &Member| Offer { domain: member.domain_number(), free_bytes: member.free_bytes };
    let offers: Vec<Offer> = members.iter().map(offer).collect();
    let wish = Wish { places, width: pool.width(), asked_bytes: asked.map(|asked| asked.bytes()) };
    let drawn = draw(&offers, wish, XxHash3_64::oneshot(run_token.as_bytes()));
    drawn.into_iter().map(|member| &members[member]).collect()
}

/// Begins the run on a donor that is registered, asking for so much, or for what there is where that is not
/// left.
pub(super) fn begin_member(
    member: &Member,
    transport: &Transport,
    asked: Option<Size>,
    run_token: &str,
) -> Result<(NewDonor, OwnedFd), String> {
    let text = member.address.clone();
    let own = donor_spec(&text, transport, None).filter(|_| text.len() <= TEXT_BYTES);
    let own = own.ok_or_else(|| "its address is not one in digits".to_owned())?;
    let asked = asked.filter(|asked| asked.bytes() <= member.free_bytes);
    let started = crate::nbd::need_relay(&own, run_token);
    let begun = started.and_then(|()| begin_at(&own, asked, run_token));
    let (slots, fd) = begun.map_err(|error| reason_of(&error))?;
    if slots < EXTENT_SLOTS {
        crate::nbd::end(&fd);
        return Err(format!("it has {} KiB left, which holds no extent of 2M", slots * 4));
    }
    Ok((NewDonor { capacity: slots / EXTENT_SLOTS, domain: member.domain_number(), text }, fd))
}

/// What an error says without the store's name.
pub(super) fn reason_of(error: &StoreError) -> String {
    match error {
        StoreError::Gone { reason, .. } | StoreError::Io { reason, .. } => reason.clone(),
        StoreError::Unusable { reason, remedy, .. } => format!("{reason}; {remedy}"),
        StoreError::Full { .. } | StoreError::WrongSeal { .. } | StoreError::SealsSpent { .. } => {
            error.to_string()
        }
    }
}

/// What each of so many donors is asked for where the user says what the run needs: so much that the others
/// can make up for one that is lost.
pub(super) fn asked_of_each(pool: &PoolSpec, donors: usize) -> Option<Size> {
    Some(share_of_each(pool.extents_for(pool.size?.bytes()), pool.width(), donors))
}

/// The same for so many extents.
pub(super) fn share_of_each(extents: u64, copies: usize, donors: usize) -> Size {
    Size::from_bytes(share(extents, copies, donors) * EXTENT_BYTES)
}

/// Whether a donor has so much left, as it says itself.
fn has_left(own: &StoreSpec, asked: Size, run_token: &str) -> bool {
    let door = crate::nbd::known_address(own, run_token).map(crate::nbd::Door::known);
    let standing = door.and_then(|door| crate::nbd::standing(&door, STANDING_PATIENCE).ok());
    standing.is_none_or(|standing| asked.bytes() <= standing.free_bytes)
}

/// A donor's address in digits, the slots that it has promised, and the connection that keeps them. Of one
/// that may have less than it is asked for, what it has left is taken.
fn begin_donor(
    spec: &StoreSpec,
    (donor, transport): (&PoolDonor, &Transport),
    (asked, may_have_less): (Option<Size>, bool),
    run_token: &str,
) -> Result<(String, u32, OwnedFd), StoreError> {
    let addresses = (donor.host.as_str(), donor.port).to_socket_addrs();
    let addresses = addresses.map_err(|error| {
        spec.unusable(format!("donor {donor} has no address: {error}"), "name it by IP address")
    })?;
    let mut last = None;
    for address in addresses {
        let text = address.to_string();
        let Some(own) = donor_spec(&text, transport, Some(&donor.host)).filter(|_| text.len() <= TEXT_BYTES)
        else {
            continue;
        };
        let started = crate::nbd::need_relay(&own, run_token);
        let left =
            || if may_have_less { asked.filter(|asked| has_left(&own, *asked, run_token)) } else { asked };
        match started.and_then(|()| begin_at(&own, left(), run_token)) {
            Ok((slots, fd)) => return Ok((text, slots, fd)),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(StoreError::Unusable { reason, remedy, .. }) => spec
            .unusable(format!("donor {donor}: {reason}"), format!("{remedy}; or leave it out of the list")),
        Some(other) => {
            spec.unusable(format!("donor {donor}: {other}"), "start it, or leave it out of the list")
        }
        None => spec.unusable(format!("donor {donor} has no address"), "name it by IP address"),
    })
}

/// Begins the run, or a donor's new life in it, on one donor.
pub(super) fn begin_at(
    own: &StoreSpec,
    asked: Option<Size>,
    run_token: &str,
) -> Result<(u32, OwnedFd), StoreError> {
    let parts = crate::nbd::prepare_sized(own, run_token, asked)?;
    let fd = parts.fd.ok_or_else(|| own.unusable("it gave no connection", "try again"))?;
    let slots = parts.capacity_slots;
    let opened = crate::nbd::open(
        own,
        SharedParts { capacity_slots: slots, fd: None, held: Vec::new(), spill: None },
        run_token,
    );
    let is_foreign = opened.and_then(|store| store.open_lane().map(|_lane| store.claim_slot().is_some()));
    match is_foreign {
        Ok(false) => Ok((slots, fd)),
        Ok(true) => {
            crate::nbd::end(&fd);
            Err(own.unusable(
                "it is no Spillway donor, and one that has lost its pages could not be told from one that \
                 has them",
                "name Spillway donors",
            ))
        }
        Err(error) => {
            crate::nbd::end(&fd);
            Err(error)
        }
    }
}

/// The store that one donor is, by its address in digits, and by the host that its certificate must be for,
/// if that is another than the address. Its patience is that of who opens it: a run is
/// known to the donor by what is printed of this.
pub(super) fn donor_spec(address: &str, transport: &Transport, host: Option<&str>) -> Option<StoreSpec> {
    let address: std::net::SocketAddr = address.parse().ok()?;
    let digits = address.ip().to_string();
    Some(StoreSpec::Nbd {
        transport: transport.of_host(host.unwrap_or(&digits)),
        host: digits,
        port: address.port(),
        export: String::new(),
        size: None,
        patience: crate::Patience::default(),
        claim: Claim::None,
    })
}

/// The token by which a run is known to a donor in one of that donor's lives.
pub(super) fn token_of(run_token: &str, life: u16) -> String {
    if life == 1 { run_token.to_owned() } else { format!("{run_token}/{life}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn pool(uri: &str) -> PoolSpec {
        match uri.parse().unwrap() {
            StoreSpec::Pool(pool) => *pool,
            other => panic!("{other}"),
        }
    }

    fn site(donors: u32) -> Vec<Member> {
        let member = |donor: u32| Member {
            address: format!("10.0.{}.{}:10809", donor / 250, donor % 250),
            domain: format!("rack-{}", donor / 40),
            offered_bytes: 64 * GIB,
            free_bytes: 64 * GIB,
            ..Member::default()
        };
        (0..donors).map(member).collect()
    }

    fn addresses(members: &[Member], pool: &PoolSpec, token: &str) -> BTreeSet<String> {
        let places = MAX_DONORS - pool.spill_places();
        let asked = asked_of_each(pool, members.len().min(places));
        let drawn = drawn(members, pool, (places, asked), token);
        drawn.into_iter().map(|member| member.address.clone()).collect()
    }

    #[test]
    fn runs_of_a_large_site_begin_with_different_donors() {
        let pool = pool("pool:etcd://10.0.0.9:2379/lab?data=4&parity=2&size=64G");
        let members = site(10_000);
        let (one, other) = (addresses(&members, &pool, "one"), addresses(&members, &pool, "other"));
        assert_eq!((one.len(), other.len()), (MAX_DONORS, MAX_DONORS));
        assert!(one.intersection(&other).count() < 4, "{one:?} {other:?}");
        assert_eq!(addresses(&members, &pool, "one"), one);
    }

    #[test]
    fn a_run_of_a_small_site_begins_with_all_donors() {
        let pool = pool("pool:etcd://10.0.0.9:2379/lab?copies=2");
        assert_eq!(addresses(&site(32), &pool, "one").len(), 32);
        assert_eq!(addresses(&site(3), &pool, "one").len(), 3);
    }
}
