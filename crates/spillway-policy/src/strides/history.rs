//! The distances between the last pages that a thread faulted on.

/// Distances that are remembered: two of Leap's longest windows, so that a round of 31 faults is seen twice.
pub const REMEMBERED: usize = 64;

/// The last distances between pages, in pages.
#[derive(Clone, Debug)]
pub struct History {
    distances: [i64; REMEMBERED],
    next: usize,
    count: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { distances: [0; REMEMBERED], next: 0, count: 0 }
    }
}

impl History {
    /// Remembers a distance, and forgets the oldest where there is no room.
    pub fn push(&mut self, distance: i64) {
        self.distances[self.next] = distance;
        self.next = (self.next + 1) % REMEMBERED;
        self.count = (self.count + 1).min(REMEMBERED);
    }

    /// How many distances are remembered.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The distance that came `ago` distances before the last one. Of what was never told: 0.
    #[must_use]
    pub fn ago(&self, ago: usize) -> i64 {
        let is_told = ago < self.count;
        if is_told { self.distances[(self.next + REMEMBERED - 1 - ago) % REMEMBERED] } else { 0 }
    }

    /// The last distances, the newest first.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = i64> + Clone {
        (0..count.min(self.count)).map(|ago| self.ago(ago))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_holds_the_last_distances(distances in prop::collection::vec(any::<i64>(), 0..200)) {
            let mut history = History::default();
            distances.iter().for_each(|&distance| history.push(distance));
            let last: Vec<i64> = distances.iter().rev().take(REMEMBERED).copied().collect();
            prop_assert_eq!(history.newest(REMEMBERED).collect::<Vec<_>>(), last.clone());
            prop_assert_eq!(history.count(), last.len());
            prop_assert_eq!(history.ago(last.len()), 0);
        }
    }
}
