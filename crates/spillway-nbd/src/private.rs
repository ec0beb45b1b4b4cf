//! How a run keeps its export on a Spillway donor to itself: NBD's own extension mechanism, metadata contexts
//! of a namespace of ours. A server that is not ours answers with no such context, and gives the plain
//! export.
//!
//! In SET_META_CONTEXT for an export, a client may ask for
//!
//! | query | meaning | the donor's context |
//! |---|---|---|
//! | `spillway:run=TOKEN` | a run begins: make its private export | the same |
//! | `spillway:lane=TOKEN` | a further connection of the run | the same; [`LOST`] where its export is gone |
//! | `spillway:drop` | drop the named export with all it holds | the same; [`ABSENT`] where there is none |
//!
//! The context that comes back means yes, and the GO that follows opens the private export. TOKEN is
//! [`derived_token`]: a donor learns nothing by which it could pass for a process of the run.

/// Most bytes in a token.
pub const MAX_TOKEN_BYTES: usize = 128;

/// The donor's answer to a lane whose run it does not know: restarted, or the grace time is over.
pub const LOST: &str = "spillway:lost";

/// The donor's answer where there is nothing to drop.
pub const ABSENT: &str = "spillway:absent";

const DROP: &str = "spillway:drop";
const RUN: &str = "spillway:run=";
const LANE: &str = "spillway:lane=";

/// What a client asks a Spillway donor for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateQuery<'a> {
    /// A run with this token begins.
    Run(&'a str),
    /// A further connection of the run with this token.
    Lane(&'a str),
    /// Drop the named export.
    Drop,
}

impl<'a> PrivateQuery<'a> {
    /// Reads a query; `None` where it is not one of ours.
    #[must_use]
    pub fn parse(query: &'a str) -> Option<Self> {
        if query == DROP {
            return Some(Self::Drop);
        }
        let run = query.strip_prefix(RUN).map(Self::Run);
        let parsed = run.or_else(|| query.strip_prefix(LANE).map(Self::Lane))?;
        match parsed {
            Self::Run(token) | Self::Lane(token) if !is_valid_token(token) => None,
            _ => Some(parsed),
        }
    }

    /// The query as it is sent.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Run(token) => format!("{RUN}{token}"),
            Self::Lane(token) => format!("{LANE}{token}"),
            Self::Drop => DROP.to_owned(),
        }
    }
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
        for query in [PrivateQuery::Run("a-1_B."), PrivateQuery::Lane("x"), PrivateQuery::Drop] {
            assert_eq!(PrivateQuery::parse(&query.text()), Some(query));
        }
        let long = format!("spillway:run={}", "x".repeat(129));
        for text in
            ["base:allocation", "spillway:", "spillway:run=", "spillway:lane=a b", "spillway:dropx", &long]
        {
            assert_eq!(PrivateQuery::parse(text), None, "{text}");
        }
    }
}
