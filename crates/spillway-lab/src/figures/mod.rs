//! The papers' figures, from runs of our own: their numbers beside ours, and for each claim whether it holds.
//!
//! A claim is an inequality that the paper's text or figure states; what is measured for it is computed from the runs and
//! printed whether it holds or not. Working sets are smaller than the papers', so it is order, direction and crossing points
//! that are claimed, not digits.

mod dcm;
mod dcm_threads;
mod hotbox;
mod indigo;
pub mod lab;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use spillway_report::chart::Chart;
use spillway_report::claim::Claim;
use thiserror::Error;

use crate::run::RunError;
use lab::Lab;

/// A value of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The curve or group of bars.
    pub series: String,
    /// Where on it.
    pub point: String,
    /// The value.
    pub value: f64,
}

/// What belongs on one scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// What it shows; empty where the figure has no other panel.
    pub title: String,
    /// What its values are.
    pub unit: String,
    /// Our values.
    pub values: Vec<Value>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its id.
    pub id: Cow<'static, str>,
    /// What it shows.
    pub title: Cow<'static, str>,
    /// Where it is from.
    pub source: Cow<'static, str>,
    /// What the values are.
    pub unit: Cow<'static, str>,
    /// Whether its series add up to a whole.
    pub stacked: bool,
    /// Our values, in one panel or more.
    pub panels: Vec<Panel>,
    /// The paper's claims.
    pub claims: Vec<Claim>,
}

impl Figure {
    fn new(id: &'static str, title: &'static str, source: &'static str, unit: &'static str) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            source: source.into(),
            unit: unit.into(),
            stacked: false,
            panels: Vec::new(),
            claims: Vec::new(),
        }
    }

    /// Begins a panel: values that follow are its.
    fn panel(&mut self, title: impl Into<String>, unit: &str) {
        self.panels.push(Panel { title: title.into(), unit: unit.to_owned(), values: Vec::new() });
    }

    fn value(&mut self, series: impl Into<String>, point: impl Into<String>, value: f64) {
        if self.panels.is_empty() {
            let unit = self.unit.clone();
            self.panel("", &unit);
        }
        if let Some(panel) = self.panels.last_mut() {
            panel.values.push(Value { series: series.into(), point: point.into(), value });
        }
    }

    /// A chart for each panel.
    #[must_use]
    pub fn charts(&self) -> Vec<Chart> {
        let chart = |panel: &Panel| {
            let title = match panel.title.as_str() {
                "" => format!("{}: {}", self.id, self.title),
                title => format!("{}: {title}", self.id),
            };
            let values = panel.values.iter();
            let values = values.map(|value| (value.series.as_str(), value.point.as_str(), value.value));
            Chart::of(&title, &panel.unit, self.stacked, values)
        };
        self.panels.iter().map(chart).collect()
    }

    /// States that `measured` is at least `least`.
    fn at_least(&mut self, text: &str, paper: &str, measured: f64, least: f64) {
        self.claims.push(Claim::at_least(text, paper, measured, least));
    }

    /// States that `measured` is at most `most`.
    fn at_most(&mut self, text: &str, paper: &str, measured: f64, most: f64) {
        self.claims.push(Claim::at_most(text, paper, measured, most));
    }
}

/// The claims of some figures as a table in Markdown, as `docs/figures.md` has it.
#[must_use]
pub fn markdown(figures: &[Figure]) -> String {
    let mut table = String::from("| figure | claim | paper | here | |\n|---|---|---|---|---|\n");
    for figure in figures {
        for claim in &figure.claims {
            let Claim { text, paper, measured, .. } = claim;
            let verdict = claim.verdict();
            table += &format!("| {} | {text} | {paper} | {measured:.3} | {verdict} |\n", figure.id);
        }
    }
    table
}

/// Working set of a figure, in bytes.
pub const FULL_BYTES: u64 = 128 << 20;
/// The same of `--quick`: minutes instead of an hour.
pub const QUICK_BYTES: u64 = 16 << 20;

type Make = fn(&mut Lab) -> Result<Figure, RunError>;

static FIGURES: &[(&str, Make)] = &[
    ("H4", hotbox::h4),
    ("H5a", hotbox::h5a),
    ("H5b", hotbox::h5b),
    ("H5c", hotbox::h5c),
    ("H6", hotbox::h6),
    ("H8", hotbox::h8),
    ("H42", hotbox::h42),
    ("H10", hotbox::h10),
    ("H11", hotbox::h11),
    ("H12", hotbox::h12),
    ("I26", indigo::i26),
    ("I3", indigo::i3),
    ("I4", indigo::i4),
    ("I8", indigo::i8),
    ("I9", indigo::i9),
    ("I10", indigo::i10),
    ("I11", indigo::i11),
    ("I12", indigo::i12),
    ("IT4", indigo::it4),
    ("D9", dcm::d9),
    ("D13", dcm::d13),
    ("D14", dcm::d14),
    ("D16", dcm_threads::d16),
];

/// Why there is no such figure.
#[derive(Debug, Error)]
pub enum FigureError {
    /// No figure has this id.
    #[error("figure '{id}': there is none of this id; take 'all' or one of {known}")]
    Unknown {
        /// What was asked for.
        id: String,
        /// The ids there are.
        known: String,
    },
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// The ids of all figures.
#[must_use]
pub fn ids() -> Vec<&'static str> {
    FIGURES.iter().map(|(id, _)| *id).collect()
}

/// Makes one figure.
///
/// # Errors
/// There is none of this id, or a run failed.
pub fn make(id: &str, lab: &mut Lab) -> Result<Figure, FigureError> {
    let (_, make) = FIGURES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(id))
        .ok_or_else(|| FigureError::Unknown { id: id.to_owned(), known: ids().join(", ") })?;
    Ok(make(lab)?)
}

/// The largest of some numbers.
fn most(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// The smallest of some numbers.
fn least(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(f64::INFINITY, f64::min)
}

/// The geometric mean of some ratios.
fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> f64 {
    let logarithms: Vec<f64> = ratios.into_iter().map(f64::ln).collect();
    mean(&logarithms).exp()
}

/// The mean of some numbers.
fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_unknown_ones_are_answered() {
        let mut all = ids();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), FIGURES.len());
        let error = make("H99", &mut Lab::new(4 << 20, 1)).unwrap_err().to_string();
        assert!(error.contains("'H99'") && error.contains("H10"), "{error}");
    }

    #[test]
    fn a_claim_holds_or_not_by_what_was_measured() {
        let mut figure = Figure::new("X", "", "", "");
        figure.at_least("a", "2", 1.0, 2.0);
        figure.at_most("b", "2", 1.0, 2.0);
        assert_eq!(figure.claims.iter().map(|claim| claim.holds).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_table_has_a_row_for_each_claim() {
        let mut figure = Figure::new("X", "", "", "");
        figure.at_least("a", "up to 2", 1.0, 2.0);
        figure.at_most("b", "2", 1.0 / 3.0, 2.0);
        let table = markdown(&[figure]);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            ["| X | a: at least 2 | up to 2 | 1.000 | differs |", "| X | b: at most 2 | 2 | 0.333 | holds |"]
        );
    }

    /// A small figure, from its runs to its claims, and a second one that needs the same runs.
    #[test]
    fn a_figure_is_made_and_its_runs_are_kept() {
        let mut lab = Lab::new(8 << 20, 2);
        let figure = make("H5c", &mut lab).unwrap();
        let mut values = figure.panels.iter().flat_map(|panel| &panel.values);
        assert!(!figure.claims.is_empty() && values.clone().count() > 0);
        assert!(values.all(|value| value.value.is_finite()));
        assert!(figure.charts().iter().all(|chart| chart.svg().is_ok()));
        let json = serde_json::to_string(&figure).unwrap();
        assert_eq!(serde_json::from_str::<Figure>(&json).unwrap(), figure, "a report reads it again");
        let runs = lab.runs();
        assert_eq!(make("h5c", &mut lab).unwrap(), figure);
        assert_eq!(lab.runs(), runs);
    }
}
