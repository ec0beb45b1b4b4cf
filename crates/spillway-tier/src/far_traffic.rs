//! What this machine's processors read from and write to far memory, as they count it themselves: Memory
//! Bandwidth Monitoring, through resctrl (`Documentation/filesystems/resctrl.rst`).
//!
//! Of each last-level cache they count all bytes of memory, and those of memory of its own node; the rest
//! went to other nodes. That is the far tier's where one node is fast and all others with memory are slow and
//! have CPUs. Memory without CPUs is counted as its own socket's by some processors and not by others, so
//! nothing is made of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use spillway_sys::nodes::list;

use crate::nodes::{Nodes, Tiers, number, numbered, read};

const RESCTRL: &str = "sys/fs/resctrl";
/// Directories of resctrl that are no control groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", "mon_groups"];

/// The caches whose bytes count.
#[derive(Debug)]
pub struct FarTraffic {
    resctrl: PathBuf,
    /// Last-level caches of the fast node, by number.
    caches: BTreeSet<u64>,
}

impl FarTraffic {
    /// Looks below `root` for what counts the bytes between these tiers.
    ///
    /// # Errors
    /// Nothing does; why.
    pub fn open(root: &Path, nodes: &Nodes, tiers: &Tiers) -> Result<Self, String> {
        let resctrl = root.join(RESCTRL);
        if !resctrl.join("mon_data").is_dir() {
            return Err("resctrl counts no memory here, or is not mounted".to_owned());
        }
        let fast: Vec<u32> = tiers.fast.0.iter().copied().collect();
        let [fast] = fast[..] else { return Err("several nodes are fast".to_owned()) };
        let is_sure = |node: &crate::nodes::Node| tiers.slow.0.contains(&node.node) && node.cpus;
        if let Some(other) = nodes.all.iter().find(|node| node.node != fast && !is_sure(node)) {
            return Err(format!("accesses to node {} cannot be told from others", other.node));
        }
        let system = root.join("sys/devices/system");
        let cpus = read(system.join(format!("node/node{fast}/cpulist"))).unwrap_or_default();
        let cache_of = |cpu: usize| number(system.join(format!("cpu/cpu{cpu}/cache/index3/id")));
        let caches: BTreeSet<u64> = list(&cpus).into_iter().filter_map(cache_of).collect();
        let traffic = Self { resctrl, caches };
        match traffic.bytes() {
            Some(_) => Ok(traffic),
            None => Err(format!("resctrl does not count the memory of node {fast}'s caches")),
        }
    }

    /// Bytes so far, either way, over all control groups that there are. None where one cannot be read.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let groups = self.resctrl.read_dir().ok()?.flatten().filter_map(|entry| {
            let is_group = !NO_GROUPS.iter().any(|name| entry.file_name() == *name);
            Some(entry.path()).filter(|path| is_group && path.join("mon_data").is_dir())
        });
        let mut bytes = None;
        for group in groups.chain([self.resctrl.clone()]) {
            for (cache, counts) in numbered(&group.join("mon_data"), "mon_L3_") {
                if self.caches.contains(&cache) {
                    let count = |name: &str| number(counts.join(name));
                    let far = count("mbm_total_bytes")?.saturating_sub(count("mbm_local_bytes")?);
                    *bytes.get_or_insert(0) += far;
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    /// Two sockets with a cache each, of which node 1 is said to be slow.
    fn sockets() -> Tree {
        let tree = Tree::new();
        for (node, cpus) in [(0, "0-1"), (1, "2")] {
            tree.node(node, cpus, 1024, 1024);
        }
        for (cpu, cache) in [(0, "0"), (1, "0"), (2, "1")] {
            tree.write(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/id"), cache);
        }
        tree
    }

    fn count(tree: &Tree, group: &str, cache: u32, total: &str, local: &str) {
        let directory = format!("sys/fs/resctrl/{group}mon_data/mon_L3_{cache:02}");
        tree.write(&format!("{directory}/mbm_total_bytes"), total);
        tree.write(&format!("{directory}/mbm_local_bytes"), local);
    }

    fn open(tree: &Tree, slow: &str) -> Result<FarTraffic, String> {
        let nodes = Nodes::read(tree.root()).unwrap();
        let tiers = nodes.tiers(None, Some(&slow.parse().unwrap())).unwrap();
        FarTraffic::open(tree.root(), &nodes, &tiers)
    }

    #[test]
    fn what_the_fast_nodes_caches_have_from_elsewhere_is_the_far_tiers() {
        let tree = sockets();
        count(&tree, "", 0, "1000", "600");
        count(&tree, "", 1, "77777", "1");
        count(&tree, "batch/", 0, "50", "20");
        // What groups for monitoring count is part of what their control groups do.
        count(&tree, "mon_groups/one/", 0, "900", "0");
        let traffic = open(&tree, "1").unwrap();
        assert_eq!(traffic.bytes(), Some(400 + 30));
        count(&tree, "batch/", 0, "Unavailable", "20");
        assert_eq!(traffic.bytes(), None);
    }

    #[test]
    fn where_far_accesses_cannot_be_told_the_reason_is() {
        let tree = sockets();
        let refused = |slow: &str| open(&tree, slow).unwrap_err();
        assert!(refused("1").contains("not mounted"));
        count(&tree, "", 1, "5", "1");
        assert!(refused("1").contains("node 0's caches"), "{}", refused("1"));
        count(&tree, "", 0, "Error", "1");
        assert!(refused("1").contains("node 0's caches"));
        count(&tree, "", 0, "5", "1");
        assert!(open(&tree, "1").is_ok());
        tree.node(2, "", 1024, 1024);
        assert!(refused("2").contains("several nodes are fast"));
        assert!(refused("1-2").contains("node 2"), "memory without CPUs: {}", refused("1-2"));
    }
}
