//! Under what a program runs: as it is, under Spillway, or under Linux swap.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cgroup::MemoryGroup;
use crate::measured::under;

/// Under what a program runs.
pub enum Conditions<'a> {
    /// As it is, with its memory watched.
    Unlimited {
        /// Counts its memory.
        group: &'a MemoryGroup,
    },
    /// Under `spillway run`.
    Spillway {
        /// Its limit.
        local_bytes: u64,
        /// Where the rest is kept.
        uri: String,
        /// `--block`, where there is a choice.
        block: Option<&'static str>,
    },
    /// With the group's limit and a swap device.
    Swap {
        /// Limits its memory.
        group: &'a MemoryGroup,
    },
}

/// Makes the command that starts a program under the conditions.
pub struct Start<'a> {
    pub(super) conditions: &'a Conditions<'a>,
    pub(super) spillway: &'a Path,
    /// Where Spillway's statistics go.
    pub(super) stats: PathBuf,
}

impl Start<'_> {
    /// The command; the program's arguments are to be added.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        match self.conditions {
            Conditions::Unlimited { group } | Conditions::Swap { group } => under(&group.procs(), program),
            Conditions::Spillway { local_bytes, uri, block } => {
                let mut command = Command::new(self.spillway);
                command.args(["run", "--local", &local_bytes.to_string(), "--store", uri, "--stats"]);
                command.arg(&self.stats);
                if let Some(block) = block {
                    command.args(["--block", block]);
                }
                command.arg("--").arg(program);
                command
            }
        }
    }
}
