//! The NBD protocol on the wire (fixed newstyle): encoding and decoding over byte slices, no I/O.
//!
//! Source: the NBD project's `doc/proto.md`. All numbers are big-endian. Everything that the other side says
//! is checked against the limits below; nothing here panics on any input, and nothing allocates by a length
//! that was not checked first.

pub mod handshake;
pub mod transmission;

use thiserror::Error;

/// Longest READ, WRITE and chunk of data in bytes (the protocol's own recommended limit).
pub const MAX_REQUEST_BYTES: u32 = 32 << 20;
/// Longest data of one option, or of one option's reply, in bytes.
pub const MAX_OPTION_BYTES: u32 = 64 << 10;
/// Longest string in bytes: export names, contexts, messages (the protocol's own limit).
pub const MAX_NAME_BYTES: usize = 4096;
/// Most metadata context queries in one option.
pub const MAX_META_QUERIES: usize = 64;
/// Most extents in one BLOCK_STATUS chunk.
pub const MAX_EXTENTS: usize = 4096;

/// Error numbers as the protocol fixes them (they look like Linux's, but are the protocol's own).
pub mod errno {
    /// Operation not permitted, for example a write to a read-only export.
    pub const EPERM: u32 = 1;
    /// Input/output error.
    pub const EIO: u32 = 5;
    /// Cannot allocate memory.
    pub const ENOMEM: u32 = 12;
    /// Invalid argument.
    pub const EINVAL: u32 = 22;
    /// No space left.
    pub const ENOSPC: u32 = 28;
    /// Value too large.
    pub const EOVERFLOW: u32 = 75;
    /// Operation not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server is shutting down.
    pub const ESHUTDOWN: u32 = 108;

    /// The error's name, for messages.
    #[must_use]
    pub fn name(number: u32) -> &'static str {
        match number {
            EPERM => "EPERM (not permitted)",
            EIO => "EIO (input/output error)",
            ENOMEM => "ENOMEM (out of memory)",
            EINVAL => "EINVAL (invalid request)",
            ENOSPC => "ENOSPC (no space left)",
            EOVERFLOW => "EOVERFLOW (value too large)",
            ENOTSUP => "ENOTSUP (not supported)",
            ESHUTDOWN => "ESHUTDOWN (server is shutting down)",
            _ => "an unknown error",
        }
    }
}

/// Why bytes are not the NBD protocol, or more than this side accepts.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// A magic number is wrong: the other side does not speak NBD, or the stream is out of step.
    #[error("bad magic number {found:#x} where {what} should begin")]
    Magic {
        /// What should have been there.
        what: &'static str,
        /// What was there.
        found: u64,
    },
    /// A message ends before its fields do, or goes on after them.
    #[error("{what} has the wrong length")]
    Length {
        /// Which message.
        what: &'static str,
    },
    /// A field is beyond its limit.
    #[error("{what} of {found} is beyond the limit of {limit}")]
    Limit {
        /// Which field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A string is not UTF-8, or contains NUL.
    #[error("{what} is not valid text")]
    Text {
        /// Which string.
        what: &'static str,
    },
}

/// Reads fields one after another out of one message.
pub(crate) struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(WireError::Length { what: self.what })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Length { what: self.what })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number that must be `expected`.
    pub(crate) fn magic_u32(&mut self, expected: u32) -> Result<(), WireError> {
        match self.u32()? {
            found if found == expected => Ok(()),
            found => Err(WireError::Magic { what: self.what, found: found.into() }),
        }
    }

    /// A number that must be `expected`.
    pub(crate) fn magic_u64(&mut self, expected: u64) -> Result<(), WireError> {
        match self.u64()? {
            found if found == expected => Ok(()),
            found => Err(WireError::Magic { what: self.what, found }),
        }
    }

    /// `length` bytes of text.
    pub(crate) fn text(&mut self, length: usize) -> Result<&'a str, WireError> {
        limit("length of a string", length as u64, MAX_NAME_BYTES as u64)?;
        let what = self.what;
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| WireError::Text { what })?;
        if text.contains('\0') {
            return Err(WireError::Text { what });
        }
        Ok(text)
    }

    /// A 32-bit length and that much text.
    pub(crate) fn counted_text(&mut self) -> Result<&'a str, WireError> {
        let length = self.u32()?;
        self.text(usize::try_from(length).unwrap_or(usize::MAX))
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The message must end here.
    pub(crate) fn end(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Length { what: self.what }) }
    }
}

/// Checks a field against its limit.
pub(crate) fn limit(what: &'static str, found: u64, limit: u64) -> Result<(), WireError> {
    if found <= limit { Ok(()) } else { Err(WireError::Limit { what, found, limit }) }
}

/// Appends a 32-bit length and the text, cut to [`MAX_NAME_BYTES`] at a character.
pub(crate) fn put_counted_text(out: &mut Vec<u8>, text: &str) {
    let text = clip(text);
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// The longest beginning of `text` that a string on the wire may have.
pub(crate) fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NAME_BYTES)]
}
