//! What devices and pipes read from a program's memory and write to it arrives, whatever is evicted
//! meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod support;

use fault_common::Scene;
use support::child::{PATIENCE, Running};
use support::tools::c_program;

fn works_directly(how: &str, mib: u64, answer: &str) -> u64 {
    let scene = Scene::new();
    let mut command = scene.run("8M", &["ram:"], c_program("fault_direct"));
    command.arg(how).arg(scene.work()).args([mib.to_string(), "24".to_owned()]);
    let finished = Running::start(&mut command).finish(PATIENCE);
    assert_eq!(finished.success(), format!("{answer}\n"), "{finished:?}");
    scene.stats().count("evictions_refused")
}

#[test]
fn direct_reads_arrive_under_eviction() {
    works_directly("direct", 8, "right");
}

#[test]
fn pinned_pages_stay_where_they_are() {
    assert!(works_directly("registered", 4, "right") > 0);
}

#[test]
fn pinned_pages_stay_where_they_are_when_made_read_only() {
    works_directly("protected", 4, "right");
}

#[test]
fn pinned_pages_that_are_not_used_are_not_tried_again_and_again() {
    let refused = works_directly("idle", 4, "right");
    // Fewer than there are accesses to pages that come and go.
    assert!(refused > 0 && refused < 40 * 24 * 256, "{refused} evictions refused");
}

#[test]
fn pages_in_a_pipe_arrive_under_eviction() {
    works_directly("splice", 1, "right");
}

#[test]
fn more_pinned_pages_than_local_memory_are_refused() {
    works_directly("registered", 16, "refused");
}

/// In both fault modes: pages that were far and are given, and others that want their room meanwhile.
fn keeps_what_a_device_is_given(how: &str, mib: u64, least_given_mib: u64) {
    for mode in ["inline", "thread"] {
        let scene = Scene::new();
        let mut command = scene.run_with(&["--fault-mode", mode], "16M", &["ram:"], c_program("given"));
        command.args([how.to_owned(), mib.to_string(), "24".to_owned()]);
        let finished = Running::start(&mut command).finish(PATIENCE);
        assert_eq!(finished.success(), "right\n", "{mode}: {finished:?}");
        let stats = scene.stats();
        assert!(stats.count("unmanaged_bytes") >= least_given_mib << 20, "{mode}: {}", stats.0);
        assert!(stats.count("pages_fetched") > 0, "{mode}: {}", stats.0);
        assert_eq!(stats.count("inline_left"), u64::from(mode == "inline"), "{mode}: {}", stats.0);
    }
}

#[test]
fn a_device_reads_what_was_written_last_to_memory_that_it_was_given() {
    keeps_what_a_device_is_given("frames", 4, 4);
    keeps_what_a_device_is_given("written", 4, 4);
}

#[test]
fn memory_is_there_when_a_driver_is_asked_to_keep_it() {
    keeps_what_a_device_is_given("requests", 1, 5);
}
