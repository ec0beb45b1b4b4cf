//! What a donor has for each of its runs, as it tells anybody who may connect. Whose a run is it does not
//! tell: that is for who looks after the donor. Part of the private extension ([`crate::private`]).

use std::fmt::Write;

/// What a donor has for one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStanding {
    /// The donor's number for the run, as in the lines that it prints.
    pub number: u64,
    /// Bytes that it has promised to the run.
    pub promised_bytes: u64,
    /// Bytes that it holds for the run.
    pub held_bytes: u64,
    /// No connection of the run is left: what it has is kept for the donor's grace time.
    pub is_lost: bool,
}

const PREFIX: &str = "spillway:runs=";
/// Most runs in one answer: it fits a context's name.
const MOST_RUNS: usize = 48;

/// The runs as they travel to the client: those that hold most, where they are too many.
#[must_use]
pub fn runs_text(mut runs: Vec<RunStanding>) -> String {
    runs.sort_by_key(|run| (std::cmp::Reverse(run.held_bytes), run.number));
    runs.truncate(MOST_RUNS);
    let mut text = PREFIX.to_owned();
    for RunStanding { number, promised_bytes, held_bytes, is_lost } in runs {
        let separator = if text.len() == PREFIX.len() { "" } else { ";" };
        let _ = write!(text, "{separator}{number},{promised_bytes},{held_bytes},{}", u8::from(is_lost));
    }
    text
}

/// Reads a donor's answer; `None` where it is none.
#[must_use]
pub fn parse_runs(context: &str) -> Option<Vec<RunStanding>> {
    let list = context.strip_prefix(PREFIX)?;
    if list.is_empty() {
        return Some(Vec::new());
    }
    let runs: Option<Vec<RunStanding>> = list.split(';').take(MOST_RUNS + 1).map(parse_run).collect();
    runs.filter(|runs| runs.len() <= MOST_RUNS)
}

fn parse_run(text: &str) -> Option<RunStanding> {
    let mut fields = text.split(',');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let run = RunStanding {
        number: number()?,
        promised_bytes: number()?,
        held_bytes: number()?,
        is_lost: match number()? {
            0 => false,
            1 => true,
            _ => return None,
        },
    };
    fields.next().is_none().then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_says_what_it_has_for_each_run_and_nothing_else_is_taken_for_it() {
        let run = |number, held_bytes, is_lost| RunStanding {
            number,
            promised_bytes: 1 << 40,
            held_bytes,
            is_lost,
        };
        let text = runs_text(vec![run(1, 4096, false), run(u64::MAX, u64::MAX, true)]);
        assert_eq!(parse_runs(&text), Some(vec![run(u64::MAX, u64::MAX, true), run(1, 4096, false)]));
        assert_eq!(parse_runs(&runs_text(Vec::new())), Some(Vec::new()));
        for odd in [
            "",
            "spillway:runs",
            "spillway:runs=1",
            "spillway:runs=1,2,3,2",
            "spillway:runs=1,2,3,0,4",
            "spillway:runs=1,2,-3,0",
            "spillway:runs=1,2,3,0;",
            &format!("spillway:runs={}", ["1,2,3,0"; MOST_RUNS + 1].join(";")),
        ] {
            assert_eq!(parse_runs(odd), None, "{odd}");
        }
    }

    #[test]
    fn many_runs_fit_an_answer_those_that_hold_most_first() {
        let runs = (0..10_000).map(|number| RunStanding {
            number: u64::MAX - number,
            promised_bytes: u64::MAX,
            held_bytes: u64::MAX - number,
            is_lost: true,
        });
        let text = runs_text(runs.collect());
        assert!(text.len() <= crate::MAX_NAME_BYTES, "{}", text.len());
        let parsed = parse_runs(&text).unwrap();
        assert_eq!((parsed.len(), parsed[0].held_bytes), (MOST_RUNS, u64::MAX));
    }
}
