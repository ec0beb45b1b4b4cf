//! The list of Spillway's mechanisms that can be switched: one entry each. What is added here is measured.

use serde::{Deserialize, Serialize};

/// Where a switch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A key of a table of run.toml, in TOML, such as `overlap` of `[fetch]`.
    Table(&'static str, &'static str),
    /// A flag of `spillway run`.
    Flag(&'static str),
}

/// A mechanism that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// What it is called.
    pub name: &'static str,
    /// Where it is set.
    pub place: Place,
    /// What it is where nobody sets it.
    pub usual: &'static str,
    /// What it is set to in place of that, one after the other.
    pub others: &'static [&'static str],
    /// The mechanism, in a few words.
    pub about: &'static str,
    /// The store over which it does something, where the usual ones answer at once.
    pub store: Option<&'static str>,
}

const FAR_AWAY: Option<&str> = Some("ram:?fabric=fdr");

/// An entry for a key of a table.
const fn key(
    table: &'static str,
    name: &'static str,
    usual: &'static str,
    others: &'static [&'static str],
    about: &'static str,
) -> Switch {
    Switch { name, place: Place::Table(table, name), usual, others, about, store: None }
}

/// All of them, in the order of the tables.
pub const SWITCHES: &[Switch] = &[
    Switch {
        store: FAR_AWAY,
        ..key("fetch", "overlap", "true", &["false"], "room is made while a page is on its way (dcm 3.3)")
    },
    Switch {
        store: FAR_AWAY,
        ..key(
            "fetch",
            "strides",
            "\"auto\"",
            &["\"off\"", "\"trend\""],
            "what a thread is expected at next comes along, where the store answers later; trend is Leap's",
        )
    },
    key("fetch", "huge_streams", "false", &["true"], "streams go by huge pages of 2 MiB"),
    Switch {
        name: "block",
        place: Place::Flag("--block"),
        usual: "streams",
        others: &["elastic", "4K", "64K"],
        about: "how much is fetched at once; elastic is dcm's (4.2)",
        store: None,
    },
    Switch {
        name: "fault_mode",
        place: Place::Flag("--fault-mode"),
        usual: "auto",
        others: &["thread"],
        about: "faults are served by the thread that has them, where the store is memory",
        store: None,
    },
    Switch {
        name: "seal",
        place: Place::Flag("--seal"),
        usual: "remote",
        others: &["all"],
        about: "pages of a store of this machine are encrypted and signed too, as those that leave it are",
        store: FAR_AWAY,
    },
    key(
        "replacement",
        "random_promotion",
        "0.1",
        &["0.0"],
        "by chance a page that comes in goes straight to the proactive queue (dcm 3.2)",
    ),
    key(
        "replacement",
        "inactive_share",
        "0.0",
        &["0.125"],
        "unmapped pages stay local for a while (dcm 3.2)",
    ),
    key(
        "replacement",
        "thread_buffer_pages",
        "0",
        &["64"],
        "pages wait in a buffer of their thread's before the shared queues (dcm 3.4)",
    ),
    key(
        "replacement",
        "thread_inactive",
        "false",
        &["true"],
        "each thread has an inactive queue of its own (dcm 3.4)",
    ),
    key(
        "replacement",
        "return_share",
        "0.25",
        &["0.0"],
        "a page that comes back soon goes straight to the proactive queue",
    ),
    key("replacement", "scan_share", "0.125", &["0.0"], "accessed bits are scanned: what is in use stays"),
    key("replacement", "use_forecast", "true", &["false"], "what scans found counts for what it foretells"),
    key(
        "pool.local",
        "reserve_bytes",
        "\"4M\"",
        &["\"0\""],
        "pages of zeros lie ready for streams of first writes",
    ),
    key(
        "pool.local",
        "victim_window_pages",
        "512",
        &["0", "256"],
        "of so many of the oldest those that are used least leave, neighbours together",
    ),
    key(
        "pool.local",
        "by_reference",
        "true",
        &["false"],
        "scattered pages leave with one flush of the CPUs' translations a batch",
    ),
    key(
        "pool.local",
        "copy_share",
        "0.125",
        &["0.0", "1.0"],
        "the compressed store keeps copies of so many of the local pages",
    ),
    key("pool.local", "huge_pages", "false", &["true"], "huge pages are asked for, and re-formed"),
];

/// One way to set a switch otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Otherwise {
    /// The name of the switch.
    pub switch: String,
    /// What it is set to.
    pub value: String,
    /// What it is where nobody sets it.
    pub usual: String,
    /// The mechanism, in a few words.
    pub about: String,
    /// How it is set: lines of run.toml, or a flag.
    pub how: String,
    /// The store over which it is measured, where that is not the usual one.
    pub store: Option<String>,
}

impl Switch {
    /// The ways to set it otherwise.
    pub fn ways(&self) -> impl Iterator<Item = Otherwise> {
        self.others.iter().map(|&value| Otherwise {
            switch: self.name.to_owned(),
            value: value.trim_matches('"').to_owned(),
            usual: self.usual.trim_matches('"').to_owned(),
            about: self.about.to_owned(),
            how: self.how(value),
            store: self.store.map(str::to_owned),
        })
    }

    /// How it is set to a value.
    #[must_use]
    pub fn how(&self, value: &str) -> String {
        match self.place {
            Place::Table(table, key) => format!("[{table}]\n{key} = {value}\n"),
            Place::Flag(flag) => format!("{flag} {value}"),
        }
    }

    /// The switch of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SWITCHES.iter().find(|switch| switch.name == name)
    }
}

impl Otherwise {
    /// What it is called in tables.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} = {}", self.switch, self.value)
    }

    /// Lines for run.toml, where it is set there; else it is a flag.
    #[must_use]
    pub fn configuration(&self) -> Option<&str> {
        self.how.starts_with('[').then_some(self.how.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_has_a_name_of_its_own_and_something_to_be_set_to() {
        for (at, switch) in SWITCHES.iter().enumerate() {
            assert!(SWITCHES[at + 1..].iter().all(|other| other.name != switch.name), "{}", switch.name);
            assert!(!switch.others.is_empty() && !switch.others.contains(&switch.usual), "{}", switch.name);
            assert_eq!(Switch::find(switch.name), Some(switch));
        }
        let ways: Vec<Otherwise> = SWITCHES.iter().flat_map(Switch::ways).collect();
        let find = |name: &str| ways.iter().find(|way| way.name() == name).unwrap();
        assert_eq!(find("overlap = false").configuration(), Some("[fetch]\noverlap = false\n"));
        assert_eq!(find("reserve_bytes = 0").how, "[pool.local]\nreserve_bytes = \"0\"\n");
        let block = find("block = 64K");
        assert_eq!((block.configuration(), block.how.as_str()), (None, "--block 64K"));
    }
}
