//! Bars: slots into which a write is on its way, or may still come late. Nobody else writes there. Whoever
//! writes bars its slots and lifts that bar itself, unless it is killed, or leaves something on its way: then
//! the supervisor lifts the bar, once what was on its way has come or never comes.
//!
//! A bar that is found at two looks need not have stood all the time: one write may have ended and another
//! begun, which has just left something on its way. So a look marks the bars that it finds as *awaited*, and
//! who bars a slot takes that mark away first. What still has it was barred by nobody since.

use crate::MAX_COPIES;
use crate::bits::{BITS_WORDS, Bits};
use crate::table::{Table, Which};

const NONE: Bits = [0; BITS_WORDS];

fn both(one: &Bits, other: &Bits) -> Bits {
    std::array::from_fn(|at| one[at] & other[at])
}

impl Table<'_> {
    /// Marks these bars of an extent as awaited, and no others.
    fn await_bars(&self, extent: u32, bars: &Bits) {
        let _ = self.take_bits(extent, Which::Awaited);
        self.set_bits(extent, Which::Awaited, bars);
    }

    /// Lifts bars that are awaited. Whoever bars a slot anew meanwhile finds it barred in the end.
    fn lift_bars(&self, extent: u32, bars: &Bits) {
        self.clear_bits(extent, Which::Barred, bars);
        let awaited = self.take_bits(extent, Which::Awaited);
        let anew = std::array::from_fn(|at| bars[at] & !awaited[at]);
        self.set_bits(extent, Which::Barred, &anew);
    }
}

/// What the supervisor knows of bars: since when those are awaited that are, by extent; 0 where none is.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    since_ms: Vec<u64>,
}

impl Bars {
    /// Lifts bars that have stood for so long, while all donors of the extent's copies were `steady`. A
    /// process that still writes there, stopped for instance, holds the slot, so nobody else does.
    pub(crate) fn look(&mut self, table: &Table<'_>, steady: &[bool], now_ms: u64, patience_ms: u64) {
        self.since_ms.resize(table.extents() as usize, 0);
        for extent in 0..table.extents() {
            let since_ms = &mut self.since_ms[extent as usize];
            let barred = table.bits(extent, Which::Barred);
            let standing = both(&barred, &table.bits(extent, Which::Awaited));
            let seen = table.snapshot(extent);
            let whole = (0..MAX_COPIES).filter(|&copy| table.is_whole(&seen, copy));
            // A donor that has joined since the look began comes with the next.
            let is_steady = |donor: usize| steady.get(donor).copied().unwrap_or(false);
            let is_well =
                whole.filter_map(|copy| seen.places[copy]).all(|place| is_steady(usize::from(place.donor)));
            if *since_ms == 0 || standing == NONE || !is_well {
                table.await_bars(extent, &barred);
                *since_ms = if barred == NONE { 0 } else { now_ms.max(1) };
            } else if now_ms.saturating_sub(*since_ms) >= patience_ms {
                table.lift_bars(extent, &standing);
                *since_ms = 0;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::bits::{bits_of, slots_of};
    use crate::new_donor::NewDonor;
    use crate::table::{Terms, words_of};

    const PATIENCE_MS: u64 = 30;

    fn words() -> Vec<AtomicU64> {
        let donors = [NewDonor { capacity: 1, domain: 0, text: String::new() }];
        let terms = Terms { extents: 1, wanted: 1, least: 1, joining: 0, coding: None };
        let words: Vec<AtomicU64> = (0..words_of(&donors, terms)).map(|_| AtomicU64::new(0)).collect();
        let _ = Table::create(&words, &donors, terms);
        words
    }

    fn barred_after_looks_at<const N: usize>(
        table: &Table<'_>,
        bars: &mut Bars,
        at_ms: [u64; N],
    ) -> Vec<u32> {
        at_ms.into_iter().for_each(|now_ms| bars.look(table, &[true], now_ms, PATIENCE_MS));
        slots_of(&table.bits(0, Which::Barred)).collect()
    }

    #[test]
    fn a_bar_that_nobody_lifts_is_lifted_once_nothing_comes_late_any_more() {
        let words = words();
        let (table, mut bars) = (Table::known(&words), Bars::default());
        table.set_bits(0, Which::Barred, &bits_of([3]));
        assert_eq!(barred_after_looks_at(&table, &mut bars, [10, 39]), [3]);
        assert!(barred_after_looks_at(&table, &mut bars, [40]).is_empty());
    }

    #[test]
    fn a_bar_of_a_later_write_does_not_count_as_the_earlier_one_that_was_found_there() {
        let words = words();
        let (table, mut bars) = (Table::known(&words), Bars::default());
        let barred = bits_of([3]);
        table.set_bits(0, Which::Barred, &barred);
        assert_eq!(barred_after_looks_at(&table, &mut bars, [10]), [3]);
        // That write has ended, and another was left amid its way just now.
        table.clear_bits(0, Which::Barred, &barred);
        table.set_bits(0, Which::Barred, &barred);
        assert_eq!(barred_after_looks_at(&table, &mut bars, [50, 79]), [3]);
        assert!(barred_after_looks_at(&table, &mut bars, [80]).is_empty());
    }

    #[test]
    fn no_bar_is_lifted_for_an_earlier_supervisors_look() {
        let words = words();
        let (table, mut first) = (Table::known(&words), Bars::default());
        table.set_bits(0, Which::Barred, &bits_of([3]));
        assert_eq!(barred_after_looks_at(&table, &mut first, [10]), [3]);
        let mut next = Bars::default();
        assert_eq!(barred_after_looks_at(&table, &mut next, [50, 79]), [3]);
        assert!(barred_after_looks_at(&table, &mut next, [80]).is_empty());
    }
}
