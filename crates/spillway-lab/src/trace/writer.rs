//! Writes a trace, chunk by chunk, with its index at the end.

use std::collections::BTreeMap;
use std::io::Write;

use spillway_core::page::{HUGE_BYTES, PAGE_BYTES, PAGE_SHIFT};

use super::codec::Encoder;
use super::held::HeldPages;
use super::part::write_raw_part;
use super::{
    CHUNK_RECORDS, INDEX_RAW_BYTES, MAGIC, TAG_CHUNK, TAG_INDEX, TASKS, TRAILER_BYTES, TraceError,
    VALUE_LIMIT,
};
use crate::access::{Access, Action};

const PAGES_PER_HUGE: usize = (HUGE_BYTES / PAGE_BYTES) as usize;
const WORD_BITS: usize = 64;

/// Which base pages of a huge page are touched.
type Touched = [u64; PAGES_PER_HUGE / WORD_BITS];

/// What a trace holds, as its index says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// Tasks; some may have no accesses.
    pub tasks: u32,
    /// Accesses and work together.
    pub records: u64,
    /// Pages of 4 KiB that are touched.
    pub touched_pages: u64,
    /// The most pages of 4 KiB that are held at once: touched, and not given back. Where a trace does not
    /// tell, all that are touched.
    pub most_held_pages: u64,
    /// Huge pages that are touched, in runs: where each starts, and its bytes.
    pub regions: Vec<(u64, u64)>,
    /// For each chunk its task and where in the file it starts.
    pub chunks: Vec<(u32, u64)>,
}

/// Writes a trace from end to end. Without [`TraceWriter::finish`] readers take it for cut off.
pub struct TraceWriter<W: Write> {
    out: W,
    at: u64,
    tasks: Vec<Pending>,
    touched: BTreeMap<u64, Touched>,
    last_huge: (u64, Touched),
    held: HeldPages,
    summary: TraceSummary,
}

/// What a task did since its last chunk.
#[derive(Default)]
struct Pending {
    raw: Vec<u8>,
    records: usize,
    encoder: Encoder,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(mut out: W) -> Result<Self, TraceError> {
        out.write_all(&MAGIC)?;
        Ok(Self {
            out,
            at: MAGIC.len() as u64,
            tasks: Vec::new(),
            touched: BTreeMap::new(),
            last_huge: (u64::MAX, Touched::default()),
            held: HeldPages::default(),
            summary: TraceSummary::default(),
        })
    }

    /// Appends what a task did.
    ///
    /// # Errors
    /// `out` cannot be written, or an address, a time or the task's number is too large.
    pub fn append(&mut self, task: u32, access: Access) -> Result<(), TraceError> {
        if task >= TASKS {
            return Err(TraceError::TooLarge { what: "task", value: task.into(), limit: TASKS.into() });
        }
        if self.tasks.len() <= task as usize {
            self.tasks.resize_with(task as usize + 1, Pending::default);
        }
        let pending = &mut self.tasks[task as usize];
        pending.encoder.encode(access, &mut pending.raw)?;
        pending.records += 1;
        if pending.records == CHUNK_RECORDS {
            self.write_chunk(task)?;
        }
        match access.action() {
            Action::Read(address) | Action::Write(address) => {
                self.held.touch(address >> PAGE_SHIFT);
                self.touch(address);
            }
            Action::Release(page_number, pages) => self.held.release(page_number, pages),
            Action::ComputeNs(_) => {}
        }
        Ok(())
    }

    /// Appends that a task gave pages back, in as many records as that takes. What lies beyond the last
    /// address that a trace can hold is left out.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_release(&mut self, task: u32, page_number: u64, pages: u64) -> Result<(), TraceError> {
        let end = page_number.saturating_add(pages).min(VALUE_LIMIT >> PAGE_SHIFT);
        let mut first = page_number;
        while first < end {
            let pages = Access::MOST_RELEASED_PAGES.min(end - first);
            self.append(task, Access::release(first, pages))?;
            first += pages;
        }
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// `out` cannot be written, or the index does not fit: some 4 million chunks.
    pub fn finish(mut self) -> Result<TraceSummary, TraceError> {
        for task in 0..self.tasks.len() {
            self.write_chunk(task as u32)?;
        }
        self.keep_last_huge();
        self.summary.tasks = self.tasks.len() as u32;
        self.summary.touched_pages =
            self.touched.values().flatten().map(|word| u64::from(word.count_ones())).sum();
        self.summary.most_held_pages = self.held.most();
        self.summary.regions = regions(self.touched.keys().copied());
        let index = self.summary.encode();
        if index.len() > INDEX_RAW_BYTES {
            let (value, limit) = (index.len() as u64, INDEX_RAW_BYTES as u64);
            return Err(TraceError::TooLarge { what: "index", value, limit });
        }
        let start = self.at;
        self.write_part(TAG_INDEX, 0, 0, &index)?;
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..8].copy_from_slice(&start.to_le_bytes());
        trailer[8..].copy_from_slice(&MAGIC);
        self.out.write_all(&trailer)?;
        self.out.flush()?;
        Ok(self.summary)
    }

    fn write_chunk(&mut self, task: u32) -> Result<(), TraceError> {
        let pending = &mut self.tasks[task as usize];
        if pending.records == 0 {
            return Ok(());
        }
        let Pending { raw, records, .. } = std::mem::take(pending);
        self.summary.chunks.push((task, self.at));
        self.summary.records += records as u64;
        self.write_part(TAG_CHUNK, task, records as u32, &raw)
    }

    fn write_part(&mut self, tag: u8, task: u32, records: u32, raw: &[u8]) -> Result<(), TraceError> {
        self.at += write_raw_part(&mut self.out, tag, [task, records], raw)?;
        Ok(())
    }

    fn touch(&mut self, address: u64) {
        let huge = address / HUGE_BYTES;
        if huge != self.last_huge.0 {
            self.keep_last_huge();
            self.last_huge = (huge, self.touched.get(&huge).copied().unwrap_or_default());
        }
        let page = (address % HUGE_BYTES / PAGE_BYTES) as usize;
        self.last_huge.1[page / WORD_BITS] |= 1 << (page % WORD_BITS);
    }

    fn keep_last_huge(&mut self) {
        let (huge, touched) = self.last_huge;
        if huge != u64::MAX {
            self.touched.insert(huge, touched);
        }
    }
}

/// Runs of huge pages, by address and bytes.
fn regions(huge_pages: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut regions: Vec<(u64, u64)> = Vec::new();
    for start in huge_pages.map(|huge| huge * HUGE_BYTES) {
        match regions.last_mut() {
            Some((first, bytes)) if *first + *bytes == start => *bytes += HUGE_BYTES,
            _ => regions.push((start, HUGE_BYTES)),
        }
    }
    regions
}

impl TraceSummary {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let numbers = [
            self.tasks.into(),
            self.records,
            self.touched_pages,
            self.regions.len() as u64,
            self.chunks.len() as u64,
        ];
        numbers.iter().for_each(|number: &u64| bytes.extend(number.to_le_bytes()));
        for &(start, length) in &self.regions {
            bytes.extend(start.to_le_bytes());
            bytes.extend(length.to_le_bytes());
        }
        for &(task, at) in &self.chunks {
            bytes.extend(u64::from(task).to_le_bytes());
            bytes.extend(at.to_le_bytes());
        }
        bytes.extend(self.most_held_pages.to_le_bytes());
        bytes
    }

    /// The summary in the bytes of an index; None when they are not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut numbers =
            bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes).unwrap_or(0));
        let [tasks, records, touched_pages, regions, chunks] = std::array::from_fn(|_| numbers.next());
        let (regions, chunks) = (regions?, chunks?);
        // What the counts claim must be there before anything is made for it.
        let words = regions.checked_add(chunks)?.checked_mul(2)?.checked_add(5)?;
        // The version before ends with the chunks.
        let [bytes_before, bytes_now] = [words.checked_mul(8)?, words.checked_add(1)?.checked_mul(8)?];
        let tells_held = bytes.len() as u64 == bytes_now;
        if !tells_held && bytes.len() as u64 != bytes_before {
            return None;
        }
        let mut pair = || Some((numbers.next()?, numbers.next()?));
        let regions: Option<Vec<_>> = (0..regions).map(|_| pair()).collect();
        let chunks: Option<Vec<_>> =
            (0..chunks).map(|_| pair().map(|(task, at)| (task as u32, at))).collect();
        let summary = Self {
            tasks: u32::try_from(tasks?).ok().filter(|&tasks| tasks <= TASKS)?,
            records: records?,
            touched_pages: touched_pages?,
            most_held_pages: 0,
            regions: regions?,
            chunks: chunks?,
        };
        let most_held_pages = if tells_held { numbers.next()? } else { touched_pages? };
        let summary = Self { most_held_pages, ..summary };
        summary.is_sound().then_some(summary)
    }

    fn is_sound(&self) -> bool {
        let aligned = |&(start, bytes): &(u64, u64)| {
            start % HUGE_BYTES == 0
                && bytes > 0
                && start.checked_add(bytes).is_some_and(|end| end <= super::VALUE_LIMIT)
        };
        self.regions.iter().all(aligned)
            && self.most_held_pages <= self.touched_pages
            && self.regions.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
            && self.chunks.iter().all(|&(task, _)| task < self.tasks)
            && self.chunks.is_sorted_by(|one, next| one.1 < next.1)
    }
}
