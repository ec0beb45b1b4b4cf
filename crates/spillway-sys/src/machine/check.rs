//! One property of the machine, and what every check reads and prints.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should be.
    Ok,
    /// Works, with a loss that the meaning names.
    Warn,
    /// It is not there, and nothing is lost by that but what the meaning names.
    Absent,
    /// It is not there, or not to be used, and Spillway wants it.
    Missing,
}

impl Status {
    /// The mark that reports use: `ok`, `warn`, `absent` or `missing`.
    #[must_use]
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Absent => "absent",
            Self::Missing => "missing",
        }
    }
}

/// What of Spillway a check tells about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `spillway run`, which pages programs.
    Run,
    /// `spillway tier`, which moves pages between memory nodes.
    Tier,
    /// No command: what the kernel or the machine has besides.
    Nothing,
}

impl Purpose {
    /// The word that reports use: `run`, `tier` or `nothing`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Tier => "tier",
            Self::Nothing => "nothing",
        }
    }
}

/// A command that mends what a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The command, for a shell.
    pub command: String,
    /// For whom and for how long it holds; empty where the command says it.
    pub effect: &'static str,
    /// It may be run on the user's behalf: it needs neither the user's own shell nor a restart, and takes
    /// nothing away that is in use.
    pub is_automatic: bool,
}

/// `command` as the user has to type it: by sudo, unless this is root.
#[must_use]
pub fn as_root(command: &str) -> String {
    match rustix::process::geteuid().is_root() {
        true => command.to_owned(),
        false => format!("sudo {command}"),
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
    /// Which command wants it.
    pub purpose: Purpose,
    /// What is there, in words.
    pub found: String,
    /// What that means for Spillway.
    pub meaning: &'static str,
    /// The commands of which each mends it, the narrowest first; none where no command can.
    pub remedies: Vec<Remedy>,
}

impl Check {
    /// A property that `run` wants, and that is not essential.
    #[must_use]
    pub fn new(name: &'static str, status: Status, found: impl Into<String>, meaning: &'static str) -> Self {
        let (essential, purpose, remedies) = (false, Purpose::Run, Vec::new());
        Self { name, status, essential, purpose, found: found.into(), meaning, remedies }
    }

    pub(super) fn ok(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Ok, found, meaning)
    }

    pub(super) fn warn(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Warn, found, meaning)
    }

    pub(super) fn absent(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Absent, found, meaning)
    }

    pub(super) fn missing(name: &'static str, found: impl Into<String>, meaning: &'static str) -> Self {
        Self::new(name, Status::Missing, found, meaning)
    }

    pub(super) fn essential(mut self) -> Self {
        self.essential = true;
        self
    }

    /// The same, of interest to this command or to none.
    #[must_use]
    pub fn for_purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }

    /// Mended by `command`, which may be run on the user's behalf, with this effect.
    #[must_use]
    pub fn mended_by(mut self, command: impl Into<String>, effect: &'static str) -> Self {
        self.remedies.push(Remedy { command: command.into(), effect, is_automatic: true });
        self
    }

    /// Mended by `command`, which the user has to type, with this effect.
    #[must_use]
    pub fn mended_by_hand(mut self, command: impl Into<String>, effect: &'static str) -> Self {
        self.remedies.push(Remedy { command: command.into(), effect, is_automatic: false });
        self
    }

    /// The command that mends it with the least effect on others, where one can.
    #[must_use]
    pub fn first_remedy(&self) -> Option<&str> {
        self.remedies.first().map(|remedy| remedy.command.as_str())
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
        match self.first_remedy() {
            Some(command) if self.remedies.len() > 1 => {
                write!(f, "; mend it by: {command}; 'spillway doctor' has other ways")
            }
            Some(command) => write!(f, "; mend it by: {command}"),
            None => Ok(()),
        }
    }
}

/// The first word of a small file of `/proc` or `/sys`, parsed; `None` where it cannot be had.
pub(super) fn read_value<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
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
        let check = Check::missing("disk", "none", "nowhere to write").mended_by("buy one", "");
        assert_eq!(check.to_string(), "disk: none - nowhere to write; mend it by: buy one");
        let check = check.mended_by_hand("borrow one", "for a day");
        assert_eq!(check.first_remedy(), Some("buy one"));
        assert!(check.to_string().ends_with("buy one; 'spillway doctor' has other ways"), "{check}");
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
