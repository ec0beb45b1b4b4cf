//! `spillway tier` on two memory nodes: QEMU boots a Debian kernel with a node that has CPUs and one that has
//! none, and the guest runs a workload with a scattered hot tenth under policies. Run by `make test-full`;
//! `make rig` measures.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::child::Running;
use support::guest::{initial_files, kernel, parsed, section};
use support::tools::{c_program_with, tool};

/// Memory of each node.
const NODE_MIB: u32 = 512;
/// The workload's.
const WORKLOAD_MIB: u32 = 64;
/// Of the guest, in which time passes with its instructions, whatever else runs on the host.
const SECONDS: u32 = 40;
/// QEMU translates the guest's code.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Boots the guest, and returns what it wrote to its console.
fn boot(policies: &str, local_pct: u32) -> String {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("initial-files");
    let (init, workload) =
        (c_program_with("guest_tier", &["-static"]), c_program_with("hot_tenth", &["-static"]));
    let spillway = Path::new(env!("CARGO_BIN_EXE_spillway"));
    let programs = [("init", init.as_path()), ("hot_tenth", workload.as_path()), ("spillway", spillway)];
    fs::write(&files, initial_files(&programs)).unwrap();
    let mut command = Command::new(tool("qemu-system-x86_64", "qemu-system-x86"));
    command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-icount", "shift=2,sleep=off", "-rtc", "clock=vm,base=2026-01-01"]);
    command.args(["-m", &format!("{}M", 2 * NODE_MIB), "-smp", "1", "-serial", "stdio"]);
    for (node, cpus) in [(0, ",cpus=0"), (1, "")] {
        command.args(["-object", &format!("memory-backend-ram,id=m{node},size={NODE_MIB}M")]);
        command.args(["-numa", &format!("node,nodeid={node},memdev=m{node}{cpus}")]);
    }
    command.arg("-kernel").arg(kernel()).arg("-initrd").arg(&files);
    let append = format!(
        "console=ttyS0 panic=-1 quiet no_timer_check cryptomgr.notests numa_balancing=disable \
         tier_policies={policies} tier_mib={WORKLOAD_MIB} tier_seconds={SECONDS} tier_local={local_pct}%"
    );
    let console = Running::start(command.args(["-append", &append])).finish(LONGEST).success();
    let console = console.replace('\r', "");
    assert!(console.contains("all policies ran"), "{console}");
    console
}

/// Which share of the workload's accesses was local in the end, and how many pages were promoted.
fn outcome(console: &str, policy: &str) -> (f64, u64) {
    let workload = parsed(section(console, &format!("workload {policy}")));
    let status = parsed(section(console, &format!("status {policy}")));
    let promotions = status["groups"][0]["promotions"].as_u64().unwrap();
    (workload["local_hit_ratio"].as_f64().unwrap(), promotions)
}

/// The program went on, and the next daemon put back what the killed one had changed.
fn a_killed_daemon_did_no_harm(printed: &str) {
    for expected in [
        "while it runs:\n0\nfalse\n",
        "after it was killed:\n0\nfalse\n",
        "the program ended with status 0\n",
        "/proc/sys/kernel/numa_balancing: put back",
        "the next daemon ended with status 0\n",
        "at the end:\n1\ntrue\n",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn hot_pages_come_to_the_fast_node_of_a_guest() {
    let console = boot("first-touch,hotbox", 25);
    println!("{console}");
    let checks = parsed(section(&console, "doctor"));
    let tiers = checks.as_array().unwrap().iter().find(|check| check["check"] == "memory-tiers").unwrap();
    let found = tiers["found"].as_str().unwrap();
    assert!(found.contains("fast: node 0") && found.contains("slow: node 1"), "{found}");

    a_killed_daemon_did_no_harm(section(&console, "killed"));

    let (untouched, no_promotions) = outcome(&console, "first-touch");
    let (hotbox, promotions) = outcome(&console, "hotbox");
    // A quarter of pages of either kind is local without migration.
    assert!((0.15..0.35).contains(&untouched) && no_promotions == 0, "{untouched}, {no_promotions}");
    assert!(hotbox > untouched + 0.1 && promotions > 0, "{hotbox} against {untouched}, {promotions}");
}
