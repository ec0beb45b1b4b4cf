//! What comes out: each way to set a switch, beside the usual, on each workload.

use serde::{Deserialize, Serialize};

use super::switches::Otherwise;
use crate::machine::Machine;
use crate::programs::report::geometric_mean;
use crate::rows::Spread;

/// What a side came to in one turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Taken {
    /// In the unit of the workload.
    pub(super) value: f64,
    /// Pages fetched: for each access, or in all.
    pub(super) fetched: f64,
    /// Why it did not end well.
    pub(super) lost: Option<String>,
}

/// What is run on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// A pattern of accesses, or a program.
    pub name: String,
    /// Threads, of a pattern.
    pub threads: Option<usize>,
    /// `--store`; none for the usual.
    pub store: Option<String>,
    /// What its value is, such as `ns an access`.
    pub unit: String,
    /// Whether more of it is better.
    pub more_is_better: bool,
}

/// The medians of one side, with the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// In the workload's unit.
    pub value: f64,
    /// The least of all turns.
    pub value_min: f64,
    /// The most of all turns.
    pub value_max: f64,
    /// Pages fetched: for each access, or of a program in all.
    pub fetched: f64,
}

/// One way to set a switch, on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What ran on both sides.
    pub work: Work,
    /// The name of the switch.
    pub switch: String,
    /// What it was set to.
    pub value: String,
    /// What came of that.
    pub with: Figures,
    /// With everything as usual, in the same turns.
    pub usual: Figures,
    /// How many times as fast as usual it was, in the median turn; none where a side was lost.
    pub ratio_median: Option<f64>,
    /// The ratio of the worst turn.
    pub ratio_min: Option<f64>,
    /// The ratio of the best turn.
    pub ratio_max: Option<f64>,
    /// Why a run did not end well.
    pub lost: Option<String>,
}

impl Figures {
    fn of(turns: &[Taken]) -> Self {
        let good = || turns.iter().filter(|taken| taken.lost.is_none());
        let value = Spread::of(good().map(|taken| taken.value));
        let fetched = Spread::of(good().map(|taken| taken.fetched)).median;
        Self { value: value.median, value_min: value.min, value_max: value.max, fetched }
    }
}

impl Row {
    /// Of these turns, each beside the same one with everything as usual.
    pub(super) fn new(work: &Work, way: &Otherwise, with: &[Taken], usual: &[Taken]) -> Self {
        let lost = with.iter().chain(usual).find_map(|taken| taken.lost.clone());
        let speed = |(with, usual): (&Taken, &Taken)| match work.more_is_better {
            true => with.value / usual.value,
            false => usual.value / with.value,
        };
        let ratio = Spread::of(with.iter().zip(usual).map(speed));
        let of = |ratio: f64| lost.is_none().then_some(ratio);
        Self {
            work: work.clone(),
            switch: way.switch.clone(),
            value: way.value.clone(),
            with: Figures::of(with),
            usual: Figures::of(usual),
            ratio_median: of(ratio.median),
            ratio_min: of(ratio.min),
            ratio_max: of(ratio.max),
            lost,
        }
    }
}

/// All that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AblationReport {
    /// Where it was measured.
    pub machine: Machine,
    /// Whether little was measured.
    pub quick: bool,
    /// Turns; the median counts.
    pub repetitions: usize,
    /// Memory of the process that accesses it in patterns.
    pub memory_bytes: u64,
    /// Time of one of its measurements, after a warm-up of the same time.
    pub measured_ms: u64,
    /// Share of its memory that may be local, in percent, and that of programs.
    pub local_pcts: (u64, u64),
    /// The ways to set switches that were compared.
    pub ablated: Vec<Otherwise>,
    /// A row for each way and workload.
    pub rows: Vec<Row>,
    /// What could not be measured, and why.
    pub not_measured: Vec<String>,
    /// The user ended it before all was measured.
    #[serde(default)]
    pub interrupted: bool,
}

/// Workloads that are summed up in one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Patterns, with so many threads.
    Threads(usize),
    /// Programs, each by itself.
    Programs,
}

impl Class {
    /// Its name in tables and plots.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Threads(1) => "1 thread".to_owned(),
            Self::Threads(threads) => format!("{threads} threads"),
            Self::Programs => "programs".to_owned(),
        }
    }

    fn has(self, work: &Work) -> bool {
        match self {
            Self::Threads(threads) => work.threads == Some(threads),
            Self::Programs => work.threads.is_none(),
        }
    }
}

impl AblationReport {
    /// Whether a workload was measured on a store.
    pub(super) fn has(&self, work: &Work) -> bool {
        self.rows.iter().any(|row| row.work == *work)
    }

    /// The classes that were measured: threads from the least, then programs.
    #[must_use]
    pub fn classes(&self) -> Vec<Class> {
        let mut threads: Vec<usize> = self.rows.iter().filter_map(|row| row.work.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let has_programs = self.rows.iter().any(|row| row.work.threads.is_none());
        threads.into_iter().map(Class::Threads).chain(has_programs.then_some(Class::Programs)).collect()
    }

    /// The rows of one way.
    pub fn of_way<'a>(&'a self, way: &'a Otherwise) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| (&row.switch, &row.value) == (&way.switch, &way.value))
    }

    /// The geometric mean of the ratios of one way on a class of workloads.
    #[must_use]
    pub fn mean(&self, way: &Otherwise, class: Class) -> Option<f64> {
        let rows = self.of_way(way).filter(|row| class.has(&row.work));
        let ratios: Vec<f64> = rows.filter_map(|row| row.ratio_median).collect();
        (!ratios.is_empty()).then(|| geometric_mean(ratios.into_iter()))
    }

    /// One report of several, each of other workloads or switches, or of the same once more: the last counts.
    #[must_use]
    pub fn merged(reports: &[&Self]) -> Option<Self> {
        let mut merged = (*reports.last()?).clone();
        merged.quick = reports.iter().any(|report| report.quick);
        (merged.rows, merged.ablated) = (Vec::new(), Vec::new());
        for report in reports {
            for way in &report.ablated {
                match merged.ablated.iter_mut().find(|had| had.name() == way.name()) {
                    Some(had) => *had = way.clone(),
                    None => merged.ablated.push(way.clone()),
                }
            }
            for row in &report.rows {
                let key = |row: &Row| (row.work.clone(), row.switch.clone(), row.value.clone());
                match merged.rows.iter_mut().find(|had| key(had) == key(row)) {
                    Some(had) => *had = row.clone(),
                    None => merged.rows.push(row.clone()),
                }
            }
        }
        Some(merged)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::switches::Switch;
    use super::*;

    fn taken(values: [f64; 3]) -> Vec<Taken> {
        values.map(|value| Taken { value, fetched: value / 10.0, lost: None }).into()
    }

    fn work(name: &str, threads: Option<usize>) -> Work {
        let unit = "ns an access".to_owned();
        Work { name: name.to_owned(), threads, store: None, unit, more_is_better: false }
    }

    pub(crate) fn report() -> AblationReport {
        let block = Switch::find("block").unwrap();
        let ablated: Vec<Otherwise> = block.ways().collect();
        let usual = taken([100.0, 110.0, 120.0]);
        let slower = taken([200.0, 110.0, 480.0]);
        let faster = taken([50.0, 55.0, 60.0]);
        let mut lost = faster.clone();
        lost[1].lost = Some("signal: 9".to_owned());
        AblationReport {
            machine: Machine::this(),
            quick: true,
            repetitions: 3,
            memory_bytes: 64 << 20,
            measured_ms: 200,
            local_pcts: (25, 50),
            rows: vec![
                Row::new(&work("zipf", Some(1)), &ablated[0], &slower, &usual),
                Row::new(&work("random_read", Some(1)), &ablated[0], &faster, &usual),
                Row::new(&work("zipf", Some(4)), &ablated[0], &faster, &usual),
                Row::new(&work("sort", None), &ablated[0], &faster, &usual),
                Row::new(&work("sort", None), &ablated[1], &lost, &usual),
            ],
            ablated,
            not_measured: vec!["redis_zipf: not installed".to_owned()],
            interrupted: false,
        }
    }

    #[test]
    fn a_ratio_is_that_of_turns_side_by_side_and_a_lost_run_has_none() {
        let report = report();
        let row = &report.rows[0];
        assert_eq!((row.ratio_median, row.ratio_min, row.ratio_max), (Some(0.5), Some(0.25), Some(1.0)));
        assert_eq!((row.with.value, row.with.value_min, row.with.value_max), (200.0, 110.0, 480.0));
        assert_eq!((row.usual.value, row.usual.fetched), (110.0, 11.0));
        assert_eq!(report.classes(), [Class::Threads(1), Class::Threads(4), Class::Programs]);
        // 0.5 and 2.
        assert_eq!(report.mean(&report.ablated[0], Class::Threads(1)), Some(1.0));
        assert_eq!(report.mean(&report.ablated[1], Class::Programs), None);
        assert_eq!(report.rows[4].lost.as_deref(), Some("signal: 9"));
    }

    #[test]
    fn more_transactions_are_faster() {
        let transactions = Work { more_is_better: true, ..work("postgres", None) };
        let way = Switch::find("overlap").unwrap().ways().next().unwrap();
        let row = Row::new(&transactions, &way, &taken([50.0; 3]), &taken([100.0; 3]));
        assert_eq!(row.ratio_median, Some(0.5));
    }

    #[test]
    fn of_what_was_measured_twice_the_last_counts() {
        let first = report();
        let mut second = report();
        second.rows.truncate(1);
        second.rows[0].ratio_median = Some(9.0);
        let merged = AblationReport::merged(&[&first, &second]).unwrap();
        assert_eq!((merged.rows.len(), merged.ablated.len()), (5, 3));
        assert_eq!(merged.rows[0].ratio_median, Some(9.0));
        assert!(AblationReport::merged(&[]).is_none());
    }
}
