//! Whether a thread uses what is asked for it, by samples: a page of a guess that is held back, so that its
//! use raises a fault. One that comes soon says that the guess was used where the page stands in it; one that
//! does not, that it was not.
//!
//! What the follower is told beside that is no measure: where two runs come by turns, or a run ends with what
//! was brought, the next fault is elsewhere though all of it was used.
//!
//! A thread that uses too little is expected and not served. Its guesses are sampled all the same: it is
//! served again once they come true.

/// How much a sample counts: the share is a mean of about so many.
const SAMPLES: u16 = 16;
/// Faults of the thread within which the page held back must come: a run that takes turns with others does.
/// Who is served has a page held back once in so many.
const SOON_FAULTS: u8 = 16;
/// The share of used pages, in parts of [`ALL`], below which a thread is served no longer.
const TOO_LITTLE: u16 = ALL / 4 * 3;
/// The share from which it is served again. More than the other: pages in much use come soon by chance.
const ENOUGH: u16 = ALL / 16 * 13;
/// The share where all is used.
const ALL: u16 = 1 << 12;

/// What is known of how much a thread uses.
#[derive(Clone, Debug)]
pub struct Trust {
    share: u16,
    is_served: bool,
    /// The page that is held back; 0 for none.
    held_back: u64,
    /// Faults that it may take to come, or before the next one is held back.
    faults_left: u8,
    /// Where in a guess the next sample is taken: each place in its turn.
    draw: usize,
}

impl Default for Trust {
    /// Trusted until it shows otherwise, which is soon: a process may have many threads that come and go.
    fn default() -> Self {
        Self { share: ENOUGH, is_served: true, held_back: 0, faults_left: 0, draw: 0 }
    }
}

impl Trust {
    /// Whether guesses are to be fetched.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.is_served
    }

    /// The thread has faulted on a page.
    pub fn fault(&mut self, page_number: u64) {
        let is_late = self.faults_left == 0;
        self.faults_left = self.faults_left.saturating_sub(1);
        let is_used = page_number == self.held_back;
        if self.held_back == 0 || !(is_used || is_late) {
            return;
        }
        self.held_back = 0;
        self.share -= self.share / SAMPLES;
        if is_used {
            self.share += ALL / SAMPLES;
        }
        self.is_served = self.share >= if self.is_served { TOO_LITTLE } else { ENOUGH };
    }

    /// The place in a guess of these pages whose page is to be held back now, if one is: the first that is
    /// far from where its turn is.
    pub fn hold_back(&mut self, guess: &[u64], mut is_far: impl FnMut(u64) -> bool) -> Option<usize> {
        let is_early = self.is_served && self.faults_left > 0;
        if self.held_back != 0 || is_early || guess.is_empty() {
            return None;
        }
        // A step that has no factor with the lengths of guesses.
        self.draw = self.draw.wrapping_add(7);
        let start = self.draw % guess.len();
        let place = (start..guess.len()).find(|&place| is_far(guess[place]))?;
        (self.held_back, self.faults_left) = (guess[place], SOON_FAULTS);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of guesses, of which one of `every` comes true.
    fn sampled(trust: &mut Trust, samples: usize, is_used: impl Fn(usize) -> bool) {
        let guess: Vec<u64> = (100..116).collect();
        for sample in 0..samples {
            let place = trust.hold_back(&guess, |_| true).unwrap();
            assert_eq!(trust.hold_back(&guess, |_| true), None, "one at a time");
            trust.fault(if is_used(sample) { guess[place] } else { 7 });
            (0..SOON_FAULTS).for_each(|_| trust.fault(7));
        }
    }

    #[test]
    fn who_uses_half_is_served_no_longer_until_nearly_all_is_used() {
        let mut trust = Trust::default();
        sampled(&mut trust, 1_000, |sample| sample % 10 != 9);
        assert!(trust.is_served());
        sampled(&mut trust, 100, |sample| sample % 2 == 0);
        assert!(!trust.is_served());
        sampled(&mut trust, 1_000, |sample| sample % 3 != 0);
        assert!(!trust.is_served());
        sampled(&mut trust, 100, |_| true);
        assert!(trust.is_served());
    }

    #[test]
    fn every_place_of_a_guess_has_its_turn_and_what_is_local_tells_nothing() {
        let guess: Vec<u64> = (100..116).collect();
        let mut trust = Trust::default();
        let mut places: Vec<usize> = (0..16)
            .filter_map(|_| {
                let place = trust.hold_back(&guess, |_| true)?;
                trust.fault(guess[place]);
                (0..SOON_FAULTS).for_each(|_| trust.fault(7));
                Some(place)
            })
            .collect();
        places.sort_unstable();
        assert_eq!(places, (0..16).collect::<Vec<_>>());
        assert_eq!(trust.hold_back(&guess, |_| false), None);
        assert_eq!(trust.hold_back(&[], |_| true), None);
    }
}
