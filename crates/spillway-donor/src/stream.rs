//! A connection's two buffers, of fixed size, and its deadlines.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use spillway_nbd::WireError;
use spillway_tls::{ClientName, ServerSide, TlsError};
use thiserror::Error;

use crate::limits::Limits;
use crate::sealed::Sealed;

/// How long a call on the socket blocks before time limits are looked at, and before a connection counts as
/// one that rests.
const TICK: Duration = Duration::from_secs(1);

/// Why a connection ended other than by the peer's leaving between two messages.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StreamError {
    /// It sent what the protocol does not allow.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It left in the middle of a message.
    #[error("connection closed in the middle of a message")]
    Truncated,
    /// It took too long for a message, or for the handshake.
    #[error("it took too long for a message")]
    Stalled,
    /// The export went while its contents were being sent.
    #[error("the export was dropped")]
    Dropped,
    /// It does not speak TLS as it should, or its certificate is not taken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Behind its wish for TLS plain bytes followed: somebody on the way may have put them there.
    #[error("it sent plain bytes after it had asked for TLS")]
    PlainAfterStart,
    /// The socket failed with this error.
    #[error("socket: {0}")]
    Socket(Errno),
}

/// A buffer in a mapping of its own, which is there only while it is used. What was in it goes with the
/// mapping: nobody else finds it in recycled memory.
#[derive(Debug)]
pub struct Buffer {
    bytes: usize,
    map: Option<MmapMut>,
}

impl Buffer {
    /// A buffer of so many bytes, at least 1. It takes no memory yet.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { bytes, map: None }
    }

    /// Its memory, in which zeros are at first.
    pub fn memory(&mut self) -> Result<&mut [u8], StreamError> {
        let map = match self.map.take() {
            Some(map) => map,
            None => MmapMut::map_anon(self.bytes).map_err(|_| StreamError::Socket(Errno::NOMEM))?,
        };
        Ok(self.map.insert(map))
    }

    fn contents(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// A socket with bounded buffers. Never takes more memory than it was made with, and none for buffers while
/// it rests.
#[derive(Debug)]
pub struct Stream {
    socket: Arc<OwnedFd>,
    limits: Limits,
    input: Buffer,
    /// What was received and not consumed.
    begin: usize,
    end: usize,
    output: Buffer,
    output_bytes: usize,
    /// The handshake must be over by then.
    deadline: Option<Instant>,
    /// How long the message under way may take.
    allowed: Duration,
    /// When it was first waited for.
    waited_since: Option<Instant>,
    /// TLS, once it is spoken.
    tls: Option<Box<Sealed>>,
}

impl Stream {
    /// Wraps a blocking socket. Everything must be received and sent by `deadline`; without one each message
    /// has its time, as [`Limits::request_time`] says, and between messages the peer may rest.
    pub fn new(
        socket: Arc<OwnedFd>,
        limits: &Limits,
        (input_bytes, output_bytes): (usize, usize),
        deadline: Option<Instant>,
    ) -> Result<Self, StreamError> {
        for way in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&*socket, way, Some(TICK)).map_err(StreamError::Socket)?;
        }
        Ok(Self {
            socket,
            limits: *limits,
            input: Buffer::new(input_bytes),
            begin: 0,
            end: 0,
            output: Buffer::new(output_bytes),
            output_bytes: 0,
            deadline,
            allowed: limits.request,
            waited_since: None,
            tls: None,
        })
    }

    /// Speaks TLS from now on; who the client is. What goes plainly has been sent; what came plainly must
    /// have been looked at.
    pub fn start_tls(&mut self, side: &ServerSide) -> Result<ClientName, StreamError> {
        if !self.buffered().is_empty() {
            return Err(StreamError::PlainAfterStart);
        }
        let mut tls = Box::new(Sealed::new(side)?);
        while tls.is_handshaking() {
            self.check_time()?;
            let received = receive_sealed(&self.socket, &mut tls);
            // Its last words say why it failed, so they go out first.
            let sent = self.send_sealed(&mut tls);
            if received? == Some(0) {
                return Err(StreamError::Truncated);
            }
            sent?;
        }
        let name = tls.client_name()?;
        self.tls = Some(tls);
        Ok(name)
    }

    /// Whether what travels is sealed.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The handshake is over: takes other buffers, keeping what was received, and has no deadline any more.
    pub fn after_handshake(mut self, input_bytes: usize, output_bytes: usize) -> Result<Self, StreamError> {
        let received = self.end - self.begin;
        let sizes = (input_bytes.max(received), output_bytes);
        let mut other = Self::new(Arc::clone(&self.socket), &self.limits, sizes, None)?;
        other.tls = self.tls.take();
        other.end = received;
        other.input.memory()?[..received].copy_from_slice(self.buffered());
        Ok(other)
    }

    /// A message begins, with so much data in it or in its answer: it has its time from now on.
    pub fn begin_message(&mut self, data_bytes: u64) {
        self.allowed = self.limits.request_time(data_bytes);
        self.waited_since = None;
    }

    /// Called where the peer lets us wait: fails once its time is over.
    fn check_time(&mut self) -> Result<(), StreamError> {
        let now = Instant::now();
        let waited = now.saturating_duration_since(*self.waited_since.get_or_insert(now));
        let is_over = match self.deadline {
            Some(deadline) => now >= deadline,
            None => waited > self.allowed,
        };
        if is_over { Err(StreamError::Stalled) } else { Ok(()) }
    }

    /// Waits until the peer says something, for however long it likes, without memory for buffers.
    fn rest(&mut self) -> Result<(), StreamError> {
        (self.input.map, self.output.map) = (None, None);
        if let Some(tls) = &mut self.tls {
            tls.rest();
        }
        let mut fds = [PollFd::new(&*self.socket, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(StreamError::Socket(errno)),
        }
    }

    /// What was received and not consumed yet.
    #[must_use]
    pub fn buffered(&self) -> &[u8] {
        self.input.contents().get(self.begin..self.end).unwrap_or_default()
    }

    /// Marks bytes as dealt with.
    pub fn consume(&mut self, bytes: usize) {
        self.begin = (self.begin + bytes).min(self.end);
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }

    /// Receives until `bytes` are buffered (at most the buffer's size). `false` where the peer left before
    /// the first of them; leaving later is an error. Between messages it may be silent for as long as it
    /// likes.
    pub fn fill(&mut self, bytes: usize) -> Result<bool, StreamError> {
        self.gather(bytes, false)
    }

    /// As [`Self::fill`], inside a message: leaving is an error, and so is taking too long.
    pub fn need(&mut self, bytes: usize) -> Result<&[u8], StreamError> {
        self.gather(bytes, true)?;
        self.input.contents().get(self.begin..self.begin + bytes).ok_or(StreamError::Truncated)
    }

    fn gather(&mut self, bytes: usize, in_message: bool) -> Result<bool, StreamError> {
        debug_assert!(bytes <= self.input.bytes);
        while self.end - self.begin < bytes {
            if self.begin + bytes > self.input.bytes {
                let (begin, end) = (self.begin, self.end);
                self.input.memory()?.copy_within(begin..end, 0);
                (self.begin, self.end) = (0, end - begin);
            }
            let between = !in_message && self.begin == self.end;
            match self.receive(between)? {
                0 if between => return Ok(false),
                0 => return Err(StreamError::Truncated),
                received => self.end += received,
            }
            if self.end - self.begin < bytes {
                // So that a byte now and then does not buy time.
                self.check_time()?;
            }
        }
        Ok(true)
    }

    /// Receives once; 0 at the end of the stream.
    fn receive(&mut self, may_rest: bool) -> Result<usize, StreamError> {
        loop {
            if self.deadline.is_some() {
                self.check_time()?;
            }
            match self.receive_now()? {
                Some(bytes) => return Ok(bytes),
                None if self.deadline.is_none() && may_rest => self.rest()?,
                None => self.check_time()?,
            }
        }
    }

    /// The same within a tick; `None` where nothing has come that could be taken.
    fn receive_now(&mut self) -> Result<Option<usize>, StreamError> {
        let end = self.end;
        let Some(mut tls) = self.tls.take() else {
            return receive_plain(&self.socket, &mut self.input.memory()?[end..]);
        };
        let mut taken = tls.take(&mut self.input.memory()?[end..]);
        let mut outcome = Ok(None);
        if taken == 0 && !tls.has_ended() {
            outcome = receive_sealed(&self.socket, &mut tls);
            let sent = self.send_sealed(&mut tls);
            outcome = outcome.and_then(|received| sent.map(|()| received));
            taken = tls.take(&mut self.input.memory()?[end..]);
        }
        let has_ended = tls.has_ended();
        self.tls = Some(tls);
        match outcome? {
            _ if taken > 0 => Ok(Some(taken)),
            Some(0) => Ok(Some(0)),
            _ if has_ended => Ok(Some(0)),
            _ => Ok(None),
        }
    }

    /// Sends what TLS has to send.
    fn send_sealed(&mut self, tls: &mut Sealed) -> Result<(), StreamError> {
        while !tls.outgoing().is_empty() {
            match send(&*self.socket, tls.outgoing(), SendFlags::NOSIGNAL) {
                Ok(bytes) => tls.has_sent(bytes),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(StreamError::Socket(errno)),
            }
            if !tls.outgoing().is_empty() {
                self.check_time()?;
            }
        }
        Ok(())
    }

    /// Says that nothing more comes, where TLS is spoken: so that the peer knows that nobody cut it off.
    pub fn end(&mut self) {
        if let Some(mut tls) = self.tls.take() {
            tls.end();
            // Who has gone already does not hear it.
            let _ = send(&*self.socket, tls.outgoing(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Receives that many bytes and forgets them.
    pub fn skip(&mut self, mut bytes: usize) -> Result<(), StreamError> {
        while bytes > 0 {
            if self.begin == self.end {
                self.need(1)?;
                self.check_time()?;
            }
            let step = bytes.min(self.end - self.begin);
            self.consume(step);
            bytes -= step;
        }
        Ok(())
    }

    /// Room for `bytes` of output (at most the buffer's size), sending what is there first if need be.
    pub fn output(&mut self, bytes: usize) -> Result<&mut [u8], StreamError> {
        debug_assert!(bytes <= self.output.bytes);
        if self.output.bytes - self.output_bytes < bytes {
            self.flush()?;
        }
        let begin = self.output_bytes;
        self.output_bytes += bytes;
        Ok(&mut self.output.memory()?[begin..begin + bytes])
    }

    /// Appends output, sending as the buffer fills.
    pub fn put(&mut self, mut bytes: &[u8]) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            let step = bytes.len().min(self.output.bytes);
            let (now, later) = bytes.split_at(step);
            self.output(step)?.copy_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Sends what is buffered.
    pub fn flush(&mut self) -> Result<(), StreamError> {
        if let Some(mut tls) = self.tls.take() {
            let plain = self.output.contents().get(..self.output_bytes).unwrap_or_default();
            let sealed = tls.seal(plain).map_err(StreamError::from);
            let outcome = sealed.and_then(|()| self.send_sealed(&mut tls));
            self.tls = Some(tls);
            self.output_bytes = 0;
            return outcome;
        }
        let mut sent = 0;
        while sent < self.output_bytes {
            let unsent = self.output.contents().get(sent..self.output_bytes).unwrap_or_default();
            match send(&*self.socket, unsent, SendFlags::NOSIGNAL) {
                Ok(bytes) => sent += bytes,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(StreamError::Socket(errno)),
            }
            if sent < self.output_bytes {
                self.check_time()?;
            }
        }
        self.output_bytes = 0;
        Ok(())
    }
}

/// Receives once; `None` where nothing has come within a tick.
fn receive_plain(socket: &OwnedFd, to: &mut [u8]) -> Result<Option<usize>, StreamError> {
    loop {
        match recv(socket, &mut *to, RecvFlags::empty()) {
            Ok((bytes, _)) => return Ok(Some(bytes)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(StreamError::Socket(errno)),
        }
    }
}

/// The same by TLS: the number of sealed bytes, which are opened.
fn receive_sealed(socket: &OwnedFd, tls: &mut Sealed) -> Result<Option<usize>, StreamError> {
    let received = receive_plain(socket, tls.room())?;
    if let Some(bytes) = received {
        tls.open(bytes)?;
    }
    Ok(received)
}
