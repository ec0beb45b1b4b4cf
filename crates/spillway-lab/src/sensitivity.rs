//! What becomes of the figures' claims when a constant of the time model is half or twice what it is.
//!
//! Many constants are estimates ([`crate::simulator::platform`] says which). A claim that turns with one of
//! them holds no better than that constant is known; this says which do.

use serde::Serialize;
use serde_json::Value;
use spillway_report::claim::{Claim, Score};

use crate::figures::lab::Lab;
use crate::figures::{self, Figure, FigureError};
use crate::simulator::platform::Platform;

/// By what each constant is multiplied.
pub const FACTORS: [f64; 2] = [0.5, 2.0];

/// What is a size of the platform, not a constant of how long things take.
const SIZES: [&str; 2] = ["working_set_bytes", "page_bytes"];

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The figures whose claims are looked at, by id.
    pub figures: Vec<String>,
    /// The constants that are changed, by name.
    pub constants: Vec<String>,
    /// Working set of the figures, in bytes.
    pub bytes: u64,
}

/// A claim whose verdict is another one with the constant changed.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    /// The figure of the claim.
    pub figure: String,
    /// What the claim says.
    pub text: String,
    /// What was measured with the constants as they are.
    pub value_before: f64,
    /// And with the one changed.
    pub value: f64,
    /// Whether it held in direction before.
    pub direction_before: bool,
    /// And whether it does now.
    pub direction: bool,
    /// Whether it held in size before, where the paper has a number.
    pub size_before: Option<bool>,
    /// And whether it does now.
    pub size: Option<bool>,
}

/// What one change of one constant does.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The constant that was changed.
    pub constant: String,
    /// By what it was multiplied.
    pub factor: f64,
    /// How many claims hold with it.
    pub score: Score,
    /// The claims that turned.
    pub turns: Vec<Turn>,
}

/// How far the claims hang on the constants.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// Working set of the figures, in bytes.
    pub bytes: u64,
    /// The figures that were looked at.
    pub figures: Vec<String>,
    /// How many claims hold with the constants as they are.
    pub score: Score,
    /// Each change, in the order of the platform's constants.
    pub trials: Vec<Trial>,
}

/// The constants of the time model, by name.
#[must_use]
pub fn constants() -> Vec<String> {
    let Ok(Value::Object(all)) = serde_json::to_value(Platform::hotbox()) else { return Vec::new() };
    let numbers =
        all.into_iter().filter(|(name, value)| value.is_number() && !SIZES.contains(&name.as_str()));
    numbers.map(|(name, _)| name).collect()
}

fn make(plan: &Plan, lab: &mut Lab, made: &dyn Fn()) -> Result<Vec<Figure>, FigureError> {
    let figure = |id: &String| figures::make(id, lab).inspect(|_| made());
    plan.figures.iter().map(figure).collect()
}

fn claims(figures: &[Figure]) -> impl Iterator<Item = (&Figure, &Claim)> {
    figures.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim)))
}

fn turns(before: &[Figure], after: &[Figure]) -> Vec<Turn> {
    let pairs = claims(before).zip(claims(after));
    let turned = pairs.filter(|((_, old), (_, new))| (old.direction, old.size) != (new.direction, new.size));
    turned
        .map(|((figure, old), (_, new))| Turn {
            figure: figure.id.to_string(),
            text: old.text.clone(),
            value_before: old.value,
            value: new.value,
            direction_before: old.direction,
            direction: new.direction,
            size_before: old.size,
            size: new.size,
        })
        .collect()
}

/// How many figures a plan makes.
#[must_use]
pub fn figures_of(plan: &Plan) -> usize {
    plan.figures.len() * (1 + FACTORS.len() * plan.constants.len())
}

/// Makes the figures with the constants as they are, and with each halved and doubled. Tells `made` each time
/// that a figure is done.
///
/// # Errors
/// There is no such figure, or a run failed.
pub fn measure(plan: &Plan, threads: usize, made: &dyn Fn()) -> Result<Sensitivity, FigureError> {
    let before = make(plan, &mut Lab::new(plan.bytes, threads), made)?;
    let mut trials = Vec::new();
    for constant in &plan.constants {
        for factor in FACTORS {
            let mut lab = Lab::new(plan.bytes, threads).scaling(constant, factor);
            let after = make(plan, &mut lab, made)?;
            let score = Score::of(after.iter().flat_map(|figure| &figure.claims));
            let turns = turns(&before, &after);
            trials.push(Trial { constant: constant.clone(), factor, score, turns });
        }
    }
    Ok(Sensitivity {
        bytes: plan.bytes,
        figures: plan.figures.clone(),
        score: Score::of(before.iter().flat_map(|figure| &figure.claims)),
        trials,
    })
}

/// The trials as a table in Markdown.
#[must_use]
pub fn markdown(sensitivity: &Sensitivity) -> String {
    let mut table = String::from("| constant | times | claims that turn | directions | sizes |\n");
    table += "|---|---|---|---|---|\n";
    for Trial { constant, factor, score, turns } in &sensitivity.trials {
        let Score { claims, directions, sized, sizes } = score;
        let turned: Vec<String> = turns.iter().map(turned).collect();
        let turned = if turned.is_empty() { "none".to_owned() } else { turned.join("; ") };
        table += &format!(
            "| `{constant}` | {factor} | {turned} | {directions} of {claims} | {sizes} of {sized} |\n"
        );
    }
    table + &format!("\nAs they are: {}.\n", sensitivity.score)
}

/// A claim that turned, in a few words.
#[must_use]
pub fn turned(turn: &Turn) -> String {
    let name = turn.text.split(':').next().unwrap_or(&turn.text);
    let verdict = match (turn.direction_before, turn.direction) {
        (true, false) => "no longer holds",
        (false, true) => "holds",
        _ if turn.size == Some(true) => "as large as in the paper",
        _ => "no longer as large as in the paper",
    };
    format!("{}: {name} ({:.3} to {:.3}) {verdict}", turn.figure, turn.value_before, turn.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::lab::Change;
    use crate::figures::lab::scale_constant;
    use crate::run::RunSpec;

    #[test]
    fn every_constant_of_the_platform_is_one_and_no_size_is() {
        let constants = constants();
        for name in ["far_ns", "link_bytes_per_s", "migrate_page_ns", "scan_entry_ns", "swap_locked_share"] {
            assert!(constants.iter().any(|constant| constant == name), "{name}");
        }
        assert!(!constants.iter().any(|constant| SIZES.contains(&constant.as_str())));
    }

    #[test]
    fn a_constant_is_scaled_from_what_the_run_has_and_stays_within_sense() {
        let spec = RunSpec { workload: "tpcc".into(), ..RunSpec::default() };
        let set = |spec: &RunSpec, constant: &str| {
            scale_constant(spec, constant, 2.0).platform_settings[constant].clone()
        };
        assert_eq!(set(&spec, "far_ns"), 1500.0);
        assert_eq!(set(&spec.clone().far_ns(100.0), "far_ns"), 200.0);
        assert_eq!(set(&spec.clone().on("indigo"), "far_ns"), 1800.0);
        assert_eq!(set(&spec, "swap_locked_share"), 1.0);
        assert_eq!(set(&spec, "llc_bytes"), 40 << 20);
        assert_eq!(scale_constant(&spec, "stream_overlap", 1e-9).platform_settings["stream_overlap"], 1.0);
    }

    #[test]
    fn claims_that_turn_are_told_with_both_values() {
        let plan =
            Plan { figures: vec!["H42".into()], constants: vec!["migrate_page_ns".into()], bytes: 2 << 20 };
        let made = std::cell::Cell::new(0);
        let found =
            measure(&plan, 1, &|| made.set(made.get() + 1)).map_err(|error| error.to_string()).unwrap();
        assert_eq!((made.get(), figures_of(&plan)), (3, 3));
        assert_eq!(found.trials.len(), 2);
        let table = markdown(&found);
        assert!(table.contains("`migrate_page_ns` | 0.5") && table.contains("As they are"), "{table}");
        for trial in &found.trials {
            let before = found.score.directions;
            let gained = trial.turns.iter().filter(|turn| turn.direction && !turn.direction_before).count();
            let lost = trial.turns.iter().filter(|turn| !turn.direction && turn.direction_before).count();
            assert_eq!(trial.score.directions + lost, before + gained);
        }
    }
}
