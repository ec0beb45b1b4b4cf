//! The list of the programs.

use clap::ValueEnum;

use super::job::Prepared;
use super::jobs;
use super::keys::Draw;
use super::server::{Kind, Server};
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
    /// Redis, keys read one after the other
    RedisScan,
    /// Memcached, reads, keys drawn uniformly
    MemcachedUniform,
    /// Memcached, half of the requests writes, keys drawn by Zipf's law
    MemcachedZipf,
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
    /// Node with a large heap
    Node,
    /// A large C file
    Gcc,
    /// Git finds deltas anew
    GitPack,
    /// PostgreSQL under a load like TPC-C
    Postgres,
    /// SNAP aligns reads to a genome
    Snap,
    /// Collaborative filtering on PySpark
    SparkAls,
    /// PageRank on PySpark, over a generated graph
    SparkPagerank,
}

impl ProgramKind {
    pub(super) fn workload(self) -> Box<dyn Workload> {
        let job = |job| Box::new(Prepared::new(job)) as Box<dyn Workload>;
        let server = |name, kind, draw, writes| Box::new(Server::new(name, kind, draw, writes));
        match self {
            Self::RedisUniform => server("redis_uniform", Kind::Redis, Draw::Uniform, 50),
            Self::RedisZipf => server("redis_zipf", Kind::Redis, Draw::Zipf, 50),
            Self::RedisScan => server("redis_scan", Kind::Redis, Draw::Scan, 0),
            Self::MemcachedUniform => server("memcached_uniform", Kind::Memcached, Draw::Uniform, 0),
            Self::MemcachedZipf => server("memcached_zipf", Kind::Memcached, Draw::Zipf, 50),
            Self::Sort => job(jobs::sort()),
            Self::Xz => job(jobs::xz()),
            Self::Zstd => job(jobs::zstd()),
            Self::Sqlite => job(jobs::sqlite()),
            Self::NumpySort => job(jobs::numpy_sort()),
            Self::NumpyFft => job(jobs::numpy_fft()),
            Self::Node => job(jobs::node()),
            Self::Gcc => job(jobs::gcc()),
            Self::GitPack => job(jobs::git_pack()),
            Self::Postgres => Box::new(Postgres::default()),
            Self::Snap => Box::new(Snap::default()),
            Self::SparkAls => Box::new(Spark::new(Job::CollaborativeFiltering)),
            Self::SparkPagerank => Box::new(Spark::new(Job::PageRank)),
        }
    }
}
