//! What comes out of the experiments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillway_report::claim::{Asks, Claim};
use spillway_report::distribution::Distribution;

use crate::BenchError;
use crate::machine::Machine;

/// All that came out of the experiments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PhysicalReport {
    /// Where it was measured.
    pub machine: Machine,
    /// How the machine's memory management was set; it is so again.
    pub settings: BTreeMap<String, String>,
    /// The memory that was measured.
    pub tiers: Vec<String>,
    /// Whether little was measured.
    pub quick: bool,
    /// What reading the clock costs; it is in every latency twice or less, and not taken off.
    pub clock_ns: f64,
    /// In the order in which they ran.
    pub experiments: Vec<ExperimentReport>,
    /// Experiments that did not run at all, and why.
    pub left_out: Vec<LeftOut>,
    /// What to set on this machine.
    pub advice: Vec<Advice>,
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// What was not measured.
    pub what: String,
    /// Why, and what would help.
    pub reason: String,
}

/// What came out of one experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// Its name on the command line.
    pub name: String,
    /// Where the paper has it.
    pub paper: String,
    /// What it measures, in a sentence.
    pub about: String,
    /// What it did to the machine.
    pub does: String,
    /// In which of several possible ways it was measured.
    pub method: Option<String>,
    /// How long it took.
    pub wall_s: f64,
    /// What was measured, scale by scale.
    pub panels: Vec<Panel>,
    /// What the paper says, and whether it is so here.
    pub claims: Vec<Claim>,
    /// Figures of the paper's text and tables beside this machine's.
    pub beside: Vec<Beside>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Parts that were not measured.
    pub left_out: Vec<LeftOut>,
}

/// What belongs on one scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// What it shows, as its heading.
    pub title: String,
    /// What its values are: `ns`, `s`, `%`, ...
    pub unit: String,
    /// Whether the series of a point add up to a whole.
    pub stacked: bool,
    /// The values, case by case.
    pub rows: Vec<Row>,
}

/// One case that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The curve or colour.
    pub series: String,
    /// Where on the curve it is.
    pub point: String,
    /// What was varied, for programs: `page_bytes`, `threads`, `node`, ...
    pub case: BTreeMap<String, u64>,
    /// The value; of many, the median.
    pub value: f64,
    /// All of the values, where there are many.
    pub distribution: Option<Distribution>,
}

/// A figure of the paper and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// What was measured by both.
    pub what: String,
    /// The paper's figure on DRAM.
    pub dram: Option<String>,
    /// Its figure on Optane.
    pub optane: Option<String>,
    /// What this machine has.
    pub here: String,
}

/// A setting that measurements speak for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What is set, by its path or option.
    pub setting: String,
    /// What it is set to now, where it is a file.
    pub now: Option<String>,
    /// What to set it to.
    pub value: String,
    /// Why, in plain words.
    pub why: String,
    /// The experiment, and the figures of it.
    pub measurement: String,
}

impl Panel {
    /// A panel without rows.
    #[must_use]
    pub fn new(title: impl Into<String>, unit: &str) -> Self {
        Self { title: title.into(), unit: unit.to_owned(), stacked: false, rows: Vec::new() }
    }

    /// Adds a single value.
    pub fn value(&mut self, series: &str, point: &str, case: &[(&str, u64)], value: f64) {
        self.push(series, point, case, value, None);
    }

    /// Adds a row of many values.
    pub fn distribution(&mut self, series: &str, point: &str, case: &[(&str, u64)], values: Distribution) {
        self.push(series, point, case, values.p50, Some(values));
    }

    fn push(
        &mut self,
        series: &str,
        point: &str,
        case: &[(&str, u64)],
        value: f64,
        distribution: Option<Distribution>,
    ) {
        let case = case.iter().map(|&(key, value)| (key.to_owned(), value)).collect();
        let (series, point) = (series.to_owned(), point.to_owned());
        self.rows.push(Row { series, point, case, value, distribution });
    }

    /// The row of a series at a point.
    #[must_use]
    pub fn row(&self, series: &str, point: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.series == series && row.point == point)
    }

    /// The value of a series at a point.
    #[must_use]
    pub fn at(&self, series: &str, point: &str) -> Option<f64> {
        self.row(series, point).map(|row| row.value)
    }
}

impl ExperimentReport {
    /// States what the paper's words ask of `measured`; says nothing where nothing was measured.
    pub fn claim(&mut self, text: &str, paper: &str, asks: Asks, measured: Option<f64>) {
        let measured = measured.filter(|measured| measured.is_finite());
        self.claims.extend(measured.map(|measured| Claim::new(text, paper, asks, measured)));
    }

    /// The same, where the paper says how large it is.
    pub fn sized(&mut self, text: &str, paper: &str, asks: Asks, number: f64, measured: Option<f64>) {
        let measured = measured.filter(|measured| measured.is_finite());
        self.claims.extend(measured.map(|measured| Claim::new(text, paper, asks, measured).sized(number)));
    }

    /// Notes the paper's figures beside ours; says nothing where nothing was measured.
    pub fn beside(&mut self, what: &str, dram: Option<&str>, optane: Option<&str>, here: Option<String>) {
        if let Some(here) = here {
            let (dram, optane) = (dram.map(str::to_owned), optane.map(str::to_owned));
            self.beside.push(Beside { what: what.to_owned(), dram, optane, here });
        }
    }

    /// Notes a part that was not measured.
    pub fn leave_out(&mut self, what: impl Into<String>, reason: impl std::fmt::Display) {
        self.left_out.push(LeftOut { what: what.into(), reason: reason.to_string() });
    }

    /// What came out, or a note of what was left out and why. An interrupt ends everything.
    pub(super) fn attempt<T>(
        &mut self,
        what: &str,
        result: Result<T, BenchError>,
    ) -> Result<Option<T>, BenchError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
            Err(error) => {
                if !self.left_out.iter().any(|left| left.what == what) {
                    self.leave_out(what, error);
                }
                Ok(None)
            }
        }
    }

    /// The panel of this title.
    #[must_use]
    pub fn panel(&self, title: &str) -> Option<&Panel> {
        self.panels.iter().find(|panel| panel.title == title)
    }
}

/// What was not measured, with one line for all that has the same reason but for numbers in it.
#[must_use]
pub fn grouped(left_out: &[LeftOut]) -> Vec<LeftOut> {
    let mut groups: Vec<(String, LeftOut, bool)> = Vec::new();
    for left in left_out {
        let form = without_numbers(&left.reason);
        match groups.iter_mut().find(|(other, _, _)| *other == form) {
            Some((_, group, differs)) => {
                group.what = format!("{}; {}", group.what, left.what);
                *differs |= group.reason != left.reason;
            }
            None => groups.push((form, left.clone(), false)),
        }
    }
    let told = |(_, group, differs): (String, LeftOut, bool)| match differs {
        true => LeftOut {
            reason: format!("{} (of the first; the others differ in numbers alone)", group.reason),
            ..group
        },
        false => group,
    };
    groups.into_iter().map(told).collect()
}

/// Words with a mark in place of each number.
fn without_numbers(text: &str) -> String {
    let mut form = String::new();
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            form.push(letter);
        } else if !form.ends_with('#') {
            form.push('#');
        }
    }
    form
}

/// How many times `one` is `other`.
#[must_use]
pub fn times(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    let (one, other) = (one?, other?);
    (other > 0.0).then(|| one / other)
}

/// As people write it: `1.79x`.
#[must_use]
pub fn in_times(ratio: Option<f64>) -> Option<String> {
    ratio.map(|ratio| if ratio < 100.0 { format!("{ratio:.2}x") } else { format!("{ratio:.0}x") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_same_reason_but_for_numbers_is_left_out_in_one_line() {
        let left = |what: &str, reason: &str| LeftOut { what: what.to_owned(), reason: reason.to_owned() };
        let parts = [
            left("1 GiB, alone", "cannot reserve 1 page"),
            left("sampling", "not root"),
            left("1 GiB, on all CPUs", "cannot reserve 22 page"),
            left("remote nodes", "not root"),
        ];
        let told = [
            left(
                "1 GiB, alone; 1 GiB, on all CPUs",
                "cannot reserve 1 page (of the first; the others differ in numbers alone)",
            ),
            left("sampling; remote nodes", "not root"),
        ];
        assert_eq!(grouped(&parts), told);
        assert!(grouped(&[]).is_empty());
    }
}
