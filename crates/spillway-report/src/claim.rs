//! Claims of papers beside our measurements.

use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// A claim of a paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What it says, as an inequality over `measured`.
    pub text: String,
    /// What the paper measured, in its words.
    pub paper: String,
    /// What we measured.
    pub measured: f64,
    /// Whether it holds in our measurement.
    pub holds: bool,
}

impl Claim {
    /// The claim that `measured` is at least `least`.
    #[must_use]
    pub fn at_least(text: &str, paper: &str, measured: f64, least: f64) -> Self {
        let text = format!("{text}: at least {least}");
        Self { text, paper: paper.to_owned(), measured, holds: measured >= least }
    }

    /// The claim that `measured` is at most `most`.
    #[must_use]
    pub fn at_most(text: &str, paper: &str, measured: f64, most: f64) -> Self {
        let text = format!("{text}: at most {most}");
        Self { text, paper: paper.to_owned(), measured, holds: measured <= most }
    }

    /// Whether it holds, in a word.
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        if self.holds { "holds" } else { "differs" }
    }
}

/// A table of claims, with so many decimals of what was measured.
#[must_use]
pub fn claims_table(claims: &[Claim], decimals: usize) -> Markup {
    html! {
        table {
            thead { tr { th { "claim" } th { "the paper" } th.number { "here" } th {} } }
            tbody {
                @for claim in claims {
                    tr {
                        td { (claim.text) }
                        td { (claim.paper) }
                        td.number { (format!("{:.decimals$}", claim.measured)) }
                        td { span.tag.(claim.verdict()) { (claim.verdict()) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_or_not_by_what_was_measured() {
        let claims = [Claim::at_least("a", "<2>", 1.0, 2.0), Claim::at_most("b", "2", 1.0, 2.0)];
        assert_eq!(claims.clone().map(|claim| claim.holds), [false, true]);
        let table = claims_table(&claims, 3).into_string();
        for words in ["a: at least 2", "&lt;2&gt;", "1.000", "class=\"tag differs\"", "class=\"tag holds\""] {
            assert!(table.contains(words), "no '{words}' in {table}");
        }
    }
}
