//! How many of the pages that come next on a tape are worth a fetch: as many as the thread's own faults have
//! proved.
//!
//! What was brought is mapped, and its use raises no fault. So the next fault tells. Behind all that was
//! brought, with nothing on the way that is far still: the thread follows the tape, and the window doubles.
//! Past pages that are far for the most part: it does not, and the window is halved, down to none. Off the
//! tape: nothing is fetched but the page, and after some such faults the thread counts as lost, until it
//! meets the tape again, wherever.

/// Pages that are asked for at a time, at most.
pub const MOST_ASKED_PAGES: usize = 63;
/// Faults off the tape after which a thread is looked for elsewhere.
const PATIENCE: u32 = 8;
/// Faults off the tape up to which it is looked for at each.
const SEARCHES: u32 = 8 * PATIENCE;
/// The window is counted in halves of a page, and begins with one: nothing is asked for by a single fault.
const LEAST_WINDOW: usize = 1;

/// How a fault lies to the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Where its thread is expected, or a little further.
    Next {
        /// Of the pages that were asked for last, those before this one.
        used: u64,
        /// Pages on the tape between the last fault and this, as far as they were looked at.
        passed: u64,
        /// Of these, those that are far still: nobody was there.
        passed_far: u64,
    },
    /// At another place, for the thread was lost.
    Elsewhere,
    /// Nowhere near where its thread is expected.
    Nowhere,
}

/// What one thread's faults have proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    halves: usize,
    /// Pages that were asked for last.
    asked: usize,
    /// Faults off the tape, one after the other.
    strays: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self { halves: LEAST_WINDOW, asked: 0, strays: PATIENCE }
    }
}

impl Window {
    /// The thread is not where it was on the tape any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.strays >= PATIENCE
    }

    /// It is to be looked for on all of the tape: at first at each of its faults, then at one in some, for
    /// that takes longer.
    #[must_use]
    pub fn is_looked_for(&self) -> bool {
        self.is_lost() && (self.strays < SEARCHES || self.strays.is_multiple_of(PATIENCE))
    }

    /// The thread has faulted. Returns how many pages are worth a fetch, at most `most`.
    pub fn fault(&mut self, met: Met, most: usize) -> usize {
        let most = most.min(MOST_ASKED_PAGES);
        match met {
            Met::Next { used, passed, passed_far } => {
                if 2 * passed_far > passed {
                    self.halves = (self.halves / 2).max(LEAST_WINDOW);
                } else if passed_far == 0 && used >= self.asked as u64 {
                    self.halves *= 2;
                }
                self.strays = 0;
            }
            Met::Elsewhere => {
                self.halves = LEAST_WINDOW;
                self.strays = 0;
            }
            Met::Nowhere => {
                self.strays = self.strays.wrapping_add(1).max(1);
                self.asked = 0;
                return 0;
            }
        }
        self.halves = self.halves.min((2 * most).max(LEAST_WINDOW));
        self.halves / 2
    }

    /// So many pages were asked for in the end.
    pub fn ask(&mut self, pages: usize) {
        self.asked = pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn next(used: usize, passed: u64, passed_far: u64) -> Met {
        Met::Next { used: used as u64, passed, passed_far }
    }

    fn followed(window: &mut Window, faults: usize, most: usize) -> Vec<usize> {
        let mut asked = 0;
        (0..faults)
            .map(|_| {
                asked = window.fault(next(asked, asked as u64, 0), most);
                window.ask(asked);
                asked
            })
            .collect()
    }

    #[test]
    fn a_thread_that_follows_the_tape_soon_gets_all_that_there_is_room_for() {
        let mut window = Window::default();
        assert!(window.is_lost());
        assert_eq!(window.fault(Met::Elsewhere, 63), 0);
        assert_eq!(followed(&mut window, 8, 63), [1, 2, 4, 8, 16, 32, 63, 63]);
        assert_eq!(followed(&mut window, 2, 9), [9, 9]);
    }

    #[test]
    fn one_that_passes_by_what_was_brought_gets_less_and_then_nothing() {
        let mut window = Window::default();
        window.fault(Met::Elsewhere, 63);
        followed(&mut window, 8, 63);
        let asked: Vec<usize> = (0..7).map(|_| window.fault(next(0, 4, 3), 63)).collect();
        assert_eq!(asked, [31, 15, 7, 3, 1, 0, 0]);
        assert_eq!(window.fault(next(0, 4, 2), 63), 0, "half of them tell nothing");
    }

    #[test]
    fn strays_get_nothing_and_in_the_end_the_thread_is_lost() {
        let mut window = Window::default();
        window.fault(Met::Elsewhere, 63);
        followed(&mut window, 8, 63);
        for _ in 0..PATIENCE {
            assert!(!window.is_lost());
            assert_eq!(window.fault(Met::Nowhere, 63), 0);
        }
        assert!(window.is_lost() && window.is_looked_for());
        let looked_for = (0..128).filter(|_| {
            window.fault(Met::Nowhere, 63);
            window.is_looked_for()
        });
        assert_eq!(looked_for.count(), 55 + 10, "at each up to the 63rd, at one in eight up to the 136th");
        assert_eq!(window.fault(Met::Elsewhere, 63), 0, "on a guess alone");
        assert!(!window.is_lost());
    }

    proptest! {
        #[test]
        fn never_more_than_there_is_room_for(
            faults in prop::collection::vec(
                (0_u8..4, any::<u32>(), any::<u32>(), any::<u32>(), 0_usize..80), 0..200,
            ),
        ) {
            let mut window = Window::default();
            for (kind, used, passed, passed_far, most) in faults {
                let met = match kind {
                    0 => Met::Elsewhere,
                    1 => Met::Nowhere,
                    _ => next(used as usize, passed.into(), passed_far.into()),
                };
                let pages = window.fault(met, most);
                prop_assert!(pages <= most.min(MOST_ASKED_PAGES));
                window.ask(pages);
            }
        }
    }
}
