//! How the command ends: its exit statuses, and the line on stderr that says why.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// The command line was not understood.
pub const USAGE: u8 = 2;
/// Spillway itself could not start the program.
pub const CANNOT_START: u8 = 125;
/// The program was found but cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;

/// Why a command does not do what it was asked for: its exit status, and its line on stderr.
pub type Refusal = (u8, String);

/// The exit status for a program that could not be started.
pub fn cannot_execute(error: &std::io::Error) -> u8 {
    match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_EXECUTE,
    }
}

/// Writes one line to stderr: thing, reason, remedy.
pub fn complain(message: impl Display) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "spillway: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_differs_from_one_that_cannot_be_executed() {
        for (kind, status) in [(ErrorKind::NotFound, 127), (ErrorKind::PermissionDenied, 126)] {
            assert_eq!(cannot_execute(&kind.into()), status);
        }
    }
}
