//! What this machine can and cannot do for Spillway, as data: `spillway doctor` prints it, and `spillway run`
//! refuses to start on [`essential_failures`] with the same words.
//!
//! - `check`: one property of the machine, and how it came out.
//! - `faults`: userfaultfd, its features and the permission to use it.
//! - `memory`: limits and settings of the memory system.
//! - `devices`: nodes, networks, disks and Spillway's own library.

mod check;
mod devices;
mod faults;
mod group_room;
mod memory;

pub use check::{Check, Purpose, Remedy, Status, as_root};
pub use devices::preload_library;
pub use group_room::{GroupRoom, group_room};
pub use memory::usable_memory_bytes;

/// Every check, in the order in which a reader wants them. Takes a few milliseconds and changes nothing.
#[must_use]
pub fn checks() -> Vec<Check> {
    let mut checks = faults::checks();
    checks.extend(memory::checks());
    checks.extend(devices::checks());
    checks
}

/// What keeps Spillway from running any program here; empty on a machine that is fit for it.
#[must_use]
pub fn essential_failures() -> Vec<Check> {
    let mut checks = faults::checks();
    checks.push(devices::preload_check());
    checks.retain(Check::prevents_running);
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_short() {
        let checks = checks();
        let names = checks.iter().map(|check| check.name).collect::<HashSet<_>>();
        assert_eq!(names.len(), checks.len());
        assert!(names.iter().all(|name| name.len() <= 20), "{names:?}");
    }

    #[test]
    fn whatever_is_essential_and_missing_is_a_failure() {
        let expected = checks().into_iter().filter(Check::prevents_running).collect::<Vec<_>>();
        assert_eq!(essential_failures(), expected);
        let check = Check::warn("x", "y", "z").essential();
        assert!(!check.prevents_running(), "a warning stops nothing");
    }
}
