//! For whom exports are opened, and on which terms.

use std::time::Duration;

use spillway_core::size::Size;

use crate::limits::Limits;

/// For whom an export is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visitor {
    /// Anybody, by the export's name alone.
    Anyone,
    /// A run that begins: its private export is made.
    Run {
        /// The run's name here.
        token: String,
        /// How much it may need, in bytes; 0 where it takes what there is.
        asked_bytes: u64,
    },
    /// A further connection of a run: its private export must still be there, because what the run has
    /// written would be lost otherwise.
    Lane(String),
}

impl Visitor {
    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Anyone => None,
            Self::Run { token, .. } | Self::Lane(token) => Some(token),
        }
    }
}

/// What a registry goes by.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long a private export outlives its run's last connection, where that was lost.
    pub grace: Duration,
    /// Most memory that one run is promised, and what one is promised that does not say what it may need.
    pub per_run: Option<Size>,
    /// Most memory that one client may have, promised to its runs or taken by its named exports.
    pub per_client: Option<Size>,
    /// Limits on exports and their clients.
    pub limits: Limits,
    /// What is kept free on the machine, for others.
    pub keep_free: Size,
}
