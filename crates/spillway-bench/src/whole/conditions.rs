//! Under what a program runs: as it is, under Spillway, or under Linux swap.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cgroup::MemoryGroup;
use crate::measured::under;

/// Under what a program runs.
pub enum Conditions<'a> {
    /// As it is, with its memory watched.
    Unlimited {
        /// The group that counts its memory, where that is asked for.
        group: Option<&'a MemoryGroup>,
    },
    /// Under `spillway run`, with these flags.
    Spillway {
        /// The flags of `spillway run`.
        flags: Vec<String>,
        /// The group that counts its memory, where that is asked for.
        group: Option<&'a MemoryGroup>,
    },
    /// With the group's limit and a swap device.
    Swap {
        /// The group that limits its memory.
        group: &'a MemoryGroup,
    },
}

/// Makes the command that starts a program under the conditions.
pub struct Start<'a> {
    pub(crate) conditions: &'a Conditions<'a>,
    pub(crate) spillway: &'a Path,
    /// Where Spillway's statistics go.
    pub(crate) stats: PathBuf,
}

impl Start<'_> {
    /// The command; the program's arguments are to be added.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        match self.conditions {
            Conditions::Unlimited { group } => counted(*group, program),
            Conditions::Swap { group } => counted(Some(group), program),
            Conditions::Spillway { flags, group } => {
                let mut command = counted(*group, self.spillway);
                command.arg("run").args(flags).arg("--stats").arg(&self.stats);
                command.arg("--").arg(program);
                command
            }
        }
    }
}

/// A command whose memory the group counts, if there is one.
fn counted(group: Option<&MemoryGroup>, program: &Path) -> Command {
    group.map_or_else(|| Command::new(program), |group| under(&group.procs(), program))
}
