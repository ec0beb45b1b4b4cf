//! NBD until a client has chosen its export: greeting and options.

use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};
use spillway_core::page::PAGE_SIZE;
use spillway_nbd::handshake::{
    BASE_ALLOCATION, BlockSizes, CLIENT_FLAGS_BYTES, ClientOption, ExportFlags, HandshakeFlags, InfoQuery,
    MetaQuery, OPTION_HEADER_BYTES, OptionReply, decode_client_flags, decode_option, decode_option_header,
    encode_greeting, info, option, put_export_name_reply, put_reply, reply,
};
use spillway_nbd::private::{ABSENT, Claim, LOST, PrivateQuery, REFUSED, challenge_text};
use spillway_nbd::proof::{Hexadecimal, NONCE_BYTES, Nonce, Purpose};
use spillway_nbd::run_standing::runs_text;
use spillway_nbd::{MAX_OPTION_BYTES, MAX_REQUEST_BYTES, WireError};
use spillway_tls::ServerSide;

use crate::journal::Event;
use crate::peer::Peer;
use crate::refusal::OpenError;
use crate::registry::{Attachment, Registry, Visitor};
use crate::stream::{Stream, StreamError};

/// Buffers that a handshake needs.
pub const INPUT_BYTES: usize = MAX_OPTION_BYTES as usize + OPTION_HEADER_BYTES;
/// Replies are sent as this fills.
pub const OUTPUT_BYTES: usize = 4096;

/// Most options before a client must have chosen: what lists exports and contexts at length still fits.
const MAX_OPTIONS: usize = 10_000;

/// Number by which BLOCK_STATUS names `base:allocation`.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Number of a context of ours; never used in a reply.
const PRIVATE_ID: u32 = 2;

/// What the exports can do.
const EXPORT_FLAGS: ExportFlags = ExportFlags::HAS_FLAGS
    .union(ExportFlags::SEND_FLUSH)
    .union(ExportFlags::SEND_FUA)
    .union(ExportFlags::SEND_TRIM)
    .union(ExportFlags::SEND_WRITE_ZEROES)
    .union(ExportFlags::SEND_DF)
    .union(ExportFlags::SEND_CACHE)
    .union(ExportFlags::CAN_MULTI_CONN);

/// What client and server have agreed on.
#[derive(Debug)]
pub struct Session {
    /// The export that the client chose.
    pub attachment: Attachment,
    /// Reads are answered with structured replies.
    pub structured: bool,
    /// The client may ask for the block status.
    pub base_allocation: bool,
}

/// A handshake under way.
struct Handshake<'a> {
    stream: &'a mut Stream,
    registry: &'a Arc<Registry>,
    door: &'a dyn Door,
    peer: Peer,
    /// What the client was given to sign, until it does.
    nonce: Option<Nonce>,
    zeroes: bool,
    structured: bool,
    /// From SET_META_CONTEXT: the export that it was for, and what was agreed for it.
    chosen: Option<(String, Chosen)>,
}

/// Who may come in, and by what.
pub trait Door {
    /// TLS, where clients must speak it.
    fn tls(&self) -> Option<&ServerSide>;

    /// The client has shown its certificate. `false` where it is turned away.
    fn identify(&self, peer: Peer) -> bool;

    /// It asks for something; `is_look` where that is only how the donor stands.
    fn asks(&self, is_look: bool);

    /// It has an export; `begins_run` where its run lasts as long as this connection. The client is told
    /// afterwards: who knows that it is in must not have to go for a newcomer as if it were not.
    fn opens(&self, begins_run: bool);
}

struct Chosen {
    visitor: Result<Visitor, OpenError>,
    base_allocation: bool,
}

/// What to do after an option.
enum Next {
    Option,
    Transmit(Session),
    Leave,
}

/// Speaks with a client until it has chosen an export, or `None` where it leaves without.
pub fn negotiate(
    stream: &mut Stream,
    registry: &Arc<Registry>,
    peer: Peer,
    door: &dyn Door,
) -> Result<Option<Session>, StreamError> {
    stream.put(&encode_greeting(HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES))?;
    stream.flush()?;
    if !stream.fill(CLIENT_FLAGS_BYTES)? {
        return Ok(None);
    }
    let mut flags = [0; CLIENT_FLAGS_BYTES];
    flags.copy_from_slice(stream.need(CLIENT_FLAGS_BYTES)?);
    stream.consume(CLIENT_FLAGS_BYTES);
    let bad_flags = WireError::Magic { what: "a client's flags", found: u32::from_be_bytes(flags).into() };
    let flags = decode_client_flags(flags).ok_or(bad_flags)?;
    let zeroes = !flags.contains(HandshakeFlags::NO_ZEROES);
    let mut handshake =
        Handshake { stream, registry, door, peer, nonce: None, zeroes, structured: false, chosen: None };
    for _ in 0..MAX_OPTIONS {
        match handshake.option()? {
            Next::Option => handshake.stream.flush()?,
            Next::Transmit(session) => {
                handshake.stream.flush()?;
                return Ok(Some(session));
            }
            Next::Leave => return Ok(None),
        }
    }
    Err(WireError::Limit {
        what: "number of options",
        found: MAX_OPTIONS as u64 + 1,
        limit: MAX_OPTIONS as u64,
    }
    .into())
}

/// Whether an option asks only how the donor stands; `None` of one that asks for nothing yet.
fn is_look(option: &ClientOption<'_>) -> Option<bool> {
    match option {
        ClientOption::SetMetaContext(query) => {
            let is_standing = |query: &&str| {
                matches!(PrivateQuery::parse(query), Some(PrivateQuery::Standing | PrivateQuery::Runs))
            };
            Some(!query.queries.is_empty() && query.queries.iter().all(is_standing))
        }
        ClientOption::ExportName(_)
        | ClientOption::List
        | ClientOption::Info(_)
        | ClientOption::Go(_)
        | ClientOption::ListMetaContext(_) => Some(false),
        ClientOption::Abort
        | ClientOption::StartTls
        | ClientOption::StructuredReply
        | ClientOption::Unknown(_) => None,
    }
}

impl Handshake<'_> {
    fn option(&mut self) -> Result<Next, StreamError> {
        if !self.stream.fill(OPTION_HEADER_BYTES)? {
            return Ok(Next::Leave);
        }
        let mut header = [0; OPTION_HEADER_BYTES];
        header.copy_from_slice(self.stream.need(OPTION_HEADER_BYTES)?);
        let header = decode_option_header(&header)?;
        self.stream.consume(OPTION_HEADER_BYTES);
        if header.data_bytes > MAX_OPTION_BYTES {
            self.refuse(header.option, reply::ERR_TOO_BIG, "that option is too long")?;
            self.stream.flush()?;
            return Ok(Next::Leave);
        }
        let bytes = header.data_bytes as usize;
        let data = self.stream.need(bytes)?.to_vec();
        self.stream.consume(bytes);
        if !self.may_go_on(header.option) {
            return match header.option {
                // It knows no error reply.
                option::EXPORT_NAME => Ok(Next::Leave),
                number => self.refuse(number, reply::ERR_TLS_REQD, "this donor takes TLS only: nbds://"),
            };
        }
        match decode_option(header.option, &data) {
            Ok(option) => self.answer(header.option, &option),
            // EXPORT_NAME knows no error reply.
            Err(error) if header.option == option::EXPORT_NAME => Err(error.into()),
            Err(error) => self.refuse(header.option, reply::ERR_INVALID, &error.to_string()),
        }
    }

    fn answer(&mut self, number: u32, option: &ClientOption<'_>) -> Result<Next, StreamError> {
        if let Some(is_look) = is_look(option) {
            self.door.asks(is_look);
        }
        match option {
            ClientOption::ExportName(name) => self.export_name(name),
            ClientOption::Abort => {
                self.reply(number, &OptionReply::Ack)?;
                // Many clients leave without waiting for the answer.
                let _ = self.stream.flush();
                Ok(Next::Leave)
            }
            ClientOption::List => {
                for name in self.registry.names(self.peer) {
                    self.reply(number, &OptionReply::Server(&name))?;
                }
                self.acknowledge(number)
            }
            ClientOption::StartTls => self.start_tls(number),
            ClientOption::Info(query) => {
                self.describe(number, query, self.registry.size_bytes())?;
                self.acknowledge(number)
            }
            ClientOption::Go(query) => self.go(number, query),
            ClientOption::StructuredReply => {
                self.structured = true;
                self.acknowledge(number)
            }
            ClientOption::ListMetaContext(query) => self.list_meta_context(number, query),
            ClientOption::SetMetaContext(query) => self.set_meta_context(number, query),
            ClientOption::Unknown(_) => self.refuse(number, reply::ERR_UNSUP, "unknown option"),
        }
    }

    /// Before TLS there is nothing else, where there must be TLS.
    fn may_go_on(&self, number: u32) -> bool {
        let is_before_tls = self.door.tls().is_some() && !self.stream.is_tls();
        !is_before_tls || matches!(number, option::STARTTLS | option::ABORT)
    }

    /// Everything but the client's flags begins anew: who is on the way may have said what came before.
    fn start_tls(&mut self, number: u32) -> Result<Next, StreamError> {
        let Some(side) = self.door.tls() else {
            return self.refuse(number, reply::ERR_UNSUP, "this donor does not speak TLS here");
        };
        if self.stream.is_tls() {
            return self.refuse(number, reply::ERR_INVALID, "TLS is spoken already");
        }
        self.reply(number, &OptionReply::Ack)?;
        self.stream.flush()?;
        let name = self.stream.start_tls(side)?;
        self.peer = Peer::Certificate(name);
        (self.nonce, self.structured, self.chosen) = (None, false, None);
        Ok(if self.door.identify(self.peer) { Next::Option } else { Next::Leave })
    }

    fn reply(&mut self, number: u32, answer: &OptionReply<'_>) -> Result<(), StreamError> {
        let mut bytes = Vec::new();
        put_reply(&mut bytes, number, answer);
        self.stream.put(&bytes)
    }

    fn acknowledge(&mut self, number: u32) -> Result<Next, StreamError> {
        self.reply(number, &OptionReply::Ack)?;
        Ok(Next::Option)
    }

    fn refuse(&mut self, number: u32, kind: u32, message: &str) -> Result<Next, StreamError> {
        self.reply(number, &OptionReply::Error { kind, message })?;
        Ok(Next::Option)
    }

    /// Opens `name` as was agreed by SET_META_CONTEXT, if that was for the same export.
    fn open(&mut self, name: &str) -> Result<Session, OpenError> {
        let chosen =
            self.chosen.take().filter(|(chosen_name, _)| chosen_name == name).map(|(_, chosen)| chosen);
        let (visitor, base_allocation) =
            chosen.map_or((Ok(Visitor::Anyone), false), |chosen| (chosen.visitor, chosen.base_allocation));
        let attachment = self.registry.open(name, &visitor?, self.peer)?;
        self.door.opens(attachment.begins_run());
        Ok(Session { attachment, structured: self.structured, base_allocation })
    }

    fn export_name(&mut self, name: &str) -> Result<Next, StreamError> {
        let Ok(session) = self.open(name) else { return Ok(Next::Leave) };
        let mut bytes = Vec::new();
        let size_bytes = session.attachment.export.size_bytes();
        put_export_name_reply(&mut bytes, size_bytes, EXPORT_FLAGS, self.zeroes);
        self.stream.put(&bytes)?;
        Ok(Next::Transmit(session))
    }

    fn go(&mut self, number: u32, query: &InfoQuery<'_>) -> Result<Next, StreamError> {
        match self.open(query.name) {
            Ok(session) => {
                self.describe(number, query, session.attachment.export.size_bytes())?;
                self.reply(number, &OptionReply::Ack)?;
                Ok(Next::Transmit(session))
            }
            Err(error) => {
                let kind = match error {
                    OpenError::Lost => reply::ERR_UNKNOWN,
                    OpenError::Ending => reply::ERR_SHUTDOWN,
                    _ => reply::ERR_POLICY,
                };
                self.refuse(number, kind, &error.to_string())
            }
        }
    }

    /// Answers INFO and GO. An export that does not exist yet is described as it would be.
    fn describe(&mut self, number: u32, query: &InfoQuery<'_>, size_bytes: u64) -> Result<(), StreamError> {
        self.reply(number, &OptionReply::Export { size_bytes, flags: EXPORT_FLAGS })?;
        if query.kinds.contains(&info::NAME) {
            self.reply(number, &OptionReply::Name(query.name))?;
        }
        if query.kinds.contains(&info::DESCRIPTION) {
            self.reply(number, &OptionReply::Description("memory lent by a Spillway donor"))?;
        }
        if query.kinds.contains(&info::BLOCK_SIZE) {
            let blocks = BlockSizes {
                minimum_bytes: 1,
                preferred_bytes: PAGE_SIZE as u32,
                maximum_bytes: MAX_REQUEST_BYTES,
            };
            self.reply(number, &OptionReply::Blocks(blocks))?;
        }
        Ok(())
    }

    fn list_meta_context(&mut self, number: u32, query: &MetaQuery<'_>) -> Result<Next, StreamError> {
        if !self.structured {
            return self.refuse(number, reply::ERR_INVALID, "structured replies come first");
        }
        let wanted = |text: &&str| *text == "base:" || *text == BASE_ALLOCATION;
        if query.queries.is_empty() || query.queries.iter().any(wanted) {
            self.reply(number, &OptionReply::MetaContext { id: 0, name: BASE_ALLOCATION })?;
        }
        self.acknowledge(number)
    }

    fn set_meta_context(&mut self, number: u32, query: &MetaQuery<'_>) -> Result<Next, StreamError> {
        self.chosen = None;
        if !self.structured {
            return self.refuse(number, reply::ERR_INVALID, "structured replies come first");
        }
        let mut chosen = Chosen { visitor: Ok(Visitor::Anyone), base_allocation: false };
        for text in &query.queries {
            if *text == BASE_ALLOCATION && !chosen.base_allocation {
                chosen.base_allocation = true;
                self.reply(number, &OptionReply::MetaContext { id: BASE_ALLOCATION_ID, name: text })?;
            } else if let Some(private) = PrivateQuery::parse(text) {
                let name = self.private_context(query.name, private, &mut chosen);
                let name = name.as_deref().unwrap_or(text);
                self.reply(number, &OptionReply::MetaContext { id: PRIVATE_ID, name })?;
            }
        }
        self.chosen = Some((query.name.to_owned(), chosen));
        self.acknowledge(number)
    }

    /// Does what a query of ours asks for; returns the context that says otherwise than yes.
    fn private_context(&mut self, export: &str, query: PrivateQuery, chosen: &mut Chosen) -> Option<String> {
        match query {
            PrivateQuery::Challenge => self.challenge(),
            PrivateQuery::Claim(claim) => {
                let known = self.claim(export, &claim);
                let says = match &known {
                    Ok(Visitor::Lane(token)) if !self.registry.has_private(token, export) => Some(LOST),
                    Ok(_) => None,
                    Err(_) => Some(REFUSED),
                };
                chosen.visitor = known;
                says.map(str::to_owned)
            }
            PrivateQuery::Standing => Some(self.registry.standing().to_string()),
            PrivateQuery::Runs => Some(runs_text(self.registry.runs())),
            PrivateQuery::Drain | PrivateQuery::Stay => {
                self.registry.drain(query == PrivateQuery::Drain, self.peer);
                None
            }
            PrivateQuery::Drop => (!self.registry.drop_named(export, self.peer)).then(|| ABSENT.to_owned()),
            PrivateQuery::Unknown => {
                chosen.visitor = Err(OpenError::OtherVersion);
                Some(REFUSED.to_owned())
            }
        }
    }

    /// Something to sign that nobody was given before.
    fn challenge(&mut self) -> Option<String> {
        let mut bytes = [0; NONCE_BYTES];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty());
        self.nonce = filled.is_ok_and(|filled| filled == NONCE_BYTES).then_some(Nonce(bytes));
        Some(self.nonce.map_or_else(|| REFUSED.to_owned(), challenge_text))
    }

    /// Whom the client has shown to belong to. What it was given to sign serves once.
    fn claim(&mut self, export: &str, claim: &Claim) -> Result<Visitor, OpenError> {
        match self.nonce.take() {
            Some(nonce) if claim.holds(nonce, export) => {
                let token = claim.key.text();
                Ok(match claim.purpose {
                    Purpose::Run { size_bytes } => Visitor::Run { token, asked_bytes: size_bytes },
                    Purpose::Lane => Visitor::Lane(token),
                })
            }
            _ => {
                let reason = OpenError::Unproved.to_string();
                self.registry.journal().tell(&Event::Refused { peer: self.peer, reason });
                Err(OpenError::Unproved)
            }
        }
    }
}
