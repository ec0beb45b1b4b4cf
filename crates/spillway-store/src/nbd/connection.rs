//! One connection to an NBD server: connecting, the client's half of the handshake, and sending and receiving
//! that never blocks for longer than it was told to.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SendFlags, SocketAddrUnix, send};
use spillway_core::plain_text::plain;
use spillway_nbd::MAX_REQUEST_BYTES;
use spillway_nbd::handshake::{
    BlockSizes, ClientOption, EXPORT_NAME_REPLY_BYTES, ExportFlags, GREETING_BYTES, HandshakeFlags,
    InfoQuery, MetaQuery, OptionReply, REPLY_HEADER_BYTES, decode_export_name_reply, decode_greeting,
    decode_reply, decode_reply_header, info, put_option, reply,
};
use spillway_nbd::private::{ABSENT, Claim, LOST, PrivateQuery, REFUSED, parse_challenge};
use spillway_nbd::proof::{Purpose, RunKey};
use spillway_nbd::transmission::{Command, REQUEST_BYTES, Request, RequestFlags};

use super::meeting::{self, Meeting, Wish};
pub use super::progress::Progress;
use super::progress::SocketError;
pub use super::reaching::{Attempt, ConnectError, seconds};
use super::reaching::{Wire, unix_address};
use super::socket::Socket;
use crate::kept::KeptConnection;
use crate::{Listener, ending};

/// What a server without block sizes takes best, by the protocol.
const PREFERRED_BYTES: u32 = 4096;

const TLS_ONLY: &str = "the server takes TLS only: write nbds:// for nbd://, and ?tls-certificates=DIR";

/// Most replies to one option; a server that sends more is not well.
const MAX_REPLIES: usize = 1000;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A server that is reached by TCP.
    Tcp(SocketAddr),
    /// By a Unix socket.
    Unix(PathBuf),
    /// By the run's relay, which begins TLS with it.
    Relay(Meeting),
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    /// Since when the export is open.
    pub since: Instant,
    /// Size of the export in bytes.
    pub size_bytes: u64,
    /// What the export can do.
    pub flags: ExportFlags,
    /// Requests that it accepts.
    pub blocks: BlockSizes,
    /// Whether the query for a private export was granted.
    pub is_private: bool,
    /// Somebody else has it too.
    kept: Option<KeptConnection>,
}

impl AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.fd().as_fd()
    }
}

impl Connection {
    /// Connects and opens `export`, on a donor for a run and purpose. Later, a call that waits for an answer
    /// waits for at most `look`.
    pub fn open(
        address: &Address,
        export: &str,
        claim: (&RunKey, Purpose),
        attempt: Attempt,
        look: Duration,
    ) -> Result<Self, ConnectError> {
        let wish = match claim.1 {
            Purpose::Lane => Wish::TakeOver,
            // Somebody holds it who says nothing by it but that the run is over.
            Purpose::Run { .. } => Wish::PassOn,
        };
        Greeter::connect_for(wish, address, attempt)?.open(export, claim, look)
    }

    /// Has a listener keep a copy of it.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] where that cannot be.
    pub fn be_kept_by(&mut self, listener: &Listener) -> Result<(), ConnectError> {
        let not_kept =
            |()| ConnectError::Unreachable("the run's supervisor does not take it over".to_owned());
        self.kept = Some(KeptConnection::new(listener, self.as_fd()).map_err(not_kept)?);
        Ok(())
    }

    /// Closes it, which has answered all that it was asked. The server is told, for somebody else may keep it
    /// open for a moment longer.
    pub fn take_leave(mut self) {
        self.socket.end(&goodbye());
    }

    /// The socket of one that was opened for the run itself, on which no TLS is spoken but the relay's.
    pub fn into_fd(self) -> OwnedFd {
        self.socket.into_fd()
    }

    /// Has been used for as long as it may be: another is to be opened for what comes next.
    pub fn is_worn_out(&self) -> bool {
        self.socket.is_worn_out()
    }

    /// Writes may be on their way by it still: whoever has a copy is to keep that.
    pub fn leave_behind(mut self) {
        if let Some(kept) = self.kept.take() {
            kept.leave();
        }
    }

    /// From now on closing it throws away what is on its way to the server.
    pub fn reset_when_closed(&self) {
        ending::reset_when_closed(self.socket.fd());
    }

    /// Waits until the socket can be read from, or written to if `and_writable`. `false` when `timeout` is
    /// over.
    pub fn wait(&self, and_writable: bool, timeout: Duration) -> Result<bool, Errno> {
        let events = if and_writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        self.socket.wait(events, timeout)
    }

    /// Sends what the socket takes now.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<Progress, SocketError> {
        self.socket.send(slices)
    }

    /// Receives what is there now, or, where `patiently`, waits for it as long as the server may take for an
    /// answer. 0 bytes at the end of the stream.
    pub fn receive(&mut self, buffer: &mut [u8], patiently: bool) -> Result<Progress, SocketError> {
        self.socket.receive(buffer, patiently)
    }
}

/// Tells the server that nothing more comes. Who does not listen any more holds nothing any more, or notices
/// that the connection is gone.
pub(super) fn say_goodbye(socket: &OwnedFd) {
    let _ = send(socket, &goodbye(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn goodbye() -> [u8; REQUEST_BYTES] {
    let request = Request {
        flags: RequestFlags::empty(),
        command: Command::Disconnect,
        cookie: 0,
        offset: 0,
        length: 0,
    };
    request.encode()
}

#[cfg(test)]
impl Connection {
    /// One over a socket with nobody at its other end.
    pub(super) fn over(socket: Socket) -> Self {
        let blocks = BlockSizes { minimum_bytes: 1, preferred_bytes: 1, maximum_bytes: 1 };
        let flags = ExportFlags::empty();
        Self { socket, since: Instant::now(), size_bytes: 0, flags, blocks, is_private: true, kept: None }
    }
}

/// A connection whose handshake is under way.
pub(super) struct Greeter {
    wire: Wire,
    /// The relay is to hand its connection over.
    takes_over: bool,
}

impl Greeter {
    pub(super) fn connect(address: &Address, attempt: Attempt) -> Result<Self, ConnectError> {
        Self::connect_for(Wish::PassOn, address, attempt)
    }

    fn connect_for(wish: Wish, address: &Address, attempt: Attempt) -> Result<Self, ConnectError> {
        let mut takes_over = false;
        let wire = match address {
            Address::Tcp(address) => Wire::by_tcp(address, attempt)?,
            Address::Unix(path) => {
                Wire::by_unix(&unix_address(SocketAddrUnix::new(path.as_path()))?, attempt)?
            }
            Address::Relay(meeting) => {
                takes_over = wish == Wish::TakeOver;
                meeting.knock(wish, attempt)?
            }
        };
        Ok(Self { wire, takes_over })
    }

    /// The connection as it is now: nothing of it has been received that was not asked for.
    pub(super) fn into_wire(self) -> Wire {
        self.wire
    }

    /// Sends an option and hands its replies to `each`, up to the last: `Ok` for ACK, or the error.
    pub(super) fn ask(
        &mut self,
        option: &ClientOption<'_>,
        mut each: impl FnMut(&OptionReply<'_>),
    ) -> Result<Result<(), Refusal>, ConnectError> {
        let mut bytes = Vec::new();
        put_option(&mut bytes, option);
        self.wire.send(&bytes)?;
        for _ in 0..MAX_REPLIES {
            let header = decode_reply_header(&self.wire.array::<REPLY_HEADER_BYTES>()?)?;
            let mut data = vec![0; header.data_bytes as usize];
            self.wire.receive(&mut data)?;
            match decode_reply(header, &data)? {
                OptionReply::Ack => return Ok(Ok(())),
                OptionReply::Error { kind: reply::ERR_TLS_REQD, .. } => {
                    return Err(ConnectError::Refused(TLS_ONLY.to_owned()));
                }
                OptionReply::Error { kind, message } => {
                    let (name, message) = (reply::name(kind), plain(message).collect::<String>());
                    let text =
                        if message.is_empty() { name.to_owned() } else { format!("{name}: {message}") };
                    return Ok(Err(Refusal { kind, text }));
                }
                other => each(&other),
            }
        }
        Err(ConnectError::Refused("the server's answer has no end".to_owned()))
    }

    /// The client's flags: what the server offers, for nothing of it hurts.
    pub(super) fn send_flags(&mut self, offered: HandshakeFlags) -> Result<(), ConnectError> {
        self.wire.send(&offered.bits().to_be_bytes())
    }

    pub(super) fn greeting(&mut self) -> Result<HandshakeFlags, ConnectError> {
        let bytes = self.wire.array::<GREETING_BYTES>().map_err(|error| match error {
            ConnectError::Silent(time) => ConnectError::Mute(time),
            other => other,
        })?;
        Ok(decode_greeting(&bytes)?)
    }

    fn open(
        mut self,
        export: &str,
        claim: (&RunKey, Purpose),
        look: Duration,
    ) -> Result<Connection, ConnectError> {
        let offered = self.greeting()?;
        if !offered.contains(HandshakeFlags::FIXED_NEWSTYLE) {
            return Err(ConnectError::Refused("the server speaks only an NBD of before 2012".to_owned()));
        }
        self.send_flags(offered)?;
        if self.takes_over {
            self.wire = meeting::take_over(self.wire)?;
        }
        let structured = self.ask(&ClientOption::StructuredReply, |_| {})?.is_ok();
        let is_private = structured && self.claim(export, claim)?;
        let mut size_and_flags = None;
        let mut blocks = BlockSizes {
            minimum_bytes: 1,
            preferred_bytes: PREFERRED_BYTES,
            maximum_bytes: MAX_REQUEST_BYTES,
        };
        let go = ClientOption::Go(InfoQuery { name: export, kinds: vec![info::BLOCK_SIZE] });
        let outcome = self.ask(&go, |reply| match reply {
            OptionReply::Export { size_bytes, flags } => size_and_flags = Some((*size_bytes, *flags)),
            OptionReply::Blocks(sizes) => blocks = *sizes,
            _ => {}
        })?;
        let (size_bytes, flags) = match (outcome, size_and_flags) {
            (Ok(()), Some(found)) => found,
            (Ok(()), None) => {
                return Err(ConnectError::Refused(
                    "the server does not say how large the export is".to_owned(),
                ));
            }
            (Err(refusal), _) if refusal.kind == reply::ERR_UNSUP => self.open_by_name(export, offered)?,
            (Err(refusal), _) => {
                return Err(ConnectError::Refused(format!(
                    "the server refuses export '{export}': {}",
                    refusal.text
                )));
            }
        };
        // From now on only calls that say so do not block: one that waits is cheaper than two.
        let socket = self.wire.into_socket();
        ioctl_fionbio(socket.fd(), false)
            .and_then(|()| set_socket_timeout(socket.fd(), Timeout::Recv, Some(look)))
            .map_err(|errno| ConnectError::Unreachable(errno.to_string()))?;
        Ok(Connection { socket, since: Instant::now(), size_bytes, flags, blocks, is_private, kept: None })
    }

    /// The old way, for servers without GO.
    fn open_by_name(
        &mut self,
        export: &str,
        offered: HandshakeFlags,
    ) -> Result<(u64, ExportFlags), ConnectError> {
        let mut bytes = Vec::new();
        put_option(&mut bytes, &ClientOption::ExportName(export));
        self.wire.send(&bytes)?;
        let answer = decode_export_name_reply(&self.wire.array::<EXPORT_NAME_REPLY_BYTES>()?)?;
        if !offered.contains(HandshakeFlags::NO_ZEROES) {
            self.wire.array::<{ spillway_nbd::handshake::EXPORT_NAME_ZEROES }>()?;
        }
        Ok(answer)
    }

    /// Shows a Spillway donor that the connection is the run's; `false` where the server is none.
    fn claim(&mut self, export: &str, (key, purpose): (&RunKey, Purpose)) -> Result<bool, ConnectError> {
        let contexts = self.contexts(export, PrivateQuery::Challenge)?;
        match contexts.iter().find_map(|context| parse_challenge(context)) {
            Some(nonce) => {
                let claim = Claim::new(key, nonce, purpose, export);
                self.ask_private(export, PrivateQuery::Claim(claim))
            }
            None => Ok(false),
        }
    }

    /// Whether the server is a Spillway donor and does what the query asks for.
    fn ask_private(&mut self, export: &str, query: PrivateQuery) -> Result<bool, ConnectError> {
        let contexts = self.contexts(export, query)?;
        let has = |wanted: &str| contexts.iter().any(|context| context == wanted);
        if has(LOST) {
            return Err(ConnectError::Lost);
        }
        if has(ABSENT) {
            return Err(ConnectError::Absent);
        }
        if has(REFUSED) {
            return Err(ConnectError::Refused(
                "the donor does not take this connection for the run's; use one version on both sides"
                    .to_owned(),
            ));
        }
        Ok(has(&query.text()))
    }

    /// The metadata contexts that the server gives for a query of ours; none where it refuses the option as a
    /// whole.
    fn contexts(&mut self, export: &str, query: PrivateQuery) -> Result<Vec<String>, ConnectError> {
        let text = query.text();
        let mut contexts = Vec::new();
        let option = ClientOption::SetMetaContext(MetaQuery { name: export, queries: vec![&text] });
        let outcome = self.ask(&option, |reply| {
            if let OptionReply::MetaContext { name, .. } = reply {
                contexts.push((*name).to_owned());
            }
        })?;
        Ok(if outcome.is_ok() { contexts } else { Vec::new() })
    }
}

/// An option that was refused.
pub(super) struct Refusal {
    kind: u32,
    pub(super) text: String,
}

/// Asks the donor at `address` something without opening an export; the contexts that it answers.
pub fn ask_donor(
    address: &Address,
    query: PrivateQuery,
    timeout: Duration,
) -> Result<Vec<String>, ConnectError> {
    let mut greeter = Greeter::connect(address, Attempt::of(timeout))?;
    let offered = greeter.greeting()?;
    greeter.send_flags(offered)?;
    let structured = greeter.ask(&ClientOption::StructuredReply, |_| {})?.is_ok();
    let contexts = if structured { greeter.contexts("", query)? } else { Vec::new() };
    let mut bytes = Vec::new();
    put_option(&mut bytes, &ClientOption::Abort);
    let _ = greeter.wire.send(&bytes);
    Ok(contexts)
}

/// Tells the donor at `address` to drop a named export with all it holds.
pub fn drop_export(address: &Address, export: &str, timeout: Duration) -> Result<(), ConnectError> {
    let mut greeter = Greeter::connect(address, Attempt::of(timeout))?;
    let offered = greeter.greeting()?;
    greeter.send_flags(offered)?;
    let structured = greeter.ask(&ClientOption::StructuredReply, |_| {})?.is_ok();
    let dropped = structured && greeter.ask_private(export, PrivateQuery::Drop)?;
    // A courtesy; the server copes with less.
    let _ = greeter.ask(&ClientOption::Abort, |_| {});
    if dropped {
        Ok(())
    } else {
        Err(ConnectError::Refused(
            "the server is no Spillway donor, and cannot be told to drop an export".to_owned(),
        ))
    }
}
