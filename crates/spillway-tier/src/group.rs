//! Groups of processes: which belong to one, under which policy, with how much local memory. From the command
//! line or a TOML file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spillway_core::page::PAGE_BYTES;
use spillway_core::size::Size;
use spillway_policy::entry::{PolicyEntry, PolicyError, PolicySettings};
use spillway_policy::knowledge::{Foreknowledge, Knowledge};
use spillway_policy::policy::{Mapping, Policy};
use spillway_policy::registry;
use thiserror::Error;

use crate::nodes::NodeSet;
use crate::pace::ScanPace;
use crate::source;

/// Local memory of a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LocalBudget {
    /// As many bytes as this.
    Bytes(Size),
    /// A share of the memory that the group has at the time, in percent.
    Pct(f64),
}

/// Least local memory that a group can live with.
pub const LEAST_LOCAL_BYTES: u64 = 1 << 20;

impl FromStr for LocalBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = text.trim().strip_suffix('%') {
            let pct = number.trim().parse::<f64>().ok().filter(|pct| *pct > 0.0 && *pct <= 100.0);
            return pct.map(Self::Pct).ok_or_else(|| {
                format!("'{text}' is no share: write more than 0% and at most 100%, such as 20%")
            });
        }
        let size: Size = text.parse().map_err(|error| format!("{error}, or a share, such as 20%"))?;
        if size.bytes() < LEAST_LOCAL_BYTES {
            return Err(format!(
                "'{text}' is too little: give at least {}",
                Size::from_bytes(LEAST_LOCAL_BYTES)
            ));
        }
        Ok(Self::Bytes(size))
    }
}

impl TryFrom<String> for LocalBudget {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for LocalBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => size.fmt(f),
            Self::Pct(pct) => write!(f, "{pct}%"),
        }
    }
}

impl From<LocalBudget> for String {
    fn from(budget: LocalBudget) -> Self {
        budget.to_string()
    }
}

/// Processes that share a policy and a limit of local memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Group {
    /// What it is called in reports.
    pub name: String,
    /// Its policy, by the registry's name.
    pub policy: String,
    /// Settings of the policy in which it differs from its paper.
    pub settings: PolicySettings,
    /// Most local memory; all of the fast nodes where nothing is said.
    pub local: Option<LocalBudget>,
    /// Processes that belong to it, by number.
    pub pids: Vec<u32>,
    /// Control groups, by directory; those below belong to it.
    pub cgroups: Vec<PathBuf>,
}

/// What a daemon is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Nodes of local memory; those that are found where nothing is said.
    pub fast: Option<NodeSet>,
    /// Nodes of far memory, likewise.
    pub slow: Option<NodeSet>,
    /// Where knowledge of use comes from.
    pub source: source::Choice,
    /// Counters of accesses by node, for policies that ask for them; what scans find in use, where nothing is
    /// said.
    pub counters: Option<PathBuf>,
    /// Most bytes a second that are moved for each group.
    pub migration_per_s: String,
    /// Most of one core that scans, policy and moves may take, in percent; scans come at longer intervals
    /// otherwise.
    pub telemetry_cpu_pct: f64,
    /// Least time between two scans.
    pub scan_interval_ms: u64,
    /// What decides when scans come.
    pub scan_pace: ScanPace,
    /// Most of one core that measuring the way to far memory takes, in percent; at 0 what is known at the
    /// start holds.
    pub link_cpu_pct: f64,
    /// Goes on although the kernel migrates by itself.
    pub beside_kernel: bool,
    /// Turns the kernel's own migration off meanwhile.
    pub pause_kernel: bool,
    /// The groups of processes, each under its own policy.
    pub group: Vec<Group>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            fast: None,
            slow: None,
            source: source::Choice::Auto,
            counters: None,
            migration_per_s: "1G".to_owned(),
            telemetry_cpu_pct: 2.0,
            scan_interval_ms: 100,
            scan_pace: ScanPace::Budget,
            link_cpu_pct: 0.1,
            beside_kernel: false,
            pause_kernel: false,
            group: Vec::new(),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {error}; name a file that can be read")]
    Unreadable {
        /// The file that was to be read.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It is not understood.
    #[error("{path}: {error}; docs/operate/tier.md lists the settings")]
    Malformed {
        /// The file that was to be read.
        path: PathBuf,
        /// What is wrong, on one line.
        error: String,
    },
    /// A value makes no sense.
    #[error("{what}: {reason}")]
    Value {
        /// What the value belongs to.
        what: String,
        /// Why not, and what would.
        reason: String,
    },
    /// There is no such policy, or it cannot have these settings.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy cannot run live.
    #[error("policy '{name}': {reason}; take one of {known}")]
    NotLive {
        /// The policy's name, as it was given.
        name: String,
        /// Why it cannot run live.
        reason: &'static str,
        /// The names of those that can.
        known: String,
    },
}

fn wrong(what: impl Into<String>, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { what: what.into(), reason: reason.into() }
}

impl Config {
    /// Reads a file. Whether its values go together is to be checked ([`Self::check`]) once all are known,
    /// for options may take the place of some.
    ///
    /// # Errors
    /// It cannot be read, or a value of it is none.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        toml::from_str(&text).map_err(|error| ConfigError::Malformed {
            path: path.to_owned(),
            error: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }

    /// Most bytes a second that are moved for each group.
    ///
    /// # Errors
    /// It is not a size, or less than a page.
    pub fn migration_bytes_per_s(&self) -> Result<u64, ConfigError> {
        let size: Size =
            self.migration_per_s.parse().map_err(|error| wrong("migration_per_s", format!("{error}")))?;
        match size.bytes() {
            0..PAGE_BYTES => Err(wrong("migration_per_s", "less than a page; give at least 4K")),
            bytes => Ok(bytes),
        }
    }

    /// What is asked of the telemetry source.
    #[must_use]
    pub fn wanted_source(&self) -> source::Wanted<'_> {
        let samples = self.group.iter().any(Group::needs_samples);
        source::Wanted { choice: self.source, samples, counters: self.counters.as_deref() }
    }

    /// Whether every value makes sense.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.migration_bytes_per_s()?;
        if !(self.telemetry_cpu_pct > 0.0 && self.telemetry_cpu_pct <= 100.0) {
            return Err(wrong("telemetry_cpu_pct", "give more than 0 and at most 100"));
        }
        if !(1..=60_000).contains(&self.scan_interval_ms) {
            return Err(wrong("scan_interval_ms", "give 1 to 60000"));
        }
        if !(0.0..=100.0).contains(&self.link_cpu_pct) {
            return Err(wrong("link_cpu_pct", "give 0 to 100"));
        }
        if self.source == source::Choice::CounterSamples && self.counters.is_none() {
            return Err(wrong("source", "counter-samples are those of a file of counters; give its name"));
        }
        if self.group.is_empty() {
            return Err(wrong("group", "there is none; add a [[group]] with pids or cgroups"));
        }
        for (at, group) in self.group.iter().enumerate() {
            group.check()?;
            if group.needs_samples() && !self.source.may_sample() {
                let sources = source::that_sample().join(" or ");
                let reason = format!("it needs samples of accesses; take source {sources}");
                return Err(wrong(format!("policy '{}'", group.policy), reason));
            }
            if self.group[..at].iter().any(|other| other.name == group.name) {
                return Err(wrong(format!("group '{}'", group.name), "this name is taken; choose another"));
            }
        }
        Ok(())
    }
}

impl Group {
    fn check(&self) -> Result<(), ConfigError> {
        let what = || format!("group '{}'", self.name);
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return Err(wrong("group", "it has no name that can be printed; give it one"));
        }
        if self.pids.contains(&0) || self.pids.iter().any(|&pid| pid > i32::MAX as u32) {
            return Err(wrong(what(), "a process number is 1 to 2147483647"));
        }
        if let Some(path) = self.cgroups.iter().find(|path| !path.is_absolute()) {
            return Err(wrong(
                what(),
                format!("cgroup {}: give the whole path, such as /sys/fs/cgroup/db", path.display()),
            ));
        }
        self.build_policy().map(|_| ())
    }

    /// Whether its policy cannot do without samples of accesses.
    #[must_use]
    pub fn needs_samples(&self) -> bool {
        registry::find(&self.policy).is_ok_and(|entry| entry.needs.samples)
    }

    /// Makes its policy.
    ///
    /// # Errors
    /// There is none of that name, it cannot run live, or it cannot have these settings.
    pub fn build_policy(&self) -> Result<Box<dyn Policy>, ConfigError> {
        let entry = registry::find(&self.policy)?;
        if let Some(reason) = refusal(entry) {
            let live = registry::entries().iter().filter(|entry| is_live(entry));
            let known = live.map(|entry| entry.name).collect::<Vec<_>>().join(", ");
            return Err(ConfigError::NotLive { name: self.policy.clone(), reason, known });
        }
        let mut settings = self.settings.clone();
        if WITH_BASE_PAGES.contains(&entry.name) {
            settings.entry("mapping").or_insert_with(|| "base".into());
        }
        let policy = entry.build(1.0, &settings, 1, &Knowledge::default())?;
        // Its line in the registry speaks of its defaults; the group's settings may ask for more.
        if policy.mapping() == Mapping::Huge {
            return Err(wrong(
                "setting 'mapping'",
                "huge pages are the kernel's to decide here; leave it out",
            ));
        }
        Ok(policy)
    }
}

/// Policies that begin with huge pages where they may, and know what to do with base pages: here they begin
/// with those.
const WITH_BASE_PAGES: [&str; 1] = ["memtis"];

/// Whether a policy can run on live processes.
#[must_use]
pub fn is_live(entry: &PolicyEntry) -> bool {
    refusal(entry).is_none()
}

/// Why a policy cannot run on live processes.
fn refusal(entry: &PolicyEntry) -> Option<&'static str> {
    let needs = entry.needs;
    if needs.foreknowledge != Foreknowledge::Nothing {
        return Some("it must know the run beforehand, so it runs in the lab only");
    }
    if needs.page_fetches {
        return Some("it fetches pages that cannot be read in place, as 'spillway run' does");
    }
    if needs.huge_mappings && !WITH_BASE_PAGES.contains(&entry.name) {
        return Some("it maps memory in huge pages, which is the kernel's to decide here");
    }
    needs.far_copies.then_some("it keeps copies in far memory, which no kernel does for another process")
}

#[cfg(test)]
mod tests {
    use spillway_policy::indigo_model::Model;

    use super::*;

    #[test]
    fn budgets_are_sizes_or_shares() {
        assert_eq!("512M".parse(), Ok(LocalBudget::Bytes(Size::from_bytes(512 << 20))));
        assert_eq!("20%".parse(), Ok(LocalBudget::Pct(20.0)));
        for wrong in ["0%", "101%", "-5%", "NaN%", "%", "", "much", "4K", "-M"] {
            let parsed = wrong.parse::<LocalBudget>();
            assert!(parsed.is_err(), "{wrong}: {parsed:?}");
        }
    }

    #[test]
    fn what_cannot_run_live_is_refused_with_the_reason_and_those_that_can() {
        for (name, reason) in
            [("dcm", "fetches"), ("belady", "beforehand"), ("nimble-huge", "huge"), ("nomad", "copies")]
        {
            let group = Group { name: "g".into(), policy: name.into(), ..Group::default() };
            let error = group.build_policy().err().unwrap().to_string();
            assert!(error.contains(reason) && error.contains("hotbox"), "{error}");
        }
        for name in [
            "hotbox",
            "indigo",
            "tpp",
            "autonuma",
            "autotiering",
            "nimble-base",
            "multi-clock",
            "first-touch",
            "hemem",
            "memtis",
            "spillway",
        ] {
            assert!(is_live(registry::find(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn a_setting_that_asks_for_huge_mappings_is_refused() {
        for policy in ["nimble-base", "memtis"] {
            let settings = serde_json::from_str(r#"{"mapping": "huge"}"#).unwrap();
            let group = Group { name: "g".into(), policy: policy.into(), settings, ..Group::default() };
            let error = group.build_policy().err().unwrap().to_string();
            assert!(error.contains("mapping") && error.contains("kernel"), "{error}");
        }
    }

    #[test]
    fn policies_that_need_samples_begin_with_base_pages_and_a_source_that_samples() {
        for policy in ["hemem", "memtis", "hotbox"] {
            let group = Group { name: "g".into(), policy: policy.into(), ..Group::default() };
            assert_eq!(group.build_policy().unwrap().mapping(), Mapping::Base);
            let samples = policy != "hotbox";
            let config = Config { group: vec![group], ..Config::default() };
            assert_eq!(config.wanted_source().samples, samples);
            config.check().unwrap();
            let config = Config { source: source::Choice::PageTables, ..config };
            match config.check() {
                Ok(()) => assert!(!samples, "{policy}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        samples && error.contains(policy) && error.contains("hardware-samples"),
                        "{error}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_model_is_read_from_its_file_and_a_broken_one_is_refused() {
        let build = |model: &str| {
            let settings = PolicySettings::from_iter([("model".to_owned(), model.into())]);
            Group { name: "g".into(), policy: "indigo".into(), settings, ..Group::default() }.build_policy()
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        std::fs::write(path, Model::shipped().unwrap().encode().unwrap()).unwrap();
        for model in [path, "shipped"] {
            assert!(build(model).ok().unwrap().remark().unwrap().contains("observes"), "{model}");
        }
        assert_eq!(build("").ok().unwrap().remark(), None);
        std::fs::write(path, "no model").unwrap();
        let error = build(path).err().unwrap().to_string();
        assert!(error.contains(path) && error.contains("lab train") && !error.contains('\n'), "{error}");
    }

    fn read(text: &str) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let config = Config::read(file.path())?;
        config.check()?;
        Ok(config)
    }

    #[test]
    fn several_groups_with_limits_of_their_own_are_read() {
        let config = read(
            r#"
            slow = "1"
            migration_per_s = "500M"
            [[group]]
            name = "db"
            policy = "hotbox"
            local = "4G"
            cgroups = ["/sys/fs/cgroup/db"]
            settings = { scan_period_us = 50000 }
            [[group]]
            name = "batch"
            policy = "indigo"
            local = "20%"
            pids = [1]
            "#,
        )
        .unwrap();
        assert_eq!(config.group[1].local, Some(LocalBudget::Pct(20.0)));
        assert_eq!(config.slow, Some("1".parse().unwrap()));
        assert_eq!(config.migration_bytes_per_s().unwrap(), 500 << 20);
        assert_eq!(config.group[0].settings["scan_period_us"], 50000);
    }

    #[test]
    fn hostile_values_are_each_refused_in_one_line_that_names_them() {
        let group = "[[group]]\nname = 'g'\npolicy = 'hotbox'\n";
        let cases = [
            (String::new(), "[[group]]"),
            ("[[group]".into(), "docs/operate/tier.md"),
            ("speed = 1".into(), "speed"),
            ("slow = '5-1'".into(), "5-1"),
            ("slow = [1]".into(), "slow"),
            (format!("migration_per_s = '1'\n{group}"), "migration_per_s"),
            (format!("migration_per_s = 'fast'\n{group}"), "'fast'"),
            (format!("telemetry_cpu_pct = nan\n{group}"), "telemetry_cpu_pct"),
            (format!("telemetry_cpu_pct = -1.0\n{group}"), "telemetry_cpu_pct"),
            (format!("scan_interval_ms = 0\n{group}"), "scan_interval_ms"),
            (format!("scan_pace = 'hotbox'\n{group}"), "hotbox"),
            (format!("link_cpu_pct = nan\n{group}"), "link_cpu_pct"),
            (format!("link_cpu_pct = -0.1\n{group}"), "link_cpu_pct"),
            (format!("link_cpu_pct = 101\n{group}"), "link_cpu_pct"),
            (format!("source = 'pebs'\n{group}"), "pebs"),
            (format!("source = 'counter-samples'\n{group}"), "counter-samples"),
            ("source = 'damon'\n[[group]]\nname = 'g'\npolicy = 'hemem'".into(), "counter-samples"),
            (format!("source = 3\n{group}"), "source"),
            (format!("scan_interval_ms = 18446744073709551616\n{group}"), "scan_interval_ms"),
            (format!("scan_interval_ms = 60001\n{group}"), "scan_interval_ms"),
            (format!("look_ms = 100\n{group}"), "look_ms"),
            (format!("telemetry_cpu_pct = 101\n{group}"), "telemetry_cpu_pct"),
            (format!("telemetry_cpu_pct = inf\n{group}"), "telemetry_cpu_pct"),
            (format!("migration_per_s = '-1M'\n{group}"), "-1M"),
            (format!("slow = '0-4294967295'\n{group}"), "0-4294967295"),
            (format!("{group}cgroups = ['']"), "cgroup"),
            (format!("{group}policy = 'tpp'"), "policy"),
            (format!("{group}{group}"), "'g'"),
            (format!("{group}local = '0%'"), "'0%'"),
            (format!("{group}local = '4K'"), "'4K'"),
            (format!("{group}pids = [0]"), "process number"),
            (format!("{group}pids = [-1]"), "-1"),
            (format!("{group}pids = [4294967295]"), "process number"),
            (format!("{group}cgroups = ['../etc']"), "../etc"),
            (format!("{group}settings = {{ speed = 1 }}"), "'speed'"),
            (format!("{group}settings = {{ scan_period_us = -1 }}"), "scan_period_us"),
            ("[[group]]\nname = ''\npolicy = 'hotbox'".into(), "name"),
            ("[[group]]\nname = \"a\\nb\"\npolicy = 'hotbox'".into(), "name"),
            ("[[group]]\nname = 'g'\npolicy = 'hotbx'".into(), "'hotbx'"),
        ];
        for (text, names) in cases {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(names) && !error.contains('\n'), "{text}: {error}");
        }
        assert!(matches!(Config::read(Path::new("/none.toml")), Err(ConfigError::Unreadable { .. })));
    }
}
