//! The papers' figures, from runs of our own: their numbers beside ours, and for each claim whether it holds.
//!
//! A claim is what the paper's text or figure states; what is measured for it is computed from the runs and
//! printed whether it holds or not, in direction and in size ([`spillway_report::claim`] has the rule).
//! Working sets are smaller than the papers'.

mod dcm;
mod dcm_threads;
mod figure;
mod hotbox;
mod indigo;
mod indigo_agent;
mod indigo_tenants;
pub mod lab;
mod nimble;
mod statistics;

use spillway_report::claim::Claim;
use thiserror::Error;

use crate::run::RunError;
pub use figure::{Figure, Panel, Value};
use lab::Lab;
pub use spillway_report::claim::Score;

/// The claims of some figures as a table in Markdown, as `docs/research/figures.md` has it, and how many
/// hold.
#[must_use]
pub fn markdown(figures: &[Figure]) -> String {
    let mut table =
        String::from("| figure | claim | paper | here | direction | size |\n|---|---|---|---|---|---|\n");
    for figure in figures {
        for claim in &figure.claims {
            let (text, Claim { paper, value, .. }) = (claim.row_text(), claim);
            let (direction, size) = (claim.verdict(), claim.size_verdict());
            let row = format!("{} | {text} | {paper} | {value:.3} | {direction} | {size}", figure.id);
            table += &format!("| {} |\n", row.trim_end());
        }
    }
    table + &format!("\n{}.\n", Score::of(figures.iter().flat_map(|figure| &figure.claims)))
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
    ("I13", indigo_agent::i13),
    ("I14", indigo_agent::i14),
    ("IT4", indigo_tenants::it4),
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
    /// A run of the figure failed.
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

#[cfg(test)]
mod tests {
    use spillway_report::claim::Asks;

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
    fn a_table_has_a_row_for_each_claim() {
        let mut figure = Figure::new("X", "", "", "");
        figure.claim(Claim::new("a", "up to 2", Asks::Larger, 1.0).sized(2.0));
        figure.claim(Claim::new("b", "faster", Asks::Smaller, 1.0 / 3.0));
        let mut figure = figure.fitted(&["work"]);
        figure.claim(Claim::new("c", "within 3", Asks::Within(3.0), 1.0));
        let table = markdown(&[figure]);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| X | a: above 1 (fitted: `work`) | up to 2 | 1.000 | differs | differs |",
                "| X | b: below 1 (fitted: `work`) | faster | 0.333 | holds | |",
                "| X | c: at most 3 | within 3 | 1.000 | holds | |",
                "",
                "2 of 3 claims hold in direction, 0 of 1 in size."
            ]
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
