//! The ranges of which the marker gets faults and events, as it knows them. A range is registered when a page
//! of it is taken, and given back to the kernel when none is held there any more.

use std::ops::Range;

/// Ranges in order of address, apart from each other.
#[derive(Debug, Default)]
pub struct Registered(Vec<Range<usize>>);

impl Registered {
    /// Whether all of a range is registered.
    pub fn contains(&self, range: &Range<usize>) -> bool {
        self.0.iter().any(|known| known.start <= range.start && range.end <= known.end)
    }

    /// A range is registered from now on.
    pub fn add(&mut self, range: Range<usize>) {
        if range.start >= range.end {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        self.0.retain(|known| {
            let apart = known.end < start || end < known.start;
            if !apart {
                (start, end) = (start.min(known.start), end.max(known.end));
            }
            apart
        });
        let at = self.0.partition_point(|known| known.start < start);
        self.0.insert(at, start..end);
    }

    /// A range is so no longer.
    pub fn subtract(&mut self, range: &Range<usize>) {
        let cut = |known: Range<usize>| {
            [known.start..known.end.min(range.start), known.start.max(range.end)..known.end]
        };
        let parts = std::mem::take(&mut self.0).into_iter().flat_map(cut);
        self.0 = parts.filter(|part| part.start < part.end).collect();
    }

    /// All of them.
    pub fn all(&self) -> &[Range<usize>] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together_and_are_cut() {
        let mut ranges = Registered::default();
        ranges.add(10..20);
        ranges.add(30..40);
        assert!(ranges.contains(&(12..20)) && !ranges.contains(&(15..31)));
        ranges.add(20..30);
        assert_eq!(ranges.all(), std::slice::from_ref(&(10..40)));
        ranges.subtract(&(15..18));
        assert_eq!(ranges.all(), [10..15, 18..40]);
        ranges.subtract(&(0..100));
        ranges.add(7..7);
        assert!(ranges.all().is_empty());
    }
}
