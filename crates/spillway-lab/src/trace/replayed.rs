//! A workload that repeats a trace.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use spillway_core::page::PAGE_BYTES;

use super::reader::{Part, read_part};
use super::{Chunk, MAGIC, PART_HEADER_BYTES, TRAILER_BYTES, TraceError, TraceSummary, is_magic};
use crate::access::{Access, Accesses};
use crate::workload::{Region, Workload};

/// Records that one step repeats.
const STEP_RECORDS: usize = 1024;

/// Repeats a trace: each task goes through its own accesses, a chunk in memory at a time.
///
/// Tasks do not wait for each other, since a trace does not say what for. What is damaged ends its task, and
/// [`Workload::verify`] says so.
pub struct TraceWorkload<S = File> {
    source: S,
    summary: TraceSummary,
    regions: Vec<Region>,
    tasks: Vec<Task>,
    damage: Option<TraceError>,
}

#[derive(Default)]
struct Task {
    chunks: VecDeque<u64>,
    chunk: Option<Chunk>,
}

impl TraceWorkload<File> {
    /// Opens a trace.
    ///
    /// # Errors
    /// The file cannot be read, or is no whole trace.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::new(File::open(path)?)
    }
}

impl<S: Read + Seek> TraceWorkload<S> {
    /// Takes a trace from a source that can be read at any place.
    ///
    /// # Errors
    /// The source cannot be read, or holds no whole trace.
    pub fn new(mut source: S) -> Result<Self, TraceError> {
        let summary = read_summary(&mut source)?;
        let regions = summary.regions.iter().map(|&(start, bytes)| Region { name: "trace", start, bytes });
        let mut tasks: Vec<Task> = (0..summary.tasks).map(|_| Task::default()).collect();
        for &(task, at) in &summary.chunks {
            tasks[task as usize].chunks.push_back(at);
        }
        Ok(Self { source, regions: regions.collect(), summary, tasks, damage: None })
    }

    /// What the trace holds.
    pub fn summary(&self) -> &TraceSummary {
        &self.summary
    }

    /// Appends some accesses of a task; false when there are no more.
    fn repeat(&mut self, task: usize, accesses: &mut Accesses) -> Result<bool, TraceError> {
        let Task { chunks, chunk } = &mut self.tasks[task];
        for _ in 0..STEP_RECORDS {
            let next = match chunk {
                Some(chunk) => chunk.next_access()?,
                None => None,
            };
            if let Some(access) = next {
                accesses.push(inside(access, &self.regions)?);
                continue;
            }
            let Some(mut at) = chunks.pop_front() else { return Ok(false) };
            self.source.seek(SeekFrom::Start(at))?;
            *chunk = match read_part(&mut self.source, &mut at)? {
                Part::Chunk(chunk) if chunk.task as usize == task => Some(chunk),
                _ => return Err(TraceError::Damaged { at, reason: "the index tells of another chunk" }),
            };
        }
        Ok(true)
    }
}

/// The access, if it lies in a region: who simulates it relies on that.
fn inside(access: Access, regions: &[Region]) -> Result<Access, TraceError> {
    if let Some(address) = access.address() {
        let after = regions.partition_point(|region| region.start <= address);
        let region = after.checked_sub(1).map(|index| &regions[index]);
        if region.is_none_or(|region| address - region.start >= region.bytes) {
            return Err(TraceError::Damaged {
                at: address,
                reason: "an access lies outside the regions of the index",
            });
        }
    }
    Ok(access)
}

/// Reads the index by the trailer.
fn read_summary<S: Read + Seek>(source: &mut S) -> Result<TraceSummary, TraceError> {
    let mut magic = [0; MAGIC.len()];
    let bytes = source.seek(SeekFrom::End(0))?;
    source.rewind()?;
    if bytes < magic.len() as u64 || source.read_exact(&mut magic).is_err() || !is_magic(magic) {
        return Err(TraceError::NotATrace);
    }
    let least = (magic.len() + PART_HEADER_BYTES + TRAILER_BYTES) as u64;
    let mut trailer = [0; TRAILER_BYTES];
    if bytes < least {
        return Err(TraceError::Truncated { at: bytes });
    }
    source.seek(SeekFrom::Start(bytes - TRAILER_BYTES as u64))?;
    source.read_exact(&mut trailer)?;
    let (start, mark) = trailer.split_at(8);
    let mut at = start.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
    if mark != magic || at > bytes {
        return Err(TraceError::Truncated { at: bytes });
    }
    source.seek(SeekFrom::Start(at))?;
    match read_part(source, &mut at)? {
        Part::Index(summary) => Ok(summary),
        Part::Chunk(_) => Err(TraceError::Damaged { at, reason: "there is no index where the trailer says" }),
    }
}

impl<S: Read + Seek + Send> Workload for TraceWorkload<S> {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The most that it holds at once: what it gave back takes no room. Its regions are whole huge pages.
    fn working_set_bytes(&self) -> Option<u64> {
        let held = self.regions.iter().map(|region| region.bytes).sum();
        Some(self.summary.most_held_pages.saturating_mul(PAGE_BYTES).min(held))
    }

    fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn work_left(&self) -> Option<u64> {
        Some(self.tasks.iter().map(|task| task.chunks.len() as u64).sum())
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        self.repeat(task, accesses).unwrap_or_else(|damage| {
            self.damage.get_or_insert(damage);
            self.tasks[task] = Task::default();
            false
        })
    }

    /// Whether the whole trace could be read.
    fn verify(&self) -> Result<(), String> {
        self.damage.as_ref().map_or(Ok(()), |damage| Err(damage.to_string()))
    }
}
