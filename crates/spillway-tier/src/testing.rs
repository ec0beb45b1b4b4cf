//! What tests of this crate bring along: directory trees in place of `/sys` and `/proc`, machines on a kernel
//! for tests.

use std::fs;
use std::path::Path;

use spillway_core::page::PAGE_BYTES;
use spillway_core::size::Size;
use spillway_policy::machine::{LinkTelemetry, Tier};

use crate::fake_kernel::FakeKernel;
use crate::group::LocalBudget;
use crate::live::{Limits, LiveMachine};
use crate::room::NodeRoom;

/// A machine with numbers for `pages` pages, and room for `local` of them on node 0 and many on node 1.
pub fn machine(kernel: &FakeKernel, pages: u32, local: u32) -> LiveMachine {
    let link = LinkTelemetry { available_bytes_per_s: 1e10, delta_latency_ns: 500.0, traffic_bytes: 0 };
    let bytes = Size::from_bytes(u64::from(local) * PAGE_BYTES);
    let limits = Limits {
        local: LocalBudget::Bytes(bytes),
        local_pages: local,
        far_pages: 10_000,
        migration_bytes_per_s: 1 << 40,
        link,
    };
    let mut machine = LiveMachine::new(pages, limits, Box::new(kernel.clone()));
    machine.set_room(Tier::Local, NodeRoom(vec![(0, 10_000)]));
    machine.set_room(Tier::Far, NodeRoom(vec![(1, 10_000)]));
    machine
}

/// A directory that stands for `/`.
pub struct Tree(tempfile::TempDir);

impl Tree {
    /// A tree that holds no file yet.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The directory that stands for the root.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, with the directories that lead to it.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// What a file holds.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap().trim().to_owned()
    }

    /// Adds a memory node, as sysfs shows it.
    pub fn node(&self, node: u32, cpus: &str, total_mib: u64, free_mib: u64) {
        let directory = format!("sys/devices/system/node/node{node}");
        self.write(&format!("{directory}/cpulist"), cpus);
        let (total, free) = (total_mib << 10, free_mib << 10);
        let meminfo = format!("Node {node} MemTotal:  {total} kB\nNode {node} MemFree: {free} kB");
        self.write(&format!("{directory}/meminfo"), &meminfo);
    }
}
