//! The memory that is measured: a NUMA node, or a mount whose files are memory (DAX, tmpfs).

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use spillway_sys::mapping::{Advise, Backing, Mapping};
use spillway_sys::nodes;

use super::pages::Pages;
use crate::BenchError;

const REMEDY: &str = "choose a node that 'ls /sys/devices/system/node' has, or a mount of tmpfs or DAX";

/// Memory of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// A NUMA node.
    Node {
        /// Its number.
        node: u32,
        /// CPUs of the node that this process may use; empty where the node has none.
        cpus: Vec<usize>,
    },
    /// A mount.
    Mount(PathBuf),
}

/// Memory of a tier. Freed when dropped.
#[derive(Debug)]
pub struct Region {
    /// Where it is mapped.
    pub mapping: Mapping,
    file: Option<File>,
}

impl Tier {
    /// The nodes that are asked for, or all that have memory.
    ///
    /// # Errors
    /// A node that is asked for is not there or has no memory.
    pub fn nodes(wanted: &[u32]) -> Result<Vec<Self>, BenchError> {
        let there = nodes::with_memory();
        let allowed = allowed_cpus();
        let missing = wanted.iter().find(|node| !there.contains(node));
        if let Some(node) = missing {
            let there: Vec<String> = there.iter().map(u32::to_string).collect();
            let reason = format!("only {} has memory", there.join(", "));
            return Err(BenchError::setup(format!("measure node {node}"), reason, REMEDY));
        }
        let chosen = if wanted.is_empty() { &there } else { wanted };
        let tier = |&node: &u32| {
            // A kernel without NUMA has one node and does not say so.
            let cpus = nodes::cpus(node).unwrap_or_else(|| allowed.clone());
            let cpus = cpus.into_iter().filter(|cpu| allowed.contains(cpu)).collect();
            Self::Node { node, cpus }
        };
        Ok(chosen.iter().map(tier).collect())
    }

    /// A mount.
    ///
    /// # Errors
    /// It is no directory in which files can be made.
    pub fn mount(path: &Path) -> Result<Self, BenchError> {
        match tempfile::tempfile_in(path) {
            Ok(_) => Ok(Self::Mount(path.to_owned())),
            Err(error) => Err(BenchError::setup(format!("make a file in {}", path.display()), error, REMEDY)),
        }
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Node { node, .. } => format!("node {node}"),
            Self::Mount(path) => path.display().to_string(),
        }
    }

    /// Its node, where it is one.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        match self {
            Self::Node { node, .. } => Some(*node),
            Self::Mount(_) => None,
        }
    }

    /// Of these pages, those that it can have: files have the pages of their mount.
    #[must_use]
    pub fn has(&self, wanted: &[Pages]) -> Vec<Pages> {
        let is_had = |pages: &&Pages| matches!(self, Self::Node { .. }) || **pages == Pages::Base;
        wanted.iter().filter(is_had).copied().collect()
    }

    /// Maps memory of it that is not there before it is touched.
    pub fn map(&self, pages: Pages, bytes: u64) -> Result<Region, BenchError> {
        let failed = |error: &dyn std::fmt::Display| {
            let what = format!("map {} of {} in {}", super::bytes::size(bytes), pages.name(), self.name());
            BenchError::setup(what, error, "reserve more of them, or measure less with --quick")
        };
        let map = |backing| Mapping::new(backing, bytes as usize).map_err(|error| failed(&error));
        let (mapping, file) = match self {
            Self::Mount(path) => {
                let file = tempfile::tempfile_in(path).map_err(|error| failed(&error))?;
                file.set_len(bytes).map_err(|error| failed(&error))?;
                (map(Backing::File(&file))?, Some(file))
            }
            Self::Node { node, .. } => {
                let backing = match pages {
                    Pages::Reserved(page_bytes) => Backing::Reserved(page_bytes),
                    Pages::Any | Pages::Base | Pages::Transparent(_) => Backing::Anonymous,
                };
                let mapping = map(backing)?;
                // A kernel without NUMA has nothing to choose from.
                if nodes::with_memory().len() > 1 {
                    mapping.bind(*node).map_err(|error| failed(&error))?;
                }
                (mapping, None)
            }
        };
        // Kernels without transparent huge pages refuse both, and give small ones.
        let _ = match pages {
            Pages::Base => mapping.advise(0, bytes as usize, Advise::Small),
            Pages::Transparent(_) => mapping.advise(0, bytes as usize, Advise::Huge),
            Pages::Any | Pages::Reserved(_) => Ok(()),
        };
        Ok(Region { mapping, file })
    }
}

impl Region {
    /// Frees a range; it is zero when it is touched again.
    pub fn free(&self, offset: usize, bytes: usize) -> Result<(), BenchError> {
        let freed = match &self.file {
            None => self.mapping.discard(offset, bytes),
            Some(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, flags, offset as u64, bytes as u64)
            }
        };
        freed.map_err(|error| BenchError::setup("free memory", error, "see what 'dmesg' says"))
    }
}

/// CPUs that this process may use.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Lets the calling thread run on this CPU only. Without permission it runs where it may.
pub fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_its_number_and_others_are_refused() {
        let tiers = Tier::nodes(&[]).unwrap();
        assert!(tiers.iter().any(|tier| tier.node() == Some(0)), "{tiers:?}");
        let error = Tier::nodes(&[1000]).unwrap_err().to_string();
        assert!(error.contains("node 1000"), "{error}");
        assert!(Tier::mount(Path::new("/proc")).is_err());
    }

    #[test]
    fn memory_of_a_mount_is_freed_as_that_of_a_node() {
        let directory = tempfile::tempdir().unwrap();
        let tiers = [Tier::mount(directory.path()).unwrap(), Tier::nodes(&[]).unwrap().remove(0)];
        for tier in tiers {
            let mut region = tier.map(Pages::Base, 1 << 20).unwrap();
            region.mapping.touch(8192);
            region.mapping.touch(16384);
            region.free(8192, 4096).unwrap();
            let bytes = region.mapping.bytes_mut();
            assert_eq!((bytes[8192], bytes[16384]), (0, 1), "{tier:?}");
        }
    }
}
