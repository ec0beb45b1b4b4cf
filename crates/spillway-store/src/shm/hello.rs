//! How a lane and its donor meet: two messages over an abstract Unix socket, the second with the ring's
//! memory file. Afterwards the socket carries nothing but the goodbye of a run; each side sees by its end
//! that the other is gone.

use spillway_nbd::private::{MAX_TOKEN_BYTES, is_valid_token};

const MAGIC: [u8; 8] = *b"SPLRING2";

/// Most bytes of a run's token here.
const TOKEN_BYTES: usize = MAX_TOKEN_BYTES - 8;

/// Length of the client's message.
pub const HELLO_BYTES: usize = 8 + 2 + 8 + TOKEN_BYTES;

/// Length of the donor's answer.
pub const WELCOME_BYTES: usize = 8 + 4 + 4 + 4;

/// What the connection that began a run says when the run has ended: its memory is given back at once.
pub const GOODBYE: u8 = b'E';

/// Name of the abstract Unix socket of the donor `spillway donor --shm NAME`.
#[must_use]
pub fn socket_name(name: &str) -> Vec<u8> {
    // An abstract name has 107 bytes at most; longer ones are told apart by their hash.
    let plain = format!("spillway-shm/{name}").into_bytes();
    if plain.len() <= 107 {
        return plain;
    }
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut short = plain;
    short.truncate(90);
    short.extend(format!("#{hash:016x}").into_bytes());
    short
}

/// What a client comes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A run begins: make its private export, and keep it while this connection stands. No ring.
    Run,
    /// A ring to the run's private export, which must be there.
    Lane,
    /// The memory file of the run's link, which its lanes share where they model a network.
    Link,
}

/// The message that the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// What it comes for.
    pub purpose: Purpose,
    /// How much a run that begins may need, in bytes; 0 where it takes what there is.
    pub size_bytes: u64,
    /// By which the donor knows the run.
    pub token: &'a str,
}

/// The client's message in bytes, as it is sent.
#[must_use]
pub fn encode_hello(hello: &Hello<'_>) -> [u8; HELLO_BYTES] {
    let mut out = [0; HELLO_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8] = hello.purpose as u8;
    let token = &hello.token.as_bytes()[..hello.token.len().min(TOKEN_BYTES)];
    out[9] = token.len() as u8;
    out[10..18].copy_from_slice(&hello.size_bytes.to_le_bytes());
    out[18..18 + token.len()].copy_from_slice(token);
    out
}

/// Reads the client's message; `None` where it is not one.
#[must_use]
pub fn decode_hello(bytes: &[u8; HELLO_BYTES]) -> Option<Hello<'_>> {
    let purpose = match bytes[8] {
        0 => Purpose::Run,
        1 => Purpose::Lane,
        2 => Purpose::Link,
        _ => return None,
    };
    let size_bytes = u64::from_le_bytes(*bytes[10..].first_chunk()?);
    let token = std::str::from_utf8(bytes.get(18..18 + usize::from(bytes[9]))?).ok()?;
    (bytes[..8] == MAGIC && is_valid_token(token)).then_some(Hello { purpose, size_bytes, token })
}

/// The donor's answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// Come in. The memory file of a lane's ring, or of the link, comes with the message.
    Slots(u32),
    /// The run's private export is not there (any more).
    Lost,
    /// The donor has no room for another export or lane.
    Busy,
    /// The memory that was asked for is not left; in slots, what is, and the most that there could be.
    NoRoom {
        /// Left to promise now.
        free: u32,
        /// What a run could have of this donor at best.
        most: u32,
    },
    /// The donor is about to end.
    Ending,
}

/// The donor's message in bytes, as it is sent.
#[must_use]
pub fn encode_welcome(welcome: Welcome) -> [u8; WELCOME_BYTES] {
    let (status, slots, most) = match welcome {
        Welcome::Slots(slots) => (0u32, slots, 0),
        Welcome::Lost => (1, 0, 0),
        Welcome::Busy => (2, 0, 0),
        Welcome::NoRoom { free, most } => (3, free, most),
        Welcome::Ending => (4, 0, 0),
    };
    let mut out = [0; WELCOME_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&status.to_le_bytes());
    out[12..16].copy_from_slice(&slots.to_le_bytes());
    out[16..].copy_from_slice(&most.to_le_bytes());
    out
}

/// Reads the donor's message; `None` where it is not one.
#[must_use]
pub fn decode_welcome(bytes: &[u8; WELCOME_BYTES]) -> Option<Welcome> {
    let word = |at: usize| bytes[at..].first_chunk().map(|chunk| u32::from_le_bytes(*chunk));
    match (bytes[..8] == MAGIC).then_some(word(8)?)? {
        0 => Some(Welcome::Slots(word(12)?)),
        1 => Some(Welcome::Lost),
        2 => Some(Welcome::Busy),
        3 => Some(Welcome::NoRoom { free: word(12)?, most: word(16)? }),
        4 => Some(Welcome::Ending),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_round_trip() {
        for purpose in [Purpose::Run, Purpose::Lane, Purpose::Link] {
            for (token, size_bytes) in [("a", 0), (&*"x".repeat(TOKEN_BYTES), u64::MAX)] {
                let hello = Hello { purpose, size_bytes, token };
                assert_eq!(decode_hello(&encode_hello(&hello)), Some(hello));
            }
        }
        let no_room = Welcome::NoRoom { free: 1, most: u32::MAX };
        for welcome in [Welcome::Slots(u32::MAX), Welcome::Lost, Welcome::Busy, no_room, Welcome::Ending] {
            assert_eq!(decode_welcome(&encode_welcome(welcome)), Some(welcome));
        }
        assert_eq!(decode_hello(&[0; HELLO_BYTES]), None);
        assert_eq!(decode_welcome(&[0; WELCOME_BYTES]), None);
    }

    #[test]
    fn socket_names_fit_and_differ() {
        let long = |end: &str| socket_name(&format!("{}{end}", "n".repeat(150)));
        assert!(long("a").len() <= 107);
        assert_ne!(long("a"), long("b"));
        assert_eq!(socket_name("x"), b"spillway-shm/x");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), HELLO_BYTES)) {
            let mut bytes: [u8; HELLO_BYTES] = bytes.try_into().unwrap();
            let _ = decode_hello(&bytes);
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8] &= 1;
            let _ = decode_hello(&bytes);
            let _ = decode_welcome(bytes.first_chunk().unwrap());
        }
    }
}
