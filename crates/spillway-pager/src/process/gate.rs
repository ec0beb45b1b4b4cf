//! Stops all of a process's paging for the moment of a fork.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::kernel::{Kernel, planted};

const FROZEN: u32 = 1 << 31;

/// Counts the threads at work; while frozen, none begins.
pub struct Gate(AtomicU32);

/// Work under way. Ends when dropped.
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// A gate that everybody may pass.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins a piece of work; `None` while frozen.
    #[must_use]
    pub fn enter(&self) -> Option<Pass<'_>> {
        let pass = Pass(self);
        if self.0.fetch_add(1, Ordering::AcqRel) & FROZEN != 0 {
            return None;
        }
        Some(pass)
    }

    /// Somebody else than the caller, who has a pass, is at work: a fault is being served, say.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.load(Ordering::Acquire) & !FROZEN > 1
    }

    /// Somebody wants all work to stop.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.0.load(Ordering::Acquire) & FROZEN != 0
    }

    /// Keeps new work out and waits for the end of what is under way. False, at once, when it is frozen
    /// already.
    #[must_use]
    pub fn freeze<K: Kernel>(&self) -> bool {
        if self.0.fetch_or(FROZEN, Ordering::AcqRel) & FROZEN != 0 {
            return false;
        }
        while self.0.load(Ordering::Acquire) != FROZEN && !planted!(K, "fork-amid-work") {
            K::sleep(Duration::from_micros(20));
        }
        true
    }

    /// Freezes a gate that a forked child has inherited, with the marks of threads that it has not got.
    pub fn freeze_alone(&self) {
        self.0.store(FROZEN, Ordering::Release);
    }

    /// Lets work begin again.
    pub fn thaw(&self) {
        self.0.fetch_and(!FROZEN, Ordering::AcqRel);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::live::LiveKernel;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn nobody_works_while_it_is_frozen() {
        let (gate, frozen, stop) = (Gate::new(), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        if let Some(_pass) = gate.enter() {
                            assert!(!frozen.load(Ordering::SeqCst));
                        }
                    }
                });
            }
            for _ in 0..200 {
                assert!(gate.freeze::<LiveKernel>());
                frozen.store(true, Ordering::SeqCst);
                assert!(gate.enter().is_none() && !gate.freeze::<LiveKernel>());
                frozen.store(false, Ordering::SeqCst);
                gate.thaw();
            }
            stop.store(true, Ordering::SeqCst);
        });
    }
}
