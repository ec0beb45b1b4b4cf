//! How the command ends: its exit statuses, and the line on stderr that says why.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::Path;

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

/// Why a program could not be started, and what can be done.
pub fn why_not_executed(program: &Path, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::NotFound if !program.exists() => "give its path, or check PATH",
        ErrorKind::NotFound => "what it names in its first line, or the loader that it asks for, is not here",
        ErrorKind::PermissionDenied if program.is_dir() => "it is a directory; name a program",
        ErrorKind::PermissionDenied => "it may not be executed: name a program, or make it one with chmod +x",
        // ENOEXEC has no kind of its own.
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            "it is no program of this machine; a script begins with a line such as #!/bin/sh"
        }
        _ => "run it by itself to see why",
    };
    format!("{}: {error}; {remedy}", program.display())
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
    fn what_cannot_be_executed_is_said_with_what_can_be_done() {
        let place = tempfile::tempdir().unwrap();
        let denied = std::io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error());
        let no_program = std::io::Error::from_raw_os_error(rustix::io::Errno::NOEXEC.raw_os_error());
        for (program, error, words) in [
            (place.path(), &denied, "directory; name a program"),
            (Path::new("/no/such"), &ErrorKind::NotFound.into(), "check PATH"),
            (Path::new("/etc/passwd"), &ErrorKind::NotFound.into(), "first line"),
            (Path::new("/etc/passwd"), &denied, "chmod +x"),
            (Path::new("/etc/passwd"), &no_program, "#!/bin/sh"),
        ] {
            let said = why_not_executed(program, error);
            assert!(said.starts_with(program.to_str().unwrap()) && said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_differs_from_one_that_cannot_be_executed() {
        for (kind, status) in [(ErrorKind::NotFound, 127), (ErrorKind::PermissionDenied, 126)] {
            assert_eq!(cannot_execute(&kind.into()), status);
        }
    }
}
