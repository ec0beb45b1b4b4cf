//! A figure: the values that our runs give, and the claims of its paper that they are held against.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use spillway_report::chart::Chart;
use spillway_report::claim::Claim;

/// A value of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The curve or group of bars.
    pub series: String,
    /// Where on the curve, or which bar.
    pub point: String,
    /// The value, in the unit of its panel.
    pub value: f64,
}

/// What belongs on one scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// What it shows; empty where the figure has no other panel.
    pub title: String,
    /// What its values are.
    pub unit: String,
    /// The values that our runs gave.
    pub values: Vec<Value>,
}

/// A figure of a paper, from our runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its id, such as `H10` for HotBox's Figure 10.
    pub id: Cow<'static, str>,
    /// What it shows, in a line.
    pub title: Cow<'static, str>,
    /// Where it is from.
    pub source: Cow<'static, str>,
    /// What the values are.
    pub unit: Cow<'static, str>,
    /// Whether its series add up to a whole.
    pub stacked: bool,
    /// Our values, in one panel or more.
    pub panels: Vec<Panel>,
    /// The claims of the paper, beside what we measured.
    pub claims: Vec<Claim>,
}

impl Figure {
    /// A figure that shows nothing yet.
    pub(super) fn new(
        id: &'static str,
        title: &'static str,
        source: &'static str,
        unit: &'static str,
    ) -> Self {
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

    /// The same, where runs hang on constants that were fitted: each claim names them.
    pub(super) fn fitted(mut self, constants: &[&str]) -> Self {
        for claim in &mut self.claims {
            claim.fitted = constants.iter().map(|name| format!("`{name}`")).collect();
        }
        self
    }

    /// Begins a panel: values that follow are its.
    pub(super) fn panel(&mut self, title: impl Into<String>, unit: &str) {
        self.panels.push(Panel { title: title.into(), unit: unit.to_owned(), values: Vec::new() });
    }

    /// Adds a value to the last panel.
    pub(super) fn value(&mut self, series: impl Into<String>, point: impl Into<String>, value: f64) {
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

    /// States what the paper claims.
    pub(super) fn claim(&mut self, claim: Claim) {
        self.claims.push(claim);
    }
}
