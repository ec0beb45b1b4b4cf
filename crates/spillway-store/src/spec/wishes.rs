//! What a store's URI says beside where the store is: about other runs, and about waiting.

use std::fmt;
use std::time::Duration;

/// What a run does about others that may use the same export (`?claim=CLAIM`). An export that a Spillway
/// donor makes for the run is the run's own, and is not claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// `free`: the export is claimed, and one that another run has claimed is refused.
    #[default]
    Free,
    /// `take`: the export is claimed, whoever had it before.
    Take,
    /// `none`: nothing is written or looked at. Whoever uses the export beside the run destroys its pages.
    None,
}

impl Claim {
    const NAMES: [(&'static str, Self); 3] =
        [("free", Self::Free), ("take", Self::Take), ("none", Self::None)];

    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, claim)| *claim)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, claim)| claim == self).map_or("free", |(name, _)| name);
        f.write_str(name)
    }
}

/// How long a client waits for its server before it gives the store up. Counted in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest wait for the answer of a server that is connected (`?timeout=SECONDS`).
    pub timeout: Duration,
    /// Longest time to try to connect again once the connection is lost (`?reconnect=SECONDS`).
    pub reconnect: Duration,
}

impl Patience {
    /// For what is done at the end and must not take long.
    pub const HURRY: Self = Self { timeout: Duration::from_secs(1), reconnect: Duration::ZERO };
}

impl Default for Patience {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), reconnect: Duration::from_secs(10) }
    }
}
