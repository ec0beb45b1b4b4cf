//! A policy's line in the registry: how it is built from settings, and what it needs of what runs it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::knowledge::{Foreknowledge, Knowledge};
use crate::policy::Policy;
use crate::scale::{nonsense, scale_config};

/// A policy that can be built from a configuration.
pub trait Registered: Policy + Sized + 'static {
    /// Its settings; the defaults are its paper's.
    type Config: Serialize + DeserializeOwned + Default;

    /// Makes one. `seed` is for those that draw lots.
    fn build(config: Self::Config, seed: u64, knowledge: &Knowledge) -> Self;

    /// The same, for those whose settings name what may not be there.
    ///
    /// # Errors
    /// What is missing or broken, why, and what to do about it.
    fn try_build(config: Self::Config, seed: u64, knowledge: &Knowledge) -> Result<Self, String> {
        Ok(Self::build(config, seed, knowledge))
    }
}

type Build = fn(Value, u64, &Knowledge) -> Result<Box<dyn Policy>, Unbuilt>;

/// Why a policy was not built.
enum Unbuilt {
    /// Its settings are not those that it has.
    Setting(serde_json::Error),
    /// What they name cannot be used.
    Missing(String),
}

/// What a policy cannot do without. It declares this: whoever would run it can refuse it before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// What it must know of the run beforehand.
    pub foreknowledge: Foreknowledge,
    /// Sampled accesses, as from the processor's counters ([`TieredMachine::sample_accesses`]).
    ///
    /// [`TieredMachine::sample_accesses`]: crate::machine::TieredMachine::sample_accesses
    pub samples: bool,
    /// That memory is mapped in huge pages at first ([`Mapping::Huge`](crate::policy::Mapping)).
    pub huge_mappings: bool,
    /// That far pages cannot be accessed in place, so that each is fetched
    /// ([`AccessModel::PageFetch`](crate::policy::AccessModel)).
    pub page_fetches: bool,
    /// That far memory keeps the copy of a page that came to local memory
    /// ([`TieredMachine::keep_far_copy`]).
    ///
    /// [`TieredMachine::keep_far_copy`]: crate::machine::TieredMachine::keep_far_copy
    pub far_copies: bool,
}

impl Needs {
    /// What every machine has is enough.
    pub const NOTHING: Self = Self {
        foreknowledge: Foreknowledge::Nothing,
        samples: false,
        huge_mappings: false,
        page_fetches: false,
        far_copies: false,
    };
}

/// One line of the registry.
pub struct PolicyEntry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What it cannot do without.
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
    /// A setting that is on or off.
    Flag(bool),
    /// A setting that is one of several words.
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
pub type PolicySettings = Map<String, Value>;

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
        /// The policy whose setting it is.
        name: &'static str,
        /// What is wrong with the setting.
        reason: String,
        /// The settings there are, with their defaults.
        known: String,
    },
    /// What a setting names cannot be used.
    #[error("policy '{name}': {reason}")]
    Unusable {
        /// The policy whose setting it is.
        name: &'static str,
        /// What is wrong, and what to do about it.
        reason: String,
    },
}

/// The line of a policy that needs nothing and keeps its file's defaults.
pub(crate) const fn entry<P: Registered>(name: &'static str, about: &'static str) -> PolicyEntry {
    PolicyEntry {
        name,
        about,
        needs: Needs::NOTHING,
        unlimited: false,
        preset: &[],
        defaults: || serde_json::to_value(P::Config::default()),
        build: |config, seed, knowledge| {
            let config = serde_json::from_value(config).map_err(Unbuilt::Setting)?;
            Ok(Box::new(P::try_build(config, seed, knowledge).map_err(Unbuilt::Missing)?))
        },
    }
}

impl PolicyEntry {
    /// With other settings than its file's defaults.
    pub(crate) const fn with(self, preset: &'static [(&'static str, Preset)]) -> Self {
        Self { preset, ..self }
    }

    /// With local memory for everything.
    pub(crate) const fn without_limit(self) -> Self {
        Self { unlimited: true, ..self }
    }

    /// Needs to know this beforehand.
    pub(crate) const fn knowing(self, foreknowledge: Foreknowledge) -> Self {
        Self { needs: Needs { foreknowledge, ..self.needs }, ..self }
    }

    /// Needs accesses to be sampled for it.
    pub(crate) const fn sampling(self) -> Self {
        Self { needs: Needs { samples: true, ..self.needs }, ..self }
    }

    /// Needs memory in huge mappings.
    pub(crate) const fn mapping_huge(self) -> Self {
        Self { needs: Needs { huge_mappings: true, ..self.needs }, ..self }
    }

    /// Needs far pages to be fetched.
    pub(crate) const fn fetching(self) -> Self {
        Self { needs: Needs { page_fetches: true, ..self.needs }, ..self }
    }

    /// Needs far memory to keep copies.
    pub(crate) const fn keeping_copies(self) -> Self {
        Self { needs: Needs { far_copies: true, ..self.needs }, ..self }
    }

    /// Its settings, at the values that they have for a working set that is `factor` of its paper's.
    ///
    /// # Errors
    /// A setting of the preset does not exist.
    pub fn settings(&self, factor: f64) -> Result<PolicySettings, PolicyError> {
        let defaults = (self.defaults)().map_err(|error| self.wrong(error.to_string(), &Map::new()))?;
        let Value::Object(mut settings) = defaults else { return Ok(Map::new()) };
        for (key, preset) in self.preset {
            settings.insert((*key).to_owned(), preset.value());
        }
        scale_config(&mut settings, factor);
        Ok(settings)
    }

    fn wrong(&self, reason: String, known: &PolicySettings) -> PolicyError {
        let known = known.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        PolicyError::Setting { name: self.name, reason, known }
    }

    /// Makes it: its settings for `factor`, and over them those that are given, as they are.
    ///
    /// # Errors
    /// A setting that it does not have, a value that it cannot take, or one that names what is not there.
    pub fn build(
        &self,
        factor: f64,
        given: &PolicySettings,
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
        (self.build)(Value::Object(settings), seed, knowledge).map_err(|unbuilt| match unbuilt {
            Unbuilt::Setting(error) => self.wrong(error.to_string(), &known),
            Unbuilt::Missing(reason) => PolicyError::Unusable { name: self.name, reason },
        })
    }
}
