//! What this machine can and cannot do for Spillway, as data: `spillway doctor` prints it, and `spillway run`
//! refuses to start on [`essential_failures`] with the same words.
//!
//! - [`faults`]: userfaultfd, its features and the permission to use it.
//! - [`memory`]: limits and settings of the memory system.
//! - [`devices`]: nodes, networks, disks and Spillway's own library.

mod devices;
mod faults;
mod memory;

use std::fmt;
use std::str::FromStr;

pub use devices::preload_library;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, with a loss that the meaning names.
    Warn,
    /// Not there.
    Missing,
}

impl Status {
    /// The mark that reports use: `ok`, `warn` or `missing`.
    #[must_use]
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Missing => "missing",
        }
    }
}

/// One property of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the property, stable for programs that read it.
    pub name: &'static str,
    /// How it came out.
    pub status: Status,
    /// Nothing runs without it.
    pub essential: bool,
    /// What is there.
    pub found: String,
    /// What that means for Spillway.
    pub meaning: &'static str,
    /// The command that mends it, where one can.
    pub remedy: Option<String>,
}

impl Check {
    fn new(name: &'static str, status: Status, found: impl Into<String>, meaning: &'static str) -> Self {
        Self { name, status, essential: false, found: found.into(), meaning, remedy: None }
    }

    fn ok(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Ok, found, meaning)
    }

    fn warn(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Warn, found, meaning)
    }

    fn missing(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Missing, found, meaning)
    }

    fn essential(mut self) -> Self {
        self.essential = true;
        self
    }

    fn remedy(mut self, command: impl Into<String>) -> Self {
        self.remedy = Some(command.into());
        self
    }

    /// Nothing runs as long as this is so.
    #[must_use]
    pub fn prevents_running(&self) -> bool {
        self.essential && self.status == Status::Missing
    }
}

/// The check in one line: thing, reason, remedy.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} - {}", self.name, self.found, self.meaning)?;
        match &self.remedy {
            Some(command) => write!(f, "; mend it by: {command}"),
            None => Ok(()),
        }
    }
}

/// Every check, in the order in which a reader wants them. Takes a few milliseconds and changes nothing.
#[must_use]
pub fn checks() -> Vec<Check> {
    let mut checks = faults::checks();
    checks.extend(memory::checks());
    checks.extend(devices::checks());
    checks
}

/// What keeps Spillway from running any program here; empty on a machine that is fit for it.
#[must_use]
pub fn essential_failures() -> Vec<Check> {
    let mut checks = faults::checks();
    checks.push(devices::preload_check());
    checks.retain(Check::prevents_running);
    checks
}

/// The first word of a small file of `/proc` or `/sys`, parsed; `None` where it cannot be had.
fn read_value<T: FromStr>(path: &str) -> Option<T> {
    std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// Whether this process holds the capability of that number.
fn has_capability(number: u32) -> bool {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| parse_capabilities(&status))
        .is_some_and(|effective| effective >> number & 1 == 1)
}

/// The effective capabilities in `/proc/self/status`.
fn parse_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// A number of bytes in the largest unit that keeps a whole digit.
fn print_bytes(bytes: u64) -> String {
    let unit = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|(size, _)| bytes >= *size);
    match unit {
        Some((size, name)) => format!("{:.1} {name}", bytes as f64 / size as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_short() {
        let checks = checks();
        let names = checks.iter().map(|check| check.name).collect::<HashSet<_>>();
        assert_eq!(names.len(), checks.len());
        assert!(names.iter().all(|name| name.len() <= 20), "{names:?}");
    }

    #[test]
    fn whatever_is_essential_and_missing_is_a_failure() {
        let expected = checks().into_iter().filter(Check::prevents_running).collect::<Vec<_>>();
        assert_eq!(essential_failures(), expected);
        let check = Check::warn("x", "y", "z").essential();
        assert!(!check.prevents_running(), "a warning stops nothing");
    }

    #[test]
    fn a_check_reads_as_thing_reason_remedy() {
        let check = Check::missing("disk", "none", "nowhere to write").remedy("buy one");
        assert_eq!(check.to_string(), "disk: none - nowhere to write; mend it by: buy one");
    }

    #[test]
    fn capabilities_are_parsed() {
        let status = "Name:\tx\nCapPrm:\tffff\nCapEff:\t0000000000080000\nCapBnd:\t0\n";
        assert_eq!(parse_capabilities(status), Some(1 << 19));
        assert_eq!(parse_capabilities("CapEff: lots"), None);
    }

    #[test]
    fn bytes_are_printed_with_units() {
        assert_eq!(print_bytes(100), "100 B");
        assert_eq!(print_bytes(65536), "64.0 KiB");
        assert_eq!(print_bytes(3 << 29), "1.5 GiB");
    }
}
