//! How a run keeps its export on a Spillway donor to itself: NBD's own extension mechanism, metadata contexts
//! of a namespace of ours. A server that is not ours answers with no such context, and gives the plain
//! export.
//!
//! In SET_META_CONTEXT for an export, a client may ask for
//!
//! | query | meaning | the donor's context |
//! |---|---|---|
//! | `spillway:challenge` | what am I to sign? | `spillway:challenge=NONCE` |
//! | `spillway:run=KEY,BYTES,PROOF` | a run begins: make its private export | the same |
//! | `spillway:lane=KEY,PROOF` | a further connection of it | the same; [`LOST`] where its export is gone |
//! | `spillway:standing` | how do you stand? | `spillway:standing=...` ([`crate::standing`]) |
//! | `spillway:runs` | what do you have for each run? | `spillway:runs=...` ([`crate::run_standing`]) |
//! | `spillway:drain` | let in no new run, and let those that are here go elsewhere | the same |
//! | `spillway:stay` | no more of that | the same |
//! | `spillway:drop` | drop the named export with all it holds | the same; [`ABSENT`] where there is none |
//!
//! The context that comes back means yes; [`REFUSED`] means that the proof is none ([`crate::proof`]). The GO
//! that follows opens the private export. For a run it promises the memory: BYTES of it, or where that is 0
//! as much as the donor gives one run. The export's size is what was promised, and an error says what there
//! is. DISCONNECT on the connection that began a run ends it: its memory is given back at once. Where
//! connections end without it the donor keeps the memory for its grace time.

use crate::proof::{Hexadecimal, Nonce, Proof, PublicKey, Purpose, RunKey};

/// Most bytes in a token, by which a ring's client names its run.
pub const MAX_TOKEN_BYTES: usize = 128;

/// Length of what a run's processes and its relay show each other, in bytes.
pub const SECRET_BYTES: usize = 32;

/// The donor's answer to a lane whose run it does not know: restarted, or the grace time is over.
pub const LOST: &str = "spillway:lost";

/// The donor's answer where there is nothing to drop.
pub const ABSENT: &str = "spillway:absent";

/// The donor's answer to a proof that is none, or a query of another version.
pub const REFUSED: &str = "spillway:refused";

const DROP: &str = "spillway:drop";
const STANDING: &str = "spillway:standing";
const RUNS: &str = "spillway:runs";
const DRAIN: &str = "spillway:drain";
const STAY: &str = "spillway:stay";
const CHALLENGE: &str = "spillway:challenge";
const RUN: &str = "spillway:run=";
const LANE: &str = "spillway:lane=";

/// A connection that says to belong to a run, and its proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The run's name at the donor.
    pub key: PublicKey,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The signature that shows it.
    pub proof: Proof,
}

impl Claim {
    /// The claim of a connection that was given `nonce`.
    #[must_use]
    pub fn new(key: &RunKey, nonce: Nonce, purpose: Purpose, export: &str) -> Self {
        Self { key: key.public(), purpose, proof: key.prove(nonce, purpose, export) }
    }

    /// Whether it is the run's, made for this nonce and export.
    #[must_use]
    pub fn holds(&self, nonce: Nonce, export: &str) -> bool {
        self.key.verifies(&self.proof, nonce, self.purpose, export)
    }
}

/// What a client asks a Spillway donor for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateQuery {
    /// What the client is to sign.
    Challenge,
    /// To belong to a run.
    Claim(Claim),
    /// Drop the named export.
    Drop,
    /// How the donor stands.
    Standing,
    /// What the donor has for each of its runs.
    Runs,
    /// To be drained from now on.
    Drain,
    /// To be drained no more.
    Stay,
    /// Of our namespace and not understood: a client of another version.
    Unknown,
}

impl PrivateQuery {
    /// Reads a query; `None` where it is not of our namespace.
    #[must_use]
    pub fn parse(query: &str) -> Option<Self> {
        if !query.starts_with("spillway:") {
            return None;
        }
        let known = match query {
            DROP => Some(Self::Drop),
            STANDING => Some(Self::Standing),
            RUNS => Some(Self::Runs),
            DRAIN => Some(Self::Drain),
            STAY => Some(Self::Stay),
            CHALLENGE => Some(Self::Challenge),
            _ => parse_claim(query).map(Self::Claim),
        };
        Some(known.unwrap_or(Self::Unknown))
    }

    /// The query as it is sent.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Challenge => CHALLENGE.to_owned(),
            Self::Drop => DROP.to_owned(),
            Self::Standing => STANDING.to_owned(),
            Self::Runs => RUNS.to_owned(),
            Self::Drain => DRAIN.to_owned(),
            Self::Stay => STAY.to_owned(),
            Self::Claim(Claim { key, purpose, proof }) => match purpose {
                Purpose::Run { size_bytes } => format!("{RUN}{},{size_bytes},{}", key.text(), proof.text()),
                Purpose::Lane => format!("{LANE}{},{}", key.text(), proof.text()),
            },
            Self::Unknown => REFUSED.to_owned(),
        }
    }
}

fn parse_claim(query: &str) -> Option<Claim> {
    let (key, purpose, proof) = if let Some(rest) = query.strip_prefix(RUN) {
        let (key, rest) = rest.split_once(',')?;
        let (size, proof) = rest.split_once(',')?;
        let size_bytes = size.parse().ok()?;
        // One number has one text, so that the answer is the question.
        (size == u64::to_string(&size_bytes)).then_some((key, Purpose::Run { size_bytes }, proof))?
    } else {
        let (key, proof) = query.strip_prefix(LANE)?.split_once(',')?;
        (key, Purpose::Lane, proof)
    };
    Some(Claim { key: PublicKey::from_text(key)?, purpose, proof: Proof::from_text(proof)? })
}

/// The donor's answer to [`PrivateQuery::Challenge`], as text.
#[must_use]
pub fn challenge_text(nonce: Nonce) -> String {
    format!("{CHALLENGE}={}", nonce.text())
}

/// Reads a donor's answer to [`PrivateQuery::Challenge`]; `None` where it is none.
#[must_use]
pub fn parse_challenge(context: &str) -> Option<Nonce> {
    Nonce::from_text(context.strip_prefix(CHALLENGE)?.strip_prefix('=')?)
}

/// What a donor is told of a run's token for the store of this URI: different for every store, so that two
/// ways to one donor do not share an export, and not to be turned back (BLAKE3 in its key derivation mode).
#[must_use]
pub fn derived_token(run_token: &str, uri: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("spillway private export of a store");
    // The length keeps token and URI apart.
    hasher.update(&(run_token.len() as u64).to_le_bytes());
    hasher.update(run_token.as_bytes());
    hasher.update(uri.as_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

/// By what the processes of a run and its relay for the store of this URI find and know each other: a name
/// that others cannot guess, and a secret for each side to show. The same in every process of the run (BLAKE3
/// in its key derivation mode).
#[must_use]
pub fn relay_secrets(run_token: &str, uri: &str) -> [[u8; SECRET_BYTES]; 3] {
    let mut hasher = blake3::Hasher::new_derive_key("spillway meeting of a run's processes and its relay");
    hasher.update(&(run_token.len() as u64).to_le_bytes());
    hasher.update(run_token.as_bytes());
    hasher.update(uri.as_bytes());
    let mut secrets = [[0; SECRET_BYTES]; 3];
    hasher.finalize_xof().fill(secrets.as_flattened_mut());
    secrets
}

/// Whether a token can be sent: letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_valid_token(token: &str) -> bool {
    (1..=MAX_TOKEN_BYTES).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_tokens_differ_by_run_and_store() {
        let token = derived_token("run", "nbd://a:1/");
        assert!(is_valid_token(&token) && !token.contains("run"));
        assert_eq!(token, derived_token("run", "nbd://a:1/"));
        for (run, uri) in
            [("ru", "nnbd://a:1/"), ("other", "nbd://a:1/"), ("run", "nbd://a:2/"), ("run", "shm:x")]
        {
            assert_ne!(token, derived_token(run, uri));
        }
    }

    #[test]
    fn queries_round_trip_and_others_are_not_ours() {
        let (key, nonce) = (RunKey::derive("run", "nbd://a:1/"), Nonce([3; 16]));
        for purpose in [Purpose::Run { size_bytes: 0 }, Purpose::Run { size_bytes: u64::MAX }, Purpose::Lane]
        {
            let claim = Claim::new(&key, nonce, purpose, "e");
            assert!(claim.holds(nonce, "e") && !claim.holds(nonce, "f"));
            let query = PrivateQuery::Claim(claim);
            assert_eq!(PrivateQuery::parse(&query.text()), Some(query));
        }
        use PrivateQuery::{Challenge, Drain, Drop, Runs, Standing, Stay};
        for query in [Challenge, Drop, Standing, Runs, Drain, Stay] {
            assert_eq!(PrivateQuery::parse(&query.text()), Some(query));
        }
        assert_eq!(parse_challenge(&challenge_text(nonce)), Some(nonce));
        for text in ["spillway:challenge", "spillway:challenge=", "spillway:lost", "base:allocation"] {
            assert_eq!(parse_challenge(text), None);
        }
        let claim = PrivateQuery::Claim(Claim::new(&key, nonce, Purpose::Run { size_bytes: 7 }, "e")).text();
        let odd = claim.replace(",7,", ",07,");
        // A query of ours that is not understood is not taken for somebody else's.
        for text in ["spillway:", "spillway:run=0123abcd", "spillway:lane=a b", "spillway:dropx", &odd] {
            assert_eq!(PrivateQuery::parse(text), Some(PrivateQuery::Unknown), "{text}");
        }
        for text in ["base:allocation", "spillwax:run=1", ""] {
            assert_eq!(PrivateQuery::parse(text), None, "{text}");
        }
    }
}
