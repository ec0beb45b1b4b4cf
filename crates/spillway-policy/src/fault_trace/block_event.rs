//! What a fault trace tells of blocks: what was asked of their pure types, and the answers.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::runs::Runs;
use crate::read_streams::{Answer, Ask, Request};
use crate::streams::{Coming, Earned};

/// How blocks come to their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// By streams of faults ([`crate::streams`]).
    Streams,
    /// By STRETCH and REDUCE ([`crate::blocks`]).
    Elastic,
    /// All have the same size.
    Static,
}

/// What a replay needs to know of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRule {
    /// How they come to their sizes.
    pub kind: BlockKind,
    /// Pages of the largest.
    pub most_pages: u64,
    /// CPUs that the program may run on: something is read ahead where one is to spare.
    pub cpus: usize,
}

/// A call to what is known of streams ([`crate::streams::Streams`], [`crate::read_streams::ReadStreams`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamCall {
    /// [`crate::streams::Streams::earned`] and its answer.
    Earned {
        /// The page that faulted.
        page_number: u64,
        /// [`crate::streams::Streams::earned_along`] the way that the answer says, in its place.
        is_along: bool,
        /// For each page that it was asked of, whether it was far.
        far: Runs,
        /// The answer that it had.
        earned: Earned,
    },
    /// What [`crate::streams::Streams::note`] was told of.
    Coming {
        /// As it was asked.
        coming: Coming,
        /// [`crate::streams::Streams::note_along`], in its place.
        is_along: bool,
        /// For each page that it was asked of, whether it was far.
        far: Runs,
    },
    /// [`crate::read_streams::ReadStreams::ask`] and its answer.
    Ask {
        /// As it was asked.
        ask: Ask,
        /// The answer that it had.
        answer: Answer,
    },
    /// [`crate::read_streams::ReadStreams::take`] where something was asked for.
    Take {
        /// The stream's place among all.
        place: u8,
        /// The answer that it had.
        request: Request,
    },
    /// [`Request::behind_marker`] and its answer.
    Marker {
        /// As it was asked.
        request: Request,
        /// For each page that it was asked of, whether it was far.
        far: Runs,
        /// The answer that it had.
        pages: Option<Range<u64>>,
    },
}

/// Why a block is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// One of its pages is fetched.
    Fetch,
    /// One of its pages was touched for the first time.
    Grow,
    /// Its last page has left.
    Reduce,
}

/// A call to elastic blocks ([`crate::blocks::Blocks`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElasticCall {
    /// [`crate::blocks::Blocks::lock`] and its answer.
    Lock {
        /// As it was asked.
        page_number: u64,
        /// Why it was asked.
        purpose: Purpose,
        /// The block that was locked; nothing where somebody had its head.
        locked: Option<Range<u64>>,
    },
    /// [`crate::blocks::Blocks::stretch`] and its answer.
    Stretch {
        /// As it was asked.
        page_number: u64,
        /// Whether the buddy could be joined, if that was asked.
        joins: Option<bool>,
        /// The answer that it had.
        buddy: Option<u64>,
    },
    /// [`crate::blocks::Blocks::reduce`] and its answer.
    Reduce {
        /// As it was asked.
        page_number: u64,
        /// For each page of the block, whether it was referenced.
        referenced: Runs,
        /// The answer that it had.
        is_reduced: bool,
    },
    /// What [`crate::blocks::Blocks::part`] was asked for.
    Part {
        /// The pages that go.
        pages: Range<u64>,
    },
    /// [`crate::blocks::Blocks::pages`] and its answer: what is done to a page is done to these.
    Members {
        /// As it was asked.
        page_number: u64,
        /// The answer that it had.
        pages: Range<u64>,
    },
}
