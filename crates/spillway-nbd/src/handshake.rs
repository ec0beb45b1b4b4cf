//! The handshake: greeting, options and their replies.

use bitflags::bitflags;

use crate::fields::{Fields, clip, limit, put_counted_text};
use crate::{MAX_META_QUERIES, MAX_NAME_BYTES, MAX_OPTION_BYTES, WireError};

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Length of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Length of the client's flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Length of what comes before an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of what comes before an option reply's data.
pub const REPLY_HEADER_BYTES: usize = 20;
/// Length of the answer to EXPORT_NAME, without its 124 optional zeros.
pub const EXPORT_NAME_REPLY_BYTES: usize = 10;
/// Zeros after the answer to EXPORT_NAME, unless both sides said NO_ZEROES.
pub const EXPORT_NAME_ZEROES: usize = 124;

bitflags! {
    /// What the server can do, in its greeting; the client's flags have the same two bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HandshakeFlags: u32 {
        /// Fixed newstyle: unknown options get an answer.
        const FIXED_NEWSTYLE = 1;
        /// No zeros after the answer to EXPORT_NAME.
        const NO_ZEROES = 2;
    }

    /// What an export can do.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExportFlags: u16 {
        /// Set in all flags that a server sends.
        const HAS_FLAGS = 1 << 0;
        /// The export refuses to be written to.
        const READ_ONLY = 1 << 1;
        /// The export understands FLUSH.
        const SEND_FLUSH = 1 << 2;
        /// The export understands FUA on writes.
        const SEND_FUA = 1 << 3;
        /// A hint that it is a rotating disk.
        const ROTATIONAL = 1 << 4;
        /// The export understands TRIM.
        const SEND_TRIM = 1 << 5;
        /// The export understands WRITE_ZEROES.
        const SEND_WRITE_ZEROES = 1 << 6;
        /// READ with DF is understood.
        const SEND_DF = 1 << 7;
        /// Several connections see one export coherently.
        const CAN_MULTI_CONN = 1 << 8;
        /// The export understands RESIZE.
        const SEND_RESIZE = 1 << 9;
        /// The export understands CACHE.
        const SEND_CACHE = 1 << 10;
        /// WRITE_ZEROES with FAST_ZERO is understood.
        const SEND_FAST_ZERO = 1 << 11;
    }
}

/// What options a client can send, by number.
pub mod option {
    /// Choose an export and go, without an error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// End the handshake; the connection is closed.
    pub const ABORT: u32 = 2;
    /// List the names of the exports.
    pub const LIST: u32 = 3;
    /// Upgrade the connection to TLS.
    pub const STARTTLS: u32 = 5;
    /// Ask about an export.
    pub const INFO: u32 = 6;
    /// Choose an export and go.
    pub const GO: u32 = 7;
    /// Use structured replies from now on.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List the metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose the metadata contexts of an export.
    pub const SET_META_CONTEXT: u32 = 10;
    /// No option of the protocol: whatever a server answers shows that it hears us.
    pub const NONE: u32 = 0x5350_4c57;
}

/// Kinds of option replies.
pub mod reply {
    /// The option has been done; nothing follows.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// A piece of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context, with its number.
    pub const META_CONTEXT: u32 = 4;
    /// Errors have this bit.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    /// The option is forbidden here.
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    /// The option's data is malformed, or it comes at the wrong time.
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    /// The server takes options only once the connection is upgraded to TLS.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    /// The server has no such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT | 7;
    /// The option's data is longer than the server accepts.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;

    /// The error's name, for messages.
    #[must_use]
    pub fn name(kind: u32) -> &'static str {
        match kind {
            ERR_UNSUP => "not supported",
            ERR_POLICY => "forbidden by the server",
            ERR_INVALID => "invalid",
            ERR_TLS_REQD => "TLS comes first",
            ERR_UNKNOWN => "no such export",
            ERR_SHUTDOWN => "server is shutting down",
            ERR_TOO_BIG => "too big",
            kind if kind & ERROR_BIT != 0 => "an error that this client does not know",
            _ => "an unexpected reply",
        }
    }
}

/// Kinds of information in an INFO reply.
pub mod info {
    /// Size of the export and its flags.
    pub const EXPORT: u16 = 0;
    /// The export's canonical name.
    pub const NAME: u16 = 1;
    /// A text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Sizes of blocks that the export takes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// The metadata context that says which parts of an export are holes.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// The server's first message.
#[must_use]
pub fn encode_greeting(flags: HandshakeFlags) -> [u8; GREETING_BYTES] {
    let mut out = [0; GREETING_BYTES];
    out[..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
    out[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    out[16..].copy_from_slice(&(flags.bits() as u16).to_be_bytes());
    out
}

/// The server's first message; bits that are not known are dropped.
pub fn decode_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<HandshakeFlags, WireError> {
    let mut fields = Fields::new("the greeting of an NBD server", bytes);
    fields.magic_u64(NBD_MAGIC)?;
    fields.magic_u64(OPTION_MAGIC)?;
    Ok(HandshakeFlags::from_bits_truncate(fields.u16()?.into()))
}

/// The client's flags; `None` where it sets a bit that the protocol does not know.
#[must_use]
pub fn decode_client_flags(bytes: [u8; CLIENT_FLAGS_BYTES]) -> Option<HandshakeFlags> {
    HandshakeFlags::from_bits(u32::from_be_bytes(bytes))
}

/// What comes before an option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// One of the numbers in [`option`].
    pub option: u32,
    /// Bytes of data that follow. May be beyond [`MAX_OPTION_BYTES`]: then say so and hang up.
    pub data_bytes: u32,
}

/// Reads an option's header.
pub fn decode_option_header(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<OptionHeader, WireError> {
    let mut fields = Fields::new("an option", bytes);
    fields.magic_u64(OPTION_MAGIC)?;
    Ok(OptionHeader { option: fields.u32()?, data_bytes: fields.u32()? })
}

/// An option of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOption<'a> {
    /// Choose an export and go, without an error reply.
    ExportName(&'a str),
    /// End the handshake; the connection is closed.
    Abort,
    /// List the names of the exports.
    List,
    /// Upgrade the connection to TLS.
    StartTls,
    /// Ask about an export.
    Info(InfoQuery<'a>),
    /// Choose an export and go.
    Go(InfoQuery<'a>),
    /// Use structured replies from now on.
    StructuredReply,
    /// List the metadata contexts of an export.
    ListMetaContext(MetaQuery<'a>),
    /// Choose the metadata contexts of an export.
    SetMetaContext(MetaQuery<'a>),
    /// Anything else, by number.
    Unknown(u32),
}

/// The data of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoQuery<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// Kinds of information that the client wants, of [`info`].
    pub kinds: Vec<u16>,
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaQuery<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a str,
    /// What is asked for, `namespace:leaf`.
    pub queries: Vec<&'a str>,
}

/// Reads an option's data.
pub fn decode_option(option: u32, data: &[u8]) -> Result<ClientOption<'_>, WireError> {
    limit("length of an option", data.len() as u64, MAX_OPTION_BYTES.into())?;
    let empty = |done| {
        if data.is_empty() { Ok(done) } else { Err(WireError::Length { what: "an option" }) }
    };
    match option {
        option::EXPORT_NAME => {
            Fields::new("an export name", data).text(data.len()).map(ClientOption::ExportName)
        }
        option::ABORT => Ok(ClientOption::Abort),
        option::LIST => empty(ClientOption::List),
        option::STARTTLS => empty(ClientOption::StartTls),
        option::INFO => decode_info_query(data).map(ClientOption::Info),
        option::GO => decode_info_query(data).map(ClientOption::Go),
        option::STRUCTURED_REPLY => empty(ClientOption::StructuredReply),
        option::LIST_META_CONTEXT => decode_meta_query(data).map(ClientOption::ListMetaContext),
        option::SET_META_CONTEXT => decode_meta_query(data).map(ClientOption::SetMetaContext),
        other => Ok(ClientOption::Unknown(other)),
    }
}

fn decode_info_query(data: &[u8]) -> Result<InfoQuery<'_>, WireError> {
    let mut fields = Fields::new("an INFO or GO option", data);
    let name = fields.counted_text()?;
    let count = fields.u16()?;
    // The count cannot ask for more than the data holds: two bytes each were received.
    let kinds = (0..count).map(|_| fields.u16()).collect::<Result<_, _>>()?;
    fields.end()?;
    Ok(InfoQuery { name, kinds })
}

fn decode_meta_query(data: &[u8]) -> Result<MetaQuery<'_>, WireError> {
    let mut fields = Fields::new("a META_CONTEXT option", data);
    let name = fields.counted_text()?;
    let count = fields.u32()?;
    limit("number of metadata queries", count.into(), MAX_META_QUERIES as u64)?;
    let queries = (0..count).map(|_| fields.counted_text()).collect::<Result<_, _>>()?;
    fields.end()?;
    Ok(MetaQuery { name, queries })
}

/// Appends an option of the client.
pub fn put_option(out: &mut Vec<u8>, option: &ClientOption<'_>) {
    let mut data = Vec::new();
    let number = match option {
        ClientOption::ExportName(name) => {
            data.extend_from_slice(clip(name).as_bytes());
            option::EXPORT_NAME
        }
        ClientOption::Abort => option::ABORT,
        ClientOption::List => option::LIST,
        ClientOption::StartTls => option::STARTTLS,
        ClientOption::Info(query) => {
            put_info_query(&mut data, query);
            option::INFO
        }
        ClientOption::Go(query) => {
            put_info_query(&mut data, query);
            option::GO
        }
        ClientOption::StructuredReply => option::STRUCTURED_REPLY,
        ClientOption::ListMetaContext(query) => {
            put_meta_query(&mut data, query);
            option::LIST_META_CONTEXT
        }
        ClientOption::SetMetaContext(query) => {
            put_meta_query(&mut data, query);
            option::SET_META_CONTEXT
        }
        ClientOption::Unknown(number) => *number,
    };
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(&data);
}

fn put_info_query(data: &mut Vec<u8>, query: &InfoQuery<'_>) {
    put_counted_text(data, query.name);
    data.extend_from_slice(&(query.kinds.len() as u16).to_be_bytes());
    for kind in &query.kinds {
        data.extend_from_slice(&kind.to_be_bytes());
    }
}

fn put_meta_query(data: &mut Vec<u8>, query: &MetaQuery<'_>) {
    put_counted_text(data, query.name);
    data.extend_from_slice(&(query.queries.len() as u32).to_be_bytes());
    for text in &query.queries {
        put_counted_text(data, text);
    }
}

/// What comes before an option reply's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The option that is answered.
    pub option: u32,
    /// One of the numbers in [`reply`].
    pub kind: u32,
    /// Bytes of data that follow; checked.
    pub data_bytes: u32,
}

/// Reads the header of an option reply.
pub fn decode_reply_header(bytes: &[u8; REPLY_HEADER_BYTES]) -> Result<ReplyHeader, WireError> {
    let mut fields = Fields::new("an option reply", bytes);
    fields.magic_u64(REPLY_MAGIC)?;
    let header = ReplyHeader { option: fields.u32()?, kind: fields.u32()?, data_bytes: fields.u32()? };
    limit("length of an option reply", header.data_bytes.into(), MAX_OPTION_BYTES.into())?;
    Ok(header)
}

/// The data of an option reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionReply<'a> {
    /// The option has been done; nothing follows.
    Ack,
    /// One export of a list.
    Server(&'a str),
    /// Size and flags of the export.
    Export {
        /// The export's size in bytes.
        size_bytes: u64,
        /// What it can do.
        flags: ExportFlags,
    },
    /// The export's canonical name.
    Name(&'a str),
    /// A text for people.
    Description(&'a str),
    /// Sizes of blocks that the export takes.
    Blocks(BlockSizes),
    /// A metadata context that was chosen or listed.
    MetaContext {
        /// Number by which BLOCK_STATUS names it.
        id: u32,
        /// Its name, as in `namespace:leaf`.
        name: &'a str,
    },
    /// An error, of [`reply`], and what the other side says about it.
    Error {
        /// One of the errors in [`reply`].
        kind: u32,
        /// Text for people; may be empty.
        message: &'a str,
    },
    /// Information of a kind that is not known: to be skipped.
    Skip,
}

/// Sizes of requests that an export accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this.
    pub minimum_bytes: u32,
    /// The size that works best.
    pub preferred_bytes: u32,
    /// Longest READ or WRITE.
    pub maximum_bytes: u32,
}

/// Reads the data of an option reply.
pub fn decode_reply(header: ReplyHeader, data: &[u8]) -> Result<OptionReply<'_>, WireError> {
    let mut fields = Fields::new("an option reply", data);
    let whole = |mut fields: Fields<'_>| fields.text(data.len()).map(|_| ());
    match header.kind {
        reply::ACK => Ok(OptionReply::Ack),
        reply::SERVER => fields.counted_text().map(OptionReply::Server),
        reply::META_CONTEXT => {
            let id = fields.u32()?;
            let name = fields.text(data.len().saturating_sub(4))?;
            Ok(OptionReply::MetaContext { id, name })
        }
        reply::INFO => decode_info(fields),
        kind if kind & reply::ERROR_BIT != 0 => {
            // A message that is no text is not worth failing for.
            let message = match whole(Fields::new("an error message", data)) {
                Ok(()) => std::str::from_utf8(data).unwrap_or(""),
                Err(_) => "",
            };
            Ok(OptionReply::Error { kind, message })
        }
        _ => Ok(OptionReply::Skip),
    }
}

fn decode_info(mut fields: Fields<'_>) -> Result<OptionReply<'_>, WireError> {
    match fields.u16()? {
        info::EXPORT => {
            let size_bytes = fields.u64()?;
            let flags = ExportFlags::from_bits_truncate(fields.u16()?);
            fields.end()?;
            Ok(OptionReply::Export { size_bytes, flags })
        }
        info::BLOCK_SIZE => {
            let blocks = BlockSizes {
                minimum_bytes: fields.u32()?,
                preferred_bytes: fields.u32()?,
                maximum_bytes: fields.u32()?,
            };
            fields.end()?;
            Ok(OptionReply::Blocks(blocks))
        }
        kind @ (info::NAME | info::DESCRIPTION) => {
            let rest = fields.rest();
            let text = Fields::new("information about an export", rest).text(rest.len())?;
            Ok(if kind == info::NAME { OptionReply::Name(text) } else { OptionReply::Description(text) })
        }
        _ => Ok(OptionReply::Skip),
    }
}

/// Appends the reply to `option`.
pub fn put_reply(out: &mut Vec<u8>, option: u32, answer: &OptionReply<'_>) {
    let mut data = Vec::new();
    let kind = match answer {
        OptionReply::Ack | OptionReply::Skip => reply::ACK,
        OptionReply::Server(name) => {
            put_counted_text(&mut data, name);
            reply::SERVER
        }
        OptionReply::Export { size_bytes, flags } => {
            data.extend_from_slice(&info::EXPORT.to_be_bytes());
            data.extend_from_slice(&size_bytes.to_be_bytes());
            data.extend_from_slice(&flags.bits().to_be_bytes());
            reply::INFO
        }
        OptionReply::Name(text) | OptionReply::Description(text) => {
            let is_name = matches!(answer, OptionReply::Name(_));
            let kind = if is_name { info::NAME } else { info::DESCRIPTION };
            data.extend_from_slice(&kind.to_be_bytes());
            data.extend_from_slice(clip(text).as_bytes());
            reply::INFO
        }
        OptionReply::Blocks(blocks) => {
            data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
            for size in [blocks.minimum_bytes, blocks.preferred_bytes, blocks.maximum_bytes] {
                data.extend_from_slice(&size.to_be_bytes());
            }
            reply::INFO
        }
        OptionReply::MetaContext { id, name } => {
            data.extend_from_slice(&id.to_be_bytes());
            data.extend_from_slice(clip(name).as_bytes());
            reply::META_CONTEXT
        }
        OptionReply::Error { kind, message } => {
            data.extend_from_slice(clip(message).as_bytes());
            kind | reply::ERROR_BIT
        }
    };
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(&data);
}

/// Appends the answer to EXPORT_NAME.
pub fn put_export_name_reply(out: &mut Vec<u8>, size_bytes: u64, flags: ExportFlags, zeroes: bool) {
    out.extend_from_slice(&size_bytes.to_be_bytes());
    out.extend_from_slice(&flags.bits().to_be_bytes());
    if zeroes {
        out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
    }
}

/// Reads the answer to EXPORT_NAME, without its optional zeros: size in bytes and flags.
pub fn decode_export_name_reply(
    bytes: &[u8; EXPORT_NAME_REPLY_BYTES],
) -> Result<(u64, ExportFlags), WireError> {
    let mut fields = Fields::new("the answer to EXPORT_NAME", bytes);
    Ok((fields.u64()?, ExportFlags::from_bits_truncate(fields.u16()?)))
}

/// Whether a name can be sent whole.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && !name.contains('\0')
}
