//! System calls answer a program whose memory is far as they answer it natively: each program here says what
//! it expects, and is run as it is, with handlers that serve its faults, and serving its own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod fault_common;
mod support;

use std::path::{Path, PathBuf};

use fault_common::disks::SmallDisk;
use support::child::Finished;
use support::launch::Launch;
use support::tools::c_program;

fn assert_whole(finished: &Finished, how: &str) {
    assert_eq!((finished.success().as_str(), finished.complaint().as_str()), ("whole\n", ""), "{how}");
}

/// Runs a program natively, and in both fault modes with less than the `mib` that it wants.
fn whole_everywhere(name: &str, mib: &str, arguments: &[&str]) {
    let program = c_program(name);
    let native = Launch::unlimited();
    assert_whole(&native.run(native.command(&program).arg(mib).args(arguments)), "natively");
    for mode in ["thread", "inline"] {
        let launch = Launch::local_mib(4);
        let mut command = launch.command(&program);
        command.arg(mib).args(arguments).env("SPILLWAY_FAULT_MODE", mode);
        assert_whole(&launch.run(&mut command), mode);
        let stats = launch.stats();
        assert!(stats.count("pages_written_back") > 0, "nothing was far: {}", stats.0);
        assert_eq!(stats.0["settings"]["fault_mode"], mode);
    }
}

#[test]
fn vectors_that_are_wrong_are_refused_at_once() {
    whole_everywhere("bad_calls", "6", &["vectors"]);
}

#[test]
fn addresses_that_are_wrong_are_refused_at_once() {
    whole_everywhere("bad_calls", "6", &["addresses"]);
}

#[test]
fn waits_end_by_time_by_signals_that_their_mask_lets_through_and_by_what_they_wait_for() {
    whole_everywhere("waits", "6", &[]);
}

#[test]
fn a_process_reads_and_writes_the_far_memory_of_another() {
    whole_everywhere("remote", "8", &[]);
}

#[test]
fn a_signal_of_a_file_system_that_fills_up_is_the_programs_own() {
    let disk = SmallDisk::ext4(4);
    whole_everywhere("small_disk", "6", &[disk.path().to_str().unwrap()]);
}

/// A control group of its own, where the kernel's second version of them is mounted.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        assert!(rustix::process::getuid().is_root(), "only root can make a cgroup: run the tests as root");
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots
            .into_iter()
            .find(|root| root.join("cgroup.procs").is_file() && root.join("cgroup.controllers").is_file());
        let root =
            root.expect("no cgroup2 is mounted; mount it: mount -t cgroup2 none /sys/fs/cgroup/unified");
        let path = root.join(format!("spillway-test-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn clone3_makes_processes_with_each_flag_and_refuses_what_the_kernel_refuses() {
    let group = Group::new();
    whole_everywhere("clone3", "6", &[group.0.to_str().unwrap()]);
}

#[test]
fn pages_that_hold_something_are_told_as_resident() {
    whole_everywhere("residency", "8", &[]);
}

#[test]
fn a_program_may_have_every_descriptor_up_to_the_last() {
    whole_everywhere("descriptors", "6", &["1024", "dup"]);
}

#[test]
fn a_process_forks_while_all_its_descriptors_are_open() {
    whole_everywhere("descriptors", "6", &["256", "full"]);
}

/// A thread has one at most, and in inline mode it is Spillway's. The program is told what an older kernel
/// says.
#[test]
fn a_program_has_no_syscall_user_dispatch_and_the_user_is_told() {
    let program = c_program("user_dispatch");
    let native = Launch::unlimited();
    assert_eq!(native.run_with(&program, &["8", "3"]).success(), "granted\n");
    // What is called past libc is not seen where threads serve faults.
    for (mode, ways) in [("thread", "2"), ("inline", "3")] {
        let launch = Launch::local_mib(4).with_option("--fault-mode").with_option(mode);
        let finished = launch.run_with(&program, &["8", ways]);
        assert_eq!(finished.success(), "refused\n", "{mode}");
        let complaint = finished.complaint();
        assert_eq!(complaint.matches("syscall user dispatch").count(), 1, "{complaint}");
        assert_eq!(launch.stats().0["settings"]["fault_mode"], mode);
    }
}
