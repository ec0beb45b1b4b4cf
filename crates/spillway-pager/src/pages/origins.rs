//! Where pages come from: the mapping in which each was born, and how far from its start. That is the same in
//! each run of a program, whatever its addresses are.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use spillway_policy::tape::Name;

/// Part of a mapping that is there, by its first page number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    end: u64,
    mapping: u32,
    /// How far from the mapping's start the part begins.
    offset: u64,
    /// What comes right behind it belongs to it: the heap.
    grows: bool,
}

/// Where each mapping lies that has a number. Ranges are of page numbers.
#[derive(Debug, Default)]
pub struct Origins {
    parts: BTreeMap<u64, Part>,
    born: HashMap<u64, u64>,
}

/// Where a page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The number of its mapping.
    pub mapping: u32,
    /// The page, from the mapping's start.
    pub page: u32,
    /// Pages of the mapping from there on that lie one behind the other.
    pub pages: u64,
}

impl Origins {
    /// The name of a mapping that is new, and whether `range` goes on with one that is there (then it is part
    /// of that, and has no name). Whoever has the name knows the number for [`Self::put`].
    pub fn born(&mut self, range: &Range<u64>) -> Option<Name> {
        self.died(range);
        let before = self.parts.range_mut(..range.start).next_back();
        if let Some((_, part)) = before.filter(|(_, part)| part.grows && part.end == range.start) {
            part.end = range.end;
            return None;
        }
        let pages = range.end - range.start;
        let ordinal = self.born.entry(pages).or_insert(0);
        *ordinal += 1;
        Name::new(pages, *ordinal - 1)
    }

    /// A mapping has a number.
    pub fn put(&mut self, range: &Range<u64>, mapping: u32, grows: bool) {
        self.parts.insert(range.start, Part { end: range.end, mapping, offset: 0, grows });
    }

    /// Pages of a range are there no more.
    pub fn died(&mut self, range: &Range<u64>) {
        self.take(range);
    }

    /// The mapping that holds a page ends elsewhere now.
    pub fn grown(&mut self, page_number: u64, end: u64) {
        let found = self.parts.range_mut(..=page_number).next_back();
        if let Some((_, part)) = found.filter(|(_, part)| page_number < part.end) {
            part.end = part.end.max(end);
        }
    }

    /// Pages lie elsewhere now; what of `to` is longer belongs to them.
    pub fn moved(&mut self, from: &Range<u64>, to: &Range<u64>) {
        let moved = self.take(from);
        self.died(to);
        let last = moved.len().saturating_sub(1);
        for (i, (start, part)) in moved.into_iter().enumerate() {
            let place = |page: u64| (page - from.start + to.start).min(to.end);
            let end = if i == last { to.end } else { place(part.end) };
            if place(start) < end {
                self.parts.insert(place(start), Part { end, ..part });
            }
        }
    }

    /// Where a page comes from.
    #[must_use]
    pub fn of(&self, page_number: u64) -> Option<Origin> {
        let (start, part) = self.parts.range(..=page_number).next_back()?;
        let page = u32::try_from(page_number - start + part.offset).ok()?;
        (page_number < part.end).then(|| Origin {
            mapping: part.mapping,
            page,
            pages: part.end - page_number,
        })
    }

    /// The page numbers at which mappings begin, as far as they are there: a page's number less how far it is
    /// from the start.
    pub fn starts(&self, within: &Range<u64>) -> impl Iterator<Item = (u32, u64)> {
        let parts = self.parts.range(within.clone());
        parts.filter_map(|(start, part)| Some((part.mapping, start.checked_sub(part.offset)?)))
    }

    fn take(&mut self, range: &Range<u64>) -> Vec<(u64, Part)> {
        let first = self.parts.range(..range.start).next_back().map(|(&start, _)| start);
        let starts: Vec<u64> =
            first.into_iter().chain(self.parts.range(range.clone()).map(|(&start, _)| start)).collect();
        let mut taken = Vec::new();
        for start in starts {
            let Some(part) = self.parts.get(&start).copied().filter(|part| part.end > range.start) else {
                continue;
            };
            self.parts.remove(&start);
            let cut = |at: u64| Part { offset: part.offset + (at - start), ..part };
            if start < range.start {
                self.parts.insert(start, Part { end: range.start, grows: false, ..part });
            }
            if part.end > range.end {
                self.parts.insert(range.end, cut(range.end));
            }
            let from = start.max(range.start);
            taken.push((from, Part { end: part.end.min(range.end), ..cut(from) }));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn born(origins: &mut Origins, range: Range<u64>, number: u32, grows: bool) -> Option<Name> {
        let name = origins.born(&range)?;
        origins.put(&range, number, grows);
        Some(name)
    }

    #[test]
    fn mappings_go_by_their_length_and_those_of_that_length_before() {
        let mut origins = Origins::default();
        let name = |pages, ordinal| Name::new(pages, ordinal);
        assert_eq!(born(&mut origins, 100..200, 0, false), name(100, 0));
        assert_eq!(born(&mut origins, 300..303, 1, false), name(3, 0));
        assert_eq!(born(&mut origins, 500..600, 2, false), name(100, 1));
        // In place of one that was there.
        assert_eq!(born(&mut origins, 500..600, 3, false), name(100, 2));
        assert_eq!(origins.of(510), Some(Origin { mapping: 3, page: 10, pages: 90 }));
        assert_eq!((origins.of(99), origins.of(200)), (None, None));
    }

    #[test]
    fn what_grows_is_one_mapping() {
        let mut origins = Origins::default();
        born(&mut origins, 100..110, 0, true);
        assert_eq!(origins.born(&(110..120)), None);
        assert_eq!(origins.of(115), Some(Origin { mapping: 0, page: 15, pages: 5 }));
        born(&mut origins, 200..210, 1, false);
        assert_eq!(born(&mut origins, 210..220, 2, false), Name::new(10, 2));
        origins.grown(205, 208);
        assert_eq!(origins.of(209).map(|origin| origin.mapping), Some(1));
    }

    #[test]
    fn a_mapping_that_moves_keeps_its_pages() {
        let mut origins = Origins::default();
        born(&mut origins, 100..110, 4, false);
        origins.died(&(103..105));
        origins.moved(&(100..110), &(500..530));
        assert_eq!(origins.of(502), Some(Origin { mapping: 4, page: 2, pages: 1 }));
        assert_eq!((origins.of(503), origins.of(105)), (None, None));
        assert_eq!(origins.of(506), Some(Origin { mapping: 4, page: 6, pages: 24 }));
        assert_eq!(origins.starts(&(500..530)).collect::<Vec<_>>(), [(4, 500), (4, 500)]);
        origins.moved(&(500..530), &(50..51));
        assert_eq!((origins.of(50).map(|origin| origin.page), origins.of(51)), (Some(0), None));
    }

    proptest! {
        /// As an array of pages would have it.
        #[test]
        fn behaves_as_an_array(
            operations in prop::collection::vec((0_u8..3, 1_u64..60, 1_u64..20, 1_u64..60), 0..60),
        ) {
            let mut origins = Origins::default();
            let mut model: Vec<Option<(u32, u64)>> = vec![None; 100];
            for (number, (operation, start, pages, other)) in operations.into_iter().enumerate() {
                let (range, to) = (start..start + pages, other..other + pages);
                let places = |range: &Range<u64>| range.start as usize..range.end as usize;
                match operation {
                    0 => {
                        born(&mut origins, range.clone(), number as u32, false);
                        let pages = (0..pages).map(|page| Some((number as u32, page)));
                        model.splice(places(&range), pages);
                    }
                    1 => {
                        origins.died(&range);
                        model[places(&range)].fill(None);
                    }
                    _ if range.end <= to.start || to.end <= range.start => {
                        let whole = model[places(&range)].iter().flatten().count() as u64 == pages;
                        if !whole {
                            continue;
                        }
                        origins.moved(&range, &to);
                        let moved: Vec<_> = model[places(&range)].to_vec();
                        model[places(&range)].fill(None);
                        model.splice(places(&to), moved);
                    }
                    _ => {}
                }
                for (page_number, expected) in model.iter().enumerate() {
                    let found = origins.of(page_number as u64);
                    prop_assert_eq!(found.map(|origin| (origin.mapping, u64::from(origin.page))), *expected);
                }
            }
        }
    }
}
