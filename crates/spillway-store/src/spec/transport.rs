//! How pages travel to a server by TCP: by TLS, or plainly where the user says so.

use std::fmt;
use std::path::PathBuf;

use super::query::{Query, encode, encode_path};
use super::{SpecError, Uri};

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

impl Uri<'_> {
    /// From the parameters `plain`, `tls-certificates` and `tls-hostname`.
    pub(super) fn transport(
        &self,
        [plain, certificates, hostname]: [Option<Vec<u8>>; 3],
        form: &'static str,
    ) -> Result<Transport, SpecError> {
        if plain.as_ref().is_some_and(|value| !value.is_empty()) {
            return Err(self.parameter("plain", "takes no value; write ?plain"));
        }
        match (plain, certificates, hostname) {
            (None, None, None) => Ok(Transport::Unsaid),
            (Some(_), None, None) => Ok(Transport::Plain),
            (Some(_), ..) => Err(self.parameter("plain", "is the opposite of TLS; write one of the two")),
            (None, None, Some(_)) => {
                Err(self.parameter("tls-hostname", "is for TLS; write tls-certificates=DIR too"))
            }
            (None, Some(path), hostname) => {
                let certificates = self.path("the directory of tls-certificates", &path, form)?;
                let hostname = hostname.map(|name| self.text_of("tls-hostname", &name, form)).transpose()?;
                if hostname.as_ref().is_some_and(String::is_empty) {
                    return Err(self.parameter("tls-hostname", "is empty; write the name, or leave it out"));
                }
                Ok(Transport::Tls(Tls { certificates, hostname }))
            }
        }
    }
}
