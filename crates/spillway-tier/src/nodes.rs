//! The memory nodes of a machine, and which of them are fast and which are slow.
//!
//! Read from sysfs: nodes with their CPUs, sizes and frames, the kernel's memory tiers, latencies and
//! bandwidths from firmware (HMAT), DAX devices that serve as memory. Every path is taken below a root, so
//! that tests bring their own.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spillway_core::page::PAGE_BYTES;
use spillway_policy::machine::Tier;
use thiserror::Error;

/// A set of nodes, written as the kernel does: `0,2-3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeSet(pub BTreeSet<u32>);

/// What is wrong with a tier.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NodesError {
    /// A list of nodes was not understood.
    #[error("'{0}' is not a list of nodes: write numbers and ranges, such as 0,2-3")]
    List(String),
    /// The kernel shows no node.
    #[error("{0}: no memory node; /sys must be mounted")]
    NoNodes(PathBuf),
    /// There is nothing that memory could be demoted to.
    #[error(
        "no slow memory: {0} of this machine's nodes has memory and is not fast; \
         name the nodes with --fast and --slow"
    )]
    NoSlow(&'static str),
    /// A node that was named is not there.
    #[error("node {0}: not online, or without memory; 'spillway doctor' lists the nodes")]
    NoSuchNode(u32),
    /// A node was named twice.
    #[error("node {0}: both fast and slow; name it once")]
    Both(u32),
}

/// Most nodes that Linux knows (`MAX_NUMNODES`).
const MOST_NODES: u32 = 1024;

impl FromStr for NodeSet {
    type Err = NodesError;

    fn from_str(text: &str) -> Result<Self, NodesError> {
        let wrong = || NodesError::List(text.to_owned());
        let mut nodes = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| wrong());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= MOST_NODES {
                return Err(wrong());
            }
            nodes.extend(first..=last);
        }
        Ok(Self(nodes))
    }
}

impl TryFrom<String> for NodeSet {
    type Error = NodesError;
    fn try_from(text: String) -> Result<Self, NodesError> {
        text.parse()
    }
}

impl From<NodeSet> for String {
    fn from(set: NodeSet) -> Self {
        set.to_string()
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.0.iter().map(u32::to_string).collect::<Vec<_>>();
        f.write_str(&nodes.join(","))
    }
}

/// One memory node of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The number that the kernel gives it.
    pub node: u32,
    /// Whether it has CPUs.
    pub cpus: bool,
    /// All of its memory, in bytes.
    pub total_bytes: u64,
    /// What of this nothing uses, in bytes.
    pub free_bytes: u64,
    /// The kernel's memory tier; lower is faster.
    pub memory_tier: Option<u32>,
    /// What its firmware says of reads by the nearest CPU.
    pub read_latency_ns: Option<u64>,
    /// The same of bandwidth.
    pub read_bytes_per_s: Option<u64>,
    /// It is a DAX device that serves as memory: expanded or persistent memory.
    pub dax: bool,
}

/// Where each node's frames are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Frames {
    /// A power of two; 0 where it is not known.
    frames_per_block: u64,
    /// The node of each memory block.
    nodes: Vec<Option<u32>>,
}

/// The tiers of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameTiers {
    /// Frames of a memory block, as a power of two.
    shift: u32,
    of_blocks: Vec<Option<Tier>>,
}

impl FrameTiers {
    /// The tier of a frame, where the kernel says which blocks of memory a node has.
    #[inline]
    #[must_use]
    pub fn of_frame(&self, frame: u64) -> Option<Tier> {
        *self.of_blocks.get(usize::try_from(frame >> self.shift).ok()?)?
    }
}

/// The memory nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Those with memory, in order.
    pub all: Vec<Node>,
    frames: Frames,
    root: PathBuf,
}

/// Which nodes are fast and which are slow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tiers {
    /// The nodes whose memory is the local tier.
    pub fast: NodeSet,
    /// The nodes whose memory is the far tier.
    pub slow: NodeSet,
}

impl Tiers {
    /// The nodes of a tier.
    #[must_use]
    pub fn nodes(&self, tier: Tier) -> &NodeSet {
        if tier == Tier::Local { &self.fast } else { &self.slow }
    }

    /// The tier of a node.
    #[must_use]
    pub fn tier_of(&self, node: u32) -> Option<Tier> {
        if self.fast.0.contains(&node) {
            Some(Tier::Local)
        } else {
            self.slow.0.contains(&node).then_some(Tier::Far)
        }
    }
}

pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub(crate) fn number(path: impl AsRef<Path>) -> Option<u64> {
    read(path)?.parse().ok()
}

/// Names in a directory that begin with `prefix` and go on as a number, by that number.
pub(crate) fn numbered(directory: &Path, prefix: &str) -> Vec<(u64, PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// A line of a node's `meminfo`, in bytes.
fn memory_line(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(key))?;
    line.split_whitespace().nth(3)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Latency and bandwidth by the nearest CPU (`access1`), or by whatever is nearest (`access0`).
fn performance(node: &Path) -> (Option<u64>, Option<u64>) {
    let of = |name: &str| {
        ["access1", "access0"]
            .iter()
            .find_map(|access| number(node.join(access).join("initiators").join(name)))
            .filter(|&value| value > 0)
    };
    (of("read_latency"), of("read_bandwidth").map(|mib| mib << 20))
}

/// Nodes that hold a DAX device which the kernel uses as memory.
fn dax_nodes(root: &Path) -> BTreeSet<u32> {
    fs::read_dir(root.join("sys/bus/dax/devices"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|device| {
            fs::canonicalize(device.path().join("driver")).is_ok_and(|driver| driver.ends_with("kmem"))
        })
        .filter_map(|device| number(device.path().join("target_node")))
        .map(|node| node as u32)
        .collect()
}

impl Nodes {
    /// Reads the nodes below `root`; `/` for this machine.
    ///
    /// # Errors
    /// There are none.
    pub fn read(root: &Path) -> Result<Self, NodesError> {
        let directory = root.join("sys/devices/system/node");
        let tiers = numbered(&root.join("sys/devices/virtual/memory_tiering"), "memory_tier");
        let tier_of = |node: u32| {
            tiers.iter().find_map(|(tier, path)| {
                let nodes: NodeSet = read(path.join("nodelist"))?.parse().ok()?;
                nodes.0.contains(&node).then_some(*tier as u32)
            })
        };
        let dax = dax_nodes(root);
        let mut nodes = Self { root: root.to_owned(), ..Self::default() };
        nodes.frames.frames_per_block = read(root.join("sys/devices/system/memory/block_size_bytes"))
            .and_then(|hex| u64::from_str_radix(&hex, 16).ok())
            .map(|bytes| bytes / PAGE_BYTES)
            .filter(|frames| frames.is_power_of_two())
            .unwrap_or_default();
        for (number, path) in numbered(&directory, "node") {
            let node = number as u32;
            let memory = read(path.join("meminfo")).unwrap_or_default();
            let total_bytes = memory_line(&memory, "MemTotal:").unwrap_or(0);
            for (block, _) in numbered(&path, "memory") {
                let block = block as usize;
                if nodes.frames.nodes.len() <= block {
                    nodes.frames.nodes.resize(block + 1, None);
                }
                nodes.frames.nodes[block] = Some(node);
            }
            if total_bytes == 0 {
                continue;
            }
            let (read_latency_ns, read_bytes_per_s) = performance(&path);
            nodes.all.push(Node {
                node,
                cpus: read(path.join("cpulist")).is_some_and(|cpus| !cpus.is_empty()),
                total_bytes,
                free_bytes: memory_line(&memory, "MemFree:").unwrap_or(0),
                memory_tier: tier_of(node),
                read_latency_ns,
                read_bytes_per_s,
                dax: dax.contains(&node),
            });
        }
        if nodes.all.is_empty() { Err(NodesError::NoNodes(directory)) } else { Ok(nodes) }
    }

    /// Reads again how much of each node is free.
    pub fn refresh(&mut self) {
        for node in &mut self.all {
            let path = self.root.join(format!("sys/devices/system/node/node{}/meminfo", node.node));
            // A node that went offline has nothing free.
            node.free_bytes = read(path).and_then(|memory| memory_line(&memory, "MemFree:")).unwrap_or(0);
        }
    }

    /// The tier of each memory block, for a scan that asks for the frame of every page.
    #[must_use]
    pub fn frame_tiers(&self, tiers: &Tiers) -> FrameTiers {
        let Frames { frames_per_block, nodes } = &self.frames;
        let Some(shift) = frames_per_block.checked_ilog2() else { return FrameTiers::default() };
        let of_block = |node: &Option<u32>| tiers.tier_of((*node)?);
        FrameTiers { shift, of_blocks: nodes.iter().map(of_block).collect() }
    }

    /// Whether the node of a frame can be told.
    #[must_use]
    pub fn know_frames(&self) -> bool {
        self.frames.frames_per_block > 0 && self.frames.nodes.iter().any(Option::is_some)
    }

    /// The directory below which they were read.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The node of that number.
    #[must_use]
    pub fn get(&self, node: u32) -> Option<&Node> {
        self.all.iter().find(|known| known.node == node)
    }

    /// Sorts the nodes into tiers: fast are those with CPUs, and those without that the kernel or the
    /// firmware calls at least as fast; slow are the others. What is named takes the place of what is found.
    ///
    /// # Errors
    /// No slow memory, or nodes that are not there or in both tiers.
    pub fn tiers(&self, fast: Option<&NodeSet>, slow: Option<&NodeSet>) -> Result<Tiers, NodesError> {
        for &node in fast.iter().chain(&slow).flat_map(|set| &set.0) {
            if self.get(node).is_none() {
                return Err(NodesError::NoSuchNode(node));
            }
        }
        let guessed: BTreeSet<u32> =
            self.all.iter().filter(|node| !self.is_slow(node)).map(|node| node.node).collect();
        let everything: BTreeSet<u32> = self.all.iter().map(|node| node.node).collect();
        let (fast, slow) = match (fast, slow) {
            (Some(fast), Some(slow)) => (fast.0.clone(), slow.0.clone()),
            (Some(fast), None) => (fast.0.clone(), &everything - &fast.0),
            (None, Some(slow)) => (&everything - &slow.0, slow.0.clone()),
            (None, None) => (guessed.clone(), &everything - &guessed),
        };
        if let Some(&both) = fast.intersection(&slow).next() {
            return Err(NodesError::Both(both));
        }
        if slow.is_empty() || fast.is_empty() {
            return Err(NodesError::NoSlow(if self.all.len() == 1 { "not one" } else { "none" }));
        }
        Ok(Tiers { fast: NodeSet(fast), slow: NodeSet(slow) })
    }

    fn is_slow(&self, node: &Node) -> bool {
        let of_cpus = |value: fn(&Node) -> Option<u64>| {
            self.all.iter().filter(|node| node.cpus).filter_map(value).min()
        };
        let later = |value: fn(&Node) -> Option<u64>| match (value(node), of_cpus(value)) {
            (Some(this), Some(best)) => Some(this.cmp(&best)),
            _ => None,
        };
        let by_tier = later(|node| node.memory_tier.map(u64::from));
        let by_latency = later(|node| node.read_latency_ns);
        match (by_tier, by_latency) {
            // The kernel has put them apart.
            (Some(order), _) if order.is_ne() => order.is_gt(),
            _ if node.cpus => false,
            // Without CPUs and no word of its speed, it is taken for expanded memory.
            (_, order) => order.is_none_or(std::cmp::Ordering::is_gt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    fn two_nodes() -> Tree {
        let tree = Tree::new();
        tree.node(0, "0-3", 4096, 1024);
        tree.node(1, "", 8192, 8000);
        tree
    }

    fn tiers(tree: &Tree) -> (String, String) {
        let tiers = Nodes::read(tree.root()).unwrap().tiers(None, None).unwrap();
        (tiers.fast.to_string(), tiers.slow.to_string())
    }

    #[test]
    fn lists_of_nodes_are_read_and_written_as_the_kernel_does() {
        let set: NodeSet = "0,2-4\n".parse().unwrap();
        assert_eq!(set.to_string(), "0,2,3,4");
        assert_eq!("".parse::<NodeSet>().unwrap(), NodeSet::default());
        for wrong in ["x", "3-1", "0-99999999", "1,,-", "-1"] {
            assert_eq!(wrong.parse::<NodeSet>(), Err(NodesError::List(wrong.to_owned())));
        }
    }

    #[test]
    fn a_node_without_cpus_is_slow_though_the_kernel_puts_all_in_one_tier() {
        let tree = two_nodes();
        tree.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0-1");
        assert_eq!(tiers(&tree), ("0".into(), "1".into()));
        let nodes = Nodes::read(tree.root()).unwrap();
        assert_eq!(nodes.all[1].free_bytes, 8000 << 20);
        assert_eq!((nodes.all[0].cpus, nodes.all[1].cpus), (true, false));
        assert_eq!(nodes.all[1].memory_tier, Some(4));
    }

    #[test]
    fn the_kernels_tiers_tell_fast_memory_without_cpus_from_slow() {
        let tree = two_nodes();
        tree.node(2, "", 1024, 1024);
        tree.write("sys/devices/virtual/memory_tiering/memory_tier2/nodelist", "2");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0");
        tree.write("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "1");
        assert_eq!(tiers(&tree), ("0,2".into(), "1".into()));
    }

    #[test]
    fn firmware_tells_latency_and_bandwidth() {
        let tree = two_nodes();
        tree.write("sys/devices/system/node/node0/access1/initiators/read_latency", "90");
        tree.write("sys/devices/system/node/node1/access0/initiators/read_latency", "80");
        tree.write("sys/devices/system/node/node1/access1/initiators/read_latency", "250");
        tree.write("sys/devices/system/node/node1/access1/initiators/read_bandwidth", "20000");
        let nodes = Nodes::read(tree.root()).unwrap();
        assert_eq!(nodes.all[1].read_latency_ns, Some(250), "that of CPUs");
        assert_eq!(nodes.all[1].read_bytes_per_s, Some(20_000 << 20));
        assert_eq!(tiers(&tree), ("0".into(), "1".into()));
        tree.write("sys/devices/system/node/node1/access1/initiators/read_latency", "60");
        assert!(Nodes::read(tree.root()).unwrap().tiers(None, None).is_err(), "faster than the CPUs' own");
    }

    #[test]
    fn a_wrong_guess_is_overridden_and_nonsense_refused() {
        let tree = two_nodes();
        tree.node(2, "", 0, 0);
        let nodes = Nodes::read(tree.root()).unwrap();
        let set = |text: &str| text.parse::<NodeSet>().unwrap();
        let tiers = nodes.tiers(Some(&set("1")), None).unwrap();
        assert_eq!((tiers.fast.to_string(), tiers.slow.to_string()), ("1".into(), "0".into()));
        assert_eq!(tiers.tier_of(0), Some(Tier::Far));
        assert_eq!(nodes.tiers(None, Some(&set("2"))), Err(NodesError::NoSuchNode(2)), "no memory");
        assert_eq!(nodes.tiers(Some(&set("0,1")), Some(&set("1"))), Err(NodesError::Both(1)));
        let error = nodes.tiers(Some(&set("0-1")), None).unwrap_err();
        assert!(error.to_string().contains("--slow"), "{error}");
    }

    #[test]
    fn a_machine_of_one_node_has_no_slow_memory() {
        let tree = Tree::new();
        tree.node(0, "0-1", 4096, 1024);
        assert!(matches!(Nodes::read(tree.root()).unwrap().tiers(None, None), Err(NodesError::NoSlow(_))));
        assert!(matches!(Nodes::read(Tree::new().root()), Err(NodesError::NoNodes(_))));
    }

    #[test]
    fn frames_belong_to_the_node_that_has_their_block() {
        let tree = two_nodes();
        let unknown = Nodes::read(tree.root()).unwrap();
        let tiers = unknown.tiers(None, Some(&"1".parse().unwrap())).unwrap();
        assert!(!unknown.know_frames() && unknown.frame_tiers(&tiers).of_frame(0).is_none());
        tree.write("sys/devices/system/memory/block_size_bytes", "8000000");
        for (node, block) in [(0, 0), (0, 1), (1, 32)] {
            tree.write(&format!("sys/devices/system/node/node{node}/memory{block}/state"), "online");
        }
        let nodes = Nodes::read(tree.root()).unwrap();
        let frames = (128 << 20) / PAGE_BYTES;
        let of_frames = nodes.frame_tiers(&nodes.tiers(None, Some(&"1".parse().unwrap())).unwrap());
        assert_eq!(of_frames.of_frame(0), Some(Tier::Local));
        assert_eq!(of_frames.of_frame(2 * frames - 1), Some(Tier::Local));
        assert_eq!(of_frames.of_frame(2 * frames), None);
        assert_eq!(of_frames.of_frame(32 * frames), Some(Tier::Far));
        assert_eq!(of_frames.of_frame(u64::MAX), None);
    }

    #[test]
    fn dax_devices_that_serve_as_memory_are_known() {
        let tree = two_nodes();
        tree.write("sys/bus/dax/devices/dax0.0/target_node", "1");
        assert!(!Nodes::read(tree.root()).unwrap().all[1].dax, "not bound to the driver");
        tree.write("sys/bus/dax/drivers/kmem/bind", "");
        let device = tree.root().join("sys/bus/dax/devices/dax0.0");
        std::os::unix::fs::symlink("../../drivers/kmem", device.join("driver")).unwrap();
        assert!(Nodes::read(tree.root()).unwrap().all[1].dax);
    }

    #[test]
    fn this_machine_has_a_node() {
        let mut nodes = Nodes::read(Path::new("/")).unwrap();
        assert!(nodes.all[0].total_bytes > 0);
        nodes.refresh();
        assert!(nodes.all[0].free_bytes > 0);
    }
}
