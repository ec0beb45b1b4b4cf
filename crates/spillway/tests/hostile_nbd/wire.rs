//! The server's half of the NBD protocol: fixed newstyle, simple replies.

use std::io::{Error, Read, Result, Write};

const GREETING: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const FIXED_NEWSTYLE_NO_ZEROES: u16 = 3;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const OPTION_ABORT: u32 = 2;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = (1 << 31) | 1;

/// Flags of an export.
pub mod flag {
    /// Set in all flags that a server sends.
    pub const HAS_FLAGS: u16 = 1;
    /// The export refuses to be written to.
    pub const READ_ONLY: u16 = 2;
    /// The export understands TRIM.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Several connections see the same.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Kinds of requests, by their numbers.
pub mod kind {
    /// Read a range of bytes.
    pub const READ: u16 = 0;
    /// Write a range of bytes.
    pub const WRITE: u16 = 1;
    /// Hang up, without a reply.
    pub const DISCONNECT: u16 = 2;
}

/// What the server says of its export.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    /// The size of the export.
    pub bytes: u64,
    /// Flags of those in [`flag`].
    pub flags: u16,
    /// Least, best and most bytes of a request, if it says so.
    pub blocks: Option<[u32; 3]>,
}

impl Default for Export {
    fn default() -> Self {
        Self { bytes: 1 << 30, flags: flag::HAS_FLAGS | flag::SEND_TRIM | flag::CAN_MULTI_CONN, blocks: None }
    }
}

impl Export {
    /// As it is, but nobody may write.
    pub fn read_only(self) -> Self {
        Self { flags: self.flags | flag::READ_ONLY, ..self }
    }
}

fn number<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Greets the client and answers its options, up to GO.
pub fn handshake(stream: &mut (impl Read + Write), export: &Export) -> Result<()> {
    stream.write_all(&[&GREETING[..], &FIXED_NEWSTYLE_NO_ZEROES.to_be_bytes()].concat())?;
    let _client_flags: [u8; 4] = number(stream)?;
    loop {
        if u64::from_be_bytes(number(stream)?) != OPTION_MAGIC {
            return Err(Error::other("no option"));
        }
        let option = u32::from_be_bytes(number(stream)?);
        let length = u32::from_be_bytes(number(stream)?);
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match option {
            OPTION_GO => return go(stream, export),
            OPTION_ABORT => return Err(Error::other("aborted")),
            _ => reply(stream, option, REPLY_UNSUPPORTED, &[])?,
        }
    }
}

fn go(stream: &mut impl Write, export: &Export) -> Result<()> {
    let size_and_flags = [&[0; 2][..], &export.bytes.to_be_bytes(), &export.flags.to_be_bytes()].concat();
    reply(stream, OPTION_GO, REPLY_INFO, &size_and_flags)?;
    if let Some(blocks) = export.blocks {
        let sizes = blocks.map(u32::to_be_bytes).concat();
        reply(stream, OPTION_GO, REPLY_INFO, &[&[0, 3], &sizes[..]].concat())?;
    }
    reply(stream, OPTION_GO, REPLY_ACK, &[])
}

fn reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> Result<()> {
    let head = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    stream.write_all(&[&OPTION_REPLY_MAGIC.to_be_bytes(), &head[..], data].concat())
}

/// A request of the client's.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// One of the kinds in [`kind`].
    pub kind: u16,
    /// The client's name for it.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range, in bytes.
    pub bytes: usize,
}

impl Request {
    /// Waits for the next one.
    pub fn receive(stream: &mut impl Read) -> Result<Self> {
        if u32::from_be_bytes(number(stream)?) != REQUEST_MAGIC {
            return Err(Error::other("no request"));
        }
        let _flags: [u8; 2] = number(stream)?;
        Ok(Self {
            kind: u16::from_be_bytes(number(stream)?),
            cookie: u64::from_be_bytes(number(stream)?),
            offset: u64::from_be_bytes(number(stream)?),
            bytes: u32::from_be_bytes(number(stream)?) as usize,
        })
    }

    /// Number of its first page.
    pub fn page(&self) -> u64 {
        self.offset >> 12
    }

    /// Sends the reply to this request.
    pub fn answer(&self, stream: &mut impl Write, error: u32, data: &[u8]) -> Result<()> {
        let head = [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &self.cookie.to_be_bytes()];
        stream.write_all(&[&head.concat()[..], data].concat())
    }
}
