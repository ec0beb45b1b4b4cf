//! The NBD protocol on the wire (fixed newstyle): encoding and decoding over byte slices, no I/O.
//!
//! Source: the NBD project's protocol document, proto.md. All numbers are big-endian. Everything that the
//! other side says is checked against the limits below; nothing here panics on any input, and nothing
//! allocates by a length that was not checked first.
//!
//! | file | holds |
//! |---|---|
//! | [`handshake`] | greeting, options and their replies |
//! | [`transmission`] | requests, replies and chunks |
//! | [`private`] | our extension: how a run keeps its export to itself |
//! | [`standing`] | how a donor stands, as it tells |
//! | [`run_standing`] | what it has for each of its runs, as it tells |
//! | [`proof`] | how a connection shows that it is the run's |
//! | `fields` | reading and writing the fields of one message |

mod fields;
pub mod handshake;
pub mod private;
pub mod proof;
pub mod run_standing;
pub mod standing;
pub mod transmission;

use thiserror::Error;

/// Longest READ, WRITE and chunk of data in bytes (the protocol's own recommended limit). A server answers a
/// longer request with EINVAL.
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
    /// Input or output failed at the server.
    pub const EIO: u32 = 5;
    /// The server cannot allocate memory for it.
    pub const ENOMEM: u32 = 12;
    /// The request has an invalid argument.
    pub const EINVAL: u32 = 22;
    /// The export has no space left.
    pub const ENOSPC: u32 = 28;
    /// A value in the request is too large.
    pub const EOVERFLOW: u32 = 75;
    /// The server does not support the operation.
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
        /// What was there in its place.
        found: u64,
    },
    /// A message ends before its fields do, or goes on after them.
    #[error("{what} has the wrong length")]
    Length {
        /// Which message has that length.
        what: &'static str,
    },
    /// A field is beyond its limit.
    #[error("{what} of {found} is beyond the limit of {limit}")]
    Limit {
        /// Which field is beyond its limit.
        what: &'static str,
        /// The value that it has.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A string is not UTF-8, or contains NUL.
    #[error("{what} is not valid text")]
    Text {
        /// Which string is not valid text.
        what: &'static str,
    },
}
