//! A socket on which TLS is spoken whose handshake the run's relay has done ([`super::relay`]). Its buffers
//! are allocated once.
//!
//! What was taken to be sent is sent by whatever is done next, as from the kernel's own buffer: nothing of it
//! is taken back.

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use spillway_tls::records::{
    Content, HEAD_BYTES, MAX_CONTENT_BYTES, MAX_RECORD_BYTES, Opener, RecordError, Sealer, TAIL_BYTES,
};

use super::progress::{Progress, SocketError, acknowledge_small, progress};

/// Records that each buffer holds.
const BUFFERED_RECORDS: usize = 4;

/// The socket, the keys of both ways, and what is on its way.
#[derive(Debug)]
pub(super) struct TlsSocket {
    socket: OwnedFd,
    /// The relay stays, for connections to come, for as long as somebody is connected to it.
    _relay: OwnedFd,
    sealer: Sealer,
    opener: Opener,
    outgoing: Box<[u8]>,
    /// Sealed, and not sent yet.
    unsent: Range<usize>,
    incoming: Box<[u8]>,
    /// Received, and not opened yet.
    unopened: Range<usize>,
    /// Opened, and not handed on yet: lies before what is not opened.
    opened: Range<usize>,
    has_ended: bool,
}

impl TlsSocket {
    pub fn new(socket: OwnedFd, relay: OwnedFd, (sealer, opener): (Sealer, Opener)) -> Self {
        let buffer = || vec![0; BUFFERED_RECORDS * MAX_RECORD_BYTES].into_boxed_slice();
        Self {
            socket,
            _relay: relay,
            sealer,
            opener,
            outgoing: buffer(),
            unsent: 0..0,
            incoming: buffer(),
            unopened: 0..0,
            opened: 0..0,
            has_ended: false,
        }
    }

    pub fn into_fd(self) -> OwnedFd {
        self.socket
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Something waits for the socket to take it.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The keys have been used enough.
    pub fn is_worn_out(&self) -> bool {
        self.sealer.is_worn_out() || self.opener.is_worn_out()
    }

    /// Takes as much as its buffer holds, once that is empty, and sends what the socket takes now.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<Progress, SocketError> {
        self.flush()?;
        if self.has_unsent() {
            return Ok(Progress::None);
        }
        let taken = self.seal(slices)?;
        self.flush()?;
        Ok(Progress::Bytes(taken))
    }

    /// Seals what comes first in `slices` into the buffer, which is empty; how much that was.
    fn seal(&mut self, slices: &[IoSlice<'_>]) -> Result<usize, SocketError> {
        let mut pieces = slices.iter().map(|slice| &slice[..]);
        let (mut piece, mut taken) = (pieces.next().unwrap_or_default(), 0);
        self.unsent = 0..0;
        loop {
            let room = self.outgoing.get_mut(self.unsent.end..).unwrap_or_default();
            let most = room.len().saturating_sub(HEAD_BYTES + TAIL_BYTES).min(MAX_CONTENT_BYTES);
            let mut content_bytes = 0;
            while content_bytes < most {
                if piece.is_empty() {
                    let Some(next) = pieces.next() else { break };
                    piece = next;
                    continue;
                }
                let (now, later) = piece.split_at(piece.len().min(most - content_bytes));
                let begin = HEAD_BYTES + content_bytes;
                room[begin..begin + now.len()].copy_from_slice(now);
                (piece, content_bytes) = (later, content_bytes + now.len());
            }
            if content_bytes == 0 {
                return Ok(taken);
            }
            self.unsent.end += self.sealer.seal(room, content_bytes)?;
            taken += content_bytes;
        }
    }

    /// Sends what the socket takes now of what is sealed.
    pub fn flush(&mut self) -> Result<(), SocketError> {
        while self.has_unsent() {
            let unsent = self.outgoing.get(self.unsent.clone()).unwrap_or_default();
            match progress(send(&self.socket, unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))? {
                Progress::Bytes(bytes) => self.unsent.start += bytes,
                Progress::None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Receives what is there now, or, where `patiently` and all is sent, waits for it as long as the socket
    /// is set to. 0 bytes at the end of the stream.
    pub fn receive(&mut self, buffer: &mut [u8], patiently: bool) -> Result<Progress, SocketError> {
        while self.opened.is_empty() {
            if self.has_ended {
                return Ok(Progress::Bytes(0));
            }
            if self.open_next()? {
                continue;
            }
            self.flush()?;
            match self.receive_sealed(patiently && !self.has_unsent())? {
                Progress::Bytes(0) => return Ok(Progress::Bytes(0)),
                Progress::Bytes(bytes) => self.unopened.end += bytes,
                Progress::None => return Ok(Progress::None),
            }
        }
        let bytes = self.opened.len().min(buffer.len());
        let begin = self.opened.start;
        buffer[..bytes].copy_from_slice(&self.incoming[begin..begin + bytes]);
        self.opened.start += bytes;
        Ok(Progress::Bytes(bytes))
    }

    /// Opens the next record; `false` while it is not all there.
    fn open_next(&mut self) -> Result<bool, RecordError> {
        let begin = self.unopened.start;
        let received = self.incoming.get_mut(self.unopened.clone()).unwrap_or_default();
        let Some(record) = self.opener.open(received)? else { return Ok(false) };
        self.unopened.start += record.record_bytes;
        match record.content {
            Content::Data(data) => self.opened = begin + data.start..begin + data.end,
            Content::End => self.has_ended = true,
            Content::Nothing => {}
        }
        Ok(true)
    }

    /// Receives behind what is there, of which nothing can be opened yet.
    fn receive_sealed(&mut self, patiently: bool) -> Result<Progress, SocketError> {
        if self.unopened.is_empty() {
            self.unopened = 0..0;
        } else if self.incoming.len() - self.unopened.start < MAX_RECORD_BYTES {
            self.incoming.copy_within(self.unopened.clone(), 0);
            self.unopened = 0..self.unopened.len();
        }
        let flags = if patiently { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let room = self.incoming.get_mut(self.unopened.end..).unwrap_or_default();
        let received = progress(recv(&self.socket, room, flags).map(|(bytes, _)| bytes))?;
        if let Progress::Bytes(bytes) = received {
            acknowledge_small(&self.socket, bytes);
        }
        Ok(received)
    }

    /// Says that nothing more comes, behind these last bytes, if the socket takes it now.
    pub fn end(&mut self, last: &[u8]) {
        // Who has gone already does not hear it.
        let _ = self.send(&[IoSlice::new(last)]).and_then(|_| {
            let room = self.outgoing.get_mut(self.unsent.end..).unwrap_or_default();
            self.unsent.end += self.sealer.end(room)?;
            self.flush()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use spillway_tls::making::{Wish, make};
    use spillway_tls::records::Keys;
    use spillway_tls::{ClientSide, ServerSide, Session};

    use super::*;

    static SIDES: LazyLock<(ClientSide, ServerSide)> = LazyLock::new(|| {
        let directory = tempfile::tempdir().unwrap();
        let wish = Wish { hosts: vec!["host".into()], client: "client".into(), from_days: 0, until_days: 9 };
        make(directory.path(), &wish).unwrap();
        (ClientSide::load(directory.path()).unwrap(), ServerSide::load(directory.path()).unwrap())
    });

    /// The server's end, with the session that the relay had its keys from.
    struct Server {
        socket: UnixStream,
        session: Session,
        received: Vec<u8>,
    }

    impl Server {
        /// Takes what is there, at most so much; whether that was anything.
        fn take(&mut self, most: usize) -> bool {
            let mut sealed = vec![0; most];
            match self.socket.read(&mut sealed) {
                Ok(bytes) => {
                    self.session.open(&sealed[..bytes], &mut self.received).unwrap();
                    bytes > 0
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                Err(error) => panic!("{error}"),
            }
        }

        fn sealed(&mut self, plain: &[u8]) -> Vec<u8> {
            let mut sealed = Vec::new();
            self.session.seal(plain, &mut sealed).unwrap();
            sealed
        }
    }

    /// A connection whose handshake is over; neither end waits.
    fn connection() -> (TlsSocket, Server) {
        let (client, server) = &*SIDES;
        let (mut client, mut session) = (client.begin("host").unwrap(), server.begin().unwrap());
        let mut plain = Vec::new();
        while client.is_handshaking() || session.is_handshaking() {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            client.pending(&mut up);
            session.open(&up, &mut plain).unwrap();
            session.pending(&mut down);
            client.open(&down, &mut plain).unwrap();
        }
        let (ours, socket) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let keys = Keys::decode(client.into_keys().unwrap().encode()).unwrap();
        let relay = UnixStream::pair().unwrap().0;
        let server = Server { socket, session, received: Vec::new() };
        (TlsSocket::new(ours.into(), relay.into(), keys), server)
    }

    fn bytes(count: usize, seed: u8) -> Vec<u8> {
        (0..count).map(|number| (number as u8).wrapping_mul(37) ^ (number >> 8) as u8 ^ seed).collect()
    }

    fn several(counts: &[usize]) -> Vec<Vec<u8>> {
        counts.iter().enumerate().map(|(seed, count)| bytes(*count, seed as u8)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// The server takes little at a time, so that the socket is full again and again.
        #[test]
        fn what_was_taken_arrives_once_and_in_order(
            pieces in prop::collection::vec(0..200_000_usize, 1..6),
            most in 1000..100_000_usize,
        ) {
            let (mut client, mut server) = connection();
            let pieces = several(&pieces);
            let all = pieces.concat();
            let mut taken = 0;
            while taken < all.len() {
                let mut skip = taken;
                let slices: Vec<_> = pieces.iter().map(|piece| {
                    let skipped = skip.min(piece.len());
                    skip -= skipped;
                    IoSlice::new(&piece[skipped..])
                }).collect();
                match client.send(&slices).unwrap() {
                    Progress::Bytes(bytes) => taken += bytes,
                    Progress::None => {
                        prop_assert!(client.has_unsent());
                        prop_assert!(server.take(most));
                    }
                }
            }
            // Who waits for the answer sends the rest.
            while client.has_unsent() {
                prop_assert_eq!(client.receive(&mut [0; 8], false).unwrap(), Progress::None);
                server.take(most);
            }
            while server.take(most) {}
            prop_assert!(server.received == all);
        }

        #[test]
        fn what_the_server_says_comes_once_and_in_order(
            counts in prop::collection::vec(1..60_000_usize, 1..6),
            piece in 1..30_000_usize,
            room in 1..50_000_usize,
        ) {
            let (mut client, mut server) = connection();
            let said = several(&counts);
            let sealed: Vec<_> = said.iter().flat_map(|said| server.sealed(said)).collect();
            let (mut heard, mut buffer) = (Vec::new(), vec![0; room]);
            for piece in sealed.chunks(piece) {
                server.socket.write_all(piece).unwrap();
                while let Progress::Bytes(bytes) = client.receive(&mut buffer, false).unwrap() {
                    heard.extend_from_slice(&buffer[..bytes]);
                }
            }
            prop_assert!(heard == said.concat());
        }
    }

    #[test]
    fn the_end_comes_after_what_was_said_whether_it_is_told_or_not() {
        for is_told in [true, false] {
            let (mut client, mut server) = connection();
            let mut last = server.sealed(b"last");
            if is_told {
                server.session.end(&mut last);
            }
            server.socket.write_all(&last).unwrap();
            drop(server.socket);
            let mut buffer = [0; 8];
            assert_eq!(client.receive(&mut buffer, true), Ok(Progress::Bytes(4)));
            assert_eq!(&buffer[..4], b"last");
            assert_eq!(client.receive(&mut buffer, true), Ok(Progress::Bytes(0)), "told: {is_told}");
        }
    }

    #[test]
    fn the_last_words_and_the_end_arrive() {
        let (mut client, mut server) = connection();
        client.end(b"that was all");
        drop(client);
        server.take(1000);
        assert_eq!((&server.received[..], server.session.has_ended()), (&b"that was all"[..], true));
    }

    #[test]
    fn nothing_is_handed_on_of_what_somebody_has_changed() {
        let (mut client, mut server) = connection();
        let mut sealed = server.sealed(&bytes(4096, 1));
        sealed[2000] ^= 1;
        server.socket.write_all(&sealed).unwrap();
        let mut buffer = [0; 4096];
        let damaged = Err(SocketError::Tls(RecordError::Damaged));
        assert_eq!(client.receive(&mut buffer, true), damaged);
        assert_eq!(buffer, [0; 4096]);
        // Nor of what follows.
        let more = server.sealed(b"more");
        server.socket.write_all(&more).unwrap();
        assert!(client.receive(&mut buffer, true).is_err());
    }
}
