//! Claims of papers beside our measurements, with two verdicts each.
//!
//! What is asked of a measurement follows from the paper's words, by one rule:
//!
//! - **Direction.** Words that compare, with a number or without one ("2.25 times as fast", "faster",
//!   "falls"), ask for the side of *no effect* that they name: 1 for ratios, 0 for differences. "Noticeably"
//!   and the like ask for 5% beyond it, "much", "far" and "several times" for twice. Words that say that two
//!   are the same ("on par", "comparable", "no significant degradation", "about 0") ask for no more than 5%
//!   on the wrong side. A bound ("at most", "within"), and a quantity that the paper gives as an argument by
//!   itself ("good-put is low: 27%"), asks for that number or better.
//! - **Size.** Where the paper has a number, the measurement lies within 25% of it; where it has two ("1.2 to
//!   1.6"), of the nearer one, or between them. What goes another way than the paper says is not as large,
//!   however near: it has the size only where it has the direction. A bound has none: it says how much it is
//!   at most, not how much. A number that a constant of the model was fitted to has none either: that it
//!   comes out says nothing.
//!
//! None asks less than the paper says.

use std::fmt;
use std::ops::RangeInclusive;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// By how much of the paper's number a measurement may differ and be as large as that.
pub const SIZE_SHARE: f64 = 0.25;

/// By how much two may differ that are the same, and from which on a difference is noticeable.
const SAME: f64 = 0.05;

/// How many times as large something is that is much larger.
const MUCH: f64 = 2.0;

/// What a paper's words ask of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Asks {
    /// A ratio above 1.
    Larger,
    /// A ratio below 1.
    Smaller,
    /// A ratio noticeably above 1.
    ClearlyLarger,
    /// A ratio far above 1.
    MuchLarger,
    /// A difference above 0.
    Gain,
    /// No less than this, but for what is the same.
    NoLess(f64),
    /// No more than this, but for what is the same.
    NoMore(f64),
    /// The paper's own number, or more.
    AtLeast(f64),
    /// The paper's own number, or less.
    AtMost(f64),
    /// No more than the bound that the paper states.
    Within(f64),
    /// No less than the bound that the paper states.
    Beyond(f64),
}

impl Asks {
    /// Whether a value is what is asked for.
    #[must_use]
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::Larger => value > 1.0,
            Self::Smaller => value < 1.0,
            Self::ClearlyLarger => value > 1.0 + SAME,
            Self::MuchLarger => value >= MUCH,
            Self::Gain => value > 0.0,
            Self::NoLess(least) => value >= least - SAME,
            Self::NoMore(most) => value <= most + SAME,
            Self::AtLeast(least) | Self::Beyond(least) => value >= least,
            Self::AtMost(most) | Self::Within(most) => value <= most,
        }
    }

    /// The paper's number, where it is what is asked for.
    fn number(self) -> Option<f64> {
        match self {
            Self::AtLeast(number) | Self::AtMost(number) => Some(number),
            Self::Within(bound) | Self::Beyond(bound) => Some(bound),
            _ => None,
        }
    }
}

impl fmt::Display for Asks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Larger => write!(out, "above 1"),
            Self::Smaller => write!(out, "below 1"),
            Self::ClearlyLarger => write!(out, "above {}", 1.0 + SAME),
            Self::MuchLarger => write!(out, "at least {MUCH}"),
            Self::Gain => write!(out, "above 0"),
            Self::NoLess(least) => write!(out, "at least {}", least - SAME),
            Self::NoMore(most) => write!(out, "at most {}", most + SAME),
            Self::AtLeast(least) | Self::Beyond(least) => write!(out, "at least {least}"),
            Self::AtMost(most) | Self::Within(most) => write!(out, "at most {most}"),
        }
    }
}

/// A claim of a paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What it says, as an inequality over `value`.
    pub text: String,
    /// What the paper says, in its words.
    pub paper: String,
    /// The paper's number, in the unit of `value`, where it has one; of two the nearer.
    #[serde(default)]
    pub paper_value: Option<f64>,
    /// What we measured, in the claim's unit.
    #[serde(alias = "measured")]
    pub value: f64,
    /// Whether it goes the way that the paper says.
    #[serde(alias = "holds")]
    pub direction: bool,
    /// Whether it is as large as the paper says, where that says how large.
    #[serde(default)]
    pub size: Option<bool>,
    /// Constants of the model that it hangs on and that were fitted to the paper's results, not taken from a
    /// source or a measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
}

impl Claim {
    /// The claim that a value is what a paper's words ask for.
    #[must_use]
    pub fn new(text: &str, paper: &str, asks: Asks, value: f64) -> Self {
        let claim = Self {
            text: format!("{text}: {asks}"),
            paper: paper.to_owned(),
            paper_value: None,
            value,
            direction: asks.is_met(value),
            size: None,
            fitted: Vec::new(),
        };
        match (asks, asks.number()) {
            (Asks::Within(_) | Asks::Beyond(_), bound) => Self { paper_value: bound, ..claim },
            (_, Some(number)) => claim.sized(number),
            (_, None) => claim,
        }
    }

    /// The same, where the paper says how large it is.
    #[must_use]
    pub fn sized(self, number: f64) -> Self {
        let is_near = (self.value - number).abs() <= SIZE_SHARE * number.abs();
        Self { paper_value: Some(number), size: Some(self.direction && is_near), ..self }
    }

    /// The same, where a constant of the model was fitted to the paper's number: that is named, and has no
    /// size here.
    #[must_use]
    pub fn fitted_to(self, number: f64) -> Self {
        Self { paper_value: Some(number), size: None, ..self }
    }

    /// The same, where the paper says between which two it lies.
    #[must_use]
    pub fn between(self, numbers: RangeInclusive<f64>) -> Self {
        let nearer = self.value.clamp(*numbers.start(), *numbers.end());
        self.sized(nearer)
    }

    /// Whether it holds in direction, in a word.
    #[must_use]
    pub const fn verdict(&self) -> &'static str {
        word(self.direction)
    }

    /// What it says, and the constants behind it that were fitted.
    #[must_use]
    pub fn row_text(&self) -> String {
        match self.fitted.as_slice() {
            [] => self.text.clone(),
            fitted => format!("{} (fitted: {})", self.text, fitted.join(", ")),
        }
    }

    /// Both verdicts in a few words.
    #[must_use]
    pub fn verdicts(&self) -> String {
        match self.size {
            None => self.verdict().to_owned(),
            Some(_) => format!("{}, {} in size", self.verdict(), self.size_verdict()),
        }
    }

    /// Whether it is as large as in the paper, in a word; nothing where the paper does not say how large.
    #[must_use]
    pub const fn size_verdict(&self) -> &'static str {
        match self.size {
            Some(is_near) => word(is_near),
            None => "",
        }
    }
}

const fn word(holds: bool) -> &'static str {
    if holds { "holds" } else { "differs" }
}

/// How many of some claims hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// All that there are.
    pub claims: usize,
    /// Those that hold in direction.
    pub directions: usize,
    /// Those of which the paper says how large it is.
    pub sized: usize,
    /// Those of them that are as large as in the paper.
    pub sizes: usize,
}

impl Score {
    /// The score of these.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let mut score = Self::default();
        for claim in claims {
            score.claims += 1;
            score.directions += usize::from(claim.direction);
            score.sized += usize::from(claim.size.is_some());
            score.sizes += usize::from(claim.size == Some(true));
        }
        score
    }

    /// Whether every claim of them holds.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.directions == self.claims && self.sizes == self.sized
    }
}

impl fmt::Display for Score {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, directions, sized, sizes } = self;
        write!(out, "{directions} of {claims} claims hold in direction, {sizes} of {sized} in size")
    }
}

/// A table of claims, with so many decimals of what was measured.
#[must_use]
pub fn claims_table(claims: &[Claim], decimals: usize) -> Markup {
    let verdict = |word: &'static str| html! { @if !word.is_empty() { span.tag.(word) { (word) } } };
    html! {
        table {
            thead {
                tr { th { "claim" } th { "the paper" } th.number { "here" } th { "direction" } th { "size" } }
            }
            tbody {
                @for claim in claims {
                    tr {
                        td { (claim.row_text()) }
                        td { (claim.paper) }
                        td.number { (format!("{:.decimals$}", claim.value)) }
                        td { (verdict(claim.verdict())) }
                        td { (verdict(claim.size_verdict())) }
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
        let claims =
            [Claim::new("a", "<2>", Asks::Beyond(2.0), 1.0), Claim::new("b", "2", Asks::Within(2.0), 1.0)];
        assert_eq!(claims.clone().map(|claim| (claim.direction, claim.size)), [(false, None), (true, None)]);
        let table = claims_table(&claims, 3).into_string();
        for words in ["a: at least 2", "&lt;2&gt;", "1.000", "class=\"tag differs\"", "class=\"tag holds\""] {
            assert!(table.contains(words), "no '{words}' in {table}");
        }
    }

    #[test]
    fn direction_and_size_are_told_apart() {
        let verdicts = |value: f64| {
            let claim = Claim::new("speedup", "2 times as fast", Asks::Larger, value).sized(2.0);
            (claim.direction, claim.size)
        };
        assert_eq!(verdicts(0.9), (false, Some(false)));
        assert_eq!(verdicts(1.1), (true, Some(false)));
        assert_eq!([verdicts(1.5), verdicts(2.5)], [(true, Some(true)); 2]);
        assert_eq!(verdicts(2.6), (true, Some(false)), "more than the paper says is not what it says");
        let without = Claim::new("speedup", "faster", Asks::Larger, 2.0);
        assert_eq!((without.size, without.verdicts().as_str()), (None, "holds"), "it has no number");
        assert_eq!(without.sized(4.0).verdicts(), "holds, differs in size");
    }

    #[test]
    fn a_quantity_is_the_papers_number_and_of_two_numbers_the_nearer_counts() {
        let quantity = Claim::new("good-put", "27%", Asks::AtMost(0.27), 0.25);
        assert_eq!((quantity.direction, quantity.size, quantity.paper_value), (true, Some(true), Some(0.27)));
        let range = |value| Claim::new("a", "1.2 to 1.6", Asks::Larger, value).between(1.2..=1.6);
        let found = [1.01, 1.4, 1.9, 2.1].map(|value| (range(value).paper_value, range(value).size));
        let expected = [(1.2, true), (1.4, true), (1.6, true), (1.6, false)]
            .map(|(paper, near)| (Some(paper), Some(near)));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_goes_the_other_way_is_not_as_large_however_near() {
        let near = Claim::new("a", "1.2 to 1.6", Asks::Larger, 0.95).between(1.2..=1.6);
        assert_eq!((near.direction, near.size), (false, Some(false)));
        let above = Claim::new("good-put", "27%", Asks::AtMost(0.27), 0.28);
        assert_eq!((above.direction, above.size), (false, Some(false)));
    }

    #[test]
    fn a_bound_has_no_size_however_far_within_it_a_value_is() {
        for (value, direction) in [(0.049, true), (0.019, true), (0.051, false)] {
            let bound = Claim::new("behind the best", "within 5 points", Asks::Within(0.05), value);
            assert_eq!((bound.direction, bound.size), (direction, None), "{value}");
            assert_eq!((bound.paper_value, bound.size_verdict()), (Some(0.05), ""), "{value}");
        }
        let least = Claim::new("share", "over 0.9", Asks::Beyond(0.9), 0.99);
        assert_eq!((least.direction, least.size, least.paper_value), (true, None, Some(0.9)));
        assert_eq!(Score::of(&[least]).sized, 0);
    }

    #[test]
    fn what_was_fitted_is_named_in_the_row_and_its_own_number_has_no_size() {
        let claim = Claim::new("loss", "27.8%", Asks::Gain, 0.25).fitted_to(0.278);
        assert_eq!((claim.direction, claim.size, claim.paper_value), (true, None, Some(0.278)));
        let claim = Claim { fitted: vec!["`work`".into(), "`price`".into()], ..claim };
        assert_eq!(claim.row_text(), "loss: above 0 (fitted: `work`, `price`)");
        assert!(claims_table(std::slice::from_ref(&claim), 3).into_string().contains("fitted: `work`"));
        let json = serde_json::to_value(&claim).unwrap();
        assert_eq!(json["fitted"], serde_json::json!(["`work`", "`price`"]));
        assert!(serde_json::to_value(Claim::new("a", "b", Asks::Gain, 1.0)).unwrap().get("fitted").is_none());
    }

    #[test]
    fn words_ask_for_what_the_rule_says() {
        let least = [
            (Asks::Larger, 1.0, 1.001),
            (Asks::ClearlyLarger, 1.05, 1.051),
            (Asks::MuchLarger, 1.999, 2.0),
            (Asks::Gain, 0.0, 0.001),
            (Asks::NoLess(1.0), 0.949, 0.951),
            (Asks::AtLeast(0.93), 0.929, 0.93),
            (Asks::Beyond(0.9), 0.899, 0.9),
        ];
        for (asks, below, enough) in least {
            assert_eq!([asks.is_met(below), asks.is_met(enough)], [false, true], "{asks}");
        }
        let most = [
            (Asks::Smaller, 1.0, 0.999),
            (Asks::NoMore(0.0), 0.051, 0.049),
            (Asks::AtMost(0.27), 0.271, 0.27),
            (Asks::Within(0.05), 0.0501, 0.05),
        ];
        for (asks, above, enough) in most {
            assert_eq!([asks.is_met(above), asks.is_met(enough)], [false, true], "{asks}");
        }
    }

    #[test]
    fn the_score_counts_both_verdicts() {
        let claims = [
            Claim::new("a", "2", Asks::Larger, 2.0).sized(2.0),
            Claim::new("b", "2", Asks::Larger, 5.0).sized(2.0),
            Claim::new("c", "faster", Asks::Larger, 0.5),
        ];
        let score = Score::of(&claims);
        assert_eq!(score.to_string(), "2 of 3 claims hold in direction, 1 of 2 in size");
        assert!(!score.is_full() && Score::of(&claims[..1]).is_full());
    }

    #[test]
    fn results_of_a_version_before_are_read() {
        let old = r#"{"text": "a", "paper": "2", "measured": 1.5, "holds": true}"#;
        let claim: Claim = serde_json::from_str(old).unwrap();
        assert_eq!((claim.value, claim.direction, claim.size), (1.5, true, None));
        let json = serde_json::to_value(&claim).unwrap();
        for field in ["direction", "size", "paper_value", "value"] {
            assert!(json.get(field).is_some(), "{field}");
        }
    }
}
