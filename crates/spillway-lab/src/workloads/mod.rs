//! The papers' workloads: the real algorithms, over instrumented memory. One file each.
//!
//! A workload is built from its configuration, which holds the size of its working set, its seed and what else its
//! paper says; [`build`] finds one by name. All tasks of a workload share the work of a phase piece by piece; a step does
//! one piece, and the step that does the last piece opens the next phase.
//!
//! | name | algorithm | paper |
//! |---|---|---|
//! | `scan` | sequential scan | dcm Fig. 9 |
//! | `bimodal` | hotness-fragmentation micro-benchmark | HotBox 3.2.2 |
//! | `uniform-kv` | hash table, each key as likely | HotBox 4.2 |
//! | `memcached-etc` | slab-allocated hash table, 90% of requests to 10% of keys | HotBox 6.2 |
//! | `graph500-bfs` | breadth-first search, Kronecker graph | HotBox 6.2, INDIGO Table 3 |
//! | `pagerank` | PageRank on a power-law graph | dcm Table 1 (twitter) |

mod bimodal;
mod graph;
mod graph500_bfs;
mod kv_store;
mod kv_traffic;
mod loading;
mod memcached_etc;
mod pagerank;
mod random;
mod registry;
mod scan;
#[cfg(test)]
mod testing;
mod uniform_kv;

pub use bimodal::{Bimodal, BimodalConfig};
pub use graph500_bfs::{Graph500Bfs, Graph500BfsConfig};
pub use memcached_etc::{MemcachedEtc, MemcachedEtcConfig};
pub use pagerank::{PageRank, PageRankConfig};
pub use registry::{Overrides, WorkloadEntry, WorkloadError, build, entries};
pub use scan::{Scan, ScanConfig};
pub use uniform_kv::{UniformKv, UniformKvConfig};
