//! Figures over all programs.

use super::report::{Choice, DcmReport, Far};

/// A share as people write it.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// The mean, where there is anything.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A share as people write it, where there is one.
pub(super) fn percent_or_none(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), percent)
}

/// What all programs came to on one kind of far memory at one share.
pub(super) fn choices(report: &DcmReport, far: Far, local_pct: u64) -> Vec<Choice> {
    report.usual().filter_map(|workload| workload.choice(far, local_pct)).collect()
}
