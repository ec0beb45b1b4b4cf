//! One thing that was measured, beside what it should be.

use serde::Serialize;

/// One thing that was measured, and what it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is, with its unit.
    pub name: String,
    /// What was measured, in the unit that the name says.
    pub value: f64,
    /// What it should be at most or at least, by the name; `None` where nobody has said.
    pub aim: Option<f64>,
    /// Whether the value reaches its aim, if it has one.
    pub met: Option<bool>,
}

impl Row {
    pub(super) fn at_most(name: impl Into<String>, value: f64, aim: f64) -> Self {
        let name = name.into();
        Self { name, value, aim: Some(aim), met: Some(value <= aim) }
    }

    pub(super) fn at_least(name: impl Into<String>, value: f64, aim: f64) -> Self {
        let name = name.into();
        Self { name, value, aim: Some(aim), met: Some(value >= aim) }
    }

    pub(super) fn without_aim(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, aim: None, met: None }
    }
}

/// How often one time goes into another, in what two measurements have found.
pub(super) fn ratio(of: f64, over: f64) -> f64 {
    of / over.max(f64::MIN_POSITIVE)
}
