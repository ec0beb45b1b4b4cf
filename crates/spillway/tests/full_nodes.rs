//! Two memory nodes with a CPU each, in a guest that QEMU boots from a Debian kernel: what memory costs that
//! the host has not given yet, what the first touch costs from node to node, and from which node the pager
//! takes frames. Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::child::Running;
use support::guest::{initial_files, kernel_of, parsed, section};
use support::tools::{c_program, c_program_with, tool};

/// UFFDIO_MOVE came with Linux 6.8, which Debian 12 has among its backports.
const SUITE: &str = "bookworm-backports";
/// Memory of each node.
const NODE_MIB: u32 = 768;
/// QEMU translates the guest's code.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Boots the guest, and returns what it wrote to its console.
fn boot() -> String {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("initial-files");
    let (init, program) = (c_program_with("guest_nodes", &["-static"]), c_program("placement"));
    let spillway = Path::new(env!("CARGO_BIN_EXE_spillway"));
    let preload = spillway.with_file_name("libspillway_preload.so");
    let programs = [
        ("init", init.as_path()),
        ("placement", program.as_path()),
        ("spillway", spillway),
        ("libspillway_preload.so", preload.as_path()),
    ];
    fs::write(&files, initial_files(&programs)).unwrap();
    let mut command = Command::new(tool("qemu-system-x86_64", "qemu-system-x86"));
    command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    // QEMU 7.2 sets wrong flags after an instruction (cmpxchg16b) that this kernel takes where it can.
    command.args([
        "-cpu",
        "qemu64,-cx16",
        "-smp",
        "2",
        "-m",
        &format!("{}M", 2 * NODE_MIB),
        "-serial",
        "stdio",
    ]);
    for node in 0..2 {
        command.args(["-object", &format!("memory-backend-ram,id=m{node},size={NODE_MIB}M")]);
        command.args(["-numa", &format!("node,nodeid={node},memdev=m{node},cpus={node}")]);
    }
    command.arg("-kernel").arg(kernel_of(SUITE)).arg("-initrd").arg(&files);
    let append = "console=ttyS0 panic=-1 quiet no_timer_check cryptomgr.notests numa_balancing=disable";
    let console = Running::start(command.args(["-append", append])).finish(LONGEST).success();
    let console = console.replace('\r', "");
    assert!(console.contains("all ran"), "{console}");
    console
}

/// How many pages of each thread's lay on which node, by its CPU.
fn placed(console: &str, name: &str) -> Vec<(usize, [u64; 2])> {
    let line = |line: &str| {
        let (cpu, pages) = line.strip_prefix("cpu ")?.split_once(':')?;
        let pages: Vec<u64> = pages.split_whitespace().map(|pages| pages.parse().unwrap()).collect();
        Some((cpu.parse().unwrap(), [pages[0], pages[1]]))
    };
    let threads: Vec<_> = section(console, name).lines().filter_map(line).collect();
    assert!(!threads.is_empty(), "{console}");
    threads
}

/// The only panel's rows of the report in a section of the console.
fn rows(console: &str, name: &str) -> Vec<serde_json::Value> {
    let section = section(console, name);
    // Progress comes before it, as on any terminal.
    let report = parsed(&section[section.find('{').unwrap()..]);
    report["experiments"][0]["panels"][0]["rows"].as_array().unwrap_or_else(|| panic!("{report}")).clone()
}

#[test]
fn frames_come_from_the_node_of_the_thread_that_faults() {
    let console = boot();
    println!("{console}");
    let uses = rows(&console, "uses");
    let mean = |at: usize| uses[at]["distribution"]["mean"].as_f64().unwrap();
    assert_eq!((uses.len(), uses[0]["point"].as_str()), (3, Some("first use")));
    assert!(mean(0) > mean(2), "memory that the host zeroes too costs no more: {uses:?}");

    let rows = rows(&console, "locality");
    for point in ["0 to 0", "0 to 1", "1 to 0", "1 to 1"] {
        let is_there = |row: &&serde_json::Value| row["point"] == point && row["case"]["page_bytes"] == 4096;
        let row = rows.iter().find(is_there).unwrap_or_else(|| panic!("no {point} in {rows:?}"));
        assert!(row["distribution"]["count"].as_u64().unwrap() > 1000, "{row}");
    }

    for name in ["placement thread", "placement inline", "placement crowd"] {
        for (cpu, pages) in placed(&console, name) {
            // The kernel itself placed what lay there before room ran short, and prefers a node no further
            // than it has room.
            assert!(pages[cpu] > 1000 && pages[cpu] > 19 * pages[1 - cpu], "{name}: CPU {cpu}: {pages:?}");
        }
    }
}
