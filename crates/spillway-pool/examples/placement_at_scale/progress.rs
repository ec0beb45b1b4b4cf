//! What is told while it takes long.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Tells on a terminal how far it is.
#[derive(Debug)]
pub struct Progress {
    is_terminal: bool,
    begun: Instant,
    told: Cell<Instant>,
}

const PATIENCE: Duration = Duration::from_secs(3);
const PERIOD: Duration = Duration::from_millis(200);

impl Progress {
    /// Of something that begins now.
    pub fn begin() -> Self {
        let now = Instant::now();
        Self { is_terminal: std::io::stderr().is_terminal(), begun: now, told: Cell::new(now) }
    }

    /// Shows how far it is, if it has taken a while.
    pub fn say(&self, text: impl Fn() -> String) {
        if self.is_terminal && self.begun.elapsed() > PATIENCE && self.told.get().elapsed() > PERIOD {
            self.told.set(Instant::now());
            eprint!("\r\x1b[K{}", text());
        }
    }

    /// Clears what was shown.
    pub fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
