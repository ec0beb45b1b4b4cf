//! How often a page will be used, from what scans of accessed bits found before: learned while the program
//! runs, so that no threshold and no speed of forgetting is chosen.
//!
//! Each page has two moving averages of its bit, one that forgets within a few scans and one that does not.
//! A linear regression over all pages, renewed at every scan, says how well each foretells the next bit:
//! where use is as it was, the slow one has the weight; where it changes, the fast one; where it is by
//! chance alone, neither, and then no page is foretold to be used more than another. How long a difference
//! between pages lasts is measured likewise: by how often pages were used within some scans after a forecast,
//! for each use that it foretold, and by what it is still worth at the last of them.

use crate::machine::PageIndex;

/// What a new bit counts for in the fast average.
const FAST: f32 = 0.5;
/// And in the slow one, once that has seen enough scans.
const SLOW: f32 = 1.0 / 16.0;
/// How much of what was learned is left after a scan.
const KEPT: f64 = 0.85;
/// After so many scans a forecast is held against what came.
const LAG_SCANS: u32 = 5;
/// What a new measurement counts for in how long differences last.
const NEW_WEIGHT: f64 = 0.4;
/// Least and most of what is left of a difference, since what is measured has chance in it.
const LEFT: std::ops::RangeInclusive<f64> = 0.0..=0.98;
/// A forecast is worth this many intervals at least.
const LEAST_INTERVALS: f64 = 0.1;
/// Marks a page that had no forecast.
const NONE: f32 = -1.0;

/// Sums over pages and scans, for a regression on two averages.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    pages: f64,
    fast: f64,
    slow: f64,
    used: f64,
    fast_fast: f64,
    fast_slow: f64,
    slow_slow: f64,
    fast_used: f64,
    slow_used: f64,
}

impl Moments {
    fn forget(&mut self) {
        let sums = [
            &mut self.pages,
            &mut self.fast,
            &mut self.slow,
            &mut self.used,
            &mut self.fast_fast,
            &mut self.fast_slow,
            &mut self.slow_slow,
            &mut self.fast_used,
            &mut self.slow_used,
        ];
        sums.into_iter().for_each(|sum| *sum *= KEPT);
    }

    fn add(&mut self, fast: f64, slow: f64, used: f64) {
        self.pages += 1.0;
        self.fast += fast;
        self.slow += slow;
        self.used += used;
        self.fast_fast += fast * fast;
        self.fast_slow += fast * slow;
        self.slow_slow += slow * slow;
        self.fast_used += fast * used;
        self.slow_used += slow * used;
    }

    /// The weights that foretell best; none of them below nothing.
    fn solve(&self) -> Weights {
        if self.pages < 1.0 {
            return Weights::default();
        }
        let mean = |sum: f64| sum / self.pages;
        let centred = |product: f64, a: f64, b: f64| mean(product) - mean(a) * mean(b);
        // So little is added that it matters only where all pages are alike.
        const RIDGE: f64 = 1e-6;
        let fast_fast = centred(self.fast_fast, self.fast, self.fast) + RIDGE;
        let slow_slow = centred(self.slow_slow, self.slow, self.slow) + RIDGE;
        let fast_slow = centred(self.fast_slow, self.fast, self.slow);
        let fast_used = centred(self.fast_used, self.fast, self.used);
        let slow_used = centred(self.slow_used, self.slow, self.used);
        let determinant = fast_fast * slow_slow - fast_slow * fast_slow;
        let mut fast = (fast_used * slow_slow - slow_used * fast_slow) / determinant;
        let mut slow = (slow_used * fast_fast - fast_used * fast_slow) / determinant;
        if fast < 0.0 {
            (fast, slow) = (0.0, (slow_used / slow_slow).max(0.0));
        } else if slow < 0.0 {
            (fast, slow) = ((fast_used / fast_fast).max(0.0), 0.0);
        }
        let base = mean(self.used) - fast * mean(self.fast) - slow * mean(self.slow);
        Weights { base, fast, slow }
    }
}

/// What a forecast is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Weights {
    base: f64,
    fast: f64,
    slow: f64,
}

/// What is known of each page, and what has been learned of all.
pub struct Forecast {
    fast: Vec<f32>,
    slow: Vec<f32>,
    /// What was foretold when the forecast was made that is held against what came.
    foretold: Vec<f32>,
    foretold_at_ns: u64,
    /// How often each page was found in use since.
    found_since: Vec<u8>,
    scans_since: u32,
    /// Scans since the start, or since all was found changed.
    scans: u32,
    moments: Moments,
    weights: Weights,
    /// How long a difference between pages lasts.
    lasts_ns: f64,
    first_guess_ns: f64,
}

impl Forecast {
    /// Of `pages` pages; differences are taken to last for `first_guess_ns` until that is measured.
    #[must_use]
    pub fn new(pages: u32, first_guess_ns: f64) -> Self {
        let pages = pages as usize;
        Self {
            fast: vec![0.0; pages],
            slow: vec![0.0; pages],
            foretold: vec![NONE; pages],
            foretold_at_ns: 0,
            found_since: vec![0; pages],
            scans_since: 0,
            scans: 0,
            moments: Moments::default(),
            weights: Weights { base: 0.0, fast: 0.5, slow: 0.5 },
            lasts_ns: first_guess_ns,
            first_guess_ns,
        }
    }

    /// A scan has found these in use, of `pages` that lie anywhere.
    pub fn learn(&mut self, pages: &[PageIndex], used: &[bool], now_ns: u64) {
        self.moments.forget();
        let slow_weight = SLOW.max(1.0 / (self.scans + 1) as f32);
        for &page in pages {
            let at = page as usize;
            let bit = f32::from(u8::from(used[at]));
            self.found_since[at] += u8::from(used[at]);
            let (fast, slow) = (&mut self.fast[at], &mut self.slow[at]);
            if self.scans > 0 {
                self.moments.add(f64::from(*fast), f64::from(*slow), f64::from(bit));
            }
            *fast += FAST * (bit - *fast);
            *slow += slow_weight * (bit - *slow);
        }
        if self.scans > 0 {
            self.weights = self.moments.solve();
        }
        self.scans += 1;
        self.scans_since += 1;
        if self.scans_since >= LAG_SCANS {
            self.hold_against(pages, used, now_ns);
            self.note_foretold(pages, now_ns);
        }
    }

    /// What came, and what is left, of the differences that were foretold some scans ago.
    fn hold_against(&mut self, pages: &[PageIndex], used: &[bool], now_ns: u64) {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        let (mut last, mut last_product, mut all, mut all_product) = (0.0, 0.0, 0.0, 0.0);
        for &page in pages {
            let foretold = f64::from(self.foretold[page as usize]);
            if foretold < 0.0 {
                continue;
            }
            let bit = f64::from(u8::from(used[page as usize]));
            let found = f64::from(self.found_since[page as usize]);
            count += 1.0;
            sum += foretold;
            squares += foretold * foretold;
            last += bit;
            last_product += foretold * bit;
            all += found;
            all_product += foretold * found;
        }
        if count < 2.0 {
            return;
        }
        let mean = sum / count;
        let variance = squares / count - mean * mean;
        // Where pages were foretold to be alike nothing can be said of how long differences last.
        if variance < 1e-6 {
            return;
        }
        let slope = |product: f64, sum: f64| (product / count - mean * (sum / count)) / variance;
        let left = slope(last_product, last).clamp(*LEFT.start(), *LEFT.end());
        let kept = left.powf(1.0 / f64::from(LAG_SCANS));
        let later = left * kept / (1.0 - kept);
        let intervals = (slope(all_product, all) + later).max(LEAST_INTERVALS);
        let interval_ns = now_ns.saturating_sub(self.foretold_at_ns) as f64 / f64::from(LAG_SCANS);
        self.lasts_ns += NEW_WEIGHT * (intervals * interval_ns - self.lasts_ns);
    }

    fn note_foretold(&mut self, pages: &[PageIndex], now_ns: u64) {
        for &page in pages {
            self.foretold[page as usize] = self.uses(page) as f32;
        }
        self.found_since.fill(0);
        (self.foretold_at_ns, self.scans_since) = (now_ns, 0);
    }

    /// The chance that the next scan finds a page in use. A scan cannot tell how often it was, so pages that
    /// are in use all the time are alike.
    #[must_use]
    pub fn uses(&self, page: PageIndex) -> f64 {
        let Weights { base, fast, slow } = self.weights;
        let at = page as usize;
        let chance = base + fast * f64::from(self.fast[at]) + slow * f64::from(self.slow[at]);
        chance.clamp(0.0, 1.0)
    }

    /// How long a difference between pages lasts, in nanoseconds: as if it stayed whole for so long.
    #[must_use]
    pub fn lasts_ns(&self) -> f64 {
        self.lasts_ns
    }

    /// All is found changed: the slow average begins anew, and so does what was learned of how long
    /// differences last.
    pub fn begin_phase(&mut self) {
        self.scans = 1;
        self.moments = Moments::default();
        self.lasts_ns = self.lasts_ns.min(self.first_guess_ns);
        self.slow.copy_from_slice(&self.fast);
        self.foretold.fill(NONE);
        self.found_since.fill(0);
        self.scans_since = 0;
    }

    /// A page is gone: what comes to lie there is another one.
    pub fn forget(&mut self, page: PageIndex) {
        let at = page as usize;
        (self.fast[at], self.slow[at], self.foretold[at]) = (0.0, 0.0, NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 400;
    const SCAN_NS: u64 = 1000;

    struct Random(u64);

    impl Random {
        fn chance(&mut self, chance: f64) -> bool {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 11) as f64 / (1_u64 << 53) as f64) < chance
        }
    }

    /// Scans of pages that are in use by this chance; `chance` gets the scan and the page.
    fn scanned(scans: u32, chance: impl Fn(u32, u32) -> f64) -> Forecast {
        let mut random = Random(7);
        let mut forecast = Forecast::new(PAGES, 10.0 * SCAN_NS as f64);
        let pages: Vec<u32> = (0..PAGES).collect();
        for scan in 0..scans {
            let used: Vec<bool> = pages.iter().map(|&page| random.chance(chance(scan, page))).collect();
            forecast.learn(&pages, &used, u64::from(scan) * SCAN_NS);
        }
        forecast
    }

    fn mean_uses(forecast: &Forecast, pages: std::ops::Range<u32>) -> f64 {
        let count = f64::from(pages.end - pages.start);
        pages.map(|page| forecast.uses(page)).sum::<f64>() / count
    }

    #[test]
    fn pages_in_use_are_told_from_those_that_are_not_and_the_difference_lasts() {
        let forecast = scanned(40, |_, page| if page < 100 { 0.6 } else { 0.05 });
        let (hot, cold) = (mean_uses(&forecast, 0..100), mean_uses(&forecast, 100..PAGES));
        assert!(hot > 0.5 && cold < 0.15, "{hot} {cold}");
        assert!(forecast.lasts_ns() > 20.0 * SCAN_NS as f64, "{}", forecast.lasts_ns());
    }

    #[test]
    fn where_use_is_by_chance_no_page_is_foretold_to_be_used_more_than_another() {
        let forecast = scanned(40, |_, _| 0.3);
        let uses: Vec<f64> = (0..PAGES).map(|page| forecast.uses(page)).collect();
        let (least, most) = uses.iter().fold((f64::MAX, 0.0_f64), |(a, b), &u| (a.min(u), b.max(u)));
        assert!(most - least < 0.2, "{least} {most}");
    }

    #[test]
    fn where_the_hot_set_moves_differences_are_short_and_the_fast_average_has_the_weight() {
        // A tenth of the pages is in use, another one every third scan.
        let hot = |scan: u32, page: u32| if page / 40 == (scan / 3) % 10 { 0.9 } else { 0.02 };
        let forecast = scanned(60, hot);
        assert!(forecast.weights.fast > forecast.weights.slow, "{:?}", forecast.weights);
        assert!(forecast.lasts_ns() < 10.0 * SCAN_NS as f64, "{}", forecast.lasts_ns());
    }

    #[test]
    fn a_new_phase_is_learned_within_few_scans() {
        let mut random = Random(9);
        let mut forecast = scanned(40, |_, page| if page < 100 { 0.6 } else { 0.05 });
        forecast.begin_phase();
        let pages: Vec<u32> = (0..PAGES).collect();
        for scan in 40..48 {
            let hot = |page| if page >= 300 { 0.6 } else { 0.05 };
            let used: Vec<bool> = pages.iter().map(|&page| random.chance(hot(page))).collect();
            forecast.learn(&pages, &used, scan * SCAN_NS);
        }
        let (before, now) = (mean_uses(&forecast, 0..100), mean_uses(&forecast, 300..PAGES));
        assert!(now > 3.0 * before, "{before} {now}");
    }

    #[test]
    fn a_page_that_was_given_back_is_a_page_like_any_new_one() {
        let mut forecast = scanned(40, |_, page| if page < 100 { 0.6 } else { 0.05 });
        forecast.forget(0);
        assert!(forecast.uses(0) <= mean_uses(&forecast, 100..PAGES));
    }
}
