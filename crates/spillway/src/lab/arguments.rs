//! What the lab's commands have in common on the command line.

use std::str::FromStr;

use clap::Args;
use serde_json::{Map, Value};
use spillway_core::size::Size;
use spillway_lab::run::{LocalSize, RunSpec};
use spillway_lab::simulator::platform;
use spillway_lab::workloads;

/// What to simulate.
#[derive(Args, Debug)]
pub struct Simulated {
    /// The workload; 'spillway lab list' names them
    #[arg(long, value_name = "NAME", required_unless_present = "trace")]
    pub workload: Option<String>,

    /// A trace to repeat in place of a workload; 'spillway lab record' makes one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "size"])]
    pub trace: Option<String>,

    /// Its working set
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    pub size: Size,

    /// The platform: hotbox, indigo, dcm, cxl, nvmm or numa
    #[arg(long, value_name = "NAME", default_value = "hotbox", value_parser = platform::NAMES)]
    pub platform: String,

    /// Latency of far memory, such as 750ns or 1.5us; otherwise the platform's
    #[arg(long, value_name = "TIME")]
    pub latency: Option<Nanoseconds>,

    /// How much of the link a neighbour takes
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub contention: Percent,

    /// Seed: one seed, one result
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// What the working set is of the platform's real one, between 0 and 1: caches, and the windows and
    /// periods of policies, shrink by it [default: what the sizes say]
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,

    /// A setting, such as policy.throttle=false, workload.tasks=8 or platform.llc_bytes=4194304; may be
    /// repeated
    #[arg(long = "set", value_name = "PART.KEY=VALUE")]
    pub settings: Vec<Setting>,
}

impl Simulated {
    /// The run that these ask for.
    pub fn spec(&self, policy: &str, local: LocalSize) -> RunSpec {
        let mut platform_settings = self.part(Part::Platform);
        if let Some(Nanoseconds(ns)) = self.latency {
            platform_settings.insert("far_ns".into(), ns.into());
        }
        let mut workload_settings = self.part(Part::Workload);
        if let Some(trace) = &self.trace {
            workload_settings.insert("file".into(), trace.as_str().into());
        }
        RunSpec {
            workload: self.workload.clone().unwrap_or_else(|| workloads::TRACE.to_owned()),
            bytes: self.size.bytes(),
            workload_settings,
            policy: policy.to_owned(),
            policy_settings: self.part(Part::Policy),
            local,
            platform: self.platform.clone(),
            platform_settings,
            contention: self.contention.0,
            seed: self.seed,
            scale: self.scale,
            lockstep: false,
        }
    }

    fn part(&self, part: Part) -> Map<String, Value> {
        let settings = self.settings.iter().filter(|setting| setting.part == part);
        settings.map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    }
}

/// A share, as `20%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match number.filter(|number| (0.0..=100.0).contains(number)) {
            Some(number) => Ok(Self(number / 100.0)),
            None => Err("write a percentage, such as 20%".into()),
        }
    }
}

/// Local memory, as `20%` or `512M`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Local(pub LocalSize);

impl FromStr for Local {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with('%') {
            return text.parse::<Percent>().map(|Percent(share)| Self(LocalSize::Share(share)));
        }
        let size: Result<Size, _> = text.parse();
        size.map(|size| Self(LocalSize::Bytes(size.bytes())))
            .map_err(|_| "write a share of the working set or a size, such as 20% or 512M".into())
    }
}

/// A time, as `750ns`, `1.5us` or `1ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nanoseconds(pub f64);

impl FromStr for Nanoseconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let factor = match unit {
            "ns" => Some(1.0),
            "us" => Some(1e3),
            "ms" => Some(1e6),
            _ => None,
        };
        let number = number.trim().parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
        match number.zip(factor) {
            Some((number, factor)) => Ok(Self(number * factor)),
            None => Err("write a time, such as 750ns or 1.5us".into()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Policy,
    Workload,
    Platform,
}

/// A setting of one part of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    part: Part,
    key: String,
    value: Value,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write policy.KEY=VALUE, workload.KEY=VALUE or platform.KEY=VALUE".to_owned();
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let (part, key) = name.split_once('.').ok_or_else(wrong)?;
        let part = match part {
            "policy" => Part::Policy,
            "workload" => Part::Workload,
            "platform" => Part::Platform,
            _ => return Err(wrong()),
        };
        // What is no number and no truth value is a word.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        Ok(Self { part, key: key.to_owned(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sizes_and_times_are_read() {
        assert_eq!("20%".parse(), Ok(Local(LocalSize::Share(0.2))));
        assert_eq!("512M".parse(), Ok(Local(LocalSize::Bytes(512 << 20))));
        assert_eq!("1.5us".parse(), Ok(Nanoseconds(1500.0)));
        assert_eq!("750ns".parse(), Ok(Nanoseconds(750.0)));
        for text in ["", "%", "120%", "-1%", "a%"] {
            assert!(text.parse::<Local>().is_err(), "{text}");
        }
        for text in ["750", "ns", "-1ns", "1s", "infns"] {
            assert!(text.parse::<Nanoseconds>().is_err(), "{text}");
        }
    }

    #[test]
    fn settings_are_read_with_their_types() {
        let value = |text: &str| text.parse::<Setting>().map(|setting| setting.value);
        assert_eq!(value("policy.throttle=false"), Ok(Value::from(false)));
        assert_eq!(value("workload.tasks=8"), Ok(Value::from(8)));
        assert_eq!(value("policy.blocks=64k"), Ok(Value::from("64k")));
        assert!(value("throttle=false").is_err() && value("policy.throttle").is_err());
        assert!(value("engine.speed=1").is_err());
    }
}
