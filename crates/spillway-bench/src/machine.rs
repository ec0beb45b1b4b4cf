//! What a figure was measured on.

use std::fs;

use serde::{Deserialize, Serialize};

/// A machine, as far as figures depend on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The version of Spillway that ran.
    pub spillway: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Processors that are on.
    pub cpus: usize,
    /// All memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// What ran beside the benchmark when it began: the load average of the last minute.
    pub load_before: f64,
}

impl Machine {
    /// What this machine is, at this moment.
    #[must_use]
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())).unwrap_or_default()
        };
        let memory_kib = value(&read("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 = memory_kib.trim_end_matches(" kB").parse().unwrap_or(0);
        Self {
            spillway: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: value(&read("/proc/cpuinfo"), "model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib << 10,
            load_before: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_processors_and_memory() {
        let machine = Machine::this();
        assert!(machine.kernel.starts_with(|first: char| first.is_ascii_digit()), "{machine:?}");
        assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
    }
}
