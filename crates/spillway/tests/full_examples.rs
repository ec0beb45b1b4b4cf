//! Examples that take minutes: virtual machines, and a build of the lab. Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod examples_common;
mod support;

use std::path::Path;

use examples_common::prints_in_the_end;
use support::guest::kernel;

#[test]
fn a_virtual_machine_has_half_of_its_memory_far() {
    prints_in_the_end("vm", 900, &[("KERNEL", &kernel())]);
}

#[test]
fn hot_pages_come_to_the_fast_node() {
    prints_in_the_end("tier-numa", 1800, &[("KERNEL", &kernel())]);
}

#[test]
fn a_policy_of_ones_own_runs_in_the_lab() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-policy");
    prints_in_the_end("own-policy", 1800, &[("CARGO_TARGET_DIR", &target)]);
}
