//! What a run had counted at moments of its last minutes, for who asks what it did lately.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use spillway_snapshot::past::Past;

/// Time from one mark to the next.
const EVERY: Duration = Duration::from_secs(10);
/// Marks that are kept: of ten minutes, and of the one before.
const KEPT: usize = 61;

/// Marks, the oldest first.
pub struct Marks {
    marks: VecDeque<Past>,
    due: Option<Instant>,
}

impl Marks {
    /// None yet; never any where `can_be_made` is false.
    pub fn new(can_be_made: bool) -> Self {
        Self { marks: VecDeque::new(), due: can_be_made.then(Instant::now) }
    }

    /// How long until one is due; none where none will be.
    pub fn wait(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Makes one if it is due.
    pub fn go_on(&mut self, count: impl FnOnce() -> Option<Past>) {
        let now = Instant::now();
        if self.due.is_some_and(|due| due <= now) {
            self.due = Some(now + EVERY);
            count().into_iter().for_each(|past| self.keep(past));
        }
    }

    fn keep(&mut self, past: Past) {
        if self.marks.len() == KEPT {
            self.marks.pop_front();
        }
        self.marks.push_back(past);
    }

    /// The last one that is at least so old; none where it has not run so long, or that is forgotten.
    pub fn before(&self, now_s: f64, ago_s: u32) -> Option<&Past> {
        self.marks.iter().rev().find(|past| past.uptime_s + f64::from(ago_s) <= now_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_snapshot::snapshot::Faults;

    fn past(uptime_s: f64) -> Past {
        Past { uptime_s, lost_us: 0.0, faults: Faults::default(), returns: Vec::new(), held_bytes: None }
    }

    #[test]
    fn the_last_that_is_old_enough_is_told_and_what_is_older_than_ten_minutes_forgotten() {
        let mut marks = Marks::new(true);
        for at in 0..100 {
            marks.keep(past(f64::from(at) * 10.0));
        }
        let before = |now_s, ago_s| marks.before(now_s, ago_s).map(|past| past.uptime_s);
        assert_eq!(before(995.0, 60), Some(930.0));
        assert_eq!(before(995.0, 600), Some(390.0));
        assert_eq!((before(995.0, 640), before(385.0, 1), before(990.0, 0)), (None, None, Some(990.0)));
    }

    #[test]
    fn one_is_made_when_it_is_due_and_none_where_there_is_nothing_to_count() {
        let mut marks = Marks::new(true);
        assert_eq!(marks.wait(), Some(Duration::ZERO));
        for _ in 0..2 {
            marks.go_on(|| Some(past(1.0)));
        }
        assert_eq!(marks.marks.len(), 1);
        assert!(marks.wait().is_some_and(|wait| wait > EVERY / 2));
        let mut never = Marks::new(false);
        never.go_on(|| panic!("it is not due"));
        assert_eq!(never.wait(), None);
    }
}
