//! Checks as a person reads them: the answer first, then what could be better.

use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use spillway_sys::machine::{Check, Purpose, Status};

use crate::columns::fitted;
use crate::short::wrapped;

/// The answer, what could be better, and where to read on, in so many columns.
pub fn print(out: &mut impl Write, checks: &[Check], columns: usize) -> io::Result<()> {
    let shown: Vec<_> = checks.iter().filter(|check| is_shown(check, checks)).collect();
    write!(out, "{}", first_line(checks, columns))?;
    for check in &shown {
        writeln!(out)?;
        print_check(out, check, columns)?;
    }
    if let Some(tier) = no_tier(checks) {
        let line = format!("\n'spillway tier' has nothing to do here: {}.", tier.found);
        write!(out, "{}", fitted(&line, columns))?;
    }
    let rest = checks.len() - shown.len();
    let line = match shown.iter().any(|check| is_fixable(check)) {
        true => "'spillway doctor --fix' mends, after asking",
        false => "next: spillway run --local 512M PROGRAM",
    };
    let line = format!("\n{rest} more checks: spillway doctor --all; {line}");
    write!(out, "{}", fitted(&line, columns))?;
    out.flush()
}

/// Every check, and the answer.
pub fn print_all(out: &mut impl Write, checks: &[Check], columns: usize) -> io::Result<()> {
    writeln!(out, "{}", first_line(checks, columns))?;
    for check in checks {
        print_check(out, check, columns)?;
    }
    out.flush()
}

/// The answer, which stays one line for scripts: only a narrow terminal has it in several.
fn first_line(checks: &[Check], columns: usize) -> String {
    let answer = answer(checks);
    if columns < 80 { fitted(&answer, columns) } else { answer + "\n" }
}

/// Whether programs can run here, in one line.
pub fn answer(checks: &[Check]) -> String {
    let failures: Vec<_> = checks.iter().filter(|check| check.prevents_running()).collect();
    let losses =
        checks.iter().filter(|check| check.status == Status::Warn && is_shown(check, checks)).count();
    match (failures.as_slice(), losses) {
        ([], 0) => "This machine can run programs on far memory.".to_owned(),
        ([], losses) => {
            let things = things(losses);
            format!("This machine can run programs on far memory. {things} could be better:")
        }
        ([only], _) if only.name == "uffd-permission" => {
            "This machine can run programs on far memory, but not for you yet: you lack a right.".to_owned()
        }
        (failures, _) => {
            let (things, are) =
                (things(failures.len()).to_lowercase(), if failures.len() == 1 { "is" } else { "are" });
            format!("This machine cannot run programs on far memory: {things} {are} missing.")
        }
    }
}

/// The exit status that says whether programs can run here.
pub fn code(checks: &[Check]) -> ExitCode {
    if checks.iter().any(Check::prevents_running) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// So many things, at the start of a sentence.
fn things(count: usize) -> String {
    const WORDS: [&str; 9] = ["One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"];
    let number =
        count.checked_sub(1).and_then(|at| WORDS.get(at)).map_or(count.to_string(), |word| (*word).into());
    if count == 1 { format!("{number} thing") } else { format!("{number} things") }
}

/// Whether a check is among what could be better.
pub fn is_shown(check: &Check, checks: &[Check]) -> bool {
    let is_amiss = matches!(check.status, Status::Warn | Status::Missing);
    is_amiss
        && match check.purpose {
            Purpose::Run => true,
            // What stands in the way of 'tier' matters where it could run.
            Purpose::Tier => no_tier(checks).is_none(),
            Purpose::Nothing => false,
        }
}

/// Whether something is amiss that a command can mend without the user.
pub fn is_fixable(check: &Check) -> bool {
    matches!(check.status, Status::Warn | Status::Missing)
        && check.remedies.iter().any(|remedy| remedy.is_automatic)
}

/// The check that says why 'tier' cannot run, where it cannot.
fn no_tier(checks: &[Check]) -> Option<&Check> {
    checks.iter().find(|check| check.name == "memory-tiers" && check.status != Status::Ok)
}

/// A check with its remedies.
pub fn print_check(out: &mut impl Write, check: &Check, columns: usize) -> io::Result<()> {
    let style = style(check);
    writeln!(out, "{style}{:<8}{style:#}{}", check.status.mark(), hanging(check, columns))?;
    for (at, remedy) in check.remedies.iter().enumerate() {
        let label = if at == 0 { "mend: " } else { "or:   " };
        writeln!(out, "{:INDENT$}{label}{}", "", remedy.command)?;
        if !remedy.effect.is_empty() {
            let effect = wrapped(&format!("({})", remedy.effect), columns - INDENT - label.len());
            let gap = format!("{:1$}", "", INDENT + label.len());
            writeln!(out, "{gap}{}", effect.join(&format!("\n{gap}")))?;
        }
    }
    Ok(())
}

/// Where the second column of text begins, and the third.
const INDENT: usize = 8;
const NAME: usize = 21;
/// From so many columns on there is room for the third.
const WIDE_COLUMNS: usize = 60;

/// Name, find and meaning, with what does not fit hanging below; where there are few columns, all but the
/// name.
fn hanging(check: &Check, columns: usize) -> String {
    let sentence = format!("{} - {}", check.found, check.meaning);
    let (first, indent) = match columns >= WIDE_COLUMNS {
        true => (format!("{:<NAME$}", check.name), INDENT + NAME),
        false => (format!("{}\n{:INDENT$}", check.name, ""), INDENT),
    };
    first + &wrapped(&sentence, columns - indent).join(&format!("\n{:indent$}", ""))
}

fn style(check: &Check) -> Style {
    let color = match check.status {
        Status::Ok => AnsiColor::Green,
        Status::Missing => AnsiColor::Red,
        Status::Warn => AnsiColor::Yellow,
        Status::Absent => return Style::new(),
    };
    color.on_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, status: Status) -> Check {
        Check::new(name, status, "found", "meaning")
    }

    fn printed(checks: &[Check]) -> String {
        let mut out = Vec::new();
        print(&mut out, checks, 80).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string()
    }

    #[test]
    fn the_first_line_is_the_answer() {
        let essential = |name| Check { essential: true, ..check(name, Status::Missing) };
        let warn = |name| check(name, Status::Warn);
        for (checks, line) in [
            (vec![check("a", Status::Ok)], "This machine can run programs on far memory."),
            (vec![warn("a")], "This machine can run programs on far memory. One thing could be better:"),
            (
                vec![warn("a"), warn("b")],
                "This machine can run programs on far memory. Two things could be better:",
            ),
            (
                vec![warn("a"), essential("b")],
                "This machine cannot run programs on far memory: one thing is missing.",
            ),
            (
                vec![essential("a"), essential("b")],
                "This machine cannot run programs on far memory: two things are missing.",
            ),
            (
                vec![essential("uffd-permission")],
                "This machine can run programs on far memory, but not for you yet: you lack a right.",
            ),
        ] {
            assert_eq!(printed(&checks).lines().next(), Some(line));
        }
        assert_eq!(things(12), "12 things");
    }

    #[test]
    fn what_is_well_or_not_needed_is_shown_on_request_only() {
        let slow = check("memory-tiers", Status::Absent).for_purpose(Purpose::Tier);
        let checks = [
            check("well", Status::Ok),
            check("toy", Status::Warn).for_purpose(Purpose::Nothing),
            check("conflict", Status::Warn).for_purpose(Purpose::Tier),
            check("loss", Status::Warn).mended_by("mend it", "for a day").mended_by_hand("buy one", ""),
            slow,
        ];
        let text = printed(&checks);
        assert!(text.contains("warn    loss") && text.contains("One thing could be better"), "{text}");
        assert!(text.contains("mend: mend it\n") && text.contains("(for a day)\n"), "{text}");
        assert!(text.contains("or:   buy one\n") && text.contains("4 more checks"), "{text}");
        assert!(text.contains("'spillway tier' has nothing to do here: found."), "{text}");
        for hidden in ["well ", "toy", "conflict"] {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }
        let mut all = Vec::new();
        print_all(&mut all, &checks, 80).unwrap();
        let all = String::from_utf8(all).unwrap();
        assert!(checks.iter().all(|check| all.contains(check.name)), "{all}");
        let long =
            Check::new("a-name-of-some-length", Status::Warn, "found at some length", "it means a lot");
        for columns in [40, 80] {
            let mut out = Vec::new();
            print_all(&mut out, std::slice::from_ref(&long), columns).unwrap();
            print(&mut out, std::slice::from_ref(&long), columns).unwrap();
            let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
        }
        // Where 'tier' can run, what stands in its way is shown.
        let with_tier = [checks[2].clone(), check("memory-tiers", Status::Ok).for_purpose(Purpose::Tier)];
        assert!(printed(&with_tier).contains("conflict"));
    }
}
