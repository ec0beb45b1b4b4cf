//! Virtual machines whose memory is partly far: an unmodified QEMU boots a Debian kernel, the guest tests its
//! memory and powers off. Run by `make test-full`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod donor_common;
mod support;

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use donor_common::Donor;
use support::MIB;
use support::guest::{initial_files, kernel};
use support::launch::Launch;
use support::tools::{c_program_with, tool};

/// Memory of a guest, half of which may be local.
const GUEST_MIB: u64 = 512;
/// What its memory test covers: the kernel needs the rest.
const TESTED_MIB: u64 = 400;
/// QEMU translates the guest's code.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Each guest wants a CPU for itself.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn a_guest_tests_its_memory(store: &str, cpus: u32) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let kernel = kernel();
    let local_bytes = GUEST_MIB / 2 * MIB;
    let launch = Launch::limited(local_bytes, store).with_patience(LONGEST);
    let files = launch.work().join("initial-files");
    // Nothing but the memory test.
    let init = c_program_with("guest_init", &["-static"]);
    fs::write(&files, initial_files(&[("init", init.as_path())])).unwrap();

    let mut command = launch.command(tool("qemu-system-x86_64", "qemu-system-x86"));
    command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-m", &GUEST_MIB.to_string(), "-smp", &cpus.to_string(), "-serial", "stdio"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(&files);
    command.args(["-append", &format!("console=ttyS0 panic=-1 memory_test_mib={TESTED_MIB}")]);
    let finished = launch.run(&mut command);

    let console = finished.success();
    assert!(console.contains(&format!("memory test passed: {TESTED_MIB} MiB")), "{console}");
    // What the kernel says when it has shut down.
    assert!(console.contains("reboot: Power down"), "{console}");
    let stats = launch.stats();
    println!("{cpus} CPUs on {store}: {}", stats.0);
    // The test wants more than is local, in each version and twice.
    let at_least = (TESTED_MIB * MIB - local_bytes) / 4096;
    assert!(stats.count("pages_fetched") > at_least, "{}", stats.0);
    assert!(stats.count("pages_written_back") > at_least, "{}", stats.0);
    assert!(stats.count("peak_local_bytes") <= local_bytes, "{}", stats.0);
    assert_eq!((stats.count("faults.refused"), stats.count("writebacks_failed")), (0, 0), "{}", stats.0);
}

#[test]
fn a_guest_of_one_cpu_has_half_of_its_memory_in_compressed_ram() {
    a_guest_tests_its_memory("compressed:", 1);
}

#[test]
fn a_guest_of_two_cpus_has_half_of_its_memory_on_a_donor() {
    let donor = Donor::start("2G", &["--force"]);
    a_guest_tests_its_memory(&donor.tcp_uri(""), 2);
}
