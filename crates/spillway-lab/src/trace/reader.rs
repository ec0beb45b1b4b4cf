//! Reads a trace from end to end, in bounded memory, and trusts nothing that it says.

use std::io::{ErrorKind, Read};

use super::codec::Decoder;
use super::part::{RawPart, read_exact, read_raw_part};
use super::{
    CHUNK_RAW_BYTES, CHUNK_RECORDS, INDEX_RAW_BYTES, MAGIC, TAG_CHUNK, TAG_INDEX, TASKS, TRAILER_BYTES,
    TraceError, TraceSummary, is_magic,
};
use crate::access::{Access, Accesses};

/// What follows one another in a task's accesses.
#[derive(Default)]
pub struct Chunk {
    /// The task whose accesses they are.
    pub task: u32,
    records: u32,
    taken: u32,
    raw: Vec<u8>,
    decoder: Decoder,
    at: u64,
}

impl Chunk {
    /// The next of its accesses; None after the last one.
    ///
    /// # Errors
    /// The chunk holds something else than it says.
    pub fn next_access(&mut self) -> Result<Option<Access>, TraceError> {
        let damaged = |reason| Err(TraceError::Damaged { at: self.at, reason });
        if self.taken == self.records {
            let is_over = self.decoder.position() == self.raw.len();
            return if is_over { Ok(None) } else { damaged("a chunk is longer than its records") };
        }
        self.taken += 1;
        match self.decoder.decode(&self.raw) {
            Some(access) => Ok(Some(access)),
            None => damaged("a record makes no sense"),
        }
    }
}

/// A part of the file: a chunk or the index.
pub(super) enum Part {
    Chunk(Chunk),
    Index(TraceSummary),
}

/// Reads a trace chunk by chunk.
pub struct TraceReader<R: Read> {
    source: R,
    magic: [u8; MAGIC.len()],
    at: u64,
    chunks: Vec<(u32, u64)>,
    records: u64,
}

impl<R: Read> TraceReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// `source` cannot be read, or holds no trace.
    pub fn new(mut source: R) -> Result<Self, TraceError> {
        let mut magic = [0; MAGIC.len()];
        match source.read_exact(&mut magic) {
            Ok(()) if is_magic(magic) => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error.into()),
            _ => return Err(TraceError::NotATrace),
        }
        Ok(Self { source, magic, at: MAGIC.len() as u64, chunks: Vec::new(), records: 0 })
    }

    /// The next chunk, or the summary when all chunks were read and are those that it names.
    ///
    /// # Errors
    /// `source` cannot be read, or the trace is cut off or damaged.
    pub fn next_chunk(&mut self) -> Result<Result<Chunk, TraceSummary>, TraceError> {
        let start = self.at;
        match read_part(&mut self.source, &mut self.at)? {
            Part::Chunk(chunk) => {
                self.records += u64::from(chunk.records);
                // The summary can name no more than fit into an index.
                if self.chunks.len() >= INDEX_RAW_BYTES / 16 {
                    return Err(TraceError::Damaged { at: start, reason: "there are too many chunks" });
                }
                self.chunks.push((chunk.task, start));
                Ok(Ok(chunk))
            }
            Part::Index(summary) => {
                let mut trailer = [0; TRAILER_BYTES];
                read_exact(&mut self.source, &mut trailer, &mut self.at)?;
                let ends = trailer[..8] == start.to_le_bytes() && trailer[8..] == self.magic;
                let more = self.source.read(&mut [0])? > 0;
                if !ends || more || summary.chunks != self.chunks || summary.records != self.records {
                    return Err(TraceError::Damaged { at: start, reason: "the index tells of other chunks" });
                }
                Ok(Err(summary))
            }
        }
    }

    /// Reads what is left and calls `each` with task and access.
    ///
    /// # Errors
    /// `source` cannot be read, or the trace is cut off or damaged.
    pub fn for_each(mut self, mut each: impl FnMut(u32, Access)) -> Result<TraceSummary, TraceError> {
        loop {
            match self.next_chunk()? {
                Ok(mut chunk) => {
                    while let Some(access) = chunk.next_access()? {
                        each(chunk.task, access);
                    }
                }
                Err(summary) => return Ok(summary),
            }
        }
    }

    /// All accesses by task: for small traces.
    ///
    /// # Errors
    /// `source` cannot be read, or the trace is cut off or damaged.
    pub fn read_all(self) -> Result<Vec<Accesses>, TraceError> {
        let mut tasks: Vec<Accesses> = Vec::new();
        self.for_each(|task, access| {
            tasks.resize_with(tasks.len().max(task as usize + 1), Accesses::new);
            tasks[task as usize].push(access);
        })?;
        Ok(tasks)
    }
}

/// Reads the part that starts at `at`, and moves `at` behind it.
pub(super) fn read_part(source: &mut impl Read, at: &mut u64) -> Result<Part, TraceError> {
    let start = *at;
    let damaged = |reason| TraceError::Damaged { at: start, reason };
    let RawPart { tag, numbers: [task, records], raw } = read_raw_part(source, at, |tag| match tag {
        TAG_CHUNK => Some(CHUNK_RAW_BYTES),
        TAG_INDEX => Some(INDEX_RAW_BYTES),
        _ => None,
    })?;
    if tag == TAG_INDEX {
        return TraceSummary::decode(&raw).map(Part::Index).ok_or(damaged("the index makes no sense"));
    }
    if task >= TASKS || records == 0 || records as usize > CHUNK_RECORDS {
        return Err(damaged("a chunk's numbers make no sense"));
    }
    Ok(Part::Chunk(Chunk { task, records, taken: 0, raw, decoder: Decoder::default(), at: start }))
}
