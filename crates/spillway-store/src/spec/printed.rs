//! Store URIs as they are printed.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use spillway_core::size::Size;

use super::{Claim, Patience, StoreSpec};
use crate::fabric::Fabric;

/// What is left as it is in a path or name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+')
    .remove(b',')
    .remove(b':')
    .remove(b'@');

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compressed { size } => {
                f.write_str("compressed:")?;
                Query::default().size(f, *size)
            }
            Self::Ram { size, fabric } => {
                f.write_str("ram:")?;
                let mut query = Query::default();
                query.size(f, *size)?;
                query.fabric(f, *fabric)
            }
            Self::File { path, size } => {
                write!(f, "file:{}", encode_path(path))?;
                Query::default().size(f, Some(*size))
            }
            Self::Nbd { host, port, export, size, patience, claim } => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd://{open}{host}{close}:{port}/{}", encode(export))?;
                let mut query = Query::default();
                query.size(f, *size)?;
                query.patience(f, patience)?;
                query.claim(f, *claim)
            }
            Self::NbdUnix { socket, export, size, patience, claim } => {
                write!(f, "nbd+unix:///{}", encode(export))?;
                let mut query = Query::default();
                query.put(f, "socket", encode_path(socket))?;
                query.size(f, *size)?;
                query.patience(f, patience)?;
                query.claim(f, *claim)
            }
            Self::Pool(pool) => pool.fmt(f),
            Self::Shm { name, size, patience, fabric } => {
                write!(f, "shm:{}", encode(name))?;
                let mut query = Query::default();
                query.size(f, *size)?;
                query.patience(f, patience)?;
                query.fabric(f, *fabric)
            }
        }
    }
}

pub(super) fn encode(text: &str) -> impl fmt::Display + '_ {
    percent_encode(text.as_bytes(), ENCODED)
}

fn encode_path(path: &Path) -> impl fmt::Display + '_ {
    percent_encode(path.as_os_str().as_bytes(), ENCODED)
}

/// The query of a URI being printed.
#[derive(Default)]
pub(super) struct Query {
    begun: bool,
}

impl Query {
    pub(super) fn put(
        &mut self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        value: impl fmt::Display,
    ) -> fmt::Result {
        let mark = if self.begun { '&' } else { '?' };
        self.begun = true;
        write!(f, "{mark}{name}={value}")
    }

    /// In the largest unit that loses nothing.
    pub(super) fn size(&mut self, f: &mut fmt::Formatter<'_>, size: Option<Size>) -> fmt::Result {
        let Some(bytes) = size.map(Size::bytes) else {
            return Ok(());
        };
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let fits = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
        let (shift, unit) = fits.copied().unwrap_or((0, ""));
        self.put(f, "size", format_args!("{}{unit}", bytes >> shift))
    }

    fn fabric(&mut self, f: &mut fmt::Formatter<'_>, fabric: Option<Fabric>) -> fmt::Result {
        fabric.map_or(Ok(()), |fabric| self.put(f, "fabric", fabric))
    }

    fn claim(&mut self, f: &mut fmt::Formatter<'_>, claim: Claim) -> fmt::Result {
        if claim == Claim::default() { Ok(()) } else { self.put(f, "claim", claim) }
    }

    fn patience(&mut self, f: &mut fmt::Formatter<'_>, patience: &Patience) -> fmt::Result {
        let usual = Patience::default();
        if patience.timeout != usual.timeout {
            self.put(f, "timeout", patience.timeout.as_secs_f64())?;
        }
        if patience.reconnect != usual.reconnect {
            self.put(f, "reconnect", patience.reconnect.as_secs_f64())?;
        }
        Ok(())
    }
}
