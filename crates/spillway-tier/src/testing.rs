//! What tests of this crate bring along: directory trees in place of `/sys` and `/proc`.

use std::fs;
use std::path::Path;

/// A directory that stands for `/`.
pub struct Tree(tempfile::TempDir);

impl Tree {
    /// An empty one.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Where it is.
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

    /// Adds a node.
    pub fn node(&self, node: u32, cpus: &str, total_mib: u64, free_mib: u64) {
        let directory = format!("sys/devices/system/node/node{node}");
        self.write(&format!("{directory}/cpulist"), cpus);
        let (total, free) = (total_mib << 10, free_mib << 10);
        let meminfo = format!("Node {node} MemTotal:  {total} kB\nNode {node} MemFree: {free} kB");
        self.write(&format!("{directory}/meminfo"), &meminfo);
    }
}
