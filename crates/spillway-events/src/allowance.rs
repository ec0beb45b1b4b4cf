//! How many lines of one kind may be written: a client that knocks a thousand times a second fills no disk,
//! and hides nothing else.

use std::time::{Duration, Instant};

/// Lines of one kind that may follow each other at once.
pub(crate) const BURST: u32 = 20;
/// Then one comes in this time.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// What is left of it for one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    lines: u32,
    since: Option<Instant>,
    unwritten: u64,
}

impl Allowance {
    pub(crate) const WHOLE: Self = Self { lines: BURST, since: None, unwritten: 0 };

    /// Whether a line may be written now; then also how many were not since the last one.
    pub(crate) fn ask(&mut self, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let earned = now.saturating_duration_since(since).as_secs() / PAUSE.as_secs();
        if earned > 0 {
            self.lines = self.lines.saturating_add(earned.min(u64::from(BURST)) as u32).min(BURST);
            self.since = Some(now);
        }
        if self.lines == 0 {
            self.unwritten += 1;
            return None;
        }
        self.lines -= 1;
        Some(std::mem::take(&mut self.unwritten))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_a_burst_and_then_one_a_pause_and_what_was_left_out_is_counted() {
        let (mut allowance, now) = (Allowance::WHOLE, Instant::now());
        let written = (0..1000).filter(|_| allowance.ask(now).is_some()).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(allowance.ask(now + PAUSE), Some(980));
        assert_eq!(allowance.ask(now + PAUSE), None);
        assert_eq!(allowance.ask(now + PAUSE * 60), Some(1));
        assert_eq!((0..1000).filter(|_| allowance.ask(now + PAUSE * 60).is_some()).count(), 19);
    }
}
