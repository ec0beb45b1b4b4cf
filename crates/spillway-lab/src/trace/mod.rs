//! Traces: the accesses of a program, in a compressed file. The format is described in
//! `docs/lab/trace-format.md`.
//!
//! - [`TraceWriter`], [`TraceReader`]: the file, written and read from end to end
//! - [`TraceWorkload`]: a workload that repeats a trace
//! - [`mod@import`]: from Valgrind's lackey and from plain text
//! - [`record`]: from a running program
//! - [`faults`]: what a pager did, in parts of the same kind

mod codec;
pub mod faults;
mod held;
pub mod import;
mod part;
mod reader;
pub mod record;
mod replayed;
mod writer;

use std::io;

use thiserror::Error;

pub use reader::{Chunk, TraceReader};
pub use replayed::TraceWorkload;
pub use writer::{TraceSummary, TraceWriter};

/// First bytes of a trace: a name and the version of the format.
const MAGIC: [u8; 8] = *b"SPWTRC\0\x03";
/// The same of versions before: the first has no releases, and neither tells how much is held at most.
const MAGICS_BEFORE: [[u8; 8]; 2] = [*b"SPWTRC\0\x01", *b"SPWTRC\0\x02"];
/// Tag of a chunk of accesses.
const TAG_CHUNK: u8 = b'C';
/// Tag of the index, the last part of the file but the trailer.
const TAG_INDEX: u8 = b'I';
/// Tag, task, records, raw bytes, compressed bytes, checksum.
const PART_HEADER_BYTES: usize = 1 + 4 + 4 + 4 + 4 + 8;
/// Where the index starts, and the magic once more.
const TRAILER_BYTES: usize = 16;

/// Records of a chunk at most.
pub const CHUNK_RECORDS: usize = 1 << 16;
/// Raw bytes of a chunk at most: no record is longer than twelve bytes.
const CHUNK_RAW_BYTES: usize = CHUNK_RECORDS * 12;
/// Raw bytes of an index at most: what a reader is ready to hold.
const INDEX_RAW_BYTES: usize = 64 << 20;
/// Most tasks that a trace may have.
pub const TASKS: u32 = 1024;
/// Addresses and times are below this.
pub const VALUE_LIMIT: u64 = 1 << 56;
/// Instructions that take a nanosecond where a recorder counts them: a core at 3 GHz that ends one a cycle.
pub const INSTRUCTIONS_PER_NS: u64 = 3;

/// Whether a trace may begin with this.
fn is_magic(magic: [u8; MAGIC.len()]) -> bool {
    magic == MAGIC || MAGICS_BEFORE.contains(&magic)
}

/// What is wrong with a trace, or what kept it from being written.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be read or written.
    #[error("trace: {0}; check the file and the room on its disk")]
    Io(#[from] io::Error),
    /// The file does not begin as a trace does.
    #[error(
        "trace: it does not begin with the mark of a trace of version 1 to 3; record it anew with this \
         Spillway"
    )]
    NotATrace,
    /// The file does not begin as a fault trace does.
    #[error(
        "fault trace: it does not begin with the mark of a fault trace; 'spillway run --record' makes one"
    )]
    NotAFaultTrace,
    /// The fault trace is of a version that is not known.
    #[error(
        "fault trace: it is of version {version}, and this Spillway reads versions 1 and 2; replay it with \
         the Spillway that recorded it"
    )]
    FaultTraceVersion {
        /// The version that it says it is of.
        version: u8,
    },
    /// The file ends before its end mark.
    #[error("trace: it is cut off at byte {at}; copy or record it again")]
    Truncated {
        /// The byte at which the file ends.
        at: u64,
    },
    /// A part is not what its checksum or its numbers say.
    #[error("trace: it is damaged at byte {at}: {reason}; copy or record it again")]
    Damaged {
        /// Where the part starts.
        at: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An address or a time is too large, or there are too many tasks.
    #[error("trace: {what} {value:#x} is not below {limit:#x}; leave it out")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The value that was too large.
        value: u64,
        /// What it must stay below.
        limit: u64,
    },
    /// A line of text is not understood.
    #[error("trace: line {line} is '{text}', not {wanted}; correct it")]
    Line {
        /// Which line, from 1.
        line: u64,
        /// The text that the line begins with.
        text: String,
        /// What should stand there.
        wanted: &'static str,
    },
    /// The pager could not write all that it did.
    #[error(
        "fault trace: the recorder had no room for what came after event {events}, so it ends before the \
         program did; record it again while the machine does less"
    )]
    Overflown {
        /// Whole events in it.
        events: u64,
    },
    /// What is in a part is no event.
    #[error("fault trace: {0}; it was written by another version of Spillway")]
    Event(#[from] spillway_policy::fault_trace::Malformed),
    /// Addresses are no memory's.
    #[error(
        "trace: its {touched_pages} pages lie too far apart for any memory, as hashes of pages do; \
         number them anew (lab import --renumber)"
    )]
    Sparse {
        /// Pages of 4 KiB that it touches.
        touched_pages: u64,
    },
    /// Nothing to make a trace of.
    #[error("trace: there is no access in what was given; give it at least one")]
    Empty,
    /// A program cannot be recorded.
    #[error("recording: {thing}: {reason}; {remedy}")]
    Record {
        /// The thing that failed.
        thing: String,
        /// Why it failed, in the system's words.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
}

#[cfg(test)]
mod tests;
