//! Random numbers for workloads: the same on every machine, so without the platform's floating-point
//! functions.

use rand::SeedableRng;
use rand_distr::weighted::WeightedAliasIndex;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator that workloads use.
pub type WorkloadRng = Xoshiro256PlusPlus;

/// A generator for one use (`stream`) of a seed.
pub fn rng(seed: u64, stream: u64) -> WorkloadRng {
    WorkloadRng::seed_from_u64(mix(seed) ^ mix(stream.wrapping_add(1)))
}

/// Scrambles a number: equal inputs give equal outputs, similar ones give unrelated ones (SplitMix64's
/// finaliser).
#[inline]
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Ranks 0 to n - 1, rank r in proportion to (r + 1)^-exponent. None for no ranks or an exponent that is no
/// number.
pub fn zipf(ranks: usize, exponent: f64) -> Option<WeightedAliasIndex<f64>> {
    let weights = (1..=ranks).map(|rank| libm::pow(rank as f64, -exponent)).collect();
    WeightedAliasIndex::new(weights).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| rng(seed, stream).random::<u64>();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(1, 2), draw(1, 3));
    }

    #[test]
    fn zipf_halves_from_first_to_second() {
        let ranks = zipf(1000, 1.0).unwrap();
        let mut rng = rng(1, 0);
        let mut counts = [0u32; 1000];
        for _ in 0..200_000 {
            counts[rng.sample(&ranks)] += 1;
        }
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
        assert!(zipf(0, 1.0).is_none());
    }
}
