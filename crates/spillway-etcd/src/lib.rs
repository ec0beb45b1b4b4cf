//! Pools in etcd: donors register there under leases, runs find them there and say how they are.
//!
//! A donor of pool `NAME` is a key, `/spillway/pools/NAME/donors/ADDRESS:PORT`, whose value is JSON
//! ([`Registration`]). The key hangs on a lease: where the donor dies, it is gone after some seconds.
//!
//! A run is a key beside them, `.../runs/HOST:PID`, for who looks after the pool.
//!
//! etcd is asked by its own JSON gateway, HTTP requests that end at once, and a watch that tells a run of
//! changes. It is a place to meet and no more: a run reads from it who is there, and finds out by itself how
//! each of them is.
//!
//! | file | holds |
//! |---|---|
//! | [`gateway`] | requests to etcd, as far as they are needed |
//! | [`answer`] | what etcd answers |
//! | `watch` | a thread that has etcd tell it of changes |
//! | [`directory`] | the donors of a pool, for runs; and runs, for who looks after the pool |
//! | [`run_registration`] | what a run registers |
//! | [`registrar`] | the registration of a donor, kept up |
//! | `secure` | TLS to etcd |
//! | `speech` | whether an etcd that is asked without TLS speaks it |
//! | `plain_name` | names that may be printed |

pub mod answer;
pub mod directory;
pub mod gateway;
mod plain_name;
pub mod registrar;
pub mod run_registration;
mod secure;
mod speech;
mod watch;

pub use directory::{EtcdDirectory, open};
pub use registrar::{Registrar, RegistrarNews};

use serde::{Deserialize, Serialize};
use spillway_store::membership::Member;
use spillway_store::spec::EtcdPool;

/// What a donor registers: a member but for its address, which is in its key. Fields that are not known are
/// those of a later version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registration {
    /// Where it is reached, in digits.
    pub address: String,
    /// The failure domain that it is in.
    pub domain: String,
    /// Its version of Spillway.
    pub version: String,
    /// Bytes that it lends in all.
    pub offered_bytes: u64,
    /// Bytes that a run could still be promised.
    pub free_bytes: u64,
    /// It is being drained.
    pub is_draining: bool,
    /// The key of its certificate, `sha256:` and 64 hexadecimal digits of its SubjectPublicKeyInfo's SHA-256;
    /// left out where it speaks no TLS.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl From<Registration> for Member {
    fn from(own: Registration) -> Self {
        let Registration { address, domain, version, offered_bytes, free_bytes, is_draining, key } = own;
        Self { address, domain, version, offered_bytes, free_bytes, is_draining, key }
    }
}

impl From<Member> for Registration {
    fn from(member: Member) -> Self {
        let Member { address, domain, version, offered_bytes, free_bytes, is_draining, key } = member;
        Self { address, domain, version, offered_bytes, free_bytes, is_draining, key }
    }
}

/// What the keys of a pool's donors begin with.
fn prefix(pool: &EtcdPool) -> String {
    format!("/spillway/pools/{}/donors/", pool.name)
}
