//! The connections that a process has to a server, and what it means that a further one is refused.

use std::time::{Duration, Instant};

use super::connection::{ConnectError, Connection};

/// How long a server that has refused a connection is not asked for another while there are some: after it
/// did so once, which may be a bad moment of the network's, and after it did so again.
const SCARCE_ONCE: Duration = Duration::from_millis(250);
const SCARCE: Duration = Duration::from_secs(10);

/// What there is, and what became of attempts to have more.
#[derive(Default)]
pub(super) struct Holdings {
    /// Those that nobody has borrowed, and since when.
    pub idle: Vec<(Connection, Instant)>,
    /// Idle ones and borrowed ones.
    pub open: usize,
    /// Borrowed ones by which something was sent, and whose holders are elsewhere.
    pub parked: usize,
    /// How many borrowed ones were lost.
    losses: u64,
    /// How many were opened.
    openings: u64,
    /// Attempts that failed since one was opened.
    refusals_in_a_row: u32,
    /// The server has refused a further one: until then it is not asked again.
    scarce_until: Option<Instant>,
}

/// An attempt to connect failed. Where it was not the first in a row, and a connection that there was goes on
/// to answer while none is lost or opened, the server has no room for more; else the network had a bad
/// moment.
pub(super) struct Refusal {
    pub error: ConnectError,
    is_first: bool,
    /// Of the process when it happened, as [`Holdings`] counts them.
    losses: u64,
    openings: u64,
}

impl Holdings {
    /// Borrowed connections that come back once the server has answered, or was given up.
    pub fn busy(&self) -> usize {
        self.open.saturating_sub(self.idle.len() + self.parked)
    }

    /// The server is not to be asked for a further one now.
    pub fn is_scarce(&self) -> bool {
        self.scarce_until.is_some_and(|until| until > Instant::now())
    }

    /// A borrowed one is parked, or no more.
    pub fn park(&mut self, is_parked: bool) {
        self.parked = if is_parked { self.parked + 1 } else { self.parked.saturating_sub(1) };
    }

    /// There is one more.
    pub fn note_opened(&mut self) {
        self.open += 1;
        self.openings += 1;
        self.refusals_in_a_row = 0;
        self.scarce_until = None;
    }

    /// A borrowed one is of no more use.
    pub fn note_lost(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.losses += 1;
    }

    /// An attempt has failed. `None` where there is no other connection to wait for.
    pub fn note_refusal(&mut self, error: &ConnectError) -> Option<Refusal> {
        if self.open == 0 {
            return None;
        }
        self.refusals_in_a_row = self.refusals_in_a_row.saturating_add(1);
        let is_first = self.refusals_in_a_row == 1;
        self.scarce_until = Some(Instant::now() + if is_first { SCARCE_ONCE } else { SCARCE });
        let Self { losses, openings, .. } = *self;
        (self.busy() > 0).then(|| Refusal { error: error.clone(), is_first, losses, openings })
    }

    /// Whether this refusal says that the server has no room for more, now that a connection which was lent
    /// after it has answered.
    pub fn says_crowded(&self, refusal: &Refusal) -> bool {
        !refusal.is_first && (self.losses, self.openings) == (refusal.losses, refusal.openings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_two() -> Holdings {
        let mut holdings = Holdings::default();
        (0..2).for_each(|_| holdings.note_opened());
        holdings
    }

    fn refused(holdings: &mut Holdings) -> Refusal {
        holdings.note_refusal(&ConnectError::TurnedAway).expect("others are busy")
    }

    #[test]
    fn who_is_refused_twice_while_others_answer_is_at_a_server_without_room() {
        let mut holdings = with_two();
        let first = refused(&mut holdings);
        assert!(holdings.is_scarce() && !holdings.says_crowded(&first));
        let second = refused(&mut holdings);
        assert!(holdings.says_crowded(&second));
    }

    #[test]
    fn a_moment_in_which_connections_are_lost_or_opened_says_nothing_of_room() {
        let mut holdings = with_two();
        let before = [refused(&mut holdings), refused(&mut holdings)];
        holdings.note_lost();
        assert!(!holdings.says_crowded(&before[1]));
        let again = refused(&mut holdings);
        holdings.note_opened();
        assert!(!holdings.says_crowded(&again) && !holdings.is_scarce());
        let first = refused(&mut holdings);
        assert!(!holdings.says_crowded(&first), "the first since one was opened");
    }

    #[test]
    fn where_there_is_none_nobody_is_waited_for() {
        let mut holdings = Holdings::default();
        assert!(holdings.note_refusal(&ConnectError::TurnedAway).is_none() && !holdings.is_scarce());
        holdings.note_opened();
        holdings.park(true);
        assert!(holdings.note_refusal(&ConnectError::TurnedAway).is_none(), "all are parked");
        assert!(holdings.is_scarce());
    }
}
