//! Whether something that a policy does is worth it, found by doing it for a while and leaving it for a
//! while: what counts is how many accesses the program makes in the time of its cores, all costs included.
//!
//! A side is tried for some intervals, then the other, and the better one is kept. A trial that is plainly in
//! vain ends before its time. What trials have lost is counted, and no more of them are made than lose a small
//! share of the time; each makes the time until the next twice as long besides. What the other side came to is
//! kept in mind: where this one comes plainly below that, the other is tried at once. Where the program has
//! changed, trials begin anew.

/// Intervals that a side is looked at before it is compared.
const LOOK: u32 = 4;
/// By how many standard errors a side must be ahead to be kept.
const CERTAINTY: f64 = 2.0;
/// Most intervals between two trials.
const LONGEST_STAY: u32 = 1 << 16;
/// What trials may lose of the time, as a share.
const TRIAL_SHARE: f64 = 0.02;

/// Accesses, and the time of all cores that they were made in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Accesses that missed the caches.
    pub accesses: u64,
    /// Time by the number of cores, in nanoseconds.
    pub core_ns: u64,
}

impl Progress {
    /// Takes what more was seen in.
    pub(crate) fn add(&mut self, more: Self) {
        self.accesses += more.accesses;
        self.core_ns += more.core_ns;
    }

    fn rate(self) -> f64 {
        self.accesses as f64 / (self.core_ns as f64).max(1.0)
    }
}

/// How far the program came in the intervals of a side, with how much they differ.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Rates {
    fn note(&mut self, rate: f64) {
        self.count += 1.0;
        let before = rate - self.mean;
        self.mean += before / self.count;
        self.squares += before * (rate - self.mean);
    }

    /// The square of what the mean may be off by.
    fn error(self) -> f64 {
        self.variance() / self.count.max(1.0)
    }

    /// The square of how much one rate differs from the others.
    fn variance(self) -> f64 {
        self.squares / (self.count - 1.0).max(1.0)
    }

    /// Whether the program comes less far here than there, by more than chance makes of it, as far as the few
    /// rates of a trial tell: those that came before say how much rates differ.
    fn is_plainly_below(self, other: Self) -> bool {
        let error = other.variance() / self.count.max(1.0) + other.error();
        self.count >= 1.0 && other.mean - self.mean > CERTAINTY * error.sqrt()
    }

    /// Whether the program came further here, by more than chance makes of it.
    fn is_above(self, other: Self) -> bool {
        self.mean - other.mean > CERTAINTY * (self.error() + other.error()).sqrt()
    }
}

/// A side that is on or off, and what is known of the other.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    usual: bool,
    on: bool,
    /// Intervals after a change of sides that count for neither: what the other side left behind is still
    /// there.
    transition: u32,
    /// How many of these are still to come.
    settling: u32,
    here: Rates,
    /// Since sides were changed, or a side was kept.
    intervals: u32,
    /// What the other side came to before, while this one is on trial.
    there: Option<Rates>,
    /// What the other side came to when it was last looked at.
    other: Option<Rates>,
    /// Intervals that this side is kept before the other is tried again.
    stay: u32,
    /// What the program came to in an interval before the last trial.
    kept_rate: f64,
    /// What trials have lost so far, in intervals, and all intervals.
    lost: f64,
    all_intervals: f64,
}

impl Trial {
    /// Begins on its usual side; `transition` intervals after a change of sides count for neither.
    pub(crate) fn new(usual: bool, transition: u32) -> Self {
        Self {
            usual,
            on: usual,
            transition,
            settling: 0,
            here: Rates::default(),
            intervals: 0,
            there: None,
            other: None,
            stay: LOOK,
            kept_rate: 0.0,
            lost: 0.0,
            all_intervals: 0.0,
        }
    }

    /// Whether it is to be done at present.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether the other side is on trial at present.
    pub(crate) fn is_asking(&self) -> bool {
        self.there.is_some()
    }

    /// The program has changed: what was measured says nothing any more. A trial that this ends was in vain,
    /// so that a program which changes all the time is not one long trial.
    pub(crate) fn break_off(&mut self) {
        if self.is_asking() {
            self.change_sides(None);
            self.wait_longer();
        }
        (self.here, self.other, self.kept_rate) = (Rates::default(), None, 0.0);
    }

    /// As [`Self::break_off`], and the usual side is taken.
    pub(crate) fn begin_phase(&mut self) {
        self.break_off();
        if self.on != self.usual {
            self.change_sides(None);
        }
    }

    fn wait_longer(&mut self) {
        self.stay = self.stay.saturating_mul(2).min(LONGEST_STAY);
    }

    /// An interval is over. `other_may_pay` says whether the other side can be better at all.
    pub(crate) fn note(&mut self, progress: Progress, other_may_pay: bool) {
        if progress.core_ns == 0 {
            return;
        }
        let rate = progress.rate();
        (self.intervals, self.all_intervals) = (self.intervals + 1, self.all_intervals + 1.0);
        self.note_lost(rate);
        if self.settling > 0 {
            self.settling -= 1;
        } else {
            self.here.note(rate);
        }
        match self.there {
            Some(there) => self.compare(there),
            None if other_may_pay && self.is_due() => {
                let here = self.here;
                self.kept_rate = here.mean;
                self.change_sides(Some(here));
            }
            // What is held against the other side is of late.
            None if self.here.count >= f64::from(2 * LOOK) => self.here = Rates::default(),
            None => {}
        }
    }

    /// While the other side is on trial, and until what it left behind is gone, the program comes less far
    /// than it would have, or further.
    fn note_lost(&mut self, rate: f64) {
        if self.kept_rate > 0.0 && (self.is_asking() || self.settling > 0) {
            self.lost = (self.lost + 1.0 - rate / self.kept_rate).max(0.0);
        }
    }

    /// What this side comes to, on trial, against what the other came to before.
    fn compare(&mut self, there: Rates) {
        let looked = self.here.count >= f64::from(LOOK);
        if looked && self.here.is_above(there) {
            // It stays, and the other one is not asked again soon.
            (self.there, self.other) = (None, Some(there));
            self.wait_longer();
            (self.here, self.intervals) = (Rates::default(), 0);
        } else if looked || self.here.is_plainly_below(there) {
            // What was tried is no better than what was before.
            self.other = Some(self.here);
            self.change_sides(None);
            self.wait_longer();
        }
    }

    /// Whether the other side is to be tried: it is its turn, or it came further than this one comes now.
    fn is_due(&self) -> bool {
        let has_turn = self.intervals >= self.stay && self.lost <= TRIAL_SHARE * self.all_intervals;
        let has_lost_ground = self.other.is_some_and(|other| other.is_above(self.here));
        self.here.count >= f64::from(LOOK) && (has_turn || has_lost_ground)
    }

    fn change_sides(&mut self, there: Option<Rates>) {
        self.on = !self.on;
        self.there = there;
        self.settling = self.transition;
        (self.here, self.intervals) = (Rates::default(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals with so many accesses each while it is on and while it is off; how many of them it was on.
    fn intervals_on(trial: &mut Trial, intervals: u32, on: u64, off: u64) -> u32 {
        let mut were_on = 0;
        for _ in 0..intervals {
            were_on += u32::from(trial.is_on());
            let accesses = if trial.is_on() { on } else { off };
            trial.note(Progress { accesses, core_ns: 1000 }, true);
        }
        were_on
    }

    #[test]
    fn the_side_is_kept_on_which_the_program_comes_further() {
        for usual in [false, true] {
            for (on, off) in [(120, 100), (100, 120)] {
                let mut trial = Trial::new(usual, 1);
                let were_on = intervals_on(&mut trial, 1000, on, off);
                let better = if on > off { were_on } else { 1000 - were_on };
                assert!(better > 930, "{usual}, {on} and {off}: {better}");
            }
        }
    }

    #[test]
    fn a_side_that_cannot_pay_is_not_tried() {
        let mut trial = Trial::new(false, 1);
        for _ in 0..100 {
            trial.note(Progress { accesses: 10, core_ns: 1000 }, false);
            assert!(!trial.is_on());
        }
    }

    #[test]
    fn the_other_side_has_its_chance_again() {
        let mut trial = Trial::new(false, 1);
        intervals_on(&mut trial, 1000, 100, 120);
        assert_eq!(intervals_on(&mut trial, 20, 120, 100), 0, "it was settled");
        let stay = trial.stay;
        assert!(intervals_on(&mut trial, 2 * stay, 120, 100) > stay / 2);
    }

    #[test]
    fn a_program_that_changes_all_the_time_is_not_one_long_trial() {
        let mut trial = Trial::new(false, 1);
        let were_on = (0..1000).filter(|at| {
            if at % 7 == 0 {
                trial.begin_phase();
            }
            intervals_on(&mut trial, 1, 100, 100) > 0
        });
        assert!(were_on.count() < 70);
    }

    #[test]
    fn what_trials_lose_stays_a_small_share_of_the_time() {
        for (on, off) in [(50, 100), (90, 100), (99, 100)] {
            let mut trial = Trial::new(false, 2);
            let were_on = f64::from(intervals_on(&mut trial, 4000, on, off));
            let lost = were_on * (1.0 - on as f64 / off as f64);
            assert!(were_on > 0.0 && lost < 2.0 * TRIAL_SHARE * 4000.0, "{on} and {off}: {lost} intervals");
        }
    }

    #[test]
    fn a_side_that_falls_behind_what_the_other_came_to_is_left_at_once() {
        let mut trial = Trial::new(false, 2);
        intervals_on(&mut trial, 500, 120, 100);
        assert!(trial.is_on() && trial.stay > 32);
        let intervals = 4 * LOOK + 2 * trial.transition;
        let were_on = intervals_on(&mut trial, 200, 50, 100);
        assert!(were_on <= intervals, "{were_on} intervals on the worse side");
    }

    #[test]
    fn intervals_in_which_nothing_was_counted_prove_nothing() {
        let mut trial = Trial::new(false, 1);
        (0..100).for_each(|_| trial.note(Progress::default(), true));
        assert!(!trial.is_on());
    }
}
