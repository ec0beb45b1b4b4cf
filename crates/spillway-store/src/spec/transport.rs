//! How pages travel to a server by TCP: by TLS, or plainly where the user says so.

use std::fmt;
use std::path::PathBuf;

use super::query::{Query, encode, encode_path};

/// How a connection by TCP is protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Nothing is said: by TCP without TLS, to addresses of this machine only.
    #[default]
    Unsaid,
    /// `?plain`: by TCP without TLS, to any address.
    Plain,
    /// `nbds:` or `?tls-certificates=DIR`: by TLS, with certificates on both sides.
    Tls(Tls),
}

/// What TLS needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The directory of the client's certificate and key, and of the CA's certificate.
    pub certificates: PathBuf,
    /// Whom the server's certificate must be for, where that is not the host that is named.
    pub hostname: Option<String>,
}

impl Transport {
    /// The same for one server of several, whose certificate must be for its own name.
    #[must_use]
    pub fn of_host(&self, host: &str) -> Self {
        match self {
            Self::Tls(Tls { certificates, hostname: None }) => {
                Self::Tls(Tls { certificates: certificates.clone(), hostname: Some(host.to_owned()) })
            }
            other => other.clone(),
        }
    }

    pub(super) fn put(&self, f: &mut fmt::Formatter<'_>, query: &mut Query) -> fmt::Result {
        match self {
            Self::Unsaid => Ok(()),
            Self::Plain => query.flag(f, "plain"),
            Self::Tls(Tls { certificates, hostname }) => {
                query.put(f, "tls-certificates", encode_path(certificates))?;
                hostname.as_ref().map_or(Ok(()), |name| query.put(f, "tls-hostname", encode(name)))
            }
        }
    }
}
