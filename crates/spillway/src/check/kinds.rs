//! The configurations that there are: that of `spillway run`, and that of `spillway tier`.

use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use spillway_tier::group::{self, Group};

use super::examine::{Examined, Finding};
use crate::configuration::Configuration;

/// Whose configuration a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Of `spillway run`, such as /etc/spillway/run.toml
    Run,
    /// Of `spillway tier`, such as /etc/spillway/tier.toml
    Tier,
}

/// All keys of a configuration, as a value that has each of them.
fn keys(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

impl Kind {
    /// Whose a file most likely is: by the keys that it sets, else by its name, else of `run`.
    pub fn of(path: &Path, text: &str) -> Self {
        let examined = Examined::new(text);
        let top = examined.top_keys();
        let known = |kind: Self| {
            let keys = kind.keys();
            top.iter().filter(|key| keys.get(**key).is_some()).count()
        };
        let is_called_tier = path.file_stem().is_some_and(|stem| stem.to_string_lossy().contains("tier"));
        match known(Self::Run).cmp(&known(Self::Tier)) {
            std::cmp::Ordering::Greater => Self::Run,
            std::cmp::Ordering::Less => Self::Tier,
            std::cmp::Ordering::Equal if is_called_tier => Self::Tier,
            std::cmp::Ordering::Equal => Self::Run,
        }
    }

    /// The command that takes such a file.
    pub fn command(self) -> &'static str {
        match self {
            Self::Run => "spillway run",
            Self::Tier => "spillway tier",
        }
    }

    fn keys(self) -> Value {
        match self {
            Self::Run => keys(&Configuration::default()),
            Self::Tier => keys(&group::Config { group: vec![Group::default()], ..group::Config::default() }),
        }
    }

    /// How many values a file of this kind sets, and all that is wrong in it.
    pub fn examine(self, text: &str) -> (usize, Vec<Finding>) {
        let mut examined = Examined::new(text);
        match self {
            Self::Run => examine_run(&mut examined),
            Self::Tier => examine_tier(&mut examined),
        }
        (examined.settings(), examined.findings())
    }
}

fn examine_run(examined: &mut Examined<'_>) {
    let configuration: Configuration = examined.read(&Kind::Run.keys());
    if let Err(reason) = configuration.check() {
        let key = reason.split(' ').next().unwrap_or_default();
        examined.add(examined.line_of_key(key), reason);
    }
}

fn examine_tier(examined: &mut Examined<'_>) {
    let config: group::Config = examined.read(&Kind::Tier.keys());
    // Each group by itself, and all else beside a group that is well: so that everything is heard of.
    for (at, group) in config.group.iter().enumerate() {
        let alone = group::Config { group: vec![group.clone()], ..group::Config::default() };
        if let Err(error) = alone.check() {
            examined.add(examined.line_of_table("group", at), error.to_string());
        }
    }
    let well = Group { name: "any".to_owned(), policy: "hotbox".to_owned(), ..Group::default() };
    let without_groups = group::Config { group: vec![well], ..config.clone() };
    if let Err(error) = without_groups.check() {
        let reason = error.to_string();
        let key = reason.split(':').next().unwrap_or_default();
        examined.add(examined.line_of_key(key), reason);
    }
    if examined.is_well()
        && let Err(error) = config.check()
    {
        // None at all, or a name that is there twice.
        let names: Vec<_> = config.group.iter().map(|group| &group.name).collect();
        let twice = (0..names.len()).find(|&at| names[..at].contains(&names[at])).unwrap_or(0);
        examined.add(examined.line_of_table("group", twice), error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kind: Kind, text: &str) -> Vec<String> {
        kind.examine(text).1.iter().map(|Finding { line, what }| format!("{line}: {what}")).collect()
    }

    #[test]
    fn a_configuration_of_run_is_taken_or_found_wrong_as_run_does() {
        assert_eq!(Kind::Run.examine(""), (0, vec![]));
        assert_eq!(Kind::Run.examine("[pool.local]\nreserve_bytes = '8M'\n").0, 1);
        assert_eq!(said(Kind::Run, "[pool.local]\nreserve_bytes = '8M'\n"), Vec::<String>::new());
        let text = "[pool.local]\nreserve = 1\n[fetch]\nstrides = 'leap'\noverlap = 3\n\n\
                    [replacement]\nscan_share = 2.0\n";
        let found = said(Kind::Run, text);
        let parts = [
            "2: unknown key 'reserve'; did you mean 'reserve_bytes'?",
            "4: strides: unknown variant `leap`",
            "5: overlap: invalid type",
            "8: scan_share is 2; set it to 0 to 1",
        ];
        assert_eq!(found.len(), parts.len(), "{found:?}");
        assert!(found.iter().zip(parts).all(|(found, part)| found.starts_with(part)), "{found:?}");
        assert!(said(Kind::Run, "[pool.local]\ncopy_share = 1.5")[0].starts_with("2: copy_share is 1.5"));
    }

    #[test]
    fn a_configuration_of_tier_is_taken_or_found_wrong_as_tier_does() {
        let group = "[[group]]\nname = 'g'\npolicy = 'hotbox'\n";
        assert_eq!(said(Kind::Tier, group), Vec::<String>::new());
        assert_eq!(said(Kind::Tier, ""), ["1: group: there is none; add a [[group]] with pids or cgroups"]);
        assert_eq!(
            said(Kind::Tier, &format!("{group}{group}")),
            ["4: group 'g': this name is taken; choose another"]
        );
        let text = format!(
            "scan_interval_ms = 0\nsuorce = 'damon'\n{group}local = '0%'\n\
             [[group]]\nname = 'h'\npolicy = 'hotbx'\n"
        );
        let found = said(Kind::Tier, &text);
        let parts = [
            "1: scan_interval_ms: give 1",
            "2: unknown key 'suorce'; did you mean 'source'?",
            "6: local: '0%'",
            "7: ",
        ];
        assert_eq!(found.len(), parts.len(), "{found:?}");
        assert!(found.iter().zip(parts).all(|(found, part)| found.starts_with(part)), "{found:?}");
        assert!(found[3].contains("'hotbx'"), "{found:?}");
        // A policy's settings are its own.
        assert_eq!(
            said(Kind::Tier, &format!("{group}settings = {{ scan_period_us = 50000 }}")),
            Vec::<String>::new()
        );
        assert_eq!(said(Kind::Tier, &format!("{group}settings = {{ speed = 1 }}")).len(), 1);
    }

    #[test]
    fn a_files_kind_is_told_by_its_keys_and_then_by_its_name() {
        let of = |name: &str, text: &str| Kind::of(Path::new(name), text);
        assert_eq!(of("tier.toml", "[fetch]\noverlap = true"), Kind::Run);
        assert_eq!(of("run.toml", "[[group]]\nname = 'g'"), Kind::Tier);
        assert_eq!((of("/etc/spillway/tier.toml", ""), of("other.toml", "")), (Kind::Tier, Kind::Run));
    }
}
