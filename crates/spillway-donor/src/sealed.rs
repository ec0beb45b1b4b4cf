//! TLS of one connection of a donor's: what was received and is not opened, opened and not taken, sealed and
//! not sent. Each is bounded by what is received or sent at once.

use spillway_tls::{ClientName, ServerSide, Session, TlsError};

/// Most sealed bytes that are received at once: some records.
const ROOM_BYTES: usize = 64 << 10;

/// A session and its buffers.
#[derive(Debug)]
pub struct Sealed {
    session: Session,
    /// For what is received next; there only while it is used.
    room: Vec<u8>,
    plain: Vec<u8>,
    taken: usize,
    outgoing: Vec<u8>,
    sent: usize,
}

impl Sealed {
    /// Before the first byte.
    pub fn new(side: &ServerSide) -> Result<Self, TlsError> {
        let session = side.begin()?;
        let (room, plain, outgoing) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { session, room, plain, taken: 0, outgoing, sent: 0 })
    }

    /// Whether the handshake is under way.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether the client has said that it sends nothing more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    /// Who the client is.
    pub fn client_name(&self) -> Result<ClientName, TlsError> {
        self.session.client_name()
    }

    /// Where to receive to.
    pub fn room(&mut self) -> &mut [u8] {
        self.room.resize(ROOM_BYTES, 0);
        &mut self.room
    }

    /// Opens so many bytes that were received there.
    pub fn open(&mut self, received: usize) -> Result<(), TlsError> {
        let outcome = self.session.open(self.room.get(..received).unwrap_or_default(), &mut self.plain);
        self.session.pending(&mut self.outgoing);
        outcome
    }

    /// Takes opened bytes, as many as there are and fit.
    pub fn take(&mut self, to: &mut [u8]) -> usize {
        let there = self.plain.get(self.taken..).unwrap_or_default();
        let count = there.len().min(to.len());
        to[..count].copy_from_slice(&there[..count]);
        self.taken += count;
        if self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
        }
        count
    }

    /// Seals bytes that are to be sent.
    pub fn seal(&mut self, plain: &[u8]) -> Result<(), TlsError> {
        self.session.seal(plain, &mut self.outgoing)
    }

    /// What is to be sent.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.get(self.sent..).unwrap_or_default()
    }

    /// So much of it was sent.
    pub fn has_sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.outgoing.len() {
            self.outgoing.clear();
            self.sent = 0;
        }
    }

    /// Says that this side sends nothing more.
    pub fn end(&mut self) {
        self.session.end(&mut self.outgoing);
    }

    /// Gives the memory of empty buffers back.
    pub fn rest(&mut self) {
        self.room = Vec::new();
        for buffer in [&mut self.plain, &mut self.outgoing] {
            if buffer.is_empty() {
                *buffer = Vec::new();
            }
        }
    }
}
