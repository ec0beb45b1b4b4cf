//! The locks of the kernel's swap path: page lists, swap map, swap cache. Whoever is in it keeps the others
//! waiting.
//!
//! Faults wait for faults. Background reclaim takes its turn with them page by page, so a fault never waits
//! for a whole batch of it: both go on at half speed while both want the lock.

/// The locks of one node, taken together.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwapLock {
    faults_ps: u64,
    reclaim_ps: u64,
    last_ps: u64,
}

impl SwapLock {
    /// Holds it for `hold_ps` from `now_ps` on, for a fault or for background reclaim. How long that waits.
    pub fn hold(&mut self, now_ps: u64, hold_ps: u64, is_fault: bool) -> u64 {
        self.pass(now_ps);
        if is_fault {
            let shared_ps = if self.reclaim_ps > 0 { 2 * hold_ps } else { hold_ps };
            self.faults_ps += shared_ps;
            self.faults_ps - hold_ps
        } else {
            self.reclaim_ps += hold_ps;
            self.reclaim_ps - hold_ps + self.faults_ps / 2
        }
    }

    /// Takes off what was done up to `now_ps`.
    fn pass(&mut self, now_ps: u64) {
        let elapsed_ps = now_ps.saturating_sub(self.last_ps);
        self.last_ps = self.last_ps.max(now_ps);
        let faults_ps = self.faults_ps.min(elapsed_ps);
        self.faults_ps -= faults_ps;
        // Where both wanted it, half of the faults' time was reclaim's.
        let for_reclaim_ps = if self.reclaim_ps > 0 { elapsed_ps - faults_ps / 2 } else { 0 };
        self.reclaim_ps = self.reclaim_ps.saturating_sub(for_reclaim_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_wait_for_those_before_them() {
        let mut lock = SwapLock::default();
        assert_eq!(lock.hold(0, 100, true), 0);
        assert_eq!(lock.hold(30, 100, true), 70);
        assert_eq!(lock.hold(1000, 100, true), 0);
    }

    #[test]
    fn a_fault_shares_with_reclaim_instead_of_waiting_for_all_of_it() {
        let mut lock = SwapLock::default();
        assert_eq!(lock.hold(0, 10_000, false), 0);
        assert_eq!(lock.hold(0, 100, true), 100, "twice its time, not 10,000");
        assert_eq!(lock.hold(20_000, 100, true), 0, "both are through");
    }
}
