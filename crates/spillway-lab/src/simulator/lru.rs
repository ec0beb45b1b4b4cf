//! The ways of a set - of a cache, of a TLB - in the order of their use.
//!
//! Every simulated access asks for it, and which way is meant cannot be foretold: so nothing here branches.

/// An order of `WAYS` ways, at most 8: a byte each, the way used last in the lowest one. Bytes of no way are
/// 255.
#[derive(Clone, Copy)]
pub struct Order<const WAYS: usize>(u64);

const ONES: u64 = 0x0101_0101_0101_0101;

impl<const WAYS: usize> Default for Order<WAYS> {
    fn default() -> Self {
        const { assert!(WAYS <= 8 && WAYS.is_power_of_two()) };
        let unused = u64::MAX.checked_shl(8 * WAYS as u32).unwrap_or(0);
        Self(0x0706_0504_0302_0100 | unused)
    }
}

impl<const WAYS: usize> Order<WAYS> {
    /// The way that was not used for longest.
    #[inline(always)]
    pub fn oldest(self) -> usize {
        (self.0 >> (8 * (WAYS - 1))) as usize % WAYS
    }

    /// Notes that a way is used.
    #[inline(always)]
    pub fn note(&mut self, way: usize) {
        // Where the byte of this way is: the lowest one that is zero here.
        let difference = self.0 ^ (way as u64 * ONES);
        let zeros = difference.wrapping_sub(ONES) & !difference & (0x80 * ONES);
        let place = (zeros & zeros.wrapping_neg()) >> 7;
        let younger = place.wrapping_sub(1);
        let older = !(younger << 8 | 0xff);
        self.0 = self.0 & older | (self.0 & younger) << 8 | way as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn behaves_as_a_list<const WAYS: usize>(uses: &[usize]) {
        let mut order = Order::<WAYS>::default();
        let mut list: Vec<usize> = (0..WAYS).collect();
        for used in uses {
            let way = used % WAYS;
            order.note(way);
            list.retain(|other| *other != way);
            list.insert(0, way);
            assert_eq!(order.oldest(), list[WAYS - 1]);
        }
    }

    proptest! {
        #[test]
        fn an_order_behaves_as_a_list(uses in proptest::collection::vec(0_usize..8, 0..100)) {
            behaves_as_a_list::<8>(&uses);
            behaves_as_a_list::<4>(&uses);
            behaves_as_a_list::<1>(&uses);
        }
    }
}
