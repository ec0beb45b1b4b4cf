//! Which frame holds which page of a process, as `/proc/PID/pagemap` says: for sources that know frames, or
//! nothing of them. Source: Linux `Documentation/admin-guide/mm/pagemap.rst`.

use spillway_core::page::PAGE_BYTES;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::telemetry::SourceError;

/// Entries read at once.
const BATCH: usize = 4096;
pub(super) const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// A page that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// The first address that is mapped.
    pub address: u64,
    /// The frame that it is mapped to.
    pub frame: u64,
}

/// The page maps of the machine below `root`.
pub(super) struct PageMap {
    root: PathBuf,
    bytes: Vec<u8>,
    batch: Vec<Mapped>,
}

impl PageMap {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), bytes: vec![0; BATCH * 8], batch: Vec::with_capacity(BATCH) }
    }

    /// Hands `take` the pages that are there, in order within a range, some at a time.
    pub(super) fn walk(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        take: &mut dyn FnMut(&[Mapped]) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let gone = |_| SourceError::Gone(process);
        let map = File::open(self.root.join(format!("proc/{process}/pagemap"))).map_err(gone)?;
        for range in ranges {
            let mut page = range.start / PAGE_BYTES;
            let end = range.end / PAGE_BYTES;
            while page < end {
                let count = (end - page).min(BATCH as u64) as usize;
                let read = map.read_at(&mut self.bytes[..count * 8], page * 8).map_err(gone)?;
                let entries = self.bytes[..read].as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry));
                self.batch.clear();
                self.batch.extend(
                    (page..)
                        .zip(entries)
                        .filter(|(_, entry)| entry & PRESENT != 0 && entry & FRAME != 0)
                        .map(|(page, entry)| Mapped { address: page * PAGE_BYTES, frame: entry & FRAME }),
                );
                take(&self.batch)?;
                if read < count * 8 {
                    break;
                }
                page += count as u64;
            }
        }
        Ok(())
    }
}
