//! A dead pager fails closed: where the supervisor or a thread that serves faults is killed under a program,
//! the program ends. Neither it nor a forked child ever reads zeros, or an older page, in place of what was
//! far: `fault_hold.c` compares all that it reads as long as it lives.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod support;

use std::fs;

use donor_common::Donor;
use fault_common::{BY_SIGKILL, Hold, SOON, Scene, alive_in_group};
use rustix::process::{Pid, Signal, kill_process};
use support::child::{Finished, until};
use support::tools::c_program;
use support::watch::{child_of, descendants};

/// A program and two children that share 32 MiB, of which 8 are local, all at work.
fn family(scene: &Scene, mode: &str, store: &str) -> Hold {
    let mut command = scene.run_with(&["--fault-mode", mode], "8M", &[store], c_program("fault_hold"));
    let mut hold = Hold::start_by(command.args(["32", "2"]));
    hold.goes_on(6);
    hold
}

/// What `fault_hold.c` says of a page that does not hold what was written.
fn read_nothing_wrong(finished: &Finished) {
    let said = finished.complaint();
    assert!(!said.contains("is wrong") && !said.contains("holds version"), "{said}");
    assert!(!finished.text().contains("whole"), "it was not told to end: {}", finished.text());
}

/// The threads of a process that serve its faults: their own tables of descriptors have its userfaultfd.
fn serving_threads(pid: i32) -> Vec<i32> {
    let has_userfaultfd = |task: &fs::DirEntry| {
        let descriptors = fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|descriptor| fs::read_link(descriptor.path()).ok())
            .any(|link| link.to_string_lossy().contains("userfaultfd"))
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter(has_userfaultfd).filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The children of the program that `spillway run` started.
fn children(hold: &Hold) -> Vec<i32> {
    let program = child_of(hold.running.pid()).as_raw_nonzero().get();
    let found = descendants(program);
    assert_eq!(found.len(), 2, "{found:?}");
    found
}

fn supervisor_is_killed(mode: &str, store: &str) {
    let scene = Scene::new();
    let hold = family(&scene, mode, store);
    let run = hold.running.pid();
    assert_eq!(alive_in_group(run).len(), 4);
    hold.running.signal(Signal::KILL);
    // Who is told last has a second's rest between two looks.
    until(SOON, "all programs of the run to end", || alive_in_group(run).is_empty().then_some(()));
    let mut running = hold.running;
    let finished = running.finish(SOON);
    assert_eq!(finished.code(), BY_SIGKILL);
    read_nothing_wrong(&finished);
}

#[test]
fn no_program_of_a_run_outlives_its_supervisor_or_reads_zeros() {
    supervisor_is_killed("thread", "ram:");
    supervisor_is_killed("inline", "ram:");
}

#[test]
fn nor_where_far_pages_are_on_a_donor() {
    let donor = Donor::start("256M", &[]);
    supervisor_is_killed("thread", &donor.tcp_uri("e"));
}

#[test]
fn a_child_whose_serving_thread_is_killed_ends_alone() {
    let scene = Scene::new();
    let mut hold = family(&scene, "thread", "ram:");
    let run = hold.running.pid();
    let dies = children(&hold)[0];
    let serving = serving_threads(dies);
    assert!(!serving.is_empty() && !serving.contains(&dies), "{serving:?} of {dies}");
    kill_process(Pid::from_raw(serving[0]).unwrap(), Signal::KILL).unwrap();
    until(SOON, "the child to end", || (!alive_in_group(run).contains(&dies)).then_some(()));
    // The others are whole, and go on.
    hold.goes_on(6);
    assert_eq!(alive_in_group(run).len(), 3);
    hold.running.signal(Signal::TERM);
    let finished = hold.running.finish(SOON);
    let said = finished.complaint();
    assert!(said.contains("a child ended with 0x9"), "{said}");
    assert!(!said.contains("is wrong") && !said.contains("holds version"), "{said}");
}

#[test]
fn a_program_whose_serving_thread_is_killed_ends_and_its_children_read_no_zeros() {
    let scene = Scene::new();
    let hold = family(&scene, "thread", "ram:");
    let run = hold.running.pid();
    let (program, children) = (child_of(run), children(&hold));
    let serving = serving_threads(program.as_raw_nonzero().get());
    kill_process(Pid::from_raw(serving[0]).unwrap(), Signal::KILL).unwrap();
    let mut running = hold.running;
    let finished = running.finish(SOON);
    assert_eq!(finished.code(), BY_SIGKILL);
    read_nothing_wrong(&finished);
    for child in children {
        // They have a pager of their own each, and go on until they are told.
        let _ = kill_process(Pid::from_raw(child).unwrap(), Signal::TERM);
    }
    until(SOON, "the children to end", || alive_in_group(run).is_empty().then_some(()));
    let said = running.finish(SOON).complaint();
    assert!(!said.contains("is wrong") && !said.contains("holds version"), "{said}");
}
