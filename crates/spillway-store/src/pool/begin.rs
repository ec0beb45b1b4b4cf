//! A run begins on the donors of a pool: each is asked for memory.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use spillway_core::size::Size;
use spillway_pool::EXTENT_BYTES;
use spillway_pool::EXTENT_SLOTS;
use spillway_pool::MAX_DONORS;
use spillway_pool::draw::{Offer, SPARE_EXTENTS, Wish, draw, share};
use spillway_pool::new_donor::{NewDonor, TEXT_BYTES};
use spillway_tls::KeyPrint;
use twox_hash::XxHash3_64;

use super::attempt::{Attempt, Failure};
use super::claimed::ServerClaim;
use super::donor_store::donor_spec;
use crate::membership::{self, Member};
use crate::spec::{EtcdPool, PoolDonor, PoolSpec, Redundancy, Transport};
use crate::{Claim, SharedParts, StoreError, StoreSpec};

/// How long a donor is waited for that is asked what it has left.
const STANDING_PATIENCE: Duration = Duration::from_secs(2);

/// A donor that has promised the run memory, or whose export the run has claimed.
pub(super) struct Begun {
    /// Pages that it takes.
    pub(super) slots: u32,
    /// The connection that keeps them for the run.
    pub(super) fd: OwnedFd,
    /// Where it is a server of another kind.
    pub(super) claim: Option<ServerClaim>,
}

impl Begun {
    /// The run does not begin.
    pub(super) fn end(&self) {
        self.claim.iter().for_each(ServerClaim::give_back);
        crate::nbd::end(&self.fd);
    }
}

/// Donors that the user has named: each must be usable.
pub(super) fn begin_listed(
    attempt: &Attempt<'_>,
    listed: &[PoolDonor],
    held: &mut Vec<Begun>,
) -> Result<Vec<NewDonor>, StoreError> {
    let Attempt { spec, pool, .. } = *attempt;
    let share = Share::asked(pool, listed.len());
    let mut donors = Vec::with_capacity(listed.len());
    for (donor, domain) in listed.iter().zip(pool.domain_numbers()) {
        // With less than it asks for, a run with a last resort begins too; and one that has another choice
        // is told by the room that there is in all.
        let share = (share, pool.spill.is_some() || attempt.is_offer);
        let (text, begun) = begin_donor(attempt, donor, share)?;
        let slots = begun.slots;
        held.push(begun);
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
pub(super) fn begin_registered(
    attempt: &Attempt<'_>,
    etcd: &EtcdPool,
    held: &mut Vec<Begun>,
) -> Result<Vec<NewDonor>, Failure> {
    let Attempt { spec, pool, run_token, .. } = *attempt;
    let members = registered(spec, etcd).map_err(Failure::Any)?;
    let width = pool.redundancy.width();
    let apart: BTreeSet<u32> = members.iter().map(Member::domain_number).collect();
    if attempt.is_offer && apart.len() < width {
        return Err(Failure::TooFew(too_few(attempt, etcd, (0, 0), &[])));
    }
    let places = MAX_DONORS - pool.spill_places();
    let share = Share::asked(pool, members.len().min(places));
    let (mut donors, mut failures) = (Vec::new(), Vec::new());
    for member in drawn(&members, pool, (places, share), run_token) {
        match begin_member(member, &pool.transport, share, run_token) {
            Ok((donor, begun)) => {
                held.push(begun);
                donors.push(donor);
            }
            // It may have died a moment ago, and is still registered.
            Err(reason) => failures.push(format!("{}: {reason}", member.address)),
        }
    }
    let domains: BTreeSet<u32> = donors.iter().map(|donor| donor.domain).collect();
    match domains.len() >= width {
        true => Ok(donors),
        false => Err(Failure::NoRoom(too_few(attempt, etcd, (donors.len(), domains.len()), &failures))),
    }
}

/// The donors that are registered and stay.
fn registered(spec: &StoreSpec, etcd: &EtcdPool) -> Result<Vec<Member>, StoreError> {
    let directory = membership::open(etcd)
        .ok_or_else(|| spec.unusable("this process does not ask etcd", "start it by 'spillway run'"))?;
    let mut directory = directory.map_err(|reason| spec.unusable(reason, "then try again"))?;
    let remedy = "see that etcd runs there, or name the donors: pool:HOST:PORT,HOST:PORT";
    let mut members = directory.look().map_err(|reason| spec.unusable(reason, remedy))?;
    members.retain(|member| !member.is_draining);
    Ok(members)
}

/// So many registered donors, in so many failure domains, do not do.
fn too_few(
    attempt: &Attempt<'_>,
    etcd: &EtcdPool,
    (donors, domains): (usize, usize),
    failures: &[String],
) -> StoreError {
    let redundancy = attempt.pool.redundancy;
    let failures = if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
    attempt.spec.unusable(
        format!(
            "{} need {} donors that fail apart, and {donors} can be used now, in {domains} failure \
             domains{failures}",
            match redundancy {
                Redundancy::Coded(code) =>
                    format!("{} parts of data and {} of parity", code.data, code.parity),
                Redundancy::Copies { .. } | Redundancy::Unsaid =>
                    format!("{} copies of a page", redundancy.width()),
            },
            redundancy.width(),
        ),
        format!(
            "start more of them (spillway donor --memory SIZE --listen ADDR:PORT --pool {etcd}), or ask for \
             {}",
            if redundancy.code().is_some() { "less: data=, parity=" } else { "fewer copies" }
        ),
    )
}

/// The donors that this run begins with: where there are more than it has places for, other runs draw others.
fn drawn<'a>(
    members: &'a [Member],
    pool: &PoolSpec,
    (places, share): (usize, Option<Share>),
    run_token: &str,
) -> Vec<&'a Member> {
    let offer = |member: &Member| Offer { domain: member.domain_number(), free_bytes: member.free_bytes };
    let offers: Vec<Offer> = members.iter().map(offer).collect();
    let wish =
        Wish { places, width: pool.redundancy.width(), asked_bytes: share.map(|share| share.needed.bytes()) };
    let drawn = draw(&offers, wish, XxHash3_64::oneshot(run_token.as_bytes()));
    drawn.into_iter().map(|member| &members[member]).collect()
}

/// Begins the run on a donor that is registered, asking for as much as is wished, or for what there is where
/// that is not left.
pub(super) fn begin_member(
    member: &Member,
    transport: &Transport,
    share: Option<Share>,
    run_token: &str,
) -> Result<(NewDonor, Begun), String> {
    let text = member.address.clone();
    let own = donor_spec(&text, transport, None).filter(|_| text.len() <= TEXT_BYTES);
    let own = own.ok_or_else(|| "its address is not one in digits".to_owned())?;
    let asked = share.map(|share| share.wished).filter(|asked| asked.bytes() <= member.free_bytes);
    let expected = member.expected_key()?;
    let started = crate::nbd::keep_relay(&own, run_token);
    let told = started.and_then(|()| expect(&own, run_token, expected));
    let begun = told.and_then(|()| begin_at(&own, asked, run_token, None));
    let begun = begun.map_err(|error| reason_of(&error))?;
    let slots = begun.slots;
    if slots < EXTENT_SLOTS {
        begun.end();
        return Err(format!("it has {} KiB left, which holds no extent of 2M", slots * 4));
    }
    Ok((NewDonor { capacity: slots / EXTENT_SLOTS, domain: member.domain_number(), text }, begun))
}

fn expect(own: &StoreSpec, run_token: &str, key: Option<KeyPrint>) -> Result<(), StoreError> {
    key.map_or(Ok(()), |key| crate::nbd::expect_key(own, run_token, key))
}

/// A donor of the run has registered anew: the key that it names now is the one that it must have.
pub(super) fn expect_again(member: &Member, transport: &Transport, run_token: &str) -> Result<(), String> {
    let own = donor_spec(&member.address, transport, None);
    let own = own.ok_or_else(|| "its address is not one in digits".to_owned())?;
    expect(&own, run_token, member.expected_key()?).map_err(|error| reason_of(&error))
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

/// What a donor is to lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Without it the run does not begin: the others can make up for one donor that is lost.
    needed: Size,
    /// What it is asked for where it has so much left: the others can make up for all that may die at once,
    /// and for copies that are broken off.
    wished: Size,
}

impl Share {
    /// Of so many donors, for so many extents.
    pub(super) fn of(redundancy: Redundancy, extents: u64, donors: usize) -> Self {
        let beside = |lost| share(extents, redundancy.width(), donors, lost);
        let wished = beside(redundancy.losses().max(1)) + SPARE_EXTENTS;
        let size = |extents| Size::from_bytes(extents * EXTENT_BYTES);
        Self { needed: size(beside(1)), wished: size(wished) }
    }

    /// Where the user says what the run needs.
    pub(super) fn asked(pool: &PoolSpec, donors: usize) -> Option<Self> {
        Some(Self::of(pool.redundancy, pool.extents_for(pool.size?.bytes()), donors))
    }

    /// What to ask a donor for that has so much left, if that is no less than is needed.
    fn beside(self, left_bytes: Option<u64>) -> Option<Size> {
        let asked = left_bytes?.min(self.wished.bytes());
        (asked > self.needed.bytes()).then(|| Size::from_bytes(asked))
    }
}

/// Bytes that a donor has left, as it says itself; `None` where it does not answer.
fn left_at(own: &StoreSpec, run_token: &str) -> Option<u64> {
    let door = crate::nbd::known_address(own, run_token).map(crate::nbd::Door::known)?;
    crate::nbd::standing(&door, STANDING_PATIENCE).ok().map(|standing| standing.free_bytes)
}

/// Begins the run, or a donor's new life in it, on one donor that must lend its share: asking for up to what
/// is wished where the donor has that left, for what there is where it may have less, and for all where there
/// is no share.
pub(super) fn begin_with_share(
    own: &StoreSpec,
    (share, may_have_less): (Option<Share>, bool),
    run_token: &str,
    others: Option<Claim>,
) -> Result<Begun, StoreError> {
    let Some(share) = share else { return begin_at(own, None, run_token, others) };
    let left = left_at(own, run_token);
    if let Some(asked) = share.beside(left) {
        // Another run may have taken it meanwhile: what is needed may still be there.
        if let Ok(begun) = begin_at(own, Some(asked), run_token, others) {
            return Ok(begun);
        }
    }
    let is_short = may_have_less && left.is_some_and(|left| left < share.needed.bytes());
    begin_at(own, if is_short { None } else { Some(share.needed) }, run_token, others)
}

/// A donor's address in digits, and what it has promised. Of one that may have less than its share, what it
/// has left is taken.
fn begin_donor(
    attempt: &Attempt<'_>,
    donor: &PoolDonor,
    share: (Option<Share>, bool),
) -> Result<(String, Begun), StoreError> {
    let Attempt { spec, pool, run_token, .. } = *attempt;
    let addresses = (donor.host.as_str(), donor.port).to_socket_addrs();
    let addresses = addresses.map_err(|error| {
        spec.unusable(format!("donor {donor} has no address: {error}"), "name it by IP address")
    })?;
    let mut last = None;
    for address in addresses {
        let text = address.to_string();
        let Some(own) =
            donor_spec(&text, &pool.transport, Some(&donor.host)).filter(|_| text.len() <= TEXT_BYTES)
        else {
            continue;
        };
        let started = crate::nbd::keep_relay(&own, run_token);
        match started.and_then(|()| begin_with_share(&own, share, run_token, Some(pool.claim))) {
            Ok(begun) => return Ok((text, begun)),
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

/// Begins the run, or a donor's new life in it, on one donor. One that is an NBD server of another kind is
/// claimed, where it may be such a one.
fn begin_at(
    own: &StoreSpec,
    asked: Option<Size>,
    run_token: &str,
    others: Option<Claim>,
) -> Result<Begun, StoreError> {
    let parts = crate::nbd::prepare_sized(own, run_token, asked)?;
    let fd = parts.fd.ok_or_else(|| own.unusable("it gave no connection", "try again"))?;
    let slots = parts.capacity_slots;
    match claim_at(own, slots, run_token, others) {
        Ok(claim) => Ok(Begun { slots, fd, claim }),
        Err(error) => {
            crate::nbd::end(&fd);
            Err(error)
        }
    }
}

/// Claims a donor that is no Spillway donor.
fn claim_at(
    own: &StoreSpec,
    capacity_slots: u32,
    run_token: &str,
    others: Option<Claim>,
) -> Result<Option<ServerClaim>, StoreError> {
    let parts = SharedParts { capacity_slots, fd: None, held: Vec::new(), spill: None, notice: None };
    let store = crate::nbd::open(own, parts, run_token)?;
    store.open_lane()?;
    match (store.claim_slot(), others) {
        (None, _) => Ok(None),
        (Some(slot), Some(wish)) => ServerClaim::take(own, (store, slot), run_token, wish).map(Some),
        (Some(_), None) => Err(own.unusable(
            "it is no Spillway donor, and is registered as one",
            "list the donors if such a server is to be one of them: pool:HOST:PORT,HOST:PORT",
        )),
    }
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
        let asked = Share::asked(pool, members.len().min(places));
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

    /// A pool of two copies on two donors needs all its extents on each, and on one that comes: before, none
    /// of them was asked for more, so that a copy that was broken off had no other place there.
    #[test]
    fn a_donor_is_asked_for_what_all_that_may_die_leave_to_it_and_two_extents_more() {
        let asked_mib = |uri: &str, donors| Share::asked(&pool(uri), donors).unwrap().wished.bytes() >> 20;
        let copied = "pool:etcd://10.0.0.9:2379/lab?copies=2&size=28M";
        // 14 extents, and 2 to spare: it was 28 MiB.
        assert_eq!([2, 3].map(|donors| asked_mib(copied, donors)), [32, 32]);
        // 28 copies on 7 of 8 donors, one more for chance, and 2 to spare: it was 10 MiB.
        assert_eq!(asked_mib(copied, 8), 14);
        // Eight slabs for 28 MiB of pages, on six donors: it was 16 MiB.
        assert_eq!(asked_mib("pool:etcd://10.0.0.9:2379/lab?data=4&parity=2&size=28M", 6), 20);
        // 192 copies on six of eight donors, one more for chance, and 2 to spare. On seven they had 62 MiB
        // each, so that after two deaths at once the six that were left had no room for the last copies.
        let thrice = "pool:etcd://10.0.0.9:2379/lab?copies=3&size=128M";
        assert_eq!(asked_mib(thrice, 8), 70);
        assert_eq!(Share::asked(&pool("pool:etcd://10.0.0.9:2379/lab?copies=2"), 3), None);
        // Who has less than all that may be asked for lends what it has, if that does.
        let share = Share::asked(&pool(thrice), 8).unwrap();
        let beside_mib = |left: u64| share.beside(Some(left << 20)).map(|asked| asked.bytes() >> 20);
        assert_eq!(share.needed.bytes() >> 20, 58);
        assert_eq!([57, 58, 60, 96].map(beside_mib), [None, None, Some(60), Some(70)]);
    }

    #[test]
    fn a_run_of_a_small_site_begins_with_all_donors() {
        let pool = pool("pool:etcd://10.0.0.9:2379/lab?copies=2");
        assert_eq!(addresses(&site(32), &pool, "one").len(), 32);
        assert_eq!(addresses(&site(3), &pool, "one").len(), 3);
    }
}
