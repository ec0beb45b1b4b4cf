//! A connection of which a listener has a copy, so that what was sent by it can be waited for after this
//! process has ended.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Listener;

/// Says that the connection is not needed any more, when it is dropped.
pub(crate) struct KeptConnection {
    number: u64,
    listener: Listener,
}

impl KeptConnection {
    /// Has the listener keep a copy of a connection. `Err` where it cannot.
    pub(crate) fn new(listener: &Listener, connection: BorrowedFd<'_>) -> Result<Self, ()> {
        // Unique among those of a process, to whatever store.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        if !listener.keep(number, connection) {
            return Err(());
        }
        Ok(Self { number, listener: Listener::clone(listener) })
    }

    /// Leaves the copy where it is: what was sent may still be on its way.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for KeptConnection {
    fn drop(&mut self) {
        self.listener.let_go(self.number);
    }
}

impl std::fmt::Debug for KeptConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptConnection({})", self.number)
    }
}
