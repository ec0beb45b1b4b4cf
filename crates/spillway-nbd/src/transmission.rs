//! The transmission phase: requests, simple replies, and the chunks of structured replies.

use bitflags::bitflags;

use crate::fields::{Fields, clip, limit};
use crate::{MAX_EXTENTS, MAX_NAME_BYTES, MAX_REQUEST_BYTES, WireError};

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Length of a request without its data.
pub const REQUEST_BYTES: usize = 28;
/// Length of a simple reply without its data.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Length of what comes before a chunk's payload.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Length of what comes before the data in an OFFSET_DATA chunk.
pub const OFFSET_BYTES: usize = 8;
/// Length of the payload of an OFFSET_HOLE chunk.
pub const HOLE_PAYLOAD_BYTES: usize = 12;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read a range of bytes.
    Read,
    /// Write; the data follows the request.
    Write,
    /// End the connection; no reply.
    Disconnect,
    /// Make completed writes lasting.
    Flush,
    /// The contents are no longer needed.
    Trim,
    /// Prefetch a range into the server's cache.
    Cache,
    /// Write zeros to a range.
    WriteZeroes,
    /// Ask which parts are holes.
    BlockStatus,
    /// Anything else, by number.
    Unknown(u16),
}

impl Command {
    const KNOWN: [(u16, Self); 8] = [
        (0, Self::Read),
        (1, Self::Write),
        (2, Self::Disconnect),
        (3, Self::Flush),
        (4, Self::Trim),
        (5, Self::Cache),
        (6, Self::WriteZeroes),
        (7, Self::BlockStatus),
    ];

    fn number(self) -> u16 {
        match self {
            Self::Unknown(number) => number,
            known => {
                Self::KNOWN.iter().find(|(_, command)| *command == known).map_or(0, |(number, _)| *number)
            }
        }
    }

    fn from_number(number: u16) -> Self {
        Self::KNOWN
            .iter()
            .find(|(known, _)| *known == number)
            .map_or(Self::Unknown(number), |(_, known)| *known)
    }
}

bitflags! {
    /// How it is asked for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RequestFlags: u16 {
        /// Answer only when the data is lasting.
        const FUA = 1 << 0;
        /// WRITE_ZEROES must not make a hole.
        const NO_HOLE = 1 << 1;
        /// READ must be answered with one chunk of data.
        const DF = 1 << 2;
        /// BLOCK_STATUS wants one extent only.
        const REQ_ONE = 1 << 3;
        /// WRITE_ZEROES only if it is fast.
        const FAST_ZERO = 1 << 4;
        const _ = !0;
    }

    /// What is said about a chunk of a reply.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ChunkFlags: u16 {
        /// The last chunk of the reply.
        const DONE = 1;
        const _ = !0;
    }

    /// What an extent is, in the `base:allocation` context.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExtentFlags: u32 {
        /// Nothing is stored there.
        const HOLE = 1;
        /// The extent reads as zeros.
        const ZERO = 2;
        const _ = !0;
    }
}

/// A request, without the data of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How it is to be done.
    pub flags: RequestFlags,
    /// What is to be done.
    pub command: Command,
    /// The client's name for it, which the reply repeats.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range, in bytes.
    pub length: u32,
}

impl Request {
    /// The request as it is sent, without its data.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        out[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        out[6..8].copy_from_slice(&self.command.number().to_be_bytes());
        out[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        out[16..24].copy_from_slice(&self.offset.to_be_bytes());
        out[24..28].copy_from_slice(&self.length.to_be_bytes());
        out
    }

    /// Reads the request at the beginning of `bytes`; `None` while it is not all there. A READ or WRITE may
    /// be longer than [`MAX_REQUEST_BYTES`]: who serves it says so, after the data of a WRITE.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let mut fields = Fields::new("a request", bytes);
        if bytes.len() >= 4 {
            fields.magic_u32(REQUEST_MAGIC)?;
        }
        if bytes.len() < REQUEST_BYTES {
            return Ok(None);
        }
        let request = Self {
            flags: RequestFlags::from_bits_retain(fields.u16()?),
            command: Command::from_number(fields.u16()?),
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        };
        Ok(Some(request))
    }
}

/// Kinds of chunks in a structured reply.
pub mod chunk {
    /// No payload; ends a reply.
    pub const NONE: u16 = 0;
    /// Data of a READ.
    pub const OFFSET_DATA: u16 = 1;
    /// A hole in the data of a READ.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of the range, and what they are.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error of the whole request.
    pub const ERROR: u16 = (1 << 15) | 1;
    /// An error at one offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) | 2;
    /// Errors have this bit.
    pub const ERROR_BIT: u16 = 1 << 15;
}

/// What comes before the data or payload of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHead {
    /// A simple reply; the data of a successful READ follows.
    Simple {
        /// 0, or one of [`super::errno`].
        error: u32,
        /// The cookie of the request that is answered.
        cookie: u64,
    },
    /// A chunk of a structured reply.
    Chunk {
        /// What is said about this chunk.
        flags: ChunkFlags,
        /// One of the kinds in [`chunk`].
        kind: u16,
        /// The cookie of the request that is answered.
        cookie: u64,
        /// Bytes of payload that follow; checked.
        payload_bytes: u32,
    },
}

impl ReplyHead {
    /// Number of bytes that [`Self::decode`] read.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Simple { .. } => SIMPLE_REPLY_BYTES,
            Self::Chunk { .. } => CHUNK_HEADER_BYTES,
        }
    }

    /// Appends the head's bytes to a message.
    pub fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Simple { error, cookie } => {
                out.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
                out.extend_from_slice(&error.to_be_bytes());
                out.extend_from_slice(&cookie.to_be_bytes());
            }
            Self::Chunk { flags, kind, cookie, payload_bytes } => {
                out.extend_from_slice(&CHUNK_MAGIC.to_be_bytes());
                out.extend_from_slice(&flags.bits().to_be_bytes());
                out.extend_from_slice(&kind.to_be_bytes());
                out.extend_from_slice(&cookie.to_be_bytes());
                out.extend_from_slice(&payload_bytes.to_be_bytes());
            }
        }
    }

    /// Reads the head at the beginning of `bytes`; `None` while it is not all there.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let mut fields = Fields::new("a reply", bytes);
        if bytes.len() < 4 {
            return Ok(None);
        }
        match fields.u32()? {
            SIMPLE_MAGIC if bytes.len() < SIMPLE_REPLY_BYTES => Ok(None),
            SIMPLE_MAGIC => Ok(Some(Self::Simple { error: fields.u32()?, cookie: fields.u64()? })),
            CHUNK_MAGIC if bytes.len() < CHUNK_HEADER_BYTES => Ok(None),
            CHUNK_MAGIC => {
                let flags = ChunkFlags::from_bits_retain(fields.u16()?);
                let kind = fields.u16()?;
                let cookie = fields.u64()?;
                let payload_bytes = fields.u32()?;
                limit("length of a chunk", payload_bytes.into(), max_payload_bytes(kind).into())?;
                Ok(Some(Self::Chunk { flags, kind, cookie, payload_bytes }))
            }
            found => Err(WireError::Magic { what: "a reply", found: found.into() }),
        }
    }
}

/// Longest payload of a chunk of `kind`.
fn max_payload_bytes(kind: u16) -> u32 {
    match kind {
        chunk::NONE => 0,
        chunk::OFFSET_DATA => MAX_REQUEST_BYTES + OFFSET_BYTES as u32,
        chunk::OFFSET_HOLE => HOLE_PAYLOAD_BYTES as u32,
        chunk::BLOCK_STATUS => (4 + 8 * MAX_EXTENTS) as u32,
        // Errors, and kinds not known: text at most.
        _ => 16 + MAX_NAME_BYTES as u32,
    }
}

/// The payload of an OFFSET_DATA chunk begins with the offset of its data.
pub fn decode_data_offset(payload: &[u8]) -> Result<u64, WireError> {
    Fields::new("a chunk of data", payload).u64()
}

/// The payload of an OFFSET_HOLE chunk: offset and length.
pub fn decode_hole(payload: &[u8]) -> Result<(u64, u32), WireError> {
    let mut fields = Fields::new("a chunk with a hole", payload);
    let hole = (fields.u64()?, fields.u32()?);
    fields.end()?;
    Ok(hole)
}

/// The payload of an error chunk: error number and message.
pub fn decode_error(payload: &[u8]) -> Result<(u32, &str), WireError> {
    let mut fields = Fields::new("a chunk with an error", payload);
    let error = fields.u32()?;
    let length = fields.u16()?;
    let message = fields.bytes(length.into())?;
    // A message that is no text is not worth failing for.
    Ok((error, std::str::from_utf8(message).unwrap_or("")))
}

/// Appends the payload of an ERROR chunk.
pub fn put_error(out: &mut Vec<u8>, error: u32, message: &str) {
    let message = clip(message);
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(&(message.len() as u16).to_be_bytes());
    out.extend_from_slice(message.as_bytes());
}

/// A stretch of an export that is all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length of the extent, in bytes.
    pub length: u32,
    /// What the extent is: data or a hole.
    pub flags: ExtentFlags,
}

/// Appends the payload of a BLOCK_STATUS chunk.
pub fn put_extents(out: &mut Vec<u8>, context_id: u32, extents: &[Extent]) {
    out.extend_from_slice(&context_id.to_be_bytes());
    for extent in extents.iter().take(MAX_EXTENTS) {
        out.extend_from_slice(&extent.length.to_be_bytes());
        out.extend_from_slice(&extent.flags.bits().to_be_bytes());
    }
}

/// The payload of a BLOCK_STATUS chunk: context and extents.
pub fn decode_extents(payload: &[u8]) -> Result<(u32, Vec<Extent>), WireError> {
    let mut fields = Fields::new("a chunk of block status", payload);
    let context_id = fields.u32()?;
    let mut extents = Vec::new();
    while !fields.is_empty() {
        limit("number of extents", extents.len() as u64 + 1, MAX_EXTENTS as u64)?;
        let length = fields.u32()?;
        extents.push(Extent { length, flags: ExtentFlags::from_bits_retain(fields.u32()?) });
    }
    Ok((context_id, extents))
}
