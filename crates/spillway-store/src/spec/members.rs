//! The donors that a pool has: a list of them, or those that are registered in etcd.

use std::fmt;
use std::path::{Path, PathBuf};

/// Of an etcd that is spoken to plainly, and by TLS, as `etcdctl` names them.
pub(super) const SCHEME: &str = "etcd://";
pub(super) const TLS_SCHEME: &str = "etcds://";

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
    /// How etcd is spoken to.
    pub speech: EtcdSpeech,
}

/// How etcd is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdSpeech {
    /// `etcd://`: plainly, by HTTP.
    Plain,
    /// `etcds://`: by TLS, with certificates on both sides. The directory of the client's certificate and
    /// key, and of the CA's certificate; none until somebody has said it ([`EtcdPool::shown`]).
    Tls(Option<PathBuf>),
}

impl EtcdPool {
    /// The same where these certificates are used if TLS is spoken; none where it is, and there are none.
    #[must_use]
    pub fn shown(self, certificates: Option<&Path>) -> Option<Self> {
        let speech = match (self.speech, certificates) {
            (EtcdSpeech::Plain, _) => EtcdSpeech::Plain,
            (EtcdSpeech::Tls(_), Some(directory)) => EtcdSpeech::Tls(Some(directory.to_owned())),
            (EtcdSpeech::Tls(_), None) => return None,
        };
        Some(Self { speech, ..self })
    }

    /// The directory of certificates that are shown to etcd.
    #[must_use]
    pub fn certificates(&self) -> Option<&Path> {
        match &self.speech {
            EtcdSpeech::Plain => None,
            EtcdSpeech::Tls(directory) => directory.as_deref(),
        }
    }
}

impl fmt::Display for EtcdPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        let scheme = if self.speech == EtcdSpeech::Plain { SCHEME } else { TLS_SCHEME };
        write!(f, "{scheme}{}/{}", servers.join(","), self.name)
    }
}
