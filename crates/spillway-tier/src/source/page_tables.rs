//! Accessed bits out of the page tables.

use std::fs;
use std::ops::Range;

use rustix::io::Errno;
use spillway_sys::page_tables::{self, KnownSpaces};

use super::telemetry::{Facts, Seen, Source, SourceError};

/// Its name, precision and cost, as `spillway doctor` and status tell them.
pub(super) const FACTS: Facts = Facts {
    name: "page-tables",
    precision: "every page; time to one scan; \
                an access that hits the TLB in all of a scan's interval is missed",
    cost: "CPU time of the daemon: each table is read once a scan, \
           and its bits cleared by clear_refs; no fault",
};

/// The kernel's page tables, and where each process's begin.
pub struct PageTables {
    tables: page_tables::PageTables,
    spaces: KnownSpaces,
}

impl PageTables {
    /// Finds the kernel's tables.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn open() -> Result<Self, SourceError> {
        Ok(Self { tables: page_tables::PageTables::open()?, spaces: KnownSpaces::default() })
    }
}

/// Clears the accessed bits of all of a process.
fn clear(process: u32) -> Result<(), SourceError> {
    fs::write(format!("/proc/{process}/clear_refs"), "1").map_err(|error| {
        match Errno::from_io_error(&error) {
            None | Some(Errno::NOENT | Errno::SRCH) => SourceError::Gone(process),
            Some(error) => SourceError::Lost { name: FACTS.name, error },
        }
    })
}

impl Source for PageTables {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        let space = self.spaces.space(&mut self.tables, process)?;
        for range in ranges {
            self.tables.walk(&space, range.clone(), &mut |entry| {
                let page_tables::Entry { address, frame, pages, accessed } = entry;
                visit(Seen { address, frame, pages, accessed });
            });
        }
        clear(process)
    }

    fn forget(&mut self, process: u32) {
        self.spaces.forget(process);
    }
}

impl From<page_tables::PageTablesError> for SourceError {
    fn from(error: page_tables::PageTablesError) -> Self {
        match error {
            page_tables::PageTablesError::Gone(process) => Self::Gone(process),
            other => Self::Unavailable { name: FACTS.name, reason: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spillway_core::page::PAGE_SIZE;
    use spillway_sys::memory::Area;
    use std::sync::atomic::Ordering;

    const PAGES: usize = 512;

    #[test]
    fn a_scan_finds_what_was_accessed_since_the_scan_before() {
        let mut source = PageTables::open().unwrap();
        let area = Area::new(PAGES * PAGE_SIZE).unwrap();
        (0..PAGES).for_each(|page| area.words(page * PAGE_SIZE, 1)[0].store(1, Ordering::Relaxed));
        let start = area.address() as u64;
        let range = start..start + (PAGES * PAGE_SIZE) as u64;
        let mut scan = || {
            let mut accessed = Vec::new();
            source
                .scan(std::process::id(), std::slice::from_ref(&range), &mut |seen| {
                    accessed.push(seen.accessed);
                })
                .unwrap();
            assert_eq!(accessed.len(), PAGES);
            // Processors that remember translations set no bits. Memory that goes away, more of it than is
            // forgotten page by page, has them forget all of this process's.
            let gone = Area::new(PAGES * PAGE_SIZE).unwrap();
            (0..PAGES).for_each(|page| gone.words(page * PAGE_SIZE, 1)[0].store(1, Ordering::Relaxed));
            drop(gone);
            accessed
        };
        assert!(scan().iter().all(|&accessed| accessed));
        area.words(100 * PAGE_SIZE, 1)[0].store(2, Ordering::Relaxed);
        let second = scan();
        assert!(second[100]);
        let in_use = second.iter().filter(|&&accessed| accessed).count();
        assert!(in_use < PAGES / 4, "{in_use}");
    }

    #[test]
    fn a_process_that_ended_is_gone() {
        let mut source = PageTables::open().unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = child.id();
        assert!(source.scan(process, &[], &mut |_| {}).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        let error = source.scan(process, &[], &mut |_| {}).unwrap_err();
        assert!(matches!(error, SourceError::Gone(gone) if gone == process), "{error}");
    }
}
