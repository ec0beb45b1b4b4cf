//! Random draws: all that a simulated world leaves to chance comes from one of these, so that a seed says
//! everything.

/// A sequence of draws that its seed determines (SplitMix64: Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut draws = Self(seed ^ 0x5EED_0F5B_111A_DA77);
        draws.word();
        draws
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// A number of a range with both ends.
    pub fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True once in `n` draws; never for 0.
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// An index of something with `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of several values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equally_and_stay_within_bounds() {
        let (mut one, mut other) = (Draws::new(7), Draws::new(7));
        for bound in 1..200 {
            let drawn = one.below(bound);
            assert!(drawn < bound);
            assert_eq!(drawn, other.below(bound));
        }
        assert_ne!(Draws::new(1).word(), Draws::new(2).word());
        assert!((0..100).all(|_| (3..=5).contains(&one.within(3..=5))));
        assert!(!one.one_in(0) && one.one_in(1));
        let hits = (0..10_000).filter(|_| one.one_in(10)).count();
        assert!((800..1200).contains(&hits), "{hits}");
    }
}
