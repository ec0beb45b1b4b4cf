//! What is asked on a socket, and what comes back: a line of JSON each way.

use serde::{Deserialize, Serialize};

/// The request for a [`crate::snapshot::Snapshot`], as it goes over the socket.
pub const SNAPSHOT: &str = "\"snapshot\"\n";

/// What a run can be asked. Unknown requests are answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks for a [`crate::snapshot::Snapshot`].
    Snapshot,
    /// Asks a run why the pages of one of its processes are where they are.
    Explain {
        /// The process that is asked about, by number,
        process: u32,
        /// and the address of one of its pages, where one is meant.
        address: Option<u64>,
    },
    /// Asks a run for the [`crate::heat::HeatMap`] of one of its processes.
    Heat {
        /// The process, by number.
        process: u32,
    },
    /// Asks a run for what it had counted so long ago, a [`crate::past::Past`]: up to ten minutes, to ten
    /// seconds.
    Past {
        /// How long ago, in seconds.
        ago_s: u32,
    },
    /// Asks a run for its [`crate::sites::Sites`].
    Sites,
}

/// What comes back over the socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<T> {
    /// What was asked for.
    Ok(T),
    /// Why there is nothing to tell.
    Error(String),
}

impl<T: Serialize> Answer<T> {
    /// The answer as a line.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_else(|_| b"{\"error\":\"no answer\"}".to_vec());
        line.push(b'\n');
        line
    }
}
