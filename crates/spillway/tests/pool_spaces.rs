//! Eight donors in network namespaces of their own and a real etcd, while any two of the donors are killed at
//! once, one is replaced, stopped, late, forgetful, behind a link that loses packets or is cut one way, etcd
//! restarts or forgets, and strangers knock; and, where there is a last resort, all donors die, or its disk
//! is full: a program that checks every byte finds all right. The same for an hour, with further programs, is
//! full_pool_spaces.rs.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod pool_common;
mod space_common;
mod support;

use std::sync::LazyLock;

use space_common::harm::Harm;
use space_common::story::{CODED, CODED_SPILLING, COPIED, OF_SPILLING, seed, shuffled, tell};

/// Of all tests; two of them share the harms of a seed.
static SEED_OF_ALL: LazyLock<u64> = LazyLock::new(seed);

#[test]
fn a_program_on_copies_survives_what_befalls_its_donors() {
    let harms = [&[Harm::Death], &shuffled(*SEED_OF_ALL)[..3]].concat();
    tell(COPIED, &harms, *SEED_OF_ALL);
}

#[test]
fn a_program_on_coded_pages_survives_what_befalls_its_donors() {
    let harms = [&[Harm::Death], &shuffled(*SEED_OF_ALL)[3..]].concat();
    tell(CODED, &harms, *SEED_OF_ALL);
}

#[test]
fn a_program_on_coded_pages_with_a_last_resort_survives_all_of_its_donors() {
    tell(CODED_SPILLING, &OF_SPILLING, *SEED_OF_ALL);
}
