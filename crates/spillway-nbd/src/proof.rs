//! How a connection shows that it belongs to a run, without saying anything that another could repeat.
//!
//! A run has an Ed25519 key, which its processes derive from the run's own token and the store's URI
//! ([`RunKey::derive`]). The donor knows the run by the public half. It gives every connection a [`Nonce`],
//! and the client signs that nonce together with what it asks for. Who listens sees public key, nonce and
//! signature: none of them opens another connection, because the donor gives no nonce twice and takes each
//! once.
//!
//! What travels afterwards is neither encrypted nor signed. Who can change packets on their way can still
//! take over a connection that somebody else has opened.

use std::fmt::Write;

use ed25519_dalek::{SIGNATURE_LENGTH, Signature, Signer, SigningKey, VerifyingKey};

/// Length of a nonce, in bytes.
pub const NONCE_BYTES: usize = 16;

/// Stands before all that is signed, so that no signature made here means anything elsewhere.
const CONTEXT: &[u8] = b"spillway: a connection of a run, version 1";

/// What a donor gives a connection to sign: random, and good for one proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; NONCE_BYTES]);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A run begins: its private export is made, and the memory promised to it.
    Run {
        /// How much it may need, in bytes; 0 where it takes what there is.
        size_bytes: u64,
    },
    /// A further connection of a run.
    Lane,
}

/// The secret by which the connections of one run to one store are known.
#[derive(Debug)]
pub struct RunKey(SigningKey);

/// The public half of a [`RunKey`]: the run's name at the donor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

/// A signature over nonce, purpose and export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof([u8; SIGNATURE_LENGTH]);

impl RunKey {
    /// The run's key for the store of this URI: different for every store, so that two ways to one donor do
    /// not share an export, and the same in every process of the run (BLAKE3 in its key derivation mode).
    #[must_use]
    pub fn derive(run_token: &str, uri: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("spillway key of a run for a store");
        // The length keeps token and URI apart.
        hasher.update(&(run_token.len() as u64).to_le_bytes());
        hasher.update(run_token.as_bytes());
        hasher.update(uri.as_bytes());
        Self(SigningKey::from_bytes(hasher.finalize().as_bytes()))
    }

    /// The half that the donor is told.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs a donor's nonce for what the connection is to do with an export.
    #[must_use]
    pub fn prove(&self, nonce: Nonce, purpose: Purpose, export: &str) -> Proof {
        Proof(self.0.sign(&signed_bytes(nonce, purpose, export)).to_bytes())
    }
}

impl PublicKey {
    /// Whether the owner of this key signed exactly this.
    #[must_use]
    pub fn verifies(&self, proof: &Proof, nonce: Nonce, purpose: Purpose, export: &str) -> bool {
        let signature = Signature::from_bytes(&proof.0);
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(&signed_bytes(nonce, purpose, export), &signature).is_ok())
    }
}

fn signed_bytes(nonce: Nonce, purpose: Purpose, export: &str) -> Vec<u8> {
    let (kind, size_bytes) = match purpose {
        Purpose::Run { size_bytes } => (0, size_bytes),
        Purpose::Lane => (1, 0),
    };
    let mut bytes = CONTEXT.to_vec();
    bytes.extend_from_slice(&nonce.0);
    bytes.push(kind);
    bytes.extend_from_slice(&size_bytes.to_le_bytes());
    // Last, since it alone has no fixed length.
    bytes.extend_from_slice(export.as_bytes());
    bytes
}

/// Bytes as they travel, in hexadecimal digits.
pub trait Hexadecimal: Sized {
    /// The value in lower-case digits.
    #[must_use]
    fn text(&self) -> String;
    /// Reads the digits; `None` where they are others, or not as many.
    #[must_use]
    fn from_text(text: &str) -> Option<Self>;
}

macro_rules! hexadecimal {
    ($($type:ident),*) => {
        $(
            impl Hexadecimal for $type {
                fn text(&self) -> String {
                    self.0.iter().fold(String::new(), |mut text, byte| {
                        // Writing to a string does not fail.
                        let _ = write!(text, "{byte:02x}");
                        text
                    })
                }

                fn from_text(text: &str) -> Option<Self> {
                    bytes(text).map(Self)
                }
            }
        )*
    };
}

hexadecimal!(Nonce, PublicKey, Proof);

/// Exactly `N` bytes, of lower-case digits: one value has one text.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (byte, [high, low]) in out.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_run_and_store_and_show_nothing_of_the_token() {
        let public = RunKey::derive("run", "nbd://a:1/").public();
        assert_eq!(public, RunKey::derive("run", "nbd://a:1/").public());
        for (run, uri) in
            [("ru", "nnbd://a:1/"), ("other", "nbd://a:1/"), ("run", "nbd://a:2/"), ("run", "shm:x")]
        {
            assert_ne!(public, RunKey::derive(run, uri).public());
        }
    }

    #[test]
    fn a_proof_holds_for_what_was_signed_and_nothing_else() {
        let (key, nonce) = (RunKey::derive("run", "nbd://a:1/"), Nonce([7; NONCE_BYTES]));
        let run = |size_bytes| Purpose::Run { size_bytes };
        let proof = key.prove(nonce, run(4096), "e");
        let public = key.public();
        assert!(public.verifies(&proof, nonce, run(4096), "e"));
        let mut other_nonce = nonce;
        other_nonce.0[15] ^= 1;
        assert!(!public.verifies(&proof, other_nonce, run(4096), "e"));
        assert!(!public.verifies(&proof, nonce, run(8192), "e"));
        assert!(!public.verifies(&proof, nonce, Purpose::Lane, "e"));
        assert!(!public.verifies(&proof, nonce, run(4096), "f"));
        let stranger = RunKey::derive("other", "nbd://a:1/");
        assert!(!stranger.public().verifies(&proof, nonce, run(4096), "e"));
        let mut bent = proof;
        bent.0[3] ^= 0x80;
        assert!(!public.verifies(&bent, nonce, run(4096), "e"));
    }

    #[test]
    fn texts_are_read_back_and_others_are_refused() {
        let nonce = Nonce([0xa5; NONCE_BYTES]);
        assert_eq!(Nonce::from_text(&nonce.text()), Some(nonce));
        for text in ["", "a5", &"A5".repeat(16), &"a5".repeat(17), &"g5".repeat(16), &nonce.text()[1..]] {
            assert_eq!(Nonce::from_text(text), None, "{text}");
        }
    }
}
