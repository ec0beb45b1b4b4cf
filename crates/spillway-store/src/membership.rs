//! Who knows the donors of a pool that is named in etcd: something that the command brings. It runs in the
//! supervisor of a run alone, so what speaks with etcd is no part of what enters programs.

use std::sync::OnceLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_pool::new_donor::SPILL_DOMAIN;
use spillway_tls::KeyPrint;

use crate::spec::EtcdPool;

/// A donor as it is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Where it is reached, as `ADDRESS:PORT` in digits.
    pub address: String,
    /// The failure domain that it says to be in.
    pub domain: String,
    /// Its version of Spillway.
    pub version: String,
    /// Bytes that it lends in all.
    pub offered_bytes: u64,
    /// Bytes of them that nobody was promised when it last said so.
    pub free_bytes: u64,
    /// It is being drained, and takes no new run.
    pub is_draining: bool,
    /// By which key it is known where TLS is spoken, as a [`spillway_tls::KeyPrint`] is written; empty where
    /// it has none, or is of an earlier version.
    pub key: String,
}

impl Member {
    /// The key that it must show; `None` where its registration names none.
    ///
    /// # Errors
    /// It is named in a way that this version does not know, in words.
    pub(crate) fn expected_key(&self) -> Result<Option<KeyPrint>, String> {
        if self.key.is_empty() {
            return Ok(None);
        }
        self.key.parse().map(Some).map_err(|_| {
            format!(
                "its registration names its key as '{}', which this version of Spillway does not know: \
                 update it here",
                self.key
            )
        })
    }

    /// The number of a failure domain of this name: the same wherever it is asked for. Two names with one
    /// number only count as one domain.
    #[must_use]
    pub fn domain_number(&self) -> u32 {
        // FNV-1a, for it must be the same in every version.
        let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        self.domain.bytes().fold(0x811c_9dc5, hash).min(SPILL_DOMAIN - 1)
    }
}

/// A run as it is registered, in JSON: whose it is, and how its pages are. Fields that are not known are
/// those of a later version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunState {
    /// The host that it runs on.
    pub host: String,
    /// The command `spillway run` there.
    pub pid: u32,
    /// Its version of Spillway.
    pub version: String,
    /// How many copies of a page it wants.
    pub copies: usize,
    /// Bytes of pages that it has in the pool.
    pub stored_bytes: u64,
    /// Bytes of them that have fewer copies than it wants.
    pub endangered_bytes: u64,
    /// Bytes of them that no donor can give now.
    pub unreachable_bytes: u64,
    /// Bytes of pages that are to be copied still.
    pub left_bytes: u64,
    /// Bytes of pages that are in its last resort.
    pub spilled_bytes: u64,
    /// Bytes copied in the last second or so.
    pub copied_bytes_per_s: u64,
}

/// Where donors are registered, and runs.
pub trait Directory: Send {
    /// The donors that are registered now.
    ///
    /// # Errors
    /// Why that cannot be found out, in words.
    fn look(&mut self) -> Result<Vec<Member>, String>;

    /// Waits for donors that come, go or change after the last look, for so long at most; whether some have.
    /// What is not noticed so is found by the next look.
    fn await_change(&mut self, most: Duration) -> bool;

    /// Registers a run, or keeps it registered, as it is now. It is forgotten some seconds after the last
    /// call, and when the directory is dropped.
    ///
    /// # Errors
    /// Why that cannot be, in words.
    fn register(&mut self, run: &RunState) -> Result<(), String>;

    /// The runs that are registered now.
    ///
    /// # Errors
    /// Why that cannot be found out, in words.
    fn runs(&mut self) -> Result<Vec<RunState>, String>;
}

/// What opens a pool's directory, or says why that cannot be.
pub type Opener = fn(&EtcdPool) -> Result<Box<dyn Directory>, String>;

static OPENER: OnceLock<Opener> = OnceLock::new();

/// Says, once in a process, how directories are opened.
pub fn open_by(opener: Opener) {
    let _ = OPENER.set(opener);
}

/// The directory of a pool; `None` in a process that was not told how to open one.
pub(crate) fn open(pool: &EtcdPool) -> Option<Result<Box<dyn Directory>, String>> {
    OPENER.get().map(|opener| opener(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_expected_as_it_is_registered_and_one_of_another_kind_is_not_passed_over() {
        let member = |key: &str| Member { key: key.to_owned(), ..Member::default() };
        assert_eq!(member("").expected_key(), Ok(None), "of an earlier version, or without TLS");
        let key = KeyPrint::from_bytes([7; 32]);
        assert_eq!(member(&key.to_string()).expected_key(), Ok(Some(key)));
        for other in ["sha512:00", "sha256:07", "-"] {
            let reason = member(other).expected_key().unwrap_err();
            assert!(reason.contains(other) && reason.contains("update it"), "{reason}");
        }
    }
}
