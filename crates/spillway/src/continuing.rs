//! SIGCONT, which a process group gets as a whole or the command alone: which of the two, nobody says. The
//! program must go on in either case, but not when the group is stopped again in the very moment in which we
//! would pass an earlier SIGCONT on.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// Who stops the group stops the program and us one right after the other.
const TO_BE_STOPPED_TOO: Duration = Duration::from_millis(10);

/// Whether a SIGCONT that we got is to be passed on: the program handles it, or it is stopped and stays so
/// while we go on. A program that runs and does not handle it would not notice.
pub fn is_for_program(program: Pid) -> bool {
    let status = || {
        let path = format!("/proc/{}/status", program.as_raw_nonzero());
        Status::parse(&fs::read_to_string(path).unwrap_or_default())
    };
    if status().handles {
        return true;
    }
    status().is_stopped && {
        sleep(TO_BE_STOPPED_TOO);
        status().is_stopped
    }
}

/// What proc_pid_status(5) says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    /// It is stopped; of a program whose first thread has ended that is not told.
    is_stopped: bool,
    handles: bool,
}

impl Status {
    fn parse(text: &str) -> Self {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map_or("", str::trim);
        let caught = u64::from_str_radix(value("SigCgt:"), 16).unwrap_or(0);
        Self {
            is_stopped: value("State:").starts_with(['T', 'Z']),
            handles: caught & 1 << (Signal::CONT.as_raw() - 1) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_a_program_is_stopped_and_whether_it_handles_the_signal() {
        let parsed = |text| Status::parse(text);
        let stopped = parsed("Name:\tT\nState:\tT (stopped)\nSigCgt:\t0000000000020000\n");
        assert_eq!(stopped, Status { is_stopped: true, handles: true });
        let running = parsed("State:\tS (sleeping)\nSigCgt:\t0000000000000002\n");
        assert_eq!(running, Status { is_stopped: false, handles: false });
        assert_eq!(parsed(""), Status { is_stopped: false, handles: false });
    }
}
