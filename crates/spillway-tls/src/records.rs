//! The records of a connection whose handshake is over (TLS 1.3, RFC 8446, 5), where the session that made it
//! has left it to somebody else: with the keys of both ways, without allocation, and without I/O. As with the
//! kernel's own TLS, the handshake and the derivation of keys stay with `rustls`.
//!
//! A key is used for [`WORN_OUT_AFTER`] records; then a new connection is to be made. A side that renews its
//! keys within a connection (`KeyUpdate`) ends it for us: no server that is known does so this early.

use std::fmt;
use std::ops::Range;

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use thiserror::Error;

/// The head of a record: its type, a version that is always the same, and how many bytes follow.
pub const HEAD_BYTES: usize = 5;
/// What a record has besides its head and its contents: their type, and the tag.
pub const TAIL_BYTES: usize = 1 + TAG_BYTES;
/// Most bytes of the application in a record.
pub const MAX_CONTENT_BYTES: usize = 1 << 14;
/// Most bytes of a record.
pub const MAX_RECORD_BYTES: usize = HEAD_BYTES + MAX_CONTENT_BYTES + 256;
/// So many records one way are enough for a connection. RFC 8446 (5.5) allows a key 2^24.5 full ones, and
/// servers renew theirs at 2^24.
pub const WORN_OUT_AFTER: u64 = 1 << 22;
/// No key is used for more.
const MOST_RECORDS: u64 = 1 << 24;

/// Records without contents that may follow each other: who sends nothing else keeps us busy for ever.
const MOST_EMPTY: u32 = 32;

const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const MAX_KEY_BYTES: usize = 32;
/// The cipher, the key in so much room, what nonces begin with, and the number of the next record.
const WAY_BYTES: usize = 1 + MAX_KEY_BYTES + NONCE_BYTES + 8;
/// Bytes that [`Keys::encode`] takes.
pub const KEYS_BYTES: usize = 2 * WAY_BYTES;

/// Types of what a record holds.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// What every record says of its version.
const VERSION: [u8; 2] = [3, 3];
const CLOSE_NOTIFY: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;

/// Why records cannot go on.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// It is no record of TLS 1.3, or longer than one may be.
    #[error("TLS: what came is no record")]
    NoRecord,
    /// Somebody has changed it, or has left one out.
    #[error("TLS: a record was damaged on its way")]
    Damaged,
    /// The other side gives up, for the reason of this number (RFC 8446, 6).
    #[error("TLS: the other side has ended the session (alert {0})")]
    Alert(u8),
    /// The other side wants what is possible in a session only, such as new keys.
    #[error("TLS: the other side goes on with a handshake (message {0})")]
    Handshake(u8),
    /// Nothing but empty records comes.
    #[error("TLS: the other side sends records with nothing in them")]
    Empty,
    /// The key has been used for as long as it may be.
    #[error("TLS: the session's keys are worn out")]
    WornOut,
}

/// What one way of a connection is sealed with.
struct Way {
    key: LessSafeKey,
    nonce: [u8; NONCE_BYTES],
    next_record: u64,
}

impl Way {
    fn decode(bytes: &[u8; WAY_BYTES]) -> Option<Self> {
        let (cipher, rest) = bytes.split_first()?;
        let (key, rest) = rest.split_first_chunk::<MAX_KEY_BYTES>()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let algorithm = cipher_of(*cipher)?;
        let key = UnboundKey::new(algorithm, key.get(..algorithm.key_len())?).ok()?;
        Some(Self {
            key: LessSafeKey::new(key),
            nonce: *nonce,
            next_record: u64::from_be_bytes(*rest.first_chunk()?),
        })
    }

    /// The nonce of the next record (RFC 8446, 5.3), which is none's but its.
    fn take_nonce(&mut self) -> Result<Nonce, RecordError> {
        if self.next_record >= MOST_RECORDS {
            return Err(RecordError::WornOut);
        }
        let mut nonce = self.nonce;
        let number = self.next_record.to_be_bytes();
        nonce.iter_mut().skip(NONCE_BYTES - number.len()).zip(number).for_each(|(a, b)| *a ^= b);
        self.next_record += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

fn cipher_of(number: u8) -> Option<&'static Algorithm> {
    match number {
        0 => Some(&AES_128_GCM),
        1 => Some(&AES_256_GCM),
        2 => Some(&CHACHA20_POLY1305),
        _ => None,
    }
}

/// What a session seals and opens with, on its way to whoever goes on with it.
pub struct Keys([u8; KEYS_BYTES]);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// Of `rustls`; `None` for a cipher that TLS 1.3 does not have.
    pub(crate) fn new(secrets: &rustls::ExtractedSecrets) -> Option<Self> {
        let mut bytes = [0; KEYS_BYTES];
        let (sealing, opening) = bytes.split_at_mut(WAY_BYTES);
        put_way(&secrets.tx, sealing)?;
        put_way(&secrets.rx, opening)?;
        Some(Self(bytes))
    }

    /// As they are sent.
    #[must_use]
    pub fn encode(&self) -> &[u8; KEYS_BYTES] {
        &self.0
    }

    /// Both ways of a connection, from what [`Self::encode`] has given; `None` where it is something else.
    #[must_use]
    pub fn decode(bytes: &[u8; KEYS_BYTES]) -> Option<(Sealer, Opener)> {
        let (sealing, opening) = bytes.split_first_chunk::<WAY_BYTES>()?;
        let way = Way::decode(opening.first_chunk()?)?;
        Some((Sealer(Way::decode(sealing)?), Opener { way, empty_in_a_row: 0 }))
    }
}

fn put_way((next_record, secrets): &(u64, ConnectionTrafficSecrets), way: &mut [u8]) -> Option<()> {
    let (cipher, key, nonce): (u8, &[u8], &[u8]) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (0, key.as_ref(), iv.as_ref()),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (1, key.as_ref(), iv.as_ref()),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (2, key.as_ref(), iv.as_ref()),
        _ => return None,
    };
    let mut room = way.iter_mut();
    let parts = [&[cipher], key, &[0; MAX_KEY_BYTES][key.len().min(MAX_KEY_BYTES)..], nonce];
    for byte in parts.into_iter().flatten().chain(&next_record.to_be_bytes()) {
        *room.next()? = *byte;
    }
    room.next().is_none().then_some(())
}

/// Seals what goes out.
pub struct Sealer(Way);

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// Seals the bytes of the application that lie in `record` behind room for its head, so many of them:
    /// how long the record is that `record` begins with then.
    ///
    /// # Errors
    /// [`RecordError::NoRecord`] where they are more than a record may have or `record` has no room for its
    /// tail; [`RecordError::WornOut`].
    pub fn seal(&mut self, record: &mut [u8], content_bytes: usize) -> Result<usize, RecordError> {
        self.seal_as(APPLICATION_DATA, record, content_bytes)
    }

    /// Writes the record that says that nothing more comes.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub fn end(&mut self, record: &mut [u8]) -> Result<usize, RecordError> {
        let warning = [1, CLOSE_NOTIFY];
        let content = record.get_mut(HEAD_BYTES..HEAD_BYTES + warning.len());
        content.ok_or(RecordError::NoRecord)?.copy_from_slice(&warning);
        self.seal_as(ALERT, record, warning.len())
    }

    fn seal_as(&mut self, kind: u8, record: &mut [u8], content_bytes: usize) -> Result<usize, RecordError> {
        let bytes = HEAD_BYTES + content_bytes + TAIL_BYTES;
        let record = record.get_mut(..bytes).ok_or(RecordError::NoRecord)?;
        let (head, inner) = record.split_first_chunk_mut::<HEAD_BYTES>().ok_or(RecordError::NoRecord)?;
        if content_bytes > MAX_CONTENT_BYTES {
            return Err(RecordError::NoRecord);
        }
        *head = head_of(inner.len());
        let (inner, tag) = inner.split_last_chunk_mut::<TAG_BYTES>().ok_or(RecordError::NoRecord)?;
        *inner.last_mut().ok_or(RecordError::NoRecord)? = kind;
        let nonce = self.0.take_nonce()?;
        let made = self.0.key.seal_in_place_separate_tag(nonce, Aad::from(*head), inner);
        tag.copy_from_slice(made.map_err(|_| RecordError::NoRecord)?.as_ref());
        Ok(bytes)
    }

    /// Whether a new connection is to be made.
    #[must_use]
    pub fn is_worn_out(&self) -> bool {
        self.0.next_record >= WORN_OUT_AFTER
    }
}

fn head_of(following_bytes: usize) -> [u8; HEAD_BYTES] {
    let [.., high, low] = following_bytes.to_be_bytes();
    [APPLICATION_DATA, VERSION[0], VERSION[1], high, low]
}

/// A record that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// How long the record was.
    pub record_bytes: usize,
    /// What it holds, if that concerns anybody.
    pub content: Content,
}

/// What a record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes for the application, at this place from the record's first byte; perhaps none.
    Data(Range<usize>),
    /// Something of TLS itself that can be left alone.
    Nothing,
    /// The other side sends nothing more.
    End,
}

/// Opens what comes in.
pub struct Opener {
    way: Way,
    empty_in_a_row: u32,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

impl Opener {
    /// Opens the record that `received` begins with, in its place; `None` while it is not all there.
    ///
    /// # Errors
    /// After each of them the connection is of no more use.
    pub fn open(&mut self, received: &mut [u8]) -> Result<Option<Opened>, RecordError> {
        let Some((head, rest)) = received.split_first_chunk_mut::<HEAD_BYTES>() else { return Ok(None) };
        let following_bytes = usize::from(u16::from_be_bytes([head[3], head[4]]));
        let is_record = *head == head_of(following_bytes)
            && (TAIL_BYTES..=MAX_RECORD_BYTES - HEAD_BYTES).contains(&following_bytes);
        if !is_record {
            return Err(RecordError::NoRecord);
        }
        let Some(sealed) = rest.get_mut(..following_bytes) else { return Ok(None) };
        let nonce = self.way.take_nonce()?;
        let inner = self.way.key.open_in_place(nonce, Aad::from(*head), sealed);
        let inner: &[u8] = inner.map_err(|_| RecordError::Damaged)?;
        let record_bytes = HEAD_BYTES + following_bytes;
        // Behind the contents come their type, which is never 0, and zeros as many as the sender likes.
        let last = inner.iter().rposition(|byte| *byte != 0).ok_or(RecordError::NoRecord)?;
        let (content, kind) = inner.split_at_checked(last).ok_or(RecordError::NoRecord)?;
        if content.len() > MAX_CONTENT_BYTES {
            return Err(RecordError::NoRecord);
        }
        self.empty_in_a_row = match kind.first() {
            Some(&APPLICATION_DATA) if last > 0 => 0,
            _ => self.empty_in_a_row + 1,
        };
        if self.empty_in_a_row > MOST_EMPTY {
            return Err(RecordError::Empty);
        }
        let content = match (kind.first(), content) {
            (Some(&APPLICATION_DATA), _) => Content::Data(HEAD_BYTES..HEAD_BYTES + last),
            (Some(&ALERT), [_, CLOSE_NOTIFY]) => Content::End,
            (Some(&ALERT), [_, alert]) => return Err(RecordError::Alert(*alert)),
            (Some(&HANDSHAKE), messages) => ignore_tickets(messages)?,
            _ => return Err(RecordError::NoRecord),
        };
        Ok(Some(Opened { record_bytes, content }))
    }

    /// Whether a new connection is to be made.
    #[must_use]
    pub fn is_worn_out(&self) -> bool {
        self.way.next_record >= WORN_OUT_AFTER
    }
}

/// Tickets are for sessions to come, of which we want none. They are all that can be left alone.
fn ignore_tickets(mut messages: &[u8]) -> Result<Content, RecordError> {
    while let Some(([kind, length @ ..], rest)) = messages.split_first_chunk::<4>() {
        let [high, middle, low] = *length;
        let bytes = u32::from_be_bytes([0, high, middle, low]) as usize;
        match rest.get(bytes..) {
            Some(next) if *kind == NEW_SESSION_TICKET => messages = next,
            _ => return Err(RecordError::Handshake(*kind)),
        }
    }
    if messages.is_empty() { Ok(Content::Nothing) } else { Err(RecordError::NoRecord) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of one way.
    fn way() -> (Sealer, Opener) {
        let mut keys = [7; KEYS_BYTES];
        for way in [0, WAY_BYTES] {
            keys[way] = 1;
            keys[way + WAY_BYTES - 8..way + WAY_BYTES].fill(0);
        }
        Keys::decode(&keys).unwrap()
    }

    /// What is made of contents of this type.
    fn opened(kind: u8, contents: &[u8]) -> Result<Content, RecordError> {
        let (mut sealer, mut opener) = way();
        let mut record = vec![0; HEAD_BYTES + contents.len() + TAIL_BYTES];
        record[HEAD_BYTES..HEAD_BYTES + contents.len()].copy_from_slice(contents);
        sealer.seal_as(kind, &mut record, contents.len()).unwrap();
        opener.open(&mut record).map(|opened| opened.unwrap().content)
    }

    #[test]
    fn tickets_are_left_alone_and_everything_else_of_a_handshake_ends_the_connection() {
        let ticket = [NEW_SESSION_TICKET, 0, 0, 2, 9, 9];
        assert_eq!(opened(HANDSHAKE, &ticket), Ok(Content::Nothing));
        assert_eq!(opened(HANDSHAKE, &[ticket, ticket].concat()), Ok(Content::Nothing));
        assert_eq!(opened(HANDSHAKE, &ticket[..5]), Err(RecordError::Handshake(NEW_SESSION_TICKET)));
        assert_eq!(opened(HANDSHAKE, &ticket[..3]), Err(RecordError::NoRecord));
        let key_update = [24, 0, 0, 1, 0];
        assert_eq!(opened(HANDSHAKE, &key_update), Err(RecordError::Handshake(24)));
        assert_eq!(opened(HANDSHAKE, &[&ticket[..], &key_update].concat()), Err(RecordError::Handshake(24)));
    }

    #[test]
    fn alerts_end_the_connection() {
        assert_eq!(opened(ALERT, &[1, CLOSE_NOTIFY]), Ok(Content::End));
        assert_eq!(opened(ALERT, &[2, 48]), Err(RecordError::Alert(48)));
        assert_eq!(opened(ALERT, &[2]), Err(RecordError::NoRecord));
        assert_eq!(opened(20, &[1]), Err(RecordError::NoRecord));
    }

    #[test]
    fn zeros_behind_the_contents_are_none_of_it() {
        let padded = [&b"page"[..], &[APPLICATION_DATA], &[0; 40]].concat();
        assert_eq!(opened(0, &padded), Ok(Content::Data(HEAD_BYTES..HEAD_BYTES + 4)));
        assert_eq!(opened(0, &[0; 40]), Err(RecordError::NoRecord), "there is no type");
    }

    #[test]
    fn who_sends_nothing_does_not_keep_us_busy_for_ever() {
        let (mut sealer, mut opener) = way();
        let mut send = |kind: u8, contents: &[u8]| {
            let mut record = vec![0; HEAD_BYTES + contents.len() + TAIL_BYTES];
            record[HEAD_BYTES..HEAD_BYTES + contents.len()].copy_from_slice(contents);
            sealer.seal_as(kind, &mut record, contents.len()).unwrap();
            opener.open(&mut record).map(|opened| opened.unwrap().content)
        };
        let ticket = [NEW_SESSION_TICKET, 0, 0, 0];
        for _ in 0..3 {
            for _ in 0..MOST_EMPTY / 2 {
                assert_eq!(send(APPLICATION_DATA, &[]), Ok(Content::Data(HEAD_BYTES..HEAD_BYTES)));
                assert_eq!(send(HANDSHAKE, &ticket), Ok(Content::Nothing));
            }
            assert_eq!(send(APPLICATION_DATA, &[0]), Ok(Content::Data(HEAD_BYTES..HEAD_BYTES + 1)));
        }
        for _ in 0..MOST_EMPTY {
            assert!(send(APPLICATION_DATA, &[]).is_ok());
        }
        assert_eq!(send(APPLICATION_DATA, &[]), Err(RecordError::Empty));
        assert_eq!(send(HANDSHAKE, &ticket), Err(RecordError::Empty));
    }

    #[test]
    fn no_nonce_is_used_twice() {
        let mut way = way().0.0;
        let mut nonces: Vec<_> = (0..600).map(|_| *way.take_nonce().unwrap().as_ref()).collect();
        nonces.sort_unstable();
        nonces.dedup();
        assert_eq!(nonces.len(), 600);
    }
}
