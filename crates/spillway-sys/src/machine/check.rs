//! One property of the machine, and what every check reads and prints.

use std::fmt;
use std::str::FromStr;

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
    pub(super) fn new(
        name: &'static str,
        status: Status,
        found: impl Into<String>,
        meaning: &'static str,
    ) -> Self {
        Self { name, status, essential: false, found: found.into(), meaning, remedy: None }
    }

    pub(super) fn ok(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Ok, found, meaning)
    }

    pub(super) fn warn(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Warn, found, meaning)
    }

    pub(super) fn missing(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Missing, found, meaning)
    }

    pub(super) fn essential(mut self) -> Self {
        self.essential = true;
        self
    }

    pub(super) fn remedy(mut self, command: impl Into<String>) -> Self {
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

/// The first word of a small file of `/proc` or `/sys`, parsed; `None` where it cannot be had.
pub(super) fn read_value<T: FromStr>(path: &str) -> Option<T> {
    std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// Whether this process holds the capability of that number.
pub(super) fn has_capability(number: u32) -> bool {
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
pub(super) fn print_bytes(bytes: u64) -> String {
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
