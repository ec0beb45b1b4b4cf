//! The donors that a pool has: a list of them, or those that are registered in etcd.

use std::fmt;

pub(super) const SCHEME: &str = "etcd://";

/// A donor of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDonor {
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// The donor's TCP port.
    pub port: u16,
}

impl fmt::Display for PoolDonor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Which donors a pool has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// These, each named once.
    Listed(Vec<PoolDonor>),
    /// Those that are registered in etcd. They come and go while a run lasts.
    Etcd(EtcdPool),
}

/// A pool in etcd: donors register there, and runs find them there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPool {
    /// Members of the etcd cluster, which are asked in this order.
    pub servers: Vec<PoolDonor>,
    /// The name of the pool.
    pub name: String,
}

impl fmt::Display for EtcdPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        write!(f, "{SCHEME}{}/{}", servers.join(","), self.name)
    }
}
