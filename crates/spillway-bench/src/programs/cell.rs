//! A ratio in a table, or why there is none.

use super::report::{Outcome, Row};

/// What marks a ratio whose sides did not hold as much.
pub(super) const UNEQUAL: &str = "*";

/// What a cell says: the ratio, or who was lost.
pub(super) fn cell(row: &Row) -> String {
    let lost = |outcome| if outcome == Outcome::Wrong { "wrong" } else { "killed" };
    match row.ratio_median {
        Some(ratio) if row.memory_is_equal() => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.2}{UNEQUAL}"),
        None if row.outcome != Outcome::Ok => format!("Spillway {}", lost(row.outcome)),
        None => format!("{} {}", row.versus.name(), lost(row.versus_outcome)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::report::tests::{row, side};
    use crate::whole::workload::Measure;

    #[test]
    fn a_cell_says_who_was_lost() {
        let good = side("page-cluster 3", &[(Outcome::Ok, 2.0)]);
        let killed = side("", &[(Outcome::Killed, 0.0)]);
        let wrong = side("", &[(Outcome::Wrong, 0.0)]);
        assert_eq!(cell(&row(&good, &good, Measure::Seconds)), "1.00");
        assert_eq!(cell(&row(&wrong, &good, Measure::Seconds)), "Spillway wrong");
        assert_eq!(cell(&row(&good, &killed, Measure::Seconds)), "zram killed");
        let mut unequal = row(&good, &good, Measure::Seconds);
        unequal.versus_anonymous_bytes *= 2;
        assert_eq!(cell(&unequal), "1.00*");
    }
}
