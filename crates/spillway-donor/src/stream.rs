//! A connection's two buffers, of fixed size, and its deadlines.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use spillway_nbd::WireError;
use thiserror::Error;

/// How long a peer may stall in the middle of a message, its own or ours.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a connection ended other than by the peer's leaving between two messages.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StreamError {
    /// It sent what the protocol does not allow.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It left in the middle of a message.
    #[error("connection closed in the middle of a message")]
    Truncated,
    /// It stalled in the middle of a message, or of the handshake.
    #[error("no progress for too long")]
    Stalled,
    /// The export went while its contents were being sent.
    #[error("the export was dropped")]
    Dropped,
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(Errno),
}

/// A socket with bounded buffers. Never takes more memory than it was made with.
#[derive(Debug)]
pub struct Stream {
    socket: Arc<OwnedFd>,
    input: Box<[u8]>,
    /// What was received and not consumed.
    begin: usize,
    end: usize,
    output: Box<[u8]>,
    output_bytes: usize,
    /// The handshake must be over by then.
    deadline: Option<Instant>,
}

impl Stream {
    /// Wraps a blocking socket.
    #[must_use]
    pub fn new(socket: Arc<OwnedFd>, input_bytes: usize, output_bytes: usize) -> Self {
        let buffer = |bytes| vec![0; bytes].into_boxed_slice();
        Self {
            socket,
            input: buffer(input_bytes),
            begin: 0,
            end: 0,
            output: buffer(output_bytes),
            output_bytes: 0,
            deadline: None,
        }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Takes other buffers, keeping what was received.
    pub fn resize(self, input_bytes: usize, output_bytes: usize) -> Self {
        let mut other =
            Self::new(Arc::clone(&self.socket), input_bytes.max(self.end - self.begin), output_bytes);
        other.end = self.end - self.begin;
        other.input[..other.end].copy_from_slice(self.buffered());
        other
    }

    /// Sets the time by which everything must be received and sent; `None` for [`STALL_TIMEOUT`] a message.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<(), StreamError> {
        self.deadline = deadline;
        self.apply_timeout(STALL_TIMEOUT)
    }

    fn apply_timeout(&self, timeout: Duration) -> Result<(), StreamError> {
        for way in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&*self.socket, way, Some(timeout)).map_err(StreamError::Socket)?;
        }
        Ok(())
    }

    /// Before a call that may block: fails once the deadline is over.
    fn check_deadline(&self) -> Result<(), StreamError> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => self.apply_timeout(left.max(Duration::from_millis(1))),
            _ => Err(StreamError::Stalled),
        }
    }

    /// What was received and not consumed yet.
    #[must_use]
    pub fn buffered(&self) -> &[u8] {
        &self.input[self.begin..self.end]
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

    /// As [`Self::fill`], inside a message: leaving is an error, and so is a long silence.
    pub fn need(&mut self, bytes: usize) -> Result<&[u8], StreamError> {
        self.gather(bytes, true)?;
        Ok(&self.input[self.begin..self.begin + bytes])
    }

    fn gather(&mut self, bytes: usize, in_message: bool) -> Result<bool, StreamError> {
        debug_assert!(bytes <= self.input.len());
        while self.end - self.begin < bytes {
            if self.begin + bytes > self.input.len() {
                self.input.copy_within(self.begin..self.end, 0);
                (self.begin, self.end) = (0, self.end - self.begin);
            }
            let between = !in_message && self.begin == self.end;
            match self.receive(between)? {
                0 if between => return Ok(false),
                0 => return Err(StreamError::Truncated),
                received => self.end += received,
            }
        }
        Ok(true)
    }

    /// Receives once; 0 at the end of the stream.
    fn receive(&mut self, may_idle: bool) -> Result<usize, StreamError> {
        loop {
            self.check_deadline()?;
            match recv(&*self.socket, &mut self.input[self.end..], RecvFlags::empty()) {
                Ok((bytes, _)) => return Ok(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.deadline.is_none() && may_idle => {}
                Err(Errno::AGAIN) => return Err(StreamError::Stalled),
                Err(errno) => return Err(StreamError::Socket(errno)),
            }
        }
    }

    /// Receives and forgets.
    pub fn skip(&mut self, mut bytes: usize) -> Result<(), StreamError> {
        while bytes > 0 {
            if self.begin == self.end {
                self.need(1)?;
            }
            let step = bytes.min(self.end - self.begin);
            self.consume(step);
            bytes -= step;
        }
        Ok(())
    }

    /// Room for `bytes` of output (at most the buffer's size), sending what is there first if need be.
    pub fn output(&mut self, bytes: usize) -> Result<&mut [u8], StreamError> {
        debug_assert!(bytes <= self.output.len());
        if self.output.len() - self.output_bytes < bytes {
            self.flush()?;
        }
        let begin = self.output_bytes;
        self.output_bytes += bytes;
        Ok(&mut self.output[begin..begin + bytes])
    }

    /// Appends output, sending as the buffer fills.
    pub fn put(&mut self, mut bytes: &[u8]) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            let step = bytes.len().min(self.output.len());
            let (now, later) = bytes.split_at(step);
            self.output(step)?.copy_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Sends what is buffered.
    pub fn flush(&mut self) -> Result<(), StreamError> {
        let mut sent = 0;
        while sent < self.output_bytes {
            self.check_deadline()?;
            match send(&*self.socket, &self.output[sent..self.output_bytes], SendFlags::NOSIGNAL) {
                Ok(bytes) => sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(StreamError::Stalled),
                Err(errno) => return Err(StreamError::Socket(errno)),
            }
        }
        self.output_bytes = 0;
        Ok(())
    }
}
