//! The papers' workloads: the real algorithms, over instrumented memory. One file each.
//!
//! A workload is built from its configuration, which holds the size of its working set, its seed and what
//! else its paper says; [`build`] finds one by name. All tasks of a workload share the work of a phase piece
//! by piece; a step does one piece, and the step that does the last piece opens the next phase.
//!
//! | name | algorithm | paper |
//! |---|---|---|
//! | `scan` | sequential scan | dcm Fig. 9 |
//! | `bimodal` | hotness-fragmentation micro-benchmark | HotBox 3.2.2 |
//! | `uniform-kv` | hash table, each key as likely | HotBox 4.2 |
//! | `memcached-etc` | slab-allocated hash table, 90% of requests to 10% of keys | HotBox 6.2 |
//! | `redis` | key-value store behind a rate-limited socket | INDIGO Table 3 |
//! | `tpcc` | TPC-C on 8 KB records, with hot run-time data | HotBox 6.2, INDIGO Table 3, dcm Table 1 |
//! | `hash-join` | build on the smaller table, probe with the larger | INDIGO Table 3 |
//! | `graph500-bfs` | breadth-first search, Kronecker graph | HotBox 6.2, INDIGO Table 3 |
//! | `graph500-sssp` | shortest paths by delta-stepping, Kronecker graph | INDIGO Table 3 |
//! | `ligra-bfs` | breadth-first search in both directions, rMat graph | HotBox 6.2 |
//! | `ligra-pagerank` | PageRankDelta, rMat graph | HotBox 6.2 |
//! | `pagerank` | PageRank on a power-law graph | dcm Table 1 (twitter) |
//! | `amg` | conjugate gradients with algebraic multigrid | INDIGO Table 3 |
//! | `transformer` | layer-by-layer transformer inference | INDIGO Table 3 |
//! | `als` | collaborative filtering by alternating least squares | dcm Table 1 (movielens) |
//! | `snap` | sequence alignment: sequential load, random align | dcm Table 1, Fig. 11 |
//! | `stream` | STREAM copy, the contending neighbour | INDIGO 6.3 |

mod als;
mod amg;
mod amg_levels;
mod bimodal;
mod entry;
mod graph;
mod graph500_bfs;
mod graph500_sssp;
mod graph_rows;
mod hash_join;
mod kv_store;
mod kv_traffic;
mod ligra;
mod ligra_bfs;
mod ligra_pagerank;
mod loading;
mod memcached_etc;
mod pagerank;
mod random;
mod redis;
mod registry;
mod scan;
mod snap;
mod stream;
#[cfg(test)]
mod testing;
mod tpcc;
mod tpcc_tables;
mod transformer;
mod uniform_kv;

pub use als::{Als, AlsConfig};
pub use amg::{Amg, AmgConfig};
pub use bimodal::{Bimodal, BimodalConfig};
pub use entry::{Overrides, TRACE, WorkloadEntry, WorkloadError};
pub use graph500_bfs::{Graph500Bfs, Graph500BfsConfig};
pub use graph500_sssp::{Graph500Sssp, Graph500SsspConfig};
pub use hash_join::{HashJoin, HashJoinConfig};
pub use ligra_bfs::{LigraBfs, LigraBfsConfig};
pub use ligra_pagerank::{LigraPageRank, LigraPageRankConfig};
pub use memcached_etc::{MemcachedEtc, MemcachedEtcConfig};
pub use pagerank::{PageRank, PageRankConfig};
pub use redis::{Redis, RedisConfig};
pub use registry::{build, entries, find};
pub use scan::{Scan, ScanConfig};
pub use snap::{Snap, SnapConfig};
pub use stream::{Stream, StreamConfig};
pub use tpcc::{Tpcc, TpccConfig};
pub use transformer::{Transformer, TransformerConfig};
pub use uniform_kv::{UniformKv, UniformKvConfig};
