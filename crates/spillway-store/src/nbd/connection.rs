//! One connection to an NBD server: connecting, the client's half of the handshake, and sending and receiving
//! that never blocks for longer than it was told to.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout, set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, recv, sendmsg, socket_with,
};
use spillway_nbd::handshake::{
    BlockSizes, ClientOption, EXPORT_NAME_REPLY_BYTES, ExportFlags, GREETING_BYTES, HandshakeFlags,
    InfoQuery, MetaQuery, OptionReply, REPLY_HEADER_BYTES, decode_export_name_reply, decode_greeting,
    decode_reply, decode_reply_header, info, put_option, reply,
};
use spillway_nbd::private::{ABSENT, Claim, LOST, PrivateQuery, REFUSED, parse_challenge};
use spillway_nbd::proof::{Purpose, RunKey};
use spillway_nbd::{MAX_REQUEST_BYTES, WireError};
use spillway_sys::socket::limit_retransmission_pause;
use thiserror::Error;

/// What a server without block sizes takes best, by the protocol.
const PREFERRED_BYTES: u32 = 4096;

/// Longest pause before the kernel sends once more what got no acknowledgement: so a way that was cut for a
/// while is found open soon.
const RETRANSMISSION_PAUSE: Duration = Duration::from_secs(1);

/// Most replies to one option; a server that sends more is not well.
const MAX_REPLIES: usize = 1000;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A server that is reached by TCP.
    Tcp(SocketAddr),
    /// By a Unix socket.
    Unix(PathBuf),
}

/// Why there is no connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConnectError {
    /// The server cannot be reached, or hung up: trying again may help.
    #[error("{0}")]
    Unreachable(String),
    /// The server hung up before the export was open: it has no room, or ends.
    #[error("the server closed the connection")]
    TurnedAway,
    /// The server cannot be reached in this time.
    #[error("cannot connect: no answer within {} s", seconds(*.0))]
    NoWay(Duration),
    /// The server did not answer in time.
    #[error("the server has not answered for {} s", seconds(*.0))]
    Silent(Duration),
    /// It took the connection, and did not even greet.
    #[error(
        "the server has not answered for {} s, though an NBD server greets first: it is of another kind, is \
         stopped, or serves no further connection",
        seconds(*.0)
    )]
    Mute(Duration),
    /// The export was private to the run, and is not any more.
    #[error("another server listens there now, and what the donor held is lost")]
    AnotherServer,
    /// The server said no, or speaks another protocol: trying again does not help.
    #[error("{0}")]
    Refused(String),
    /// The donor knows nothing of the run: what it held is lost.
    #[error("the donor holds no memory of this run: it was restarted, or the run was away for too long")]
    Lost,
    /// There is no export of that name to drop.
    #[error("the donor has no export of that name")]
    Absent,
}

impl ConnectError {
    /// Trying again does not help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable(_) | Self::TurnedAway | Self::NoWay(_) | Self::Silent(_) | Self::Mute(_)
        )
    }
}

/// A duration for a message, in seconds: never 0 of something that took time.
#[must_use]
pub fn seconds(duration: Duration) -> f64 {
    match duration.as_secs_f64() {
        short if short < 1.0 => (short * 100.0).round().max(1.0) / 100.0,
        long if long < 10.0 => (long * 10.0).round() / 10.0,
        long => long.round(),
    }
}

/// How long one attempt to connect may take.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Until the server takes the connection.
    pub connect: Duration,
    /// When the export must be open.
    pub until: Instant,
}

impl Attempt {
    /// One that may take so long in all.
    #[must_use]
    pub fn of(most: Duration) -> Self {
        Self { connect: most, until: Instant::now() + most }
    }
}

impl From<WireError> for ConnectError {
    fn from(error: WireError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
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
}

impl AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.socket
    }
}

/// Whether a socket was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many bytes were moved.
    Bytes(usize),
    /// Nothing was moved: it would block.
    None,
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
        Greeter::connect(address, attempt)?.open(export, claim, look)
    }

    /// From now on closing it throws away what is on its way to the server.
    pub fn reset_when_closed(&self) {
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// Waits until the socket can be read from, or written to if `and_writable`. `false` when `timeout` is
    /// over.
    pub fn wait(&self, and_writable: bool, timeout: Duration) -> Result<bool, Errno> {
        let events = if and_writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        wait_for(&self.socket, events, timeout)
    }

    /// Sends what the socket takes now.
    pub fn send(&self, slices: &[IoSlice<'_>]) -> Result<Progress, Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        progress(sendmsg(&self.socket, slices, &mut SendAncillaryBuffer::default(), flags))
    }

    /// Receives what is there now, or, where `patiently`, waits for it as long as the server may take for an
    /// answer. 0 bytes at the end of the stream.
    pub fn receive(&self, buffer: &mut [u8], patiently: bool) -> Result<Progress, Errno> {
        let flags = if patiently { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        progress(recv(&self.socket, buffer, flags).map(|(bytes, _)| bytes))
    }
}

fn progress(result: Result<usize, Errno>) -> Result<Progress, Errno> {
    match result {
        Ok(bytes) => Ok(Progress::Bytes(bytes)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Progress::None),
        Err(errno) => Err(errno),
    }
}

/// `false` when `timeout` is over.
fn wait_for(socket: &OwnedFd, events: PollFlags, timeout: Duration) -> Result<bool, Errno> {
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut [PollFd::new(socket, events)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// A connection whose handshake is under way.
struct Greeter {
    socket: OwnedFd,
    begun: Instant,
    until: Instant,
}

impl Greeter {
    fn connect(address: &Address, attempt: Attempt) -> Result<Self, ConnectError> {
        let begun = Instant::now();
        let unreachable = |errno: Errno| ConnectError::Unreachable(format!("cannot connect: {errno}"));
        let family = match address {
            Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Address::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(unreachable)?;
        let outcome = match address {
            Address::Tcp(address) => connect(&socket, address),
            Address::Unix(path) => {
                SocketAddrUnix::new(path.as_path()).and_then(|path| connect(&socket, &path))
            }
        };
        match outcome {
            Ok(()) => {}
            Err(Errno::INPROGRESS | Errno::INTR) => {
                let left = attempt.until.saturating_duration_since(begun).min(attempt.connect);
                if !wait_for(&socket, PollFlags::OUT, left).map_err(unreachable)? {
                    return Err(ConnectError::NoWay(begun.elapsed()));
                }
                socket_error(&socket).map_err(unreachable)?.map_err(unreachable)?;
            }
            // A Unix server whose queue of connections is full says so at once.
            Err(errno) => return Err(unreachable(errno)),
        }
        if matches!(address, Address::Tcp(_)) {
            set_tcp_nodelay(&socket, true).map_err(unreachable)?;
            // Kernels before Linux 6.15 wait twice as long each time.
            let _ = limit_retransmission_pause(&socket, RETRANSMISSION_PAUSE);
        }
        Ok(Self { socket, begun, until: attempt.until })
    }

    fn await_ready(&self, events: PollFlags) -> Result<(), ConnectError> {
        match wait_for(&self.socket, events, self.until.saturating_duration_since(Instant::now())) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ConnectError::Silent(self.begun.elapsed())),
            Err(errno) => Err(ConnectError::Unreachable(errno.to_string())),
        }
    }

    fn send(&self, mut bytes: &[u8]) -> Result<(), ConnectError> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        while !bytes.is_empty() {
            match progress(rustix::net::send(&self.socket, bytes, flags)) {
                Ok(Progress::Bytes(sent)) => bytes = &bytes[sent..],
                Ok(Progress::None) => self.await_ready(PollFlags::OUT)?,
                Err(errno) => return Err(ConnectError::Unreachable(format!("connection lost: {errno}"))),
            }
        }
        Ok(())
    }

    fn receive(&self, bytes: &mut [u8]) -> Result<(), ConnectError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let received = recv(&self.socket, &mut bytes[filled..], RecvFlags::DONTWAIT);
            match progress(received.map(|(bytes, _)| bytes)) {
                Ok(Progress::Bytes(0)) => return Err(ConnectError::TurnedAway),
                Ok(Progress::Bytes(received)) => filled += received,
                Ok(Progress::None) => self.await_ready(PollFlags::IN)?,
                Err(errno) => return Err(ConnectError::Unreachable(format!("connection lost: {errno}"))),
            }
        }
        Ok(())
    }

    fn array<const N: usize>(&self) -> Result<[u8; N], ConnectError> {
        let mut bytes = [0; N];
        self.receive(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends an option and hands its replies to `each`, up to the last: `Ok` for ACK, or the error.
    fn ask(
        &self,
        option: &ClientOption<'_>,
        mut each: impl FnMut(&OptionReply<'_>),
    ) -> Result<Result<(), Refusal>, ConnectError> {
        let mut bytes = Vec::new();
        put_option(&mut bytes, option);
        self.send(&bytes)?;
        for _ in 0..MAX_REPLIES {
            let header = decode_reply_header(&self.array::<REPLY_HEADER_BYTES>()?)?;
            let mut data = vec![0; header.data_bytes as usize];
            self.receive(&mut data)?;
            match decode_reply(header, &data)? {
                OptionReply::Ack => return Ok(Ok(())),
                OptionReply::Error { kind, message } => {
                    let name = reply::name(kind);
                    let text =
                        if message.is_empty() { name.to_owned() } else { format!("{name}: {message}") };
                    return Ok(Err(Refusal { kind, text }));
                }
                other => each(&other),
            }
        }
        Err(ConnectError::Refused("the server's answer has no end".to_owned()))
    }

    fn greeting(&self) -> Result<HandshakeFlags, ConnectError> {
        let bytes = self.array::<GREETING_BYTES>().map_err(|error| match error {
            ConnectError::Silent(time) => ConnectError::Mute(time),
            other => other,
        })?;
        Ok(decode_greeting(&bytes)?)
    }

    fn open(
        self,
        export: &str,
        claim: (&RunKey, Purpose),
        look: Duration,
    ) -> Result<Connection, ConnectError> {
        let offered = self.greeting()?;
        if !offered.contains(HandshakeFlags::FIXED_NEWSTYLE) {
            return Err(ConnectError::Refused("the server speaks only an NBD of before 2012".to_owned()));
        }
        self.send(&offered.bits().to_be_bytes())?;
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
        ioctl_fionbio(&self.socket, false)
            .and_then(|()| set_socket_timeout(&self.socket, Timeout::Recv, Some(look)))
            .map_err(|errno| ConnectError::Unreachable(errno.to_string()))?;
        Ok(Connection { socket: self.socket, since: Instant::now(), size_bytes, flags, blocks, is_private })
    }

    /// The old way, for servers without GO.
    fn open_by_name(
        &self,
        export: &str,
        offered: HandshakeFlags,
    ) -> Result<(u64, ExportFlags), ConnectError> {
        let mut bytes = Vec::new();
        put_option(&mut bytes, &ClientOption::ExportName(export));
        self.send(&bytes)?;
        let answer = decode_export_name_reply(&self.array::<EXPORT_NAME_REPLY_BYTES>()?)?;
        if !offered.contains(HandshakeFlags::NO_ZEROES) {
            self.array::<{ spillway_nbd::handshake::EXPORT_NAME_ZEROES }>()?;
        }
        Ok(answer)
    }

    /// Shows a Spillway donor that the connection is the run's; `false` where the server is none.
    fn claim(&self, export: &str, (key, purpose): (&RunKey, Purpose)) -> Result<bool, ConnectError> {
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
    fn ask_private(&self, export: &str, query: PrivateQuery) -> Result<bool, ConnectError> {
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
    fn contexts(&self, export: &str, query: PrivateQuery) -> Result<Vec<String>, ConnectError> {
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
struct Refusal {
    kind: u32,
    text: String,
}

/// Asks the donor at `address` something without opening an export; the contexts that it answers.
pub fn ask_donor(
    address: &Address,
    query: PrivateQuery,
    timeout: Duration,
) -> Result<Vec<String>, ConnectError> {
    let greeter = Greeter::connect(address, Attempt::of(timeout))?;
    let offered = greeter.greeting()?;
    greeter.send(&offered.bits().to_be_bytes())?;
    let structured = greeter.ask(&ClientOption::StructuredReply, |_| {})?.is_ok();
    let contexts = if structured { greeter.contexts("", query)? } else { Vec::new() };
    let mut bytes = Vec::new();
    put_option(&mut bytes, &ClientOption::Abort);
    let _ = greeter.send(&bytes);
    Ok(contexts)
}

/// Tells the donor at `address` to drop a named export with all it holds.
pub fn drop_export(address: &Address, export: &str, timeout: Duration) -> Result<(), ConnectError> {
    let greeter = Greeter::connect(address, Attempt::of(timeout))?;
    let offered = greeter.greeting()?;
    greeter.send(&offered.bits().to_be_bytes())?;
    let structured = greeter.ask(&ClientOption::StructuredReply, |_| {})?.is_ok();
    let dropped = structured && greeter.ask_private(export, PrivateQuery::Drop)?;
    // A courtesy; the server copes with less.
    let mut bytes = Vec::new();
    put_option(&mut bytes, &ClientOption::Abort);
    let _ = greeter.send(&bytes);
    if dropped {
        Ok(())
    } else {
        Err(ConnectError::Refused(
            "the server is no Spillway donor, and cannot be told to drop an export".to_owned(),
        ))
    }
}
