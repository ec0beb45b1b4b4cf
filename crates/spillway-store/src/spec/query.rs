//! The parts of a URI that is being printed.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use spillway_core::size::Size;

use super::wishes::{Claim, Patience};
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

pub(super) fn encode(text: &str) -> impl fmt::Display + '_ {
    percent_encode(text.as_bytes(), ENCODED)
}

pub(super) fn encode_path(path: &Path) -> impl fmt::Display + '_ {
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
        self.flag(f, name)?;
        write!(f, "={value}")
    }

    /// A parameter without a value.
    pub(super) fn flag(&mut self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let mark = if self.begun { '&' } else { '?' };
        self.begun = true;
        write!(f, "{mark}{name}")
    }

    pub(super) fn size(&mut self, f: &mut fmt::Formatter<'_>, size: Option<Size>) -> fmt::Result {
        self.named_size(f, "size", size)
    }

    /// In the largest unit that loses nothing.
    pub(super) fn named_size(
        &mut self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        size: Option<Size>,
    ) -> fmt::Result {
        let Some(bytes) = size.map(Size::bytes) else {
            return Ok(());
        };
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let fits = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
        let (shift, unit) = fits.copied().unwrap_or((0, ""));
        self.put(f, name, format_args!("{}{unit}", bytes >> shift))
    }

    pub(super) fn fabric(&mut self, f: &mut fmt::Formatter<'_>, fabric: Option<Fabric>) -> fmt::Result {
        fabric.map_or(Ok(()), |fabric| self.put(f, "fabric", fabric))
    }

    pub(super) fn claim(&mut self, f: &mut fmt::Formatter<'_>, claim: Claim) -> fmt::Result {
        if claim == Claim::default() { Ok(()) } else { self.put(f, "claim", claim) }
    }

    pub(super) fn patience(&mut self, f: &mut fmt::Formatter<'_>, patience: &Patience) -> fmt::Result {
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
