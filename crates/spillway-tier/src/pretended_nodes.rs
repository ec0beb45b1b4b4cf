//! A machine of one node on which half of the memory is pretended to be slow: real processes, real telemetry,
//! real system calls, but pages stay where they are. For tests of the daemon, and to measure what it costs.

use std::fs;
use std::io::Result;
use std::path::Path;

use rustix::io::Errno;
use spillway_policy::machine::Tier;
use spillway_sys::migration::{self, PageResult};
use spillway_sys::node_speed::Probe;

use crate::link::Prober;
use crate::mover::Mover;
use crate::nodes::Nodes;

/// Blocks of 256 MiB belong to the two nodes in turn.
const BLOCK_BYTES: u64 = 256 << 20;
/// Frames behind 128 GiB belong to none, and are left alone.
const BLOCKS: u64 = 512;

/// Writes the two nodes into an empty directory that stands for `/`, and reads them.
///
/// # Errors
/// It cannot be written.
pub fn nodes(root: &Path) -> Result<Nodes> {
    let write = |path: String, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, text)
    };
    write("sys/devices/system/memory/block_size_bytes".to_owned(), &format!("{BLOCK_BYTES:x}"))?;
    for (node, cpus) in [(0, "0"), (1, "")] {
        let directory = format!("sys/devices/system/node/node{node}");
        write(format!("{directory}/cpulist"), cpus)?;
        let kib = (BLOCKS / 2 * BLOCK_BYTES) >> 10;
        let text = format!("Node {node} MemTotal: {kib} kB\nNode {node} MemFree: {kib} kB\n");
        write(format!("{directory}/meminfo"), &text)?;
        write(format!("{directory}/access1/initiators/read_latency"), ["100", "400"][node])?;
        write(format!("{directory}/access1/initiators/read_bandwidth"), "10000")?;
        for block in (node as u64..BLOCKS).step_by(2) {
            fs::create_dir_all(root.join(format!("{directory}/memory{block}")))?;
        }
    }
    Nodes::read(root).map_err(std::io::Error::other)
}

/// Reads of the slow half are said to take so much longer.
const SLOWER_NS: f64 = 300.0;

/// Probes the one node that there is for both halves.
pub struct PretendingProber(Probe);

impl PretendingProber {
    /// Takes the memory that it probes.
    ///
    /// # Errors
    /// There is none.
    pub fn new() -> std::result::Result<Self, Errno> {
        Probe::new(0).map(Self)
    }
}

impl Prober for PretendingProber {
    fn latency_ns(&mut self, tier: Tier) -> f64 {
        self.0.latency_ns() + if tier == Tier::Far { SLOWER_NS } else { 0.0 }
    }
}

/// Asks the kernel to move pages to the one node that there is, and says that they went where they were to
/// go.
#[derive(Clone, Copy, Debug, Default)]
pub struct PretendingMover;

impl Mover for PretendingMover {
    fn move_pages(
        &mut self,
        process: u32,
        addresses: &[u64],
        node: u32,
    ) -> std::result::Result<Vec<PageResult>, Errno> {
        let results = migration::move_pages(process, addresses, 0)?;
        Ok(results.into_iter().map(|result| result.map(|_| node)).collect())
    }
}
