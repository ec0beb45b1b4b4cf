//! The table that a sweep leaves: one row a run, read from Parquet.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use spillway_policy::knowledge::Foreknowledge;
use spillway_policy::registry;

use super::error::ReportError;

/// One run, as a row of the table tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The name of the workload.
    pub workload: String,
    /// The name of the policy.
    pub policy: String,
    /// The name of the platform.
    pub platform: String,
    numbers: BTreeMap<String, f64>,
}

impl Run {
    /// A parameter or measure of this name; none where the table has no such column, or nothing in it.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied().filter(|number| number.is_finite())
    }

    /// Run time, in seconds.
    #[must_use]
    pub fn run_s(&self) -> f64 {
        self.number("run_s").unwrap_or(0.0)
    }

    /// Whether its policy is a bound and no rival: one that knows the future, or has all the memory there is.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        registry::find(&self.policy)
            .is_ok_and(|entry| entry.unlimited || entry.needs.foreknowledge != Foreknowledge::Nothing)
    }

    fn of(row: &Row) -> Self {
        let mut run = Self::default();
        for (name, field) in row.get_column_iter() {
            match (name.as_str(), field) {
                ("workload", Field::Str(text)) => run.workload.clone_from(text),
                ("policy", Field::Str(text)) => run.policy.clone_from(text),
                ("platform", Field::Str(text)) => run.platform.clone_from(text),
                (_, Field::Double(number)) => drop(run.numbers.insert(name.clone(), *number)),
                _ => {}
            }
        }
        run
    }
}

/// All runs of a table, in its order.
///
/// # Errors
/// It cannot be read, or is no table of runs.
pub fn read(path: &Path) -> Result<Vec<Run>, ReportError> {
    let wrong = |reason: String| ReportError::Table { path: path.display().to_string(), reason };
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let reader = SerializedFileReader::new(file).map_err(|error| wrong(error.to_string()))?;
    let rows = reader.get_row_iter(None).map_err(|error| wrong(error.to_string()))?;
    let mut runs = Vec::new();
    for row in rows {
        let run = Run::of(&row.map_err(|error| wrong(error.to_string()))?);
        if run.policy.is_empty() || run.workload.is_empty() || run.number("run_s").is_none() {
            return Err(wrong("a row has no workload, policy or run time".to_owned()));
        }
        runs.push(run);
    }
    Ok(runs)
}
