//! How a lane and its donor meet: two messages over an abstract Unix socket, the second with the ring's
//! memory file. Afterwards the socket carries nothing; each side sees by its end that the other is gone.

use spillway_nbd::private::{MAX_TOKEN_BYTES, is_valid_token};

const MAGIC: [u8; 8] = *b"SPLRING1";

/// Length of the client's message.
pub const HELLO_BYTES: usize = 8 + 2 + MAX_TOKEN_BYTES;

/// Length of the donor's answer.
pub const WELCOME_BYTES: usize = 8 + 4 + 4;

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

/// The client's message.
#[must_use]
pub fn encode_hello(purpose: Purpose, token: &str) -> [u8; HELLO_BYTES] {
    let mut out = [0; HELLO_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8] = purpose as u8;
    let token = &token.as_bytes()[..token.len().min(MAX_TOKEN_BYTES)];
    out[9] = token.len() as u8;
    out[10..10 + token.len()].copy_from_slice(token);
    out
}

/// Reads the client's message; `None` where it is not one.
#[must_use]
pub fn decode_hello(bytes: &[u8; HELLO_BYTES]) -> Option<(Purpose, &str)> {
    let purpose = match bytes[8] {
        0 => Purpose::Run,
        1 => Purpose::Lane,
        2 => Purpose::Link,
        _ => return None,
    };
    let token = std::str::from_utf8(bytes.get(10..10 + usize::from(bytes[9]))?).ok()?;
    (bytes[..8] == MAGIC && is_valid_token(token)).then_some((purpose, token))
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
}

/// The donor's message.
#[must_use]
pub fn encode_welcome(welcome: Welcome) -> [u8; WELCOME_BYTES] {
    let (status, slots) = match welcome {
        Welcome::Slots(slots) => (0u32, slots),
        Welcome::Lost => (1, 0),
        Welcome::Busy => (2, 0),
    };
    let mut out = [0; WELCOME_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&status.to_le_bytes());
    out[12..].copy_from_slice(&slots.to_le_bytes());
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
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_round_trip() {
        for purpose in [Purpose::Run, Purpose::Lane] {
            for token in ["a", &"x".repeat(MAX_TOKEN_BYTES)] {
                assert_eq!(decode_hello(&encode_hello(purpose, token)), Some((purpose, token)));
            }
        }
        for welcome in [Welcome::Slots(u32::MAX), Welcome::Lost, Welcome::Busy] {
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
