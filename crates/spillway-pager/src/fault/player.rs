//! What is known of a thread that follows a tape. How that is done: [`crate::fault::taped`].

use spillway_policy::tape::Window;
use spillway_policy::tape::window::MOST_ASKED_PAGES;

/// A page's place on a tape: its run, and how far into that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) position: usize,
    pub(crate) within: u8,
}

/// What is known of one thread that follows a tape.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    pub(crate) window: Window,
    /// Behind the page that faulted last.
    pub(crate) next: Spot,
    /// Where the pages stand that were asked for last.
    pub(crate) asked: [Spot; MOST_ASKED_PAGES],
    pub(crate) count: usize,
}

impl Default for Player {
    fn default() -> Self {
        let asked = [Spot::default(); MOST_ASKED_PAGES];
        Self { window: Window::default(), next: Spot::default(), asked, count: 0 }
    }
}

impl Player {
    /// Of the pages that were asked for last, those that stand before a place.
    pub(crate) fn asked_before(&self, spot: Spot) -> usize {
        self.asked[..self.count].iter().take_while(|asked| **asked < spot).count()
    }
}
