//! `spillway doctor --fix`: does what the checks propose, one command at a time, each after asking.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::{Command, ExitCode};

use spillway_sys::machine::{Check, Remedy};

use super::words::{self, answer, code, is_fixable};
use crate::columns::columns;
use crate::exit::complain;

/// How a person, or `--yes`, answers.
enum Answer {
    Yes,
    No,
    /// Nobody answers any more.
    Gone,
}

/// Mends what can be mended, and looks `again`. The exit status says whether programs can run, and every
/// command went well.
pub fn run(checks: &[Check], is_yes_to_all: bool, again: impl Fn() -> Vec<Check>) -> ExitCode {
    if !is_yes_to_all && !io::stdin().is_terminal() {
        complain(
            "doctor --fix: standard input is no terminal, so that nobody can be asked; look at what \
             'spillway doctor' proposes, and give --yes to have it done",
        );
        return ExitCode::FAILURE;
    }
    let mut ask = |remedy: &Remedy| if is_yes_to_all { Answer::Yes } else { ask_terminal(remedy) };
    let mended = mend(&mut anstream::AutoStream::auto(io::stdout()), checks, &mut ask, &run_command);
    let checks = again();
    // A reader that went away has seen what it wanted.
    let _ = writeln!(io::stdout(), "\n{}", answer(&checks).trim_end_matches(':'));
    match mended {
        Ok(true) => code(&checks),
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(format_args!("doctor --fix: standard output: {error}; nothing more was done"));
            ExitCode::FAILURE
        }
    }
}

/// Goes through what can be mended. Whether every command that was run went well.
fn mend(
    out: &mut impl Write,
    checks: &[Check],
    ask: &mut impl FnMut(&Remedy) -> Answer,
    run: &impl Fn(&str) -> Result<(), String>,
) -> io::Result<bool> {
    let mut is_well = true;
    let amiss = checks.iter().filter(|check| words::is_shown(check, checks));
    let (fixable, by_hand): (Vec<_>, Vec<_>) = amiss.partition(|check| is_fixable(check));
    'checks: for check in &fixable {
        words::print_check(out, check, columns())?;
        for remedy in check.remedies.iter().filter(|remedy| remedy.is_automatic) {
            out.flush()?;
            match ask(remedy) {
                Answer::Yes => {}
                Answer::No => continue,
                Answer::Gone => break 'checks,
            }
            writeln!(out, "+ {}", remedy.command)?;
            out.flush()?;
            match run(&remedy.command) {
                Ok(()) if remedy.effect.is_empty() => writeln!(out, "done")?,
                Ok(()) => writeln!(out, "done: {}", remedy.effect)?,
                Err(reason) => {
                    is_well = false;
                    complain(format_args!("doctor --fix: {}: {reason}", remedy.command));
                }
            }
            break;
        }
        writeln!(out)?;
    }
    if fixable.is_empty() {
        writeln!(out, "There is nothing that a command could mend.")?;
    }
    for check in by_hand.iter().filter(|check| !check.remedies.is_empty()) {
        writeln!(out, "Left to you:")?;
        words::print_check(out, check, columns())?;
    }
    out.flush()?;
    Ok(is_well)
}

fn ask_terminal(remedy: &Remedy) -> Answer {
    let effect = if remedy.effect.is_empty() { String::new() } else { format!(" ({})", remedy.effect) };
    let (mut out, mut line) = (io::stdout(), String::new());
    let asked = write!(out, "Run '{}'{effect}? [y/N] ", remedy.command).and_then(|()| out.flush());
    match asked.and_then(|()| io::stdin().lock().read_line(&mut line)) {
        Ok(0) | Err(_) => Answer::Gone,
        Ok(_) if matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") => Answer::Yes,
        Ok(_) => Answer::No,
    }
}

fn run_command(command: &str) -> Result<(), String> {
    match Command::new("/bin/sh").args(["-c", command]).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{status}; read what it says above, or type it yourself")),
        Err(error) => Err(format!("/bin/sh: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use spillway_sys::machine::{Purpose, Status};

    use super::*;

    fn checks() -> Vec<Check> {
        let warn = |name| Check::new(name, Status::Warn, "found", "meaning");
        vec![
            Check::new("well", Status::Ok, "found", "meaning").mended_by("never", ""),
            warn("two").mended_by("first", "for a day").mended_by("second", "for good"),
            warn("hand").mended_by_hand("ulimit", "in your shell"),
            warn("third").mended_by("third", ""),
            // Where 'tier' has nothing to do, what would stand in its way is left as it is.
            warn("conflict").for_purpose(Purpose::Tier).mended_by("never", ""),
            Check::new("memory-tiers", Status::Absent, "found", "meaning").for_purpose(Purpose::Tier),
        ]
    }

    /// Text printed, commands run, and whether all went well.
    fn mended(answers: &[bool], fails: &str) -> (String, Vec<String>, bool) {
        let (mut out, ran) = (Vec::new(), RefCell::new(Vec::new()));
        let mut answers = answers.iter();
        let mut ask = |_: &Remedy| match answers.next() {
            Some(true) => Answer::Yes,
            Some(false) => Answer::No,
            None => Answer::Gone,
        };
        let run = |command: &str| {
            ran.borrow_mut().push(command.to_owned());
            if command == fails { Err("no".to_owned()) } else { Ok(()) }
        };
        let is_well = mend(&mut out, &checks(), &mut ask, &run).unwrap();
        let text = String::from_utf8(out).unwrap();
        (anstream::adapter::strip_str(&text).to_string(), ran.into_inner(), is_well)
    }

    #[test]
    fn each_command_is_asked_for_and_said() {
        let (text, ran, is_well) = mended(&[true, true], "");
        assert_eq!((ran, is_well), (vec!["first".to_owned(), "third".to_owned()], true));
        assert!(text.contains("+ first\ndone: for a day\n") && text.contains("+ third\ndone\n"), "{text}");
        assert!(text.contains("Left to you:\nwarn    hand"), "{text}");
    }

    #[test]
    fn who_says_no_is_offered_the_next_way_and_who_goes_away_gets_nothing() {
        assert_eq!(mended(&[false, true, false], "").1, ["second"]);
        assert_eq!(mended(&[false, false, false], "").1, Vec::<String>::new());
        assert_eq!(mended(&[], "").1, Vec::<String>::new());
    }

    #[test]
    fn a_command_that_fails_is_a_failure_and_the_rest_is_done() {
        let (_, ran, is_well) = mended(&[true, true], "first");
        assert_eq!((ran, is_well), (vec!["first".to_owned(), "third".to_owned()], false));
    }
}
