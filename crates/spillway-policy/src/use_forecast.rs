//! How soon a page will be used, by what came of the pages that had the same history ([`UseHistory`]) in this
//! program before. Nothing has to be chosen: whether use in the last scan counts more than use in many, and
//! what a newcomer counts, differs from program to program, and each scan tells.
//!
//! Each scan says of a page with one history whether it was used since the scan before. That share, of each
//! history, is the chance that a page is used before the next scan; where it is not, its history becomes
//! another, which has a chance of its own. So a history's value is what that chain of chances is worth,
//! [`LATER`] for each scan that goes by: 1 where the page is surely used at once, towards 0 where it is used
//! late or never. Pages of the least value leave first.
//!
//! What passes through in a stream ([`UseHistory::passes_through`]) is worth less, for it comes back with its
//! neighbours at once; and all of it is worth the same, so that it leaves in the order in which it came: what
//! would be kept of it lay all over the stream, and broke it.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::use_history::{HISTORIES, UNKNOWN, UseHistory};

/// What use one scan later is worth.
const LATER: f32 = 0.9;
/// What a scan counts after the next one: so about the last ten do.
const KEPT: f32 = 0.9;
/// Pages that a history is taken to have had before any was seen.
const PRIOR_PAGES: f32 = 4.0;
/// What it takes to bring a page back in a stream, as a share of what a page by itself takes.
const STREAM_SHARE: f32 = 0.25;
/// The value of a page that is surely used at once.
const HIGHEST: f32 = 250.0;

/// Above the value of every history, for what cannot leave.
pub const NEVER_TO_LEAVE: u8 = 251;

const _: () = assert!((HIGHEST as u8) < NEVER_TO_LEAVE && NEVER_TO_LEAVE < UNKNOWN);

/// What each history is worth: settled by who scans, read by who evicts. Until then all are worth the same.
pub struct UseValues([AtomicU8; HISTORIES]);

impl Default for UseValues {
    fn default() -> Self {
        Self([const { AtomicU8::new(0) }; HISTORIES])
    }
}

impl Clone for UseValues {
    fn clone(&self) -> Self {
        Self(std::array::from_fn(|index| AtomicU8::new(self.0[index].load(Ordering::Relaxed))))
    }
}

impl UseValues {
    /// How soon a page with this history is to be used: 0 for never, never [`UNKNOWN`].
    #[must_use]
    pub fn of(&self, history: UseHistory) -> u8 {
        self.0[history.index()].load(Ordering::Relaxed)
    }
}

/// Pages that scans found with each history, and of these those that were used. Takes no memory before the
/// first is noted.
#[derive(Clone, Default)]
pub struct UseForecast {
    counts: Vec<Counts>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    pages: f32,
    used: f32,
}

impl UseForecast {
    /// Notes what a scan found of a page. The first one since it came tells nothing of it.
    pub fn note(&mut self, history: UseHistory, accessed: bool) {
        if history.scans() == 0 {
            return;
        }
        self.counts.resize(HISTORIES, Counts::default());
        let counts = &mut self.counts[history.index()];
        counts.pages += 1.0;
        counts.used += f32::from(u8::from(accessed));
    }

    /// After a whole scan: what histories are worth from now on.
    pub fn settle(&mut self, values: &UseValues) {
        let mut worth = [0.0_f32; HISTORIES];
        UseHistory::all().for_each(|history| self.settle_chain(history, &mut worth));
        let streamed = self.worth_of_streams(&worth) * STREAM_SHARE;
        for history in UseHistory::all() {
            let worth = if history.passes_through() { streamed } else { worth[history.index()] };
            values.0[history.index()].store((worth * HIGHEST).max(1.0) as u8, Ordering::Relaxed);
        }
        for counts in &mut self.counts {
            (counts.pages, counts.used) = (counts.pages * KEPT, counts.used * KEPT);
        }
    }

    /// A page that is not used comes to a history that is followed by itself after as many scans as are
    /// remembered: from there back, each is worth what is known of the next.
    fn settle_chain(&self, history: UseHistory, worth: &mut [f32]) {
        let chance = self.chance(history);
        let unused = history.after_scan(false);
        if unused == history {
            worth[history.index()] = chance / (1.0 - LATER * (1.0 - chance));
            return;
        }
        if worth[unused.index()] == 0.0 {
            self.settle_chain(unused, worth);
        }
        let later = worth[unused.index()];
        worth[history.index()] =
            if history.scans() == 0 { later } else { chance + LATER * (1.0 - chance) * later };
    }

    /// What pages that pass through are worth on average, by themselves.
    fn worth_of_streams(&self, worth: &[f32]) -> f32 {
        let (mut pages, mut sum) = (PRIOR_PAGES, PRIOR_PAGES * worth[UseHistory::STREAMED.index()]);
        for history in UseHistory::all().filter(|history| history.passes_through()) {
            let counts = self.counts.get(history.index()).copied().unwrap_or_default();
            pages += counts.pages;
            sum += counts.pages * worth[history.index()];
        }
        sum / pages
    }

    /// That a page with this history is used before the next scan. Until pages tell: as often as it was.
    fn chance(&self, history: UseHistory) -> f32 {
        let before = (history.uses() as f32 + 0.5) / (history.scans() + 1) as f32;
        let Counts { pages, used } = self.counts.get(history.index()).copied().unwrap_or_default();
        (used + before * PRIOR_PAGES) / (pages + PRIOR_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// After these scans, and one before them, which tells nothing.
    fn after(scans: &[bool]) -> UseHistory {
        let seen = UseHistory::NEW.after_scan(true);
        scans.iter().fold(seen, |history, &accessed| history.after_scan(accessed))
    }

    /// Values after so many scans of pages that `is_used` tells of, by page and scan.
    fn learned(pages: usize, scans: usize, is_used: impl Fn(usize, usize) -> bool) -> UseValues {
        let (mut forecast, values) = (UseForecast::default(), UseValues::default());
        let mut histories = vec![UseHistory::NEW; pages];
        for scan in 0..scans {
            for (page, history) in histories.iter_mut().enumerate() {
                let accessed = is_used(page, scan);
                forecast.note(*history, accessed);
                *history = history.after_scan(accessed);
            }
            forecast.settle(&values);
        }
        values
    }

    #[test]
    fn before_anything_is_known_what_was_used_more_is_worth_more() {
        let values = UseValues::default();
        UseForecast::default().settle(&values);
        let histories = [after(&[false; 8]), after(&[true, false, false, false]), after(&[true; 7])];
        let [never, once, often] = histories.map(|history| values.of(history));
        assert!(never < once && once < often, "{never} {once} {often}");
    }

    #[test]
    fn where_memory_is_gone_over_in_rounds_what_was_used_last_is_worth_least() {
        // Each page is used in one scan of eight.
        let values = learned(800, 60, |page, scan| scan % 8 == page % 8);
        let used_ago = |scans: usize| {
            let history: Vec<bool> = (0..8).map(|scan| scan == 7 - scans).collect();
            values.of(after(&history))
        };
        assert!((0..7).all(|scans| used_ago(scans) < used_ago(scans + 1)), "{:?}", [0, 3, 7].map(used_ago));
    }

    #[test]
    fn where_use_stays_what_was_used_last_is_worth_most() {
        // What is used is so for twenty scans, and then no more.
        let values = learned(800, 60, |page, scan| (scan + page % 40) % 40 < 20);
        let lately = after(&[false, true, true, true, true, true, true, true]);
        let long_ago = after(&[true, true, true, true, false, false, false, false]);
        assert!(values.of(lately) > values.of(long_ago));
    }

    #[test]
    fn what_passes_through_in_streams_is_worth_the_same_and_little() {
        let (mut forecast, values) = (UseForecast::default(), UseValues::default());
        let used_once = UseHistory::STREAMED.after_scan(true).after_scan(true);
        let single = UseHistory::RETURNED.after_scan(true).after_scan(true);
        for _ in 0..20 {
            (0..100).for_each(|_| forecast.note(used_once, true));
            (0..100).for_each(|_| forecast.note(single, true));
            forecast.settle(&values);
        }
        let of_streams = values.of(used_once);
        assert_eq!(values.of(UseHistory::STREAMED), of_streams);
        assert!(2 * u32::from(of_streams) < u32::from(values.of(single)), "{of_streams}");
        assert!(values.of(used_once.after_scan(true)) > of_streams, "what is used again stays");
    }

    #[test]
    fn what_is_learned_is_forgotten_when_the_program_changes() {
        let (mut forecast, values) = (UseForecast::default(), UseValues::default());
        // Not used for as long as is remembered.
        let history = after(&[false; 8]);
        let mut scan = |accessed| {
            (0..100).for_each(|_| forecast.note(history, accessed));
            forecast.settle(&values);
            values.of(history)
        };
        let used = (0..20).map(|_| scan(true)).last().unwrap();
        let no_more = (0..30).map(|_| scan(false)).last().unwrap();
        assert!(used > 240 && no_more < used / 2, "{used} {no_more}");
    }

    proptest! {
        #[test]
        fn values_are_in_range_whatever_scans_find(
            found in prop::collection::vec((0..HISTORIES as u16, any::<bool>()), 0..2000),
            scans in 1_usize..5,
        ) {
            let (mut forecast, values) = (UseForecast::default(), UseValues::default());
            for _ in 0..scans {
                for (bits, accessed) in &found {
                    forecast.note(UseHistory::from_bits(*bits), *accessed);
                }
                forecast.settle(&values);
            }
            for history in UseHistory::all() {
                prop_assert!(values.of(history) < UNKNOWN);
                // Use now is worth no less than use later.
                prop_assert!(values.of(history) > 0);
            }
        }
    }
}
