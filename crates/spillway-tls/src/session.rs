//! One connection: plain bytes to sealed ones and back, without I/O.

use std::io::{Read, Write};

use rustls::Connection;

use crate::error::Side;
use crate::records::Keys;
use crate::{ClientName, KeyPrint, TlsError};

/// The TLS of one connection. The caller moves bytes, bounds buffers and keeps time.
#[derive(Debug)]
pub struct Session {
    inner: Connection,
    side: Side,
    has_ended: bool,
}

impl Session {
    pub(crate) fn new(inner: Connection, side: Side) -> Self {
        Self { inner, side, has_ended: false }
    }

    /// Whether the handshake is still under way.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// Whether the other side has said that it sends nothing more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes what was received, and appends what of it is for the application: never more than it was given.
    ///
    /// # Errors
    /// The other side breaks the protocol, or one side does not take the other's certificate. What
    /// [`Self::pending`] gives then tells it why.
    pub fn open(&mut self, sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsError> {
        let mut rest = sealed;
        while !rest.is_empty() && !self.has_ended {
            // Reading from memory fails only where the other side sends more than may be held of it.
            let taken =
                self.inner.read_tls(&mut rest).map_err(|error| TlsError::Broken(error.to_string()))?;
            let state = self.inner.process_new_packets().map_err(|error| TlsError::of(&error, self.side))?;
            self.has_ended |= state.peer_has_closed();
            let (begin, more) = (plain.len(), state.plaintext_bytes_to_read());
            plain.resize(begin + more, 0);
            if let Some(place) = plain.get_mut(begin..) {
                self.inner.reader().read_exact(place).map_err(|error| TlsError::Broken(error.to_string()))?;
            }
            if taken == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Seals bytes of the application and appends what is to be sent.
    ///
    /// # Errors
    /// The session cannot go on.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), TlsError> {
        let mut rest = plain;
        while !rest.is_empty() {
            let taken =
                self.inner.writer().write(rest).map_err(|error| TlsError::Broken(error.to_string()))?;
            rest = rest.get(taken..).unwrap_or_default();
            let before = sealed.len();
            self.pending(sealed);
            if taken == 0 && sealed.len() == before {
                return Err(TlsError::Broken("the session takes nothing more".to_owned()));
            }
        }
        Ok(())
    }

    /// Appends what TLS itself has to send: its handshake, its answers, why it failed.
    pub fn pending(&mut self, sealed: &mut Vec<u8>) {
        while self.inner.wants_write() {
            // Writing into memory does not fail.
            if self.inner.write_tls(sealed).is_err() {
                return;
            }
        }
    }

    /// Says that this side sends nothing more.
    pub fn end(&mut self, sealed: &mut Vec<u8>) {
        self.inner.send_close_notify();
        self.pending(sealed);
    }

    /// Leaves the connection to somebody else, who goes on with these. What was received must have been
    /// opened, whole records of it, and what is to be sent taken.
    ///
    /// # Errors
    /// The handshake is not over, or something waits to be sent.
    pub fn into_keys(self) -> Result<Keys, TlsError> {
        let secrets =
            self.inner.dangerous_extract_secrets().map_err(|error| TlsError::of(&error, self.side))?;
        Keys::new(&secrets).ok_or_else(|| TlsError::Broken("a cipher that TLS 1.3 does not have".to_owned()))
    }

    /// Who the client is, once the handshake is over.
    ///
    /// # Errors
    /// Its certificate names nobody.
    pub fn client_name(&self) -> Result<ClientName, TlsError> {
        ClientName::of_certificate(self.shown()?)
    }

    /// The key by which the other side has shown itself, once the handshake is over: it has that key, and not
    /// its certificate alone.
    ///
    /// # Errors
    /// The handshake is not over.
    pub fn other_key(&self) -> Result<KeyPrint, TlsError> {
        if self.is_handshaking() {
            return Err(TlsError::Broken("the other side has not shown yet that it has a key".to_owned()));
        }
        KeyPrint::of_certificate(self.shown()?)
    }

    /// The other side's own certificate.
    fn shown(&self) -> Result<&[u8], TlsError> {
        let shown = self.inner.peer_certificates().and_then(<[_]>::first);
        shown
            .map(|shown| shown.as_ref())
            .ok_or_else(|| TlsError::of(&rustls::Error::NoCertificatesPresented, self.side))
    }
}
