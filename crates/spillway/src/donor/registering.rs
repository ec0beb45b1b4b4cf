//! A donor's place in a pool of etcd's.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use spillway_core::size::Size;
use spillway_donor::Donor;
use spillway_donor::place::Place;
use spillway_etcd::gateway::Gateway;
use spillway_etcd::{Registrar, RegistrarNews};
use spillway_events::catalogue::donor as told;
use spillway_store::membership::Member;
use spillway_store::spec::{EtcdPool, PoolDonor};
use spillway_tls::KeyPrint;

/// How the donor is to be known there.
pub(super) struct Wishes<'a> {
    /// Where others reach it, if not where it listens.
    pub(super) advertise: Option<SocketAddr>,
    /// What fails together with it, if not its address alone.
    pub(super) domain: Option<&'a str>,
    /// The most that a run may have of it.
    pub(super) per_run: Option<Size>,
    /// By which key runs know it, where it speaks TLS.
    pub(super) key: Option<KeyPrint>,
}

/// The pool, and what is shown to its etcd; before anything is begun, since what is of no use is refused.
pub(super) fn shown(pool: &EtcdPool, certificates: Option<&Path>) -> Result<EtcdPool, String> {
    let shown = pool.clone().shown(certificates).ok_or_else(|| {
        format!(
            "--pool {pool} speaks TLS: add --tls-certificates DIR, or --etcd-certificates DIR for etcd alone"
        )
    })?;
    Gateway::new(&shown).map_err(|error| format!("--pool {pool}: {error}"))?;
    Ok(shown)
}

/// Keeps the donor registered in its pool.
pub(super) fn register(wishes: &Wishes<'_>, pool: &EtcdPool, donor: &Donor) -> Result<Registrar, String> {
    let listens = donor.places().find_map(|place| match place {
        Place::Tcp(address) | Place::Tls(address) => Some(*address),
        _ => None,
    });
    let own = listens.ok_or("--pool takes --listen: others reach a donor by TCP")?;
    let address = match wishes.advertise {
        Some(address) => address,
        None if own.ip().is_unspecified() => SocketAddr::new(address_towards(pool)?, own.port()),
        None => own,
    };
    let domain = wishes.domain.map_or_else(|| address.ip().to_string(), str::to_owned);
    let (standing, per_run) = (donor.standing(), wishes.per_run.map_or(u64::MAX, Size::bytes));
    let key = wishes.key.map_or_else(String::new, |key| key.to_string());
    let member = move || {
        let standing = standing();
        Member {
            address: address.to_string(),
            domain: domain.clone(),
            offered_bytes: standing.offered_bytes,
            free_bytes: standing.free_bytes.min(per_run),
            is_draining: standing.is_to_be_left(),
            version: standing.version,
            key: key.clone(),
        }
    };
    Registrar::start(pool, member, tell).map_err(|error| format!("--pool {pool}: {error}"))
}

fn tell(news: RegistrarNews<'_>) {
    match news.failure {
        None => told::registered(news.text, news.pool),
        Some(reason) => told::unregistered(news.text, news.pool, reason),
    }
}

/// The address of this machine from which packets to etcd go.
fn address_towards(pool: &EtcdPool) -> Result<IpAddr, String> {
    let mut last = "it names no server".to_owned();
    for PoolDonor { host, port } in &pool.servers {
        for family in ["0.0.0.0:0", "[::]:0"] {
            // Nothing is sent: the kernel only says which way it would go.
            let found = UdpSocket::bind(family)
                .and_then(|socket| socket.connect((host.as_str(), *port)).and_then(|()| socket.local_addr()));
            match found {
                Ok(address) => return Ok(address.ip()),
                Err(error) => last = format!("{host}: {error}"),
            }
        }
    }
    Err(format!("--pool {pool}: no way there ({last}); say where others reach this donor: --advertise"))
}
