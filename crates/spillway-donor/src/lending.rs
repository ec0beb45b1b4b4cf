//! How much a donor lends at present, by how its machine is off for memory. No clock and no files: it is told
//! what there is, and says what may be promised and whether what it holds should go elsewhere.
//!
//! Others of its machine come first: so much memory stays free for them (`--keep-free`). What is available is
//! smoothed, so that a moment's peak moves nothing. Once it is below the floor the donor is *short*: it
//! promises nothing, and runs on pools move their pages away, until there is room again.

/// What is available counts by the last few seconds: the weight of what was before falls to 1/e in so many.
const SMOOTHED_MS: f64 = 2000.0;
/// No more than so many floors count for whether it is short: much that was there says nothing of what is.
const MOST_FLOORS: f64 = 4.0;
/// With so much of the floor left nothing is smoothed: the machine is about to run out.
const AT_ONCE_BELOW: f64 = 0.25;
/// Somebody waited for memory in so much of the last ten seconds: twice the floor is kept free then. Alone it
/// says nothing of this machine's memory, for who is at the limit of a control group waits too.
const STALLED_SHARE: f64 = 0.1;
/// Short no more with so many floors available, or what comes back would have it short at once.
const ENOUGH_FLOORS: f64 = 1.25;
/// Short for so long at least, and for twice as long each time that it is short again soon.
const LEAST_SHORT_MS: u64 = 5000;
const MOST_SHORT_MS: u64 = 320_000;
/// Soon: in so many times what it was short at least.
const SOON_TIMES: u64 = 12;

/// What there is at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, by a clock that only goes on, in milliseconds.
    pub now_ms: u64,
    /// Bytes that the machine, or the donor's control group, could still give. The donor's own are taken.
    pub available_bytes: u64,
    /// The share of the last ten seconds in which somebody waited for memory, 0 to 1.
    pub stalled_share: f64,
}

/// Says how much may be lent.
#[derive(Clone, Debug)]
pub struct Lending {
    keep_free_bytes: u64,
    seen: Option<Seen>,
    is_stalled: bool,
    short: Short,
}

/// What was available, in bytes.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ms: u64,
    last: f64,
    smoothed: f64,
    /// The same of no more than some floors.
    smoothed_low: f64,
}

#[derive(Clone, Copy, Debug)]
struct Short {
    is_short: bool,
    /// When it became so, or ceased to be so.
    since_ms: u64,
    /// For how long, at least.
    least_ms: u64,
}

impl Lending {
    /// So much is kept free; with 0 the donor lends all that it was told to.
    #[must_use]
    pub fn new(keep_free_bytes: u64) -> Self {
        let short = Short { is_short: false, since_ms: 0, least_ms: LEAST_SHORT_MS };
        Self { keep_free_bytes, seen: None, is_stalled: false, short }
    }

    /// Takes note of what there is. Whether it is short is told if that is new.
    pub fn note(&mut self, sample: Sample) -> Option<bool> {
        let smoothed = self.see(sample.now_ms, sample.available_bytes as f64);
        self.is_stalled = sample.stalled_share >= STALLED_SHARE;
        let (was_short, floor) = (self.short.is_short, self.floor());
        let is_short = match was_short {
            false => smoothed < floor,
            true => {
                let has_been_ms = sample.now_ms.saturating_sub(self.short.since_ms);
                smoothed < floor * ENOUGH_FLOORS || has_been_ms < self.short.least_ms
            }
        };
        if is_short == was_short {
            return None;
        }
        self.turn(is_short, sample.now_ms);
        Some(is_short)
    }

    /// What is available, smoothed, as far as it says whether the donor is short.
    fn see(&mut self, at_ms: u64, available: f64) -> f64 {
        let low = available.min(self.keep_free_bytes as f64 * MOST_FLOORS);
        let is_smoothed = available >= self.floor() * AT_ONCE_BELOW;
        let seen = match self.seen.filter(|_| is_smoothed) {
            Some(seen) => {
                let weight = (-(at_ms.saturating_sub(seen.at_ms) as f64) / SMOOTHED_MS).exp();
                let between = |old: f64, new: f64| old * weight + new * (1.0 - weight);
                let smoothed = between(seen.smoothed, available);
                Seen { at_ms, last: available, smoothed, smoothed_low: between(seen.smoothed_low, low) }
            }
            None => Seen { at_ms, last: available, smoothed: available, smoothed_low: low },
        };
        self.seen = Some(seen);
        seen.smoothed_low
    }

    fn turn(&mut self, is_short: bool, now_ms: u64) {
        let Short { since_ms, least_ms, .. } = self.short;
        let is_again_soon =
            since_ms > 0 && now_ms.saturating_sub(since_ms) < least_ms.saturating_mul(SOON_TIMES);
        let least_ms = match (is_short, is_again_soon) {
            (false, _) => least_ms,
            (true, true) => (2 * least_ms).min(MOST_SHORT_MS),
            (true, false) => LEAST_SHORT_MS,
        };
        self.short = Short { is_short, since_ms: now_ms.max(1), least_ms };
    }

    /// Bytes that are to stay free now.
    fn floor(&self) -> f64 {
        self.keep_free_bytes as f64 * if self.is_stalled { 2.0 } else { 1.0 }
    }

    /// Whether what the donor holds should go elsewhere.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short.is_short
    }

    /// Bytes that may be taken beside what is held now; `None` where there is no bound but what is lent.
    #[must_use]
    pub fn spare_bytes(&self) -> Option<u64> {
        let seen = self.seen.filter(|_| self.keep_free_bytes > 0)?;
        // What has come free is lent once it stays so; what is gone is not.
        let spare = seen.smoothed.min(seen.last) - self.floor();
        Some(if self.short.is_short { 0 } else { spare.max(0.0) as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn sample(now_ms: u64, available_mib: u64) -> Sample {
        Sample { now_ms, available_bytes: available_mib * MIB, stalled_share: 0.0 }
    }

    /// Samples twice a second, from `begin_ms` on, as long as `available_mib` gives some; the times at which
    /// it turned.
    fn turns(lending: &mut Lending, begin_ms: u64, available_mib: impl Iterator<Item = u64>) -> Vec<u64> {
        let times = (begin_ms..).step_by(500).zip(available_mib);
        times.filter_map(|(at, mib)| lending.note(sample(at, mib)).map(|_| at)).collect()
    }

    #[test]
    fn a_moments_peak_moves_nothing_and_what_lasts_does() {
        let mut lending = Lending::new(100 * MIB);
        assert_eq!(lending.spare_bytes(), None, "nothing is known yet");
        let peak = (0..20).map(|at| if at == 10 { 50 } else { 300 });
        assert!(turns(&mut lending, 1000, peak).is_empty());
        assert!((150 * MIB..=200 * MIB).contains(&lending.spare_bytes().unwrap()), "{lending:?}");
        let began = turns(&mut lending, 11_000, std::iter::repeat_n(50, 20));
        assert_eq!(began.len(), 1);
        assert!((12_500..=16_000).contains(&began[0]), "{began:?}");
        assert_eq!((lending.is_short(), lending.spare_bytes()), (true, Some(0)));
    }

    #[test]
    fn much_that_was_there_hides_nothing() {
        let mut lending = Lending::new(100 * MIB);
        lending.note(sample(1, 1 << 20));
        assert_eq!(lending.note(sample(501, 300)), None);
        assert_eq!(lending.spare_bytes(), Some(200 * MIB));
        let began = turns(&mut lending, 1001, std::iter::repeat_n(50, 20));
        assert!(began.len() == 1 && began[0] <= 6001, "{began:?}");
    }

    #[test]
    fn where_memory_is_about_to_run_out_it_is_short_at_once() {
        let mut lending = Lending::new(100 * MIB);
        assert_eq!(lending.note(sample(1000, 4000)), None);
        assert_eq!(lending.note(sample(1500, 20)), Some(true));
    }

    #[test]
    fn it_ends_with_room_and_each_time_later_where_it_goes_to_and_fro() {
        let mut lending = Lending::new(100 * MIB);
        lending.note(sample(1, 10));
        // Just above the floor is not enough; a quarter more is, after a while.
        assert!(turns(&mut lending, 500, std::iter::repeat_n(120, 100)).is_empty());
        let ended = turns(&mut lending, 50_500, std::iter::repeat_n(200, 10));
        assert_eq!(ended.len(), 1);
        let mut lasted = Vec::new();
        let mut now_ms = ended[0] + 500;
        for _ in 0..4 {
            assert_eq!(lending.note(sample(now_ms, 10)), Some(true));
            let ended = turns(&mut lending, now_ms + 500, std::iter::repeat_n(4000, 2000));
            lasted.push(ended[0] - now_ms);
            now_ms = ended[0] + 500;
        }
        assert_eq!(lasted, [10_000, 20_000, 40_000, 80_000]);
        // After a long time it begins anew.
        assert_eq!(lending.note(sample(now_ms + 10_000_000, 10)), Some(true));
        let ended = turns(&mut lending, now_ms + 10_000_500, std::iter::repeat_n(4000, 100));
        assert_eq!(ended, [now_ms + 10_005_000]);
    }

    #[test]
    fn who_waits_for_memory_has_twice_as_much_kept_free_and_nothing_more() {
        let stalled = |now_ms, available_mib| Sample { stalled_share: 0.5, ..sample(now_ms, available_mib) };
        let mut lending = Lending::new(100 * MIB);
        // At the limit of some control group, on a machine that has enough.
        assert_eq!(lending.note(stalled(1, 4000)), None);
        assert_eq!(lending.spare_bytes(), Some(3800 * MIB));
        let mut lending = Lending::new(100 * MIB);
        assert_eq!((lending.note(sample(1, 150)), lending.note(stalled(501, 150))), (None, Some(true)));
    }

    #[test]
    fn with_nothing_to_keep_free_all_is_lent() {
        let mut lending = Lending::new(0);
        assert_eq!(
            (lending.note(sample(1, 0)), lending.is_short(), lending.spare_bytes()),
            (None, false, None)
        );
    }

    proptest! {
        #[test]
        fn it_is_never_short_with_plenty_always_with_none_and_turns_seldom(
            available in prop::collection::vec(0_u64..400, 1..400),
        ) {
            let mut lending = Lending::new(100 * MIB);
            let mut last_turn: Option<(u64, bool)> = None;
            for (at, mib) in available.iter().enumerate() {
                let now_ms = 500 * at as u64;
                if let Some(is_short) = lending.note(sample(now_ms, *mib)) {
                    if let Some((turned_ms, true)) = last_turn {
                        prop_assert!(now_ms - turned_ms >= LEAST_SHORT_MS);
                    }
                    last_turn = Some((now_ms, is_short));
                }
                prop_assert!(*mib >= 25 || lending.is_short());
                prop_assert!(!lending.is_short() || lending.spare_bytes() == Some(0));
                prop_assert!(lending.spare_bytes().unwrap() <= 300 * MIB);
            }
        }
    }
}
