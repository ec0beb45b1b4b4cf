//! Telemetry sources of `spillway tier` that need two memory tiers, or DAMON to themselves: QEMU boots
//! Debian's kernel of the backports with HMAT tables by which the kernel knows its second node to be slower.
//! Daemons are killed there at moments of chance. Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::child::Running;
use support::guest::{initial_files, kernel_of, parsed, section};
use support::tools::{c_program_with, tool};

/// Memory of each node.
const NODE_MIB: u32 = 512;
const WORKLOAD_MIB: u32 = 64;
const SECONDS: u32 = 30;
const KILLS: u32 = 12;
/// QEMU translates the guest's code.
const LONGEST: Duration = Duration::from_secs(20 * 60);
const SUITE: &str = "bookworm-backports";

/// Boots the guest, and returns what it wrote to its console.
fn boot(sources: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("initial-files");
    let (init, workload) =
        (c_program_with("guest_sources", &["-static"]), c_program_with("hot_tenth", &["-static"]));
    let spillway = Path::new(env!("CARGO_BIN_EXE_spillway"));
    let programs = [("init", init.as_path()), ("hot_tenth", workload.as_path()), ("spillway", spillway)];
    fs::write(&files, initial_files(&programs)).unwrap();
    let mut command = Command::new(tool("qemu-system-x86_64", "qemu-system-x86"));
    command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    // QEMU 7.2 sets wrong flags after an instruction (cmpxchg16b) that this kernel takes where it can.
    command.args(["-cpu", "qemu64,-cx16", "-smp", "1", "-m", &format!("{}M", 2 * NODE_MIB)]);
    command.args(["-machine", "hmat=on", "-serial", "stdio"]);
    for (node, place) in [(0, "cpus=0"), (1, "initiator=0")] {
        command.args(["-object", &format!("memory-backend-ram,id=m{node},size={NODE_MIB}M")]);
        command.args(["-numa", &format!("node,nodeid={node},memdev=m{node},{place}")]);
    }
    for (node, latency_ns, mib_per_s) in [(0, 100, 20_480), (1, 400, 5_120)] {
        let of = format!("hmat-lb,initiator=0,target={node},hierarchy=memory");
        command.args(["-numa", &format!("{of},data-type=access-latency,latency={latency_ns}")]);
        command.args(["-numa", &format!("{of},data-type=access-bandwidth,bandwidth={mib_per_s}M")]);
    }
    command.arg("-kernel").arg(kernel_of(SUITE)).arg("-initrd").arg(&files);
    let append = format!(
        "console=ttyS0 panic=-1 quiet no_timer_check numa_balancing=disable sources={} \
         sources_mib={WORKLOAD_MIB} sources_seconds={SECONDS} sources_kills={KILLS}",
        sources.join(",")
    );
    let console = Running::start(command.args(["-append", &append])).finish(LONGEST).success();
    let console = console.replace('\r', "");
    println!("{console}");
    assert!(console.contains("all sources ran"), "{console}");
    console
}

/// The lines of a section that say what settings were at a time.
fn settings<'a>(section: &'a str, when: &str) -> &'a str {
    let line =
        section.lines().find(|line| line.starts_with(when)).unwrap_or_else(|| panic!("{when}: {section}"));
    line.split_once(": ").unwrap().1
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn hint_faults_and_damon_work_and_daemons_that_are_killed_do_no_harm() {
    let console = boot(&["hint-faults", "damon"]);
    let checks = parsed(section(&console, "doctor"));
    let check = checks.as_array().unwrap().iter().find(|check| check["check"] == "tier-telemetry").unwrap();
    let found = check["found"].as_str().unwrap();
    assert!(found.starts_with("page-tables, damon, hint-faults; not here: "), "{found}");
    let before = settings(&console, "at first");
    assert!(before.starts_with("balancing 0 limit ") && before.ends_with("kdamonds 0"), "{before}");

    let workload = section(&console, "workload hint-faults");
    assert_eq!(settings(workload, "while it runs"), "balancing 2 limit 0 kdamonds 0");
    assert_eq!(settings(workload, "when it has ended"), before);
    let status = parsed(section(&console, "status hint-faults"));
    let (source, group) = (&status["source"], &status["groups"][0]);
    assert_eq!((&source["name"], &source["why"]), (&"hint-faults".into(), &"it was named".into()));
    assert!(source["precision"].as_str().unwrap().contains("256 MiB in 50 ms"), "{status}");
    assert!(count(&source["accesses"]) > 0 && count(&group["hint_faults"]) > 0, "{status}");
    assert!(count(&source["marks"]) > 0, "Debian's kernel has kprobes: {status}");
    assert!(count(&group["promotions"]) > 0, "{status}");
    // The node has no 1 GiB to spare, so the kernel promotes nothing by itself.
    assert_eq!(count(&group["moved_by_kernel"]), 0, "{status}");

    let workload = section(&console, "workload damon");
    assert!(settings(workload, "while it runs").ends_with("kdamonds 1"), "{workload}");
    assert_eq!(settings(workload, "when it has ended"), before);
    let status = parsed(section(&console, "status damon"));
    let group = &status["groups"][0];
    assert!(count(&group["local_uses"]) + count(&group["far_uses"]) > 0, "{status}");

    assert!(section(&console, "again").contains("it ended with status 0"), "{console}");

    let killed = section(&console, "killed");
    assert_eq!(killed.matches("ended with status 137").count(), KILLS as usize, "{killed}");
    assert!(killed.contains("the program ended with status 0"), "{killed}");
    assert!(killed.contains("the next daemon ended with status 0"), "{killed}");
    assert_eq!(settings(killed, "at the end"), before);
    let changed =
        killed.lines().filter(|line| line.starts_with("after it was killed") && !line.ends_with(before));
    assert!(changed.count() > 0, "some were killed while settings were changed: {killed}");
}
