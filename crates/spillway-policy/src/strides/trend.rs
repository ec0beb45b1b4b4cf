//! Leap's trend: the distance that makes the majority of the last ones (Al Maruf and Chowdhury, "Effectively
//! Prefetching Remote Memory with Leap", ATC 2020: its algorithm to find the trend).

use super::history::History;

/// Distances that are looked at first.
const FIRST_WINDOW: usize = 4;
/// Distances that are looked at, at most.
const LAST_WINDOW: usize = 32;

/// The distance that more than half of the last ones are: of a window that starts small, so that a new trend
/// shows soon, and doubles until there is a majority, so that a few strays hide none.
#[must_use]
pub fn trend(history: &History) -> Option<i64> {
    let mut window = FIRST_WINDOW;
    while window <= LAST_WINDOW.min(history.count()) {
        if let Some(distance) = majority(history.newest(window)) {
            return (distance != 0).then_some(distance);
        }
        window *= 2;
    }
    None
}

/// What more than half of `numbers` are, by Boyer and Moore's vote: each number that differs takes a vote
/// from the one that is ahead, so that only a majority is sure to be left; a second look counts it.
fn majority(numbers: impl Iterator<Item = i64> + Clone) -> Option<i64> {
    let (mut ahead, mut votes) = (None, 0_usize);
    for number in numbers.clone() {
        match ahead {
            Some(candidate) if candidate == number => votes += 1,
            _ if votes == 0 => (ahead, votes) = (Some(number), 1),
            _ => votes -= 1,
        }
    }
    let candidate = ahead?;
    let (mut all, mut same) = (0_usize, 0);
    for number in numbers {
        all += 1;
        same += usize::from(number == candidate);
    }
    (same * 2 > all).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn counted(numbers: &[i64]) -> Option<i64> {
        let mut counts = HashMap::new();
        numbers.iter().for_each(|number| *counts.entry(*number).or_insert(0) += 1);
        counts.into_iter().find(|(_, count)| count * 2 > numbers.len()).map(|(number, _)| number)
    }

    fn of(distances: &[i64]) -> History {
        let mut history = History::default();
        distances.iter().for_each(|&distance| history.push(distance));
        history
    }

    proptest! {
        #[test]
        fn the_vote_finds_what_counting_finds(numbers in prop::collection::vec(-2_i64..3, 0..40)) {
            prop_assert_eq!(majority(numbers.iter().copied()), counted(&numbers));
        }

        #[test]
        fn the_trend_is_the_majority_of_the_smallest_window_that_has_one(
            distances in prop::collection::vec(-2_i64..3, 0..80),
        ) {
            let newest: Vec<i64> = distances.iter().rev().copied().collect();
            let windows = [4, 8, 16, 32].into_iter().filter(|&window| window <= newest.len());
            let found = windows.filter_map(|window| counted(&newest[..window])).next();
            prop_assert_eq!(trend(&of(&distances)), found.filter(|&distance| distance != 0));
        }
    }

    #[test]
    fn strays_hide_no_trend_and_no_page_follows_itself() {
        assert_eq!(trend(&of(&[7, 7, 7])), None, "too few to tell");
        assert_eq!(trend(&of(&[7, 7, 900, 7])), Some(7));
        assert_eq!(trend(&of(&[7, 7, 7, 7, 7, 900, -3, 7])), Some(7));
        assert_eq!(trend(&of(&[3, 3, 3, 3, -1, -1, -1, -1])), Some(-1));
        assert_eq!(trend(&of(&[3, 4, 3, 4, 3, 4, 3, 4])), None);
        assert_eq!(trend(&of(&[0, 0, 0, 0])), None);
    }
}
