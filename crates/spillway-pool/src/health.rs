//! What a donor's answers and its silence say of it. The supervisor asks each donor for a page all the time;
//! the time that answers take says how long silence is nothing unusual (as for TCP's retransmissions, RFC
//! 6298: mean and deviation).

use crate::planted::Planted;
use crate::words::Condition;

/// A read is not given up sooner than after so long: a thread that waits for a CPU is silent too.
pub const LEAST_SILENCE_US: u64 = 100_000;
/// Until there are answers to judge by.
pub const FIRST_SILENCE_US: u64 = 250_000;
/// Deviations beyond the mean that are still usual. TCP has 4, but resends at little cost.
const DEVIATIONS: u64 = 16;

/// What happened to a donor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It answered, after so long.
    Answer {
        /// From question to answer, in microseconds.
        took_us: u64,
    },
    /// It cannot be reached, or has left a question without an answer for as long as the run waits.
    Away,
    /// It is there and holds nothing of the run.
    Lost,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is as it was.
    Same,
    /// It may be used again.
    CameUp,
    /// It is not to be used.
    WentDown,
    /// What it held is gone: a new life begins.
    NewLife,
}

/// What is known of one donor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    mean_us: u64,
    deviation_us: u64,
    most_us: u64,
    bug: Planted,
}

impl Health {
    /// Of a donor of which silence is never borne for longer than `most_us`.
    #[must_use]
    pub fn new(most_us: u64) -> Self {
        Self { mean_us: 0, deviation_us: 0, most_us, bug: Planted::default() }
    }

    /// The same with a mistake in it, for the simulation to find.
    #[must_use]
    pub fn with_bug(self, bug: &'static str) -> Self {
        Self { bug: Planted(bug), ..self }
    }

    /// Hears of the donor, which the run takes for `known`.
    pub fn hear(&mut self, known: Condition, event: Event) -> Verdict {
        match event {
            Event::Answer { took_us } => {
                self.note(took_us);
                let is_well = known == Condition::Up
                    || (known == Condition::Suspect && self.bug.is("suspicion-kept"))
                    || (known == Condition::Down && self.bug.is("return-not-heard"));
                if is_well { Verdict::Same } else { Verdict::CameUp }
            }
            Event::Away if known == Condition::Down => Verdict::Same,
            Event::Away if known == Condition::Suspect && self.bug.is("suspect-never-dead") => Verdict::Same,
            Event::Away => Verdict::WentDown,
            Event::Lost if self.bug.is("loss-taken-for-absence") => self.hear(known, Event::Away),
            Event::Lost => Verdict::NewLife,
        }
    }

    fn note(&mut self, took_us: u64) {
        if self.mean_us > 0 && self.bug.is("first-answer-is-for-ever") {
            return;
        }
        if self.mean_us == 0 {
            (self.mean_us, self.deviation_us) = (took_us.max(1), took_us / 2);
            return;
        }
        self.deviation_us = (3 * self.deviation_us + self.mean_us.abs_diff(took_us)) / 4;
        self.mean_us = ((7 * self.mean_us + took_us) / 8).max(1);
    }

    /// How long its answers usually take, in microseconds; 0 before the first.
    #[must_use]
    pub fn usual_us(&self) -> u64 {
        self.mean_us
    }

    /// How long a read may be silent before the donor counts as one that has not answered.
    #[must_use]
    pub fn silence_us(&self) -> u64 {
        let usual = match self.mean_us {
            0 => FIRST_SILENCE_US,
            mean if self.bug.is("deviation-left-out") => mean,
            mean => mean + DEVIATIONS * self.deviation_us,
        };
        if self.bug.is("silence-without-bound") {
            return usual.max(LEAST_SILENCE_US);
        }
        usual.clamp(LEAST_SILENCE_US.min(self.most_us), self.most_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_donor_goes_comes_back_and_begins_anew_by_what_is_heard_of_it() {
        let mut health = Health::new(2_000_000);
        let answer = Event::Answer { took_us: 200 };
        assert_eq!(health.hear(Condition::Up, answer), Verdict::Same);
        assert_eq!(health.hear(Condition::Up, Event::Away), Verdict::WentDown);
        assert_eq!(health.hear(Condition::Down, Event::Away), Verdict::Same);
        assert_eq!(health.hear(Condition::Down, answer), Verdict::CameUp);
        assert_eq!(health.hear(Condition::Suspect, answer), Verdict::CameUp);
        assert_eq!(health.hear(Condition::Suspect, Event::Away), Verdict::WentDown);
        assert_eq!(health.hear(Condition::Down, Event::Lost), Verdict::NewLife);
    }

    #[test]
    fn a_slow_donor_is_waited_for_longer() {
        let (mut fast, mut slow) = (Health::new(2_000_000), Health::new(2_000_000));
        assert_eq!(fast.silence_us(), FIRST_SILENCE_US);
        for _ in 0..50 {
            fast.hear(Condition::Up, Event::Answer { took_us: 150 });
            slow.hear(Condition::Up, Event::Answer { took_us: 200_000 });
        }
        assert_eq!(fast.silence_us(), LEAST_SILENCE_US);
        assert!((200_000..1_000_000).contains(&slow.silence_us()), "{}", slow.silence_us());
    }

    proptest! {
        #[test]
        fn silence_is_borne_within_bounds(times in proptest::collection::vec(0..10_000_000_u64, 0..50)) {
            let mut health = Health::new(1_000_000);
            for took_us in times {
                health.hear(Condition::Up, Event::Answer { took_us });
                prop_assert!((LEAST_SILENCE_US..=1_000_000).contains(&health.silence_us()));
            }
        }
    }
}
