//! Store URIs: `compressed:`, `ram:`, `file:PATH?size=SIZE`, `nbd://HOST:PORT/EXPORT`, `nbds:` by TLS,
//! `nbd+unix:///EXPORT?socket=PATH`, `shm:NAME`, `pool:HOST:PORT,HOST:PORT,...`,
//! `pool:etcd://HOST:PORT/NAME` (`etcds:` by TLS).
//! `ram:` and `shm:` take `fabric=fdr`, a model of a network.
//!
//! Paths, export names and parameters may be percent-encoded; they must be where they hold `?`, `&`, `#` or
//! a `%` that two hexadecimal digits follow.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use spillway_core::page::PAGE_SIZE;
use spillway_core::size::Size;
use spillway_nbd::MAX_NAME_BYTES;
use thiserror::Error;

use crate::fabric::Fabric;
use crate::{LatencyClass, StoreError};

/// Port of an NBD server where the URI names none (IANA).
pub const DEFAULT_NBD_PORT: u16 = 10809;

/// Largest size that slots of 32 bits can number.
pub const MAX_SIZE: Size = Size::from_bytes((u32::MAX as u64) * (PAGE_SIZE as u64));

/// A parsed store URI. `Display` gives the URI back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StoreSpec {
    /// `compressed:[?size=SIZE]`: compressed RAM of this machine.
    Compressed {
        /// Memory that the compressed pages may take; by default as much as the machine has.
        size: Option<Size>,
    },
    /// `ram:[?size=SIZE&fabric=fdr]`: RAM of this machine, plain copies, for measurements.
    Ram {
        /// Memory that the pages may take; by default as much as the machine has.
        size: Option<Size>,
        /// Takes at least as long as this network.
        fabric: Option<Fabric>,
    },
    /// `file:PATH?size=SIZE`: a scratch file, made in the place that is named, or a block device.
    File {
        /// A file that does not exist yet, a directory to make one in, or a block device.
        path: PathBuf,
        /// Bytes of it to use.
        size: Size,
    },
    /// `nbd://HOST[:PORT]/EXPORT[?size=SIZE&timeout=SECONDS&reconnect=SECONDS&claim=CLAIM&plain]`: a donor or
    /// NBD server by TCP; `nbds://...?tls-certificates=DIR[&tls-hostname=NAME]`: by TLS.
    Nbd {
        /// Name or address; an IPv6 address without its brackets.
        host: String,
        /// The server's TCP port.
        port: u16,
        /// Name of the export; the empty one is an export like any other.
        export: String,
        /// How much the run may need, which a donor promises it or refuses; by default what there is.
        size: Option<Size>,
        /// How long to wait for the server.
        patience: Patience,
        /// What is done about other runs that may use the export.
        claim: Claim,
        /// How the connections are protected.
        transport: Transport,
    },
    /// `nbd+unix:///EXPORT?socket=PATH[&size=SIZE&timeout=SECONDS&reconnect=SECONDS&claim=CLAIM]`: one by a
    /// Unix socket.
    NbdUnix {
        /// Path of the server's socket.
        socket: PathBuf,
        /// Name of the export; the empty one is an export like any other.
        export: String,
        /// How much the run may need, which a donor promises it or refuses; by default what there is.
        size: Option<Size>,
        /// How long to wait for the server.
        patience: Patience,
        /// What is done about other runs that may use the export.
        claim: Claim,
    },
    /// `shm:NAME[?size=SIZE&timeout=SECONDS&reconnect=SECONDS&fabric=fdr]`: a donor on this machine by a
    /// shared-memory ring.
    Shm {
        /// The name that the donor was given.
        name: String,
        /// How much the run may need, which a donor promises it or refuses; by default what there is.
        size: Option<Size>,
        /// How long to wait for the donor.
        patience: Patience,
        /// Takes at least as long as this network.
        fabric: Option<Fabric>,
    },
    /// `pool:HOST:PORT,HOST:PORT,...[?copies=N&...]` or `pool:etcd://HOST:PORT/NAME[?...]`: several donors,
    /// each page on several of them.
    Pool(Box<PoolSpec>),
}

/// Why a store URI was not understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// No scheme, or one that is not known.
    #[error(
        "'{uri}' is not a store: write compressed:, ram:, file:PATH?size=SIZE, nbd://HOST:PORT/EXPORT, \
         nbds://HOST:PORT/EXPORT?tls-certificates=DIR, nbd+unix:///EXPORT?socket=PATH, shm:NAME, \
         pool:HOST:PORT,HOST:PORT or pool:etcd://HOST:PORT/NAME"
    )]
    Scheme {
        /// As the user wrote it.
        uri: String,
    },
    /// A part that the scheme needs is missing or malformed.
    #[error("store '{uri}': {reason}; write {form}")]
    Form {
        /// As the user wrote it.
        uri: String,
        /// What is wrong with that part.
        reason: String,
        /// How the scheme is written.
        form: &'static str,
    },
    /// A parameter that the scheme does not have.
    #[error("store '{uri}' has no parameter '{name}'; it takes {known}")]
    UnknownParameter {
        /// As the user wrote it.
        uri: String,
        /// The parameter that is not known.
        name: String,
        /// Those that it has.
        known: &'static str,
    },
    /// A parameter's value that makes no sense.
    #[error("store '{uri}', parameter {name}: {reason}")]
    Parameter {
        /// As the user wrote it.
        uri: String,
        /// The parameter whose value is wrong.
        name: String,
        /// What is wrong with it, and what to write.
        reason: String,
    },
}

/// What the processes of one run must share to use one store.
#[derive(Debug)]
pub struct SharedParts {
    /// Number of slots that the store offers.
    pub capacity_slots: u32,
    /// A memory file or an open file, where the store needs one.
    pub fd: Option<OwnedFd>,
    /// What only the run's supervisor holds, until the run ends: see [`Store::supervise`](crate::Store).
    pub held: Vec<OwnedFd>,
    /// The file that a pool has for its last resort, where it has one.
    pub spill: Option<OwnedFd>,
    /// What the user is told before the program starts.
    pub notice: Option<String>,
}

impl StoreSpec {
    /// What answers the requests of such a store: as [`Store::latency_class`](crate::Store::latency_class)
    /// says of it once it is open.
    #[must_use]
    pub fn latency_class(&self) -> LatencyClass {
        match self {
            Self::Ram { .. } => LatencyClass::Memory,
            Self::Compressed { .. } => LatencyClass::Compression,
            // A modelled network is as slow as a real one.
            Self::Shm { fabric: None, .. } => LatencyClass::Neighbour,
            Self::Shm { .. }
            | Self::File { .. }
            | Self::Nbd { .. }
            | Self::NbdUnix { .. }
            | Self::Pool(_) => LatencyClass::Remote,
        }
    }

    /// Whether pages leave this machine by it, or may. By TCP they do at any address: a tunnel's end is one
    /// of this machine too.
    #[must_use]
    pub fn leaves_machine(&self) -> bool {
        match self {
            Self::Nbd { .. } | Self::Pool(_) => true,
            Self::Compressed { .. }
            | Self::Ram { .. }
            | Self::File { .. }
            | Self::NbdUnix { .. }
            | Self::Shm { .. } => false,
        }
    }

    /// The same store, for what is done at the end and must not take long.
    #[must_use]
    pub fn in_a_hurry(&self) -> Self {
        let mut spec = self.clone();
        if let Self::Nbd { patience, .. } | Self::NbdUnix { patience, .. } = &mut spec {
            *patience = Patience::HURRY;
        }
        spec
    }

    /// What the run does about others that may use the store.
    #[must_use]
    pub fn claim(&self) -> Claim {
        match self {
            Self::Nbd { claim, .. } | Self::NbdUnix { claim, .. } => *claim,
            _ => Claim::None,
        }
    }

    /// The error for a store that cannot be used as it was asked for.
    pub(crate) fn unusable(&self, reason: impl fmt::Display, remedy: impl fmt::Display) -> StoreError {
        StoreError::Unusable {
            store: self.to_string(),
            reason: reason.to_string(),
            remedy: remedy.to_string(),
        }
    }
}

impl FromStr for StoreSpec {
    type Err = SpecError;

    fn from_str(uri: &str) -> Result<Self, SpecError> {
        let (scheme, rest) = uri.split_once(':').ok_or_else(|| SpecError::Scheme { uri: uri.to_owned() })?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let uri = Uri { text: uri, body, query };
        match scheme {
            "compressed" => uri.compressed(),
            "ram" => uri.ram(),
            "file" => uri.file(),
            "nbd" => uri.nbd(),
            "nbds" => uri.nbds(),
            "nbd+unix" => uri.nbd_unix(),
            "shm" => uri.shm(),
            "pool" => uri.pool(),
            _ => Err(SpecError::Scheme { uri: uri.text.to_owned() }),
        }
    }
}

/// A URI being taken apart.
struct Uri<'a> {
    text: &'a str,
    body: &'a str,
    query: &'a str,
}

impl<'a> Uri<'a> {
    fn compressed(&self) -> Result<StoreSpec, SpecError> {
        self.no_body("compressed:?size=SIZE")?;
        let [size] = self.parameters(["size"], "size")?;
        Ok(StoreSpec::Compressed { size: self.any_size(size)? })
    }

    fn ram(&self) -> Result<StoreSpec, SpecError> {
        self.no_body("ram:?size=SIZE")?;
        let [size, fabric] = self.parameters(["size", "fabric"], "size and fabric")?;
        let size = self.any_size(size)?;
        Ok(StoreSpec::Ram { size, fabric: self.fabric(fabric)? })
    }

    fn no_body(&self, form: &'static str) -> Result<(), SpecError> {
        if self.body.is_empty() {
            return Ok(());
        }
        Err(self.form(format!("'{}' does not belong there", self.body), form))
    }

    fn file(&self) -> Result<StoreSpec, SpecError> {
        const FORM: &str = "file:PATH?size=SIZE";
        let [size] = self.parameters(["size"], "size")?;
        let path = self.path("the path", &decode_bytes(self.body), FORM)?;
        let size = size.ok_or_else(|| self.form("the size is missing", FORM))?;
        Ok(StoreSpec::File { path, size: self.size(&size)? })
    }

    fn nbd(&self) -> Result<StoreSpec, SpecError> {
        self.by_tcp("nbd://HOST:PORT/EXPORT", "size, timeout, reconnect, claim and plain", |transport| {
            match transport {
                Transport::Tls(_) => Err(self.parameter("tls-certificates", "is for nbds://; write that")),
                other => Ok(other),
            }
        })
    }

    fn nbds(&self) -> Result<StoreSpec, SpecError> {
        const FORM: &str = "nbds://HOST:PORT/EXPORT?tls-certificates=DIR";
        let known = "size, timeout, reconnect, claim, tls-certificates and tls-hostname";
        self.by_tcp(FORM, known, |transport| match transport {
            Transport::Tls(_) => Ok(transport),
            Transport::Plain => Err(self.parameter("plain", "is for nbd://; write that, or leave it out")),
            Transport::Unsaid => Err(self.form("the directory of certificates is missing", FORM)),
        })
    }

    fn by_tcp(
        &self,
        form: &'static str,
        known: &'static str,
        fitting: impl FnOnce(Transport) -> Result<Transport, SpecError>,
    ) -> Result<StoreSpec, SpecError> {
        let (authority, export) = self.authority_and_export(form)?;
        let [size, timeout, reconnect, claim, plain, certificates, hostname] = self.parameters(
            ["size", "timeout", "reconnect", "claim", "plain", "tls-certificates", "tls-hostname"],
            known,
        )?;
        let (host, port) = self.host_and_port(authority, DEFAULT_NBD_PORT, form)?;
        let patience = self.patience(timeout, reconnect)?;
        let (size, claim) = (self.any_size(size)?, self.claim(claim)?);
        let transport = fitting(self.transport([plain, certificates, hostname], form)?)?;
        Ok(StoreSpec::Nbd { host, port, export, size, patience, claim, transport })
    }

    fn host_and_port(
        &self,
        authority: &str,
        usual_port: u16,
        form: &'static str,
    ) -> Result<(String, u16), SpecError> {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').filter(|inner| inner.contains(':')),
            None => Some(host).filter(|host| !host.contains(':')),
        };
        let host = host
            .filter(|host| !host.is_empty() && !host.contains(['@', '[', ']', '%']))
            .ok_or_else(|| self.form(format!("'{authority}' names no host"), form))?;
        let port = match port {
            None => usual_port,
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| self.form(format!("'{port}' is not a port from 1 to 65535"), form))?,
        };
        Ok((host.to_owned(), port))
    }

    fn nbd_unix(&self) -> Result<StoreSpec, SpecError> {
        const FORM: &str = "nbd+unix:///EXPORT?socket=PATH";
        let (authority, export) = self.authority_and_export(FORM)?;
        if !authority.is_empty() {
            return Err(self.form(format!("a host ('{authority}') makes no sense with a Unix socket"), FORM));
        }
        let [socket, size, timeout, reconnect, claim] = self.parameters(
            ["socket", "size", "timeout", "reconnect", "claim"],
            "socket, size, timeout, reconnect and claim",
        )?;
        let socket = self.path("the socket's path", &socket.unwrap_or_default(), FORM)?;
        let (size, patience) = (self.any_size(size)?, self.patience(timeout, reconnect)?);
        Ok(StoreSpec::NbdUnix { socket, export, size, patience, claim: self.claim(claim)? })
    }

    fn shm(&self) -> Result<StoreSpec, SpecError> {
        const FORM: &str = "shm:NAME, the name that `spillway donor --shm NAME` was given";
        let [size, timeout, reconnect, fabric] = self
            .parameters(["size", "timeout", "reconnect", "fabric"], "size, timeout, reconnect and fabric")?;
        let name = self.text_of("the name", &decode_bytes(self.body), FORM)?;
        if name.is_empty() || name.len() > 200 || name.contains(['/', '\0']) {
            return Err(self.form("the name must have 1 to 200 bytes and no '/'", FORM));
        }
        let patience = self.patience(timeout, reconnect)?;
        let (size, fabric) = (self.any_size(size)?, self.fabric(fabric)?);
        Ok(StoreSpec::Shm { name, size, patience, fabric })
    }

    /// `//AUTHORITY/EXPORT`; where there is no `/` after the authority, the export's name is empty.
    fn authority_and_export(&self, form: &'static str) -> Result<(&'a str, String), SpecError> {
        let Some(rest) = self.body.strip_prefix("//") else {
            return Err(self.form("'//' is missing after the scheme", form));
        };
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = self.text_of("the export's name", &decode_bytes(export), form)?;
        if export.len() > MAX_NAME_BYTES {
            let reason = format!("the export's name is longer than {MAX_NAME_BYTES} bytes, NBD's limit");
            return Err(self.form(reason, form));
        }
        Ok((authority, export))
    }

    /// Values of the parameters called `names`, decoded.
    fn parameters<const N: usize>(
        &self,
        names: [&str; N],
        known: &'static str,
    ) -> Result<[Option<Vec<u8>>; N], SpecError> {
        let mut values = [const { None }; N];
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let at = names.iter().position(|known| *known == name);
            let place = at.and_then(|at| values.get_mut(at)).ok_or_else(|| SpecError::UnknownParameter {
                uri: self.text.to_owned(),
                name: name.to_owned(),
                known,
            })?;
            if place.replace(decode_bytes(value).into_owned()).is_some() {
                return Err(self.parameter(name, "is given twice; give it once"));
            }
        }
        Ok(values)
    }

    fn any_size(&self, text: Option<Vec<u8>>) -> Result<Option<Size>, SpecError> {
        text.map(|text| self.size(&text)).transpose()
    }

    fn size(&self, text: &[u8]) -> Result<Size, SpecError> {
        self.size_of("size", text)
    }

    fn size_of(&self, name: &str, text: &[u8]) -> Result<Size, SpecError> {
        let size: Size = String::from_utf8_lossy(text)
            .parse()
            .map_err(|error: spillway_core::size::SizeError| self.parameter(name, error))?;
        if size.bytes() < PAGE_SIZE as u64 {
            return Err(self.parameter(name, format!("{size} does not hold a page of 4 KiB; give it more")));
        }
        if size > MAX_SIZE {
            return Err(self.parameter(name, format!("{size} is more than one store can hold; at most 15T")));
        }
        Ok(size)
    }

    fn patience(&self, timeout: Option<Vec<u8>>, reconnect: Option<Vec<u8>>) -> Result<Patience, SpecError> {
        let usual = Patience::default();
        let patience = Patience {
            timeout: self.seconds("timeout", timeout, usual.timeout)?,
            reconnect: self.seconds("reconnect", reconnect, usual.reconnect)?,
        };
        if patience.timeout.is_zero() {
            return Err(self.parameter("timeout", "0 would give up at once; give it at least 0.001"));
        }
        Ok(patience)
    }

    fn fabric(&self, name: Option<Vec<u8>>) -> Result<Option<Fabric>, SpecError> {
        let Some(name) = name else { return Ok(None) };
        let fabric = Fabric::named(&name).ok_or_else(|| {
            let name = String::from_utf8_lossy(&name);
            self.parameter("fabric", format!("no network '{name}' is modelled; there is {}", Fabric::KNOWN))
        })?;
        Ok(Some(fabric))
    }

    fn claim(&self, name: Option<Vec<u8>>) -> Result<Claim, SpecError> {
        let Some(name) = name else { return Ok(Claim::default()) };
        Claim::named(&name).ok_or_else(|| {
            let name = String::from_utf8_lossy(&name);
            self.parameter("claim", format!("'{name}' is none; write free, take or none"))
        })
    }

    fn seconds(&self, name: &str, text: Option<Vec<u8>>, usual: Duration) -> Result<Duration, SpecError> {
        const DAY_S: f64 = 86_400.0;
        let Some(text) = text else { return Ok(usual) };
        let text = String::from_utf8_lossy(&text);
        let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=DAY_S).contains(seconds));
        let seconds = seconds.ok_or_else(|| {
            self.parameter(name, format!("'{text}' is not a number of seconds from 0 to {DAY_S}"))
        })?;
        Ok(Duration::from_millis((seconds * 1000.0).round() as u64))
    }

    fn path(&self, what: &str, bytes: &[u8], form: &'static str) -> Result<PathBuf, SpecError> {
        if bytes.is_empty() {
            return Err(self.form(format!("{what} is missing"), form));
        }
        if bytes.contains(&0) {
            return Err(self.form(format!("{what} holds a zero byte"), form));
        }
        Ok(PathBuf::from(OsString::from_vec(bytes.to_vec())))
    }

    fn text_of(&self, what: &str, bytes: &[u8], form: &'static str) -> Result<String, SpecError> {
        let text = std::str::from_utf8(bytes).map_err(|_| self.form(format!("{what} is not UTF-8"), form))?;
        Ok(text.to_owned())
    }

    fn form(&self, reason: impl Into<String>, form: &'static str) -> SpecError {
        SpecError::Form { uri: self.text.to_owned(), reason: reason.into(), form }
    }

    fn parameter(&self, name: &str, reason: impl fmt::Display) -> SpecError {
        SpecError::Parameter { uri: self.text.to_owned(), name: name.to_owned(), reason: reason.to_string() }
    }
}

fn decode_bytes(text: &str) -> Cow<'_, [u8]> {
    percent_decode_str(text).into()
}

impl TryFrom<String> for StoreSpec {
    type Error = SpecError;

    fn try_from(uri: String) -> Result<Self, SpecError> {
        uri.parse()
    }
}

impl From<StoreSpec> for String {
    fn from(spec: StoreSpec) -> Self {
        spec.to_string()
    }
}

mod etcd;
mod members;
mod pool;
mod pool_uri;
mod printed;
mod query;
mod redundancy;
mod spill;
#[cfg(test)]
mod tests;
mod transport;
mod transport_uri;
mod wishes;

pub use members::{EtcdPool, EtcdSpeech, Members, PoolDonor};
pub use pool::{Domains, PoolSpec, Spill};
pub use redundancy::{Code, Redundancy};
pub use transport::{Tls, Transport};
pub use wishes::{Claim, Patience};
