//! The list of the programs of the evaluation.

use clap::ValueEnum;

use super::postgres::Postgres;
use super::sequential::Sequential;
use super::snap::Snap;
use super::spark::{Job, Spark};
use crate::whole::workload::Workload;

/// The programs of the evaluation, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// Memory read and written from one end to the other
    Sequential,
    /// SNAP aligns reads to a genome
    Snap,
    /// PostgreSQL under a load like TPC-C
    Postgres,
    /// Collaborative filtering on PySpark
    SparkAls,
    /// PageRank on PySpark, over a generated graph
    SparkPagerank,
}

impl WorkloadKind {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 5] =
        [Self::Sequential, Self::Snap, Self::Postgres, Self::SparkAls, Self::SparkPagerank];

    /// Whether the number of its threads can be chosen.
    #[must_use]
    pub fn has_threads(self) -> bool {
        self == Self::Snap
    }

    /// The program, with so many threads where that can be chosen.
    pub(super) fn workload(self, threads: Option<u32>) -> Box<dyn Workload> {
        match self {
            Self::Sequential => Box::new(Sequential),
            Self::Snap => Box::new(threads.map_or_else(Snap::default, Snap::with_threads)),
            Self::Postgres => Box::new(Postgres::default()),
            Self::SparkAls => Box::new(Spark::new(Job::CollaborativeFiltering)),
            Self::SparkPagerank => Box::new(Spark::new(Job::PageRank)),
        }
    }
}
