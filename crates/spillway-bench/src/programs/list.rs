//! The list of the programs.

use clap::ValueEnum;

use super::guest::Guest;
use super::job::Prepared;
use super::keys::Draw;
use super::pgbench::{Load, Pgbench};
use super::server::{Kind, Server};
use super::{jobs, jobs_data};
use crate::dcm::postgres::Postgres;
use crate::dcm::snap::Snap;
use crate::dcm::spark::{Job, Spark};
use crate::whole::workload::Workload;

/// Real programs, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ProgramKind {
    /// Redis, half of the requests writes, keys drawn uniformly
    RedisUniform,
    /// Redis, half of the requests writes, keys drawn by Zipf's law
    RedisZipf,
    /// Redis, reads, keys drawn by Zipf's law
    RedisRead,
    /// Redis, keys read one after the other
    RedisScan,
    /// Memcached, reads, keys drawn uniformly
    MemcachedUniform,
    /// Memcached, half of the requests writes, keys drawn by Zipf's law
    MemcachedZipf,
    /// Memcached, keys read one after the other
    MemcachedScan,
    /// GNU sort of long lines
    Sort,
    /// A compressor with a long window
    Xz,
    /// Another, faster and with a longer one
    Zstd,
    /// SQLite in memory: index, join, group, sort
    Sqlite,
    /// NumPy: sort and argsort
    NumpySort,
    /// NumPy: two-dimensional FFTs, back and forth
    NumpyFft,
    /// NumPy: products of matrices
    NumpyMatrix,
    /// scikit-learn: clusters, components, a classifier
    Sklearn,
    /// igraph: PageRank and breadth-first search
    Graph,
    /// A database in a Java machine
    JavaH2,
    /// Node with a large heap
    Node,
    /// A large C file
    Gcc,
    /// Git finds deltas anew
    GitPack,
    /// PostgreSQL under a load like TPC-C
    Postgres,
    /// PostgreSQL under pgbench's select-only transactions
    PgbenchSelect,
    /// PostgreSQL under pgbench's own transactions
    PgbenchTpcb,
    /// PostgreSQL sorts in work_mem
    PostgresSort,
    /// A guest that QEMU translates
    Guest,
    /// SNAP aligns reads to a genome
    Snap,
    /// Collaborative filtering on PySpark
    SparkAls,
    /// PageRank on PySpark, over a generated graph
    SparkPagerank,
}

impl ProgramKind {
    /// Those that are measured where none is named: all, but in a quick run not PySpark's, whose start alone
    /// takes too long for it: with half of its memory 20 s and more, 20 times.
    #[must_use]
    pub fn usual(quick: bool) -> Vec<Self> {
        let is_left_out = |kind| quick && matches!(kind, Self::SparkAls | Self::SparkPagerank);
        Self::value_variants().iter().copied().filter(|&kind| !is_left_out(kind)).collect()
    }

    pub(crate) fn workload(self) -> Box<dyn Workload> {
        let job = |job| Box::new(Prepared::new(job)) as Box<dyn Workload>;
        let server = |name, kind, draw, writes| Box::new(Server::new(name, kind, draw, writes));
        match self {
            Self::RedisUniform => server("redis_uniform", Kind::Redis, Draw::Uniform, 50),
            Self::RedisZipf => server("redis_zipf", Kind::Redis, Draw::Zipf, 50),
            Self::RedisRead => server("redis_read", Kind::Redis, Draw::Zipf, 0),
            Self::RedisScan => server("redis_scan", Kind::Redis, Draw::Scan, 0),
            Self::MemcachedUniform => server("memcached_uniform", Kind::Memcached, Draw::Uniform, 0),
            Self::MemcachedZipf => server("memcached_zipf", Kind::Memcached, Draw::Zipf, 50),
            Self::MemcachedScan => server("memcached_scan", Kind::Memcached, Draw::Scan, 0),
            Self::Sort => job(jobs::sort()),
            Self::Xz => job(jobs::xz()),
            Self::Zstd => job(jobs::zstd()),
            Self::Sqlite => job(jobs::sqlite()),
            Self::NumpySort => job(jobs_data::numpy_sort()),
            Self::NumpyFft => job(jobs_data::numpy_fft()),
            Self::NumpyMatrix => job(jobs_data::numpy_matrix()),
            Self::Sklearn => job(jobs_data::sklearn()),
            Self::Graph => job(jobs_data::graph()),
            Self::JavaH2 => job(jobs_data::java_h2()),
            Self::Node => job(jobs::node()),
            Self::Gcc => job(jobs::gcc()),
            Self::GitPack => job(jobs::git_pack()),
            Self::Postgres => Box::new(Postgres::default()),
            Self::PgbenchSelect => Box::new(Pgbench::new(Load::SelectOnly)),
            Self::PgbenchTpcb => Box::new(Pgbench::new(Load::TpcB)),
            Self::PostgresSort => Box::new(Pgbench::new(Load::Sort)),
            Self::Guest => Box::new(Guest::default()),
            Self::Snap => Box::new(Snap::default()),
            Self::SparkAls => Box::new(Spark::new(Job::CollaborativeFiltering)),
            Self::SparkPagerank => Box::new(Spark::new(Job::PageRank)),
        }
    }
}
