//! The order of rows.

use std::collections::BTreeMap;

use crate::top::rates::{Key, Row};

/// What rows are sorted by: the most first, numbers of processes and names from the least on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Local and far memory together.
    #[default]
    Memory,
    /// Memory that is local.
    Local,
    /// Memory that is far.
    Far,
    /// Faults of every kind a second.
    Faults,
    /// The time lost to paging.
    Lost,
    /// How long the slowest faults took.
    Slowest,
    /// Bytes fetched a second.
    Fetched,
    /// Bytes written a second.
    Written,
    /// What programs are called.
    Name,
    /// By number of the process.
    Pid,
}

/// In the order in which a key goes through them.
const ALL: [Sort; 10] = [
    Sort::Memory,
    Sort::Local,
    Sort::Far,
    Sort::Faults,
    Sort::Lost,
    Sort::Slowest,
    Sort::Fetched,
    Sort::Written,
    Sort::Name,
    Sort::Pid,
];

impl Sort {
    /// The one that the next key press leads to.
    pub fn next(self) -> Self {
        let at = ALL.iter().position(|sort| *sort == self).map_or(0, |at| at + 1);
        ALL[at % ALL.len()]
    }

    /// Its name, for the foot of the screen: that of its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local => "LOCAL",
            Self::Far => "FAR",
            Self::Faults => "FLT/s",
            Self::Lost => "LOST",
            Self::Slowest => "P99",
            Self::Fetched => "IN/s",
            Self::Written => "OUT/s",
            Self::Name => "PROGRAM",
            Self::Pid => "PID",
        }
    }

    /// A number for each row, by which rows ascend; the other way round where that is wanted.
    pub fn ranks(self, rows: &[Row], is_reversed: bool) -> BTreeMap<Key, u64> {
        let mut names: Vec<String> = rows.iter().map(|row| row.name.to_lowercase()).collect();
        names.sort();
        let place = |row: &Row| names.partition_point(|name| *name < row.name.to_lowercase()) as u64;
        let rank = |row: &Row| {
            let descending = u64::MAX - self.number(row, place(row));
            if is_reversed { u64::MAX - descending } else { descending }
        };
        rows.iter().map(|row| (row.key, rank(row))).collect()
    }

    /// A number by which rows descend. `name_at` is the place of its name among all.
    fn number(self, row: &Row, name_at: u64) -> u64 {
        let rates = row.rates.unwrap_or_default();
        // Of a donor: what clients write to it stands in the column of what is fetched, as the list has it.
        let lent = row.donor.as_ref().and_then(|donor| donor.rates).unwrap_or_default();
        match self {
            Self::Memory => row.local_bytes.saturating_add(row.far_bytes),
            Self::Local => row.local_bytes,
            Self::Far => row.far_bytes,
            Self::Faults => (rates.faults_per_s * 1e3) as u64,
            Self::Lost => (rates.lost_share * 1e6) as u64,
            Self::Slowest => (rates.fault_p99_us.unwrap_or(0.0) * 1e3) as u64,
            Self::Fetched => (rates.fetched_bytes_per_s + lent.written_bytes_per_s) as u64,
            Self::Written => (rates.written_bytes_per_s + lent.read_bytes_per_s) as u64,
            Self::Name => u64::MAX - name_at,
            Self::Pid => u64::MAX - u64::from(row.pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::tests::seen_twice;

    #[test]
    fn a_key_goes_through_all_columns_and_each_can_be_turned_round() {
        let looks = seen_twice();
        let rows = &looks.seen().rows;
        let names = |sort: Sort, is_reversed: bool| {
            let ranks = sort.ranks(rows, is_reversed);
            let mut order: Vec<&Row> = rows.iter().skip(1).collect();
            order.sort_by_key(|row| ranks[&row.key]);
            order.iter().map(|row| row.name.as_str()).collect::<Vec<_>>()
        };
        for (sort, expected) in [
            (Sort::Far, ["child", "parent"]),
            (Sort::Faults, ["child", "parent"]),
            (Sort::Name, ["child", "parent"]),
            (Sort::Pid, ["parent", "child"]),
        ] {
            assert_eq!(names(sort, false), expected, "{sort:?}");
            assert_eq!(names(sort, true), [expected[1], expected[0]], "{sort:?} reversed");
        }
        let mut sort = Sort::default();
        for _ in 0..ALL.len() {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::default());
    }
}
