//! How long a connection is tried for, and why it is wanted.

use std::time::{Duration, Instant};

use super::connection::{ConnectError, seconds};

/// Since when a connection is wanted, how long it is tried for, and what became of the one before.
pub(super) struct Effort {
    pub since: Instant,
    pub give_up_at: Instant,
    pub lost: Option<String>,
}

impl Effort {
    /// To be given up after so long.
    pub fn of(patience: Duration, lost: Option<String>) -> Self {
        let since = Instant::now();
        Self { since, give_up_at: since + patience, lost }
    }

    /// Why there is no connection, in words.
    pub fn reason(&self, error: &ConnectError) -> String {
        let seconds = seconds(self.since.elapsed());
        let first = self.lost.as_ref().map_or_else(String::new, |lost| format!("{lost}; then "));
        match error.is_final() {
            true => format!("{first}{error}"),
            false => format!("{first}no connection for {seconds} s: {error}"),
        }
    }
}
