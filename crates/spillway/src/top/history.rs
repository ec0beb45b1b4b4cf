//! The last minutes of what was seen, for graphs.

use std::collections::{BTreeMap, VecDeque};

use crate::top::rates::{Key, Rates, Row};

/// Looks that are kept: five minutes of one a second.
const LOOKS: usize = 300;

/// What a row was like at one look.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What had happened since the look before.
    pub rates: Rates,
    /// Memory that was local.
    pub local_bytes: u64,
    /// Memory that was far.
    pub far_bytes: u64,
}

/// What each row was like, the last look last.
#[derive(Default)]
pub struct History(BTreeMap<Key, VecDeque<Point>>);

impl History {
    /// Notes a look. What is gone is forgotten.
    pub fn note(&mut self, rows: &[Row]) {
        self.0.retain(|key, _| rows.iter().any(|row| row.key == *key));
        for row in rows {
            let Some(rates) = row.rates else { continue };
            let kept = self.0.entry(row.key).or_default();
            if kept.len() == LOOKS {
                kept.pop_front();
            }
            kept.push_back(Point { rates, local_bytes: row.local_bytes, far_bytes: row.far_bytes });
        }
    }

    /// One number of the last `looks` looks, the oldest first.
    pub fn last(&self, key: Key, looks: usize, number: impl Fn(&Point) -> f64) -> Vec<u64> {
        let Some(kept) = self.0.get(&key) else { return Vec::new() };
        kept.iter()
            .skip(kept.len().saturating_sub(looks))
            .map(|point| number(point).max(0.0) as u64)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::tests::seen_twice;

    #[test]
    fn minutes_are_kept_and_what_is_gone_is_forgotten() {
        let looks = seen_twice();
        let rows = &looks.seen().rows;
        let mut history = History::default();
        (0..LOOKS + 5).for_each(|_| history.note(rows));
        let faults =
            |history: &History, looks| history.last(rows[0].key, looks, |point| point.rates.faults_per_s);
        assert_eq!(faults(&history, 1000), [1_000; LOOKS]);
        assert_eq!(faults(&history, 3), [1_000; 3]);
        history.note(&rows[1..]);
        assert!(faults(&history, 3).is_empty());
        assert_eq!(history.last(rows[1].key, 3, |point| point.rates.faults_per_s), [0; 3]);
        assert_eq!(history.last(rows[1].key, 1, |point| point.far_bytes as f64), [rows[1].far_bytes]);
    }
}
