//! Pages of whole rows of a slab, for who moves them. Of each row every part is read at most once, be it for
//! its own page or to decode others by; one page after the other would have the same parts read again and
//! again. Whoever moves pages knows by their checks alone that they are right.

use crate::slabs::slab::SlabSeen;
use crate::table::Table;
use crate::words::Condition;

/// What to read of one row. Parts are bits, from part 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowPlan {
    /// Which row it is.
    pub row: u16,
    /// Parts whose pages are wanted.
    pub wanted: u16,
    /// Parts that are read.
    pub read: u16,
    /// Parts that are decoded from those.
    pub decoded: u16,
    /// Parts whose page is zeros, which is known without a read.
    pub zeros: u16,
}

/// Which of so many parts are such.
fn parts_that(parts: usize, are: impl Fn(usize) -> bool) -> u16 {
    (0..parts).filter(|&part| are(part)).fold(0, |all, part| all | 1 << part)
}

impl RowPlan {
    /// For the wanted pages of a row of a slab that was seen so. Parts in `tried` are passed over, and so are
    /// those on donors that are down. What cannot be had is left out.
    #[must_use]
    pub fn new(table: &Table<'_>, (slab, seen): (u32, &SlabSeen), row: u16, wanted: u16, tried: u16) -> Self {
        let (data, parts) = (table.data_parts(), table.parts());
        let zeros = parts_that(data, |part| wanted >> part & 1 == 0 && table.check(slab, part, row) == 0);
        let condition = |part: usize| {
            let is_there = table.has_part(seen, part) || table.planted("earlier-part-gathered");
            let place = seen.places[part].filter(|_| is_there && tried >> part & 1 == 0)?;
            Some(table.donor(usize::from(place.donor)).condition).filter(|how| *how != Condition::Down)
        };
        let direct = parts_that(data, |part| wanted >> part & 1 == 1 && condition(part).is_some());
        let plan = Self { row, wanted, read: direct, decoded: 0, zeros };
        let lacking = wanted & !direct;
        if lacking == 0 {
            return plan;
        }
        let is_known = |part: usize| (direct | zeros) >> part & 1 == 1;
        let mut others: Vec<(Condition, usize)> = (0..parts)
            .filter(|&part| !is_known(part))
            .filter_map(|part| Some((condition(part)?, part)))
            .collect();
        others.sort_unstable();
        let needed = data.saturating_sub((direct | zeros).count_ones() as usize);
        if others.len() < needed {
            return plan;
        }
        let read = others.iter().take(needed).fold(direct, |all, (_, part)| all | 1 << part);
        Self { read, decoded: lacking, ..plan }
    }

    /// How many parts are read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.read.count_ones() as usize
    }

    /// The parts that are read, from the first on.
    pub fn parts(&self) -> impl Iterator<Item = usize> + use<> {
        let read = self.read;
        (0..u16::BITS as usize).filter(move |part| read >> part & 1 == 1)
    }

    /// The parts whose pages are had so, in their order.
    pub fn had(&self) -> impl Iterator<Item = usize> + use<> {
        let had = self.wanted & (self.read | self.decoded);
        (0..u16::BITS as usize).filter(move |part| had >> part & 1 == 1)
    }

    /// Whether some wanted page cannot be had so.
    #[must_use]
    pub fn lacks_some(&self) -> bool {
        self.wanted & !(self.read | self.decoded) != 0
    }

    /// The parts that donors gave wrong, a bit each, by what the pages of data parts hash to, those that were
    /// read and those that were decoded. None, where all pages are what was written.
    #[must_use]
    pub fn wrong_parts(&self, table: &Table<'_>, slab: u32, check_of: impl Fn(usize) -> u32) -> u16 {
        let data = table.data_parts();
        let is_wrong = |part: usize| check_of(part) != table.check(slab, part, self.row);
        let of = |parts: u16| parts_that(data, |part| parts >> part & 1 == 1 && is_wrong(part));
        if table.planted("gathered-unchecked") {
            return 0;
        }
        match (of(self.read), of(self.decoded)) {
            (0, 0) => 0,
            // The pages by which others were decoded are right, so some parity is not.
            (0, _) => self.parts().find(|part| *part >= data).map_or(self.decoded, |part| 1 << part),
            (wrong, _) => wrong,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::new_donor::NewDonor;
    use crate::slabs::append::{Append, Item, Step};
    use crate::slabs::room::Coding;
    use crate::table::{Terms, words_of};

    const SLOTS: u32 = 8;

    fn donors() -> Vec<NewDonor> {
        (0..6).map(|domain| NewDonor { capacity: 4, domain, text: String::new() }).collect()
    }

    fn terms() -> Terms {
        let coding = Coding { data: 4, parity: 2, slabs: 7, slots: SLOTS, rows: 4 };
        Terms { extents: 0, wanted: 6, least: 4, joining: 0, coding: Some(coding) }
    }

    /// Two rows full of pages, by one write, in slab 0.
    fn write_rows(table: &Table<'_>) {
        let items = (0..SLOTS).map(|slot| Item { slot, check: slot + 1, from: None }).collect();
        let mut append = Append::new(0, items, 7);
        loop {
            match append.step(table, &table.chooser()) {
                Step::Send(_) => {
                    let _ = append.sent(table, true, 0);
                }
                Step::Done(_) => return,
                Step::Again | Step::Pause => {}
            }
        }
    }

    #[test]
    fn each_part_of_a_row_is_read_once_and_none_that_is_not_needed() {
        let words: Vec<AtomicU64> = (0..words_of(&donors(), terms())).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors(), terms());
        write_rows(&table);
        let seen = table.see_slab(0);
        let plan = |wanted, tried| RowPlan::new(&table, (0, &seen), 1, wanted, tried);
        // All are there.
        let whole = plan(0b1111, 0);
        assert_eq!((whole.read, whole.decoded, whole.lacks_some()), (0b1111, 0, false));
        assert_eq!(plan(0b0100, 0).read, 0b0100);
        // Two of the four are not: the two others and both parts of parity say what they are.
        let two = plan(0b1111, 0b0011);
        assert_eq!((two.read, two.decoded, two.reads()), (0b11_1100, 0b0011, 4));
        assert_eq!(two.had().collect::<Vec<_>>(), [0, 1, 2, 3]);
        // One page is wanted that is not there: as many others as there are parts of data.
        assert_eq!((plan(0b0001, 0b0001).read, plan(0b0001, 0b0001).decoded), (0b1_1110, 0b0001));
        // Too few are left for those that are not there; the others are had all the same.
        let few = plan(0b1111, 0b1_0011);
        assert_eq!((few.read, few.decoded, few.lacks_some()), (0b1100, 0, true));
        // A donor that is down is not asked.
        let gone = seen.places[0].map(|place| usize::from(place.donor)).unwrap();
        table.complain(gone, table.donor(gone), Condition::Down, 1);
        assert_eq!((plan(0b1111, 0).read, plan(0b1111, 0).decoded), (0b1_1110, 0b0001));
    }

    #[test]
    fn a_part_that_came_wrong_is_named() {
        let words: Vec<AtomicU64> = (0..words_of(&donors(), terms())).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, &donors(), terms());
        write_rows(&table);
        let seen = table.see_slab(0);
        let right = |part: usize| table.check(0, part, 1);
        let plan = |tried| RowPlan::new(&table, (0, &seen), 1, 0b1111, tried);
        assert_eq!(plan(0).wrong_parts(&table, 0, right), 0);
        let but = |wrong: usize| move |part: usize| right(part) ^ u32::from(part == wrong);
        assert_eq!(plan(0).wrong_parts(&table, 0, but(2)), 0b0100);
        // What was decoded is wrong while all that was read of data is right: it is parity.
        assert_eq!(plan(0b0001).wrong_parts(&table, 0, but(0)), 0b1_0000);
        assert_eq!(plan(0b0001).wrong_parts(&table, 0, but(3)), 0b1000);
    }
}
