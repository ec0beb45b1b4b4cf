//! Distances that come in rounds: a matrix whose rows are 3.5 pages long gives 3, 4, 3, 4, and several rows
//! at a time give longer rounds; no distance of them need have a majority.
//!
//! The last two distances are looked for earlier in the history, and what came after them then is expected
//! again: delta correlation (Nesbit and Smith, "Data Cache Prefetching Using a Global History Buffer", HPCA
//! 2004), of pages in place of cache lines.

use super::history::History;

/// How many distances ago the last two came before, in the same order: the length of the round. None where
/// they did not.
#[must_use]
pub fn round(history: &History) -> Option<usize> {
    let (last, before) = (history.ago(0), history.ago(1));
    let candidates = 1..history.count().saturating_sub(1);
    candidates.into_iter().find(|&ago| history.ago(ago) == last && history.ago(ago + 1) == before)
}

/// The distance `ahead` of the last one, 0 for the next, if the last `round` distances come again and again.
#[must_use]
pub fn distance_ahead(history: &History, round: usize, ahead: usize) -> i64 {
    history.ago(round - 1 - ahead % round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(distances: &[i64]) -> History {
        let mut history = History::default();
        distances.iter().for_each(|&distance| history.push(distance));
        history
    }

    #[test]
    fn what_comes_again_is_expected_to_go_on_as_it_did() {
        let ahead = |distances: &[i64], count: usize| {
            let history = of(distances);
            round(&history)
                .map(|round| (0..count).map(|ahead| distance_ahead(&history, round, ahead)).collect())
        };
        assert_eq!(ahead(&[5, 5], 2), None);
        assert_eq!(ahead(&[5, 5, 5], 3), Some(vec![5, 5, 5]));
        assert_eq!(ahead(&[3, 4, 3, 4], 3), Some(vec![3, 4, 3]));
        assert_eq!(ahead(&[4, -10, 11, -7, 16, 4, -10], 6), Some(vec![11, -7, 16, 4, -10, 11]));
        assert_eq!(ahead(&[1, 2, 3, 4, 5, 6], 1), None);
    }

    proptest! {
        #[test]
        fn a_round_of_distinct_distances_is_found_once_it_began_anew(
            mut distances in prop::collection::hash_set(any::<i64>(), 1..30), more in 2_usize..40,
        ) {
            distances.remove(&0);
            prop_assume!(!distances.is_empty());
            let round_of: Vec<i64> = distances.into_iter().collect();
            let length = round_of.len();
            let told: Vec<i64> = round_of.iter().cycle().take(length + more.max(2)).copied().collect();
            let history = of(&told);
            prop_assert_eq!(round(&history), Some(length).filter(|_| told.len() > 2 || length < 2));
            for ahead in 0..2 * length {
                let expected = round_of[(told.len() + ahead) % length];
                prop_assert_eq!(distance_ahead(&history, length, ahead), expected);
            }
        }
    }
}
