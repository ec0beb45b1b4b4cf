//! Whether something that a policy does is worth it, found by doing it for a while and leaving it for a
//! while: what counts is how many accesses the program makes in the time of its cores, all costs included.
//!
//! A side is tried for some intervals, then the other, and the better one is kept. A trial that is plainly in
//! vain ends before its time. Each time that the other side was tried in vain it takes twice as long until it
//! is tried again, so a settled program pays next to nothing. Where the program has changed, trials begin
//! anew.

/// Intervals that a side is looked at before it is compared.
const LOOK: u32 = 4;
/// By how many standard errors a side must be ahead to be kept.
const CERTAINTY: f64 = 2.0;
/// Most intervals between two trials.
const LONGEST_STAY: u32 = 1 << 16;

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
    here: Rates,
    intervals: u32,
    /// What the other side came to.
    there: Option<Rates>,
    /// Intervals that this side is kept before the other is tried again.
    stay: u32,
}

impl Trial {
    /// Begins on its usual side; `transition` intervals after a change of sides count for neither.
    pub(crate) fn new(usual: bool, transition: u32) -> Self {
        Self { usual, on: usual, transition, here: Rates::default(), intervals: 0, there: None, stay: LOOK }
    }

    /// Whether it is to be done at present.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Whether the other side is on trial at present.
    pub(crate) fn is_asking(&self) -> bool {
        self.there.is_some()
    }

    /// The program has changed: what was measured says nothing any more, and its usual side is taken. A trial
    /// that this ends was in vain, so that a program which changes all the time is not one long trial.
    pub(crate) fn begin_phase(&mut self) {
        if self.is_asking() {
            self.change_sides(None);
            self.wait_longer();
        }
        if self.on != self.usual {
            (self.on, self.intervals) = (self.usual, 0);
        }
        self.here = Rates::default();
    }

    fn wait_longer(&mut self) {
        self.stay = self.stay.saturating_mul(2).min(LONGEST_STAY);
    }

    /// An interval is over. `other_may_pay` says whether the other side can be better at all.
    pub(crate) fn note(&mut self, progress: Progress, other_may_pay: bool) {
        if progress.core_ns == 0 {
            return;
        }
        self.intervals += 1;
        if self.intervals > self.transition || self.there.is_none() {
            self.here.note(progress.rate());
        }
        let looked = self.intervals >= LOOK + self.transition;
        match self.there {
            // What was tried is no better than what was before.
            Some(there) if looked && !self.here.is_above(there) || self.here.is_plainly_below(there) => {
                self.change_sides(None);
                self.wait_longer();
            }
            Some(_) if looked => {
                // It is, and stays; the other one is not asked again soon.
                self.there = None;
                self.wait_longer();
                (self.here, self.intervals) = (Rates::default(), 0);
            }
            None if self.intervals >= self.stay && self.here.count >= f64::from(LOOK) && other_may_pay => {
                let here = self.here;
                self.change_sides(Some(here));
            }
            // What is held against the other side is of late.
            None if self.here.count >= f64::from(2 * LOOK) => {
                self.here = Rates::default();
            }
            _ => {}
        }
    }

    fn change_sides(&mut self, there: Option<Rates>) {
        self.on = !self.on;
        self.there = there;
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
    fn intervals_in_which_nothing_was_counted_prove_nothing() {
        let mut trial = Trial::new(false, 1);
        (0..100).for_each(|_| trial.note(Progress::default(), true));
        assert!(!trial.is_on());
    }
}
