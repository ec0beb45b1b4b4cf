//! The ranges of addresses under management.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::kernel::ForkAdvice;

/// What a forked child gets of a range: the same contents where neither is wished. The kernel keeps the two
/// wishes apart, and so does this: what is given back to children (`MADV_DOFORK`) may still be wiped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnFork {
    /// No mapping at all (`MADV_DONTFORK`).
    pub is_dropped: bool,
    /// Zeros in place of the contents (`MADV_WIPEONFORK`).
    pub is_wiped: bool,
}

impl OnFork {
    /// The wish after further advice.
    #[must_use]
    pub fn advised(self, advice: ForkAdvice) -> Self {
        match advice {
            ForkAdvice::Inherit => Self { is_dropped: false, ..self },
            ForkAdvice::Drop => Self { is_dropped: true, ..self },
            ForkAdvice::Keep => Self { is_wiped: false, ..self },
            ForkAdvice::Wipe => Self { is_wiped: true, ..self },
        }
    }
}

/// Managed ranges: disjoint, each with its wish for forks.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    by_start: BTreeMap<usize, (usize, OnFork)>,
}

impl Regions {
    /// A set without any range.
    #[must_use]
    pub const fn new() -> Self {
        Self { by_start: BTreeMap::new() }
    }

    /// The parts of `range` that are managed.
    #[must_use]
    pub fn within(&self, range: &Range<usize>) -> Vec<(Range<usize>, OnFork)> {
        let before = self.by_start.range(..range.start).next_back();
        before
            .into_iter()
            .chain(self.by_start.range(range.start..range.end))
            .map(|(&start, &(end, on_fork))| (start.max(range.start)..end.min(range.end), on_fork))
            .filter(|(part, _)| part.start < part.end)
            .collect()
    }

    /// Whether an address is managed.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        self.by_start.range(..=address).next_back().is_some_and(|(_, (end, _))| address < *end)
    }

    /// Whether all of a range is managed.
    #[must_use]
    pub fn cover(&self, range: &Range<usize>) -> bool {
        self.within(range).iter().map(|(part, _)| part.len()).sum::<usize>() == range.len()
    }

    /// All ranges, in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = (Range<usize>, OnFork)> + '_ {
        self.by_start.iter().map(|(&start, &(end, on_fork))| (start..end, on_fork))
    }

    /// Adds `range`, in place of what was there. Neighbours with the same wish become one.
    pub fn insert(&mut self, range: Range<usize>, on_fork: OnFork) {
        if range.is_empty() {
            return;
        }
        self.remove(&range);
        let mut joined = range;
        if let Some((&start, &(end, wish))) = self.by_start.range(..joined.start).next_back()
            && end == joined.start
            && wish == on_fork
        {
            self.by_start.remove(&start);
            joined.start = start;
        }
        if let Some(&(end, wish)) = self.by_start.get(&joined.end)
            && wish == on_fork
        {
            self.by_start.remove(&joined.end);
            joined.end = end;
        }
        self.by_start.insert(joined.start, (joined.end, on_fork));
    }

    /// Removes what is managed of `range`.
    pub fn remove(&mut self, range: &Range<usize>) {
        let parts: Vec<(usize, usize, OnFork)> = self
            .by_start
            .range(..range.end)
            .rev()
            .take_while(|(_, (end, _))| *end > range.start)
            .map(|(&start, &(end, on_fork))| (start, end, on_fork))
            .collect();
        for (start, end, on_fork) in parts {
            self.by_start.remove(&start);
            if start < range.start {
                self.by_start.insert(start, (range.start, on_fork));
            }
            if end > range.end {
                self.by_start.insert(range.end, (end, on_fork));
            }
        }
    }

    /// Removes what is managed of `range` and returns it.
    pub fn take(&mut self, range: &Range<usize>) -> Vec<(Range<usize>, OnFork)> {
        let parts = self.within(range);
        self.remove(range);
        parts
    }

    /// Changes the wish for the managed parts of `range`.
    pub fn advise_on_fork(&mut self, range: &Range<usize>, advice: ForkAdvice) {
        for (part, on_fork) in self.within(range) {
            self.insert(part, on_fork.advised(advice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_an_array(
            operations in proptest::collection::vec((0_u8..4, 0_usize..60, 1_usize..20), 0..200),
        ) {
            let mut regions = Regions::new();
            let mut model = [None; 80];
            for (operation, start, length) in operations {
                let range = start..start + length;
                match operation {
                    0 => {
                        let wish = OnFork { is_wiped: length % 2 == 1, is_dropped: false };
                        regions.insert(range.clone(), wish);
                        model[range].fill(Some(wish));
                    }
                    1 => {
                        regions.remove(&range);
                        model[range].fill(None);
                    }
                    2 => {
                        let advice = ForkAdvice::from_word(length % 4);
                        regions.advise_on_fork(&range, advice);
                        for wish in model[range].iter_mut().flatten() {
                            match advice {
                                ForkAdvice::Inherit | ForkAdvice::Drop => {
                                    wish.is_dropped = advice == ForkAdvice::Drop;
                                }
                                _ => wish.is_wiped = advice == ForkAdvice::Wipe,
                            }
                        }
                    }
                    _ => {
                        let mut found = [None; 80];
                        for (part, wish) in regions.within(&range) { found[part].fill(Some(wish)); }
                        prop_assert_eq!(&found[range.clone()], &model[range]);
                    }
                }
                let covers = model[start..start + length].iter().all(Option::is_some);
                prop_assert_eq!(regions.cover(&(start..start + length)), covers);
                for (address, wish) in model.iter().enumerate() {
                    prop_assert_eq!(regions.contains(address), wish.is_some());
                }
                let mut all = [None; 80];
                for (part, wish) in regions.iter() { all[part].fill(Some(wish)); }
                prop_assert_eq!(all, model);
            }
        }
    }
}
