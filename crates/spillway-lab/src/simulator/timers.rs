//! What happens at set times: a policy's timers, and windows of the access counters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The policy's timer of this number.
    Timer(u32),
    /// A window of the counters is over.
    Window,
}

/// The timers of one policy.
#[derive(Default)]
pub struct Timers {
    /// By time, then in the order in which they were set.
    due: BinaryHeap<Reverse<(u64, u64, Event)>>,
    set_so_far: u64,
    window_ps: u64,
}

impl Timers {
    fn push(&mut self, at_ps: u64, event: Event) {
        self.due.push(Reverse((at_ps, self.set_so_far, event)));
        self.set_so_far += 1;
    }

    /// Sets a timer of the policy to `at_ps`, in picoseconds.
    pub fn set(&mut self, timer: u32, at_ps: u64) {
        self.push(at_ps, Event::Timer(timer));
    }

    /// Ends a window every `window_ps` from `now_ps` on; 0 for no more.
    pub fn count_every(&mut self, window_ps: u64, now_ps: u64) {
        self.due.retain(|Reverse((_, _, event))| *event != Event::Window);
        self.window_ps = window_ps;
        self.next_window(now_ps);
    }

    /// Begins the next window.
    pub fn next_window(&mut self, now_ps: u64) {
        if self.window_ps > 0 {
            self.push(now_ps + self.window_ps, Event::Window);
        }
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_ps(&self) -> u64 {
        self.due.peek().map_or(u64::MAX, |Reverse((at_ps, _, _))| *at_ps)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        self.due.pop().map(|Reverse((at_ps, _, event))| (at_ps, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_setting() {
        let mut timers = Timers::default();
        timers.set(1, 50);
        timers.set(2, 30);
        timers.set(0, 50);
        timers.count_every(40, 0);
        timers.count_every(60, 0);
        let order: Vec<_> = std::iter::from_fn(|| timers.pop()).collect();
        let expected =
            [(30, Event::Timer(2)), (50, Event::Timer(1)), (50, Event::Timer(0)), (60, Event::Window)];
        assert_eq!(order, expected);
        assert_eq!(timers.next_ps(), u64::MAX);
    }
}
