//! Policies by name. A new policy is one file and one line here.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use spillway_core::policy::Policy;
use thiserror::Error;

use crate::knowledge::{Knowledge, Needs};
use crate::scale::{nonsense, scale_config};
use crate::{
    auto_numa, auto_tiering, belady, dcm_blocks, fixed, hemem, hotbox, indigo, memtis, multi_clock, nimble,
    oracle, swap, tpp,
};

/// A policy that can be built from a configuration.
pub trait Registered: Policy + Sized + 'static {
    /// Its settings; the defaults are its paper's.
    type Config: Serialize + DeserializeOwned + Default;

    /// Makes one. `seed` is for those that draw lots.
    fn build(config: Self::Config, seed: u64, knowledge: &Knowledge) -> Self;
}

type Build = fn(Value, u64, &Knowledge) -> Result<Box<dyn Policy>, serde_json::Error>;

/// One line of the registry.
pub struct PolicyEntry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What it must know of the run beforehand.
    pub needs: Needs,
    /// Whether local memory holds everything under it: a bound, not a policy.
    pub unlimited: bool,
    /// Settings in which it differs from its file's defaults.
    preset: &'static [(&'static str, Preset)],
    defaults: fn() -> Result<Value, serde_json::Error>,
    build: Build,
}

/// A setting of a preset.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// On or off.
    Flag(bool),
    /// One of several.
    Choice(&'static str),
}

impl Preset {
    fn value(self) -> Value {
        match self {
            Self::Flag(flag) => Value::from(flag),
            Self::Choice(choice) => Value::from(choice),
        }
    }
}

/// Settings of a policy, by name.
pub type Settings = Map<String, Value>;

/// Why there is no such policy.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error("policy '{name}': there is none of this name; take one of {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A setting is not known, or cannot have this value.
    #[error("policy '{name}': {reason}; its settings are {known}")]
    Setting {
        /// Of which policy.
        name: &'static str,
        /// What is wrong.
        reason: String,
        /// The settings there are, with their defaults.
        known: String,
    },
}

const fn entry<P: Registered>(name: &'static str, about: &'static str) -> PolicyEntry {
    PolicyEntry {
        name,
        about,
        needs: Needs::Nothing,
        unlimited: false,
        preset: &[],
        defaults: || serde_json::to_value(P::Config::default()),
        build: |config, seed, knowledge| {
            Ok(Box::new(P::build(serde_json::from_value(config)?, seed, knowledge)))
        },
    }
}

impl PolicyEntry {
    const fn with(self, preset: &'static [(&'static str, Preset)]) -> Self {
        Self { preset, ..self }
    }

    const fn without_limit(self) -> Self {
        Self { unlimited: true, ..self }
    }

    const fn knowing(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    /// Its settings, at the values that they have for a working set that is `factor` of its paper's.
    ///
    /// # Errors
    /// A setting of the preset does not exist.
    pub fn settings(&self, factor: f64) -> Result<Settings, PolicyError> {
        let defaults = (self.defaults)().map_err(|error| self.wrong(error.to_string(), &Map::new()))?;
        let Value::Object(mut settings) = defaults else { return Ok(Map::new()) };
        for (key, preset) in self.preset {
            settings.insert((*key).to_owned(), preset.value());
        }
        scale_config(&mut settings, factor);
        Ok(settings)
    }

    fn wrong(&self, reason: String, known: &Settings) -> PolicyError {
        let known = known.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        PolicyError::Setting { name: self.name, reason, known }
    }

    /// Makes it: its settings for `factor`, and over them those that are given, as they are.
    ///
    /// # Errors
    /// A setting that it does not have, or a value that it cannot take.
    pub fn build(
        &self,
        factor: f64,
        given: &Settings,
        seed: u64,
        knowledge: &Knowledge,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let known = self.settings(factor)?;
        let mut settings = known.clone();
        for (key, value) in given {
            if !known.contains_key(key) {
                return Err(self.wrong(format!("it has no setting '{key}'"), &known));
            }
            settings.insert(key.clone(), value.clone());
        }
        if let Some(reason) = nonsense(&settings) {
            return Err(self.wrong(reason, &known));
        }
        (self.build)(Value::Object(settings), seed, knowledge)
            .map_err(|error| self.wrong(error.to_string(), &known))
    }
}

static ENTRIES: &[PolicyEntry] = &[
    entry::<fixed::Fixed>("all-local", "Every page local: the upper bound")
        .with(&[("tier", Preset::Choice("local"))])
        .without_limit(),
    entry::<fixed::Fixed>("all-remote", "Every page far, no migration")
        .with(&[("tier", Preset::Choice("far"))]),
    entry::<fixed::Fixed>("first-touch", "Pages stay where they came to lie, local first")
        .with(&[("tier", Preset::Choice("local"))]),
    entry::<fixed::Fixed>("all-local-huge", "Every page local, in huge pages")
        .with(&[("tier", Preset::Choice("local")), ("mapping", Preset::Choice("huge"))])
        .without_limit(),
    entry::<fixed::Fixed>("all-remote-huge", "Every page far, in huge pages")
        .with(&[("tier", Preset::Choice("far")), ("mapping", Preset::Choice("huge"))]),
    entry::<oracle::Oracle>("oracle", "The hottest pages of an earlier run stay local")
        .knowing(Needs::Profile),
    entry::<oracle::Oracle>("oracle-huge", "The hottest huge pages of an earlier run stay local")
        .knowing(Needs::Profile)
        .with(&[("mapping", Preset::Choice("huge"))]),
    entry::<hotbox::HotBox>("hotbox", "HotBox: base pages, on demand, throttled by their use"),
    entry::<hotbox::HotBox>("hotbox-unthrottled", "HotBox without throttling")
        .with(&[("throttle", Preset::Flag(false))]),
    entry::<indigo::Indigo>("indigo", "INDIGO without training: promotes what pays (Equation 1)"),
    entry::<indigo::Indigo>("indigo-thresholds", "INDIGO with fixed thresholds of burst and access rate")
        .with(&[("rule", Preset::Choice("thresholds"))]),
    entry::<dcm_blocks::Dcm>("dcm", "dcm: page fetch with elastic blocks"),
    entry::<dcm_blocks::Dcm>("dcm-4k", "dcm with blocks of 4 KiB").with(&[("blocks", Preset::Choice("4k"))]),
    entry::<dcm_blocks::Dcm>("dcm-8k", "dcm with blocks of 8 KiB").with(&[("blocks", Preset::Choice("8k"))]),
    entry::<dcm_blocks::Dcm>("dcm-16k", "dcm with blocks of 16 KiB")
        .with(&[("blocks", Preset::Choice("16k"))]),
    entry::<dcm_blocks::Dcm>("dcm-32k", "dcm with blocks of 32 KiB")
        .with(&[("blocks", Preset::Choice("32k"))]),
    entry::<dcm_blocks::Dcm>("dcm-64k", "dcm with blocks of 64 KiB")
        .with(&[("blocks", Preset::Choice("64k"))]),
    entry::<swap::Swap>("swap", "Page fetch as kernels do it: two-list LRU and read-ahead"),
    entry::<belady::Belady>("belady", "Page fetch that knows the future").knowing(Needs::Future),
    entry::<auto_numa::AutoNuma>("autonuma", "AutoNUMA: a second hint fault migrates; no demotion"),
    entry::<auto_tiering::AutoTiering>(
        "autotiering",
        "AutoTiering: history of hint faults, demotes to make room",
    ),
    entry::<tpp::Tpp>("tpp", "TPP: keeps headroom, hint faults promote active pages"),
    entry::<nimble::Nimble>("nimble-base", "Nimble: exchanges batches of base pages"),
    entry::<nimble::Nimble>("nimble-huge", "Nimble with huge pages")
        .with(&[("mapping", Preset::Choice("huge"))]),
    entry::<multi_clock::MultiClock>("multi-clock", "Multi-Clock: a promote list beside the CLOCK lists"),
    entry::<hemem::HeMem>("hemem", "HeMem: sampled accesses, fixed thresholds, cooling"),
    entry::<memtis::Memtis>("memtis", "MEMTIS: sampled histogram, splits skewed huge pages"),
];

/// All policies that there are.
#[must_use]
pub fn entries() -> &'static [PolicyEntry] {
    ENTRIES
}

/// The policy of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static PolicyEntry, PolicyError> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| PolicyError::Unknown {
        name: name.to_owned(),
        known: ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_built_from_its_defaults_and_names_are_unique() {
        for (at, entry) in entries().iter().enumerate() {
            for factor in [1.0, 0.01] {
                entry
                    .build(factor, &Settings::new(), 1, &Knowledge::default())
                    .map_err(|error| error.to_string())
                    .unwrap();
            }
            assert!(entries()[..at].iter().all(|other| other.name != entry.name), "{}", entry.name);
        }
    }

    #[test]
    fn wrong_names_and_settings_are_answered_with_the_right_ones() {
        let error = find("hotbx").err().unwrap().to_string();
        assert!(error.contains("'hotbx'") && error.contains("hotbox"), "{error}");
        let wrong = [
            ("speed", Value::from(1)),
            ("scan_period_us", Value::from("soon")),
            ("scan_period_us", Value::from(0)),
            ("low_share", Value::from(5)),
        ];
        for (key, value) in wrong {
            let given = Settings::from_iter([(key.to_owned(), value)]);
            let error = find("hotbox")
                .unwrap()
                .build(1.0, &given, 1, &Knowledge::default())
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains("scan_period_us ="), "{error}");
        }
    }
}
