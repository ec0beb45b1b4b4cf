//! Which pages of a process were used: the accessed bits of its page tables. The right to read them (root, or
//! CAP_BPF and CAP_PERFMON) is the caller's: a process reads its own, or whoever has the right reads them for
//! it.

use std::ops::Range;
use std::sync::OnceLock;

use rustix::thread::{SecureComputingMode, secure_computing_mode};

use crate::page::{PAGE_SHIFT, PAGE_SIZE};
use crate::page_tables::{AddressSpace, KernelLayout, KnownSpaces, PageTables, PageTablesError};
use crate::ranges::TargetRange;

/// Inherited by forked children, who then need not search.
static LAYOUT: OnceLock<KernelLayout> = OnceLock::new();

/// Whether a seccomp filter binds the calling thread: it might end the process at a call that it does not
/// know.
#[must_use]
pub fn is_bound_by_a_filter() -> bool {
    secure_computing_mode() != Ok(SecureComputingMode::Disabled)
}

/// Reads the accessed bits of one process, which opened it.
pub struct OwnAccesses {
    tables: PageTables,
    space: AddressSpace,
}

impl OwnAccesses {
    /// For the calling process. Takes some 20 ms the first time.
    ///
    /// # Errors
    /// The kernel gives no access, or is not understood.
    pub fn open() -> Result<Self, PageTablesError> {
        let mut tables = match LAYOUT.get() {
            Some(layout) => PageTables::with_layout(*layout)?,
            None => PageTables::open()?,
        };
        let _ = LAYOUT.set(tables.layout());
        let space = tables.own_space()?;
        Ok(Self { tables, space })
    }

    /// Tells `visit` of each page of a range that is mapped: its number, and whether it was accessed since
    /// its bit was cleared. What it tells may be out of date.
    pub fn walk(&mut self, range: TargetRange, visit: &mut dyn FnMut(u64, bool)) {
        let first = (range.start() / PAGE_SIZE) as u64;
        let end = first + (range.bytes() / PAGE_SIZE) as u64;
        walk_pages(&mut self.tables, &self.space, first..end, visit);
    }
}

fn walk_pages(
    tables: &mut PageTables,
    space: &AddressSpace,
    pages: Range<u64>,
    visit: &mut dyn FnMut(u64, bool),
) {
    let page_bytes = PAGE_SIZE as u64;
    let addresses = pages.start.saturating_mul(page_bytes)..pages.end.saturating_mul(page_bytes);
    tables.walk(space, addresses, &mut |entry| {
        let first = entry.address / page_bytes;
        let part = first.max(pages.start)..(first + u64::from(entry.pages)).min(pages.end);
        part.for_each(|page_number| visit(page_number, entry.accessed));
    });
}

/// Reads the accessed bits of other processes, for them.
pub struct AccessesOfOthers {
    tables: PageTables,
    spaces: KnownSpaces,
}

/// Above lies the kernel, which is nobody's business.
const PROGRAM_PAGES: u64 = 1 << (47 - PAGE_SHIFT);

impl AccessesOfOthers {
    /// Takes some 20 ms.
    ///
    /// # Errors
    /// The kernel gives no access, or is not understood.
    pub fn open() -> Result<Self, PageTablesError> {
        Ok(Self { tables: PageTables::open()?, spaces: KnownSpaces::default() })
    }

    /// As [`OwnAccesses::walk`], of process `pid`.
    ///
    /// # Errors
    /// The process has ended, or executed another program, before or meanwhile: what was told is void.
    pub fn walk(
        &mut self,
        pid: u32,
        pages: Range<u64>,
        visit: &mut dyn FnMut(u64, bool),
    ) -> Result<(), PageTablesError> {
        let space = self.spaces.space(&mut self.tables, pid)?;
        let pages = pages.start.min(PROGRAM_PAGES)..pages.end.min(PROGRAM_PAGES);
        if !pages.is_empty() {
            walk_pages(&mut self.tables, &space, pages, visit);
        }
        if self.tables.is_current(&space) { Ok(()) } else { Err(PageTablesError::Gone(pid)) }
    }

    /// Process `pid` will not ask again.
    pub fn forget(&mut self, pid: u32) {
        self.spaces.forget(pid);
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use crate::memory::{Area, forget_accesses};

    const PAGES: usize = 700;

    /// What another CPU has made and not yet put in the kernel's lists is left out by `forget_accesses`.
    fn stay_on_one_cpu() {
        let mut one = CpuSet::new();
        let allowed = sched_getaffinity(None).unwrap();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
    }

    /// The children that other tests fork have these pages too, for as long as they live; until they have
    /// ended the bits stay.
    fn forget_every_access(accesses: &mut OwnAccesses, range: TargetRange) {
        for _ in 0..100_000 {
            forget_accesses(range).unwrap();
            let mut is_forgotten = true;
            accesses.walk(range, &mut |_, used| is_forgotten &= !used);
            if is_forgotten {
                return;
            }
            std::thread::yield_now();
        }
        panic!("some bits are never cleared");
    }

    #[test]
    fn what_was_used_since_it_was_forgotten_is_told() {
        stay_on_one_cpu();
        let area = Area::new(PAGES * PAGE_SIZE).unwrap();
        let touch = |page: usize| area.words(page * PAGE_SIZE, 1)[0].store(1, Ordering::Relaxed);
        (0..PAGES).filter(|page| page % 7 != 0).for_each(touch);
        // SAFETY: the area is this test's.
        let range = unsafe { TargetRange::new(area.address(), PAGES * PAGE_SIZE) };
        // A second one, as of a forked child, who inherits the layout.
        for _ in 0..2 {
            let mut accesses = OwnAccesses::open().unwrap();
            forget_every_access(&mut accesses, range);
            [3, 600].into_iter().for_each(touch);
            let mut found = Vec::new();
            accesses.walk(range, &mut |page_number, used| found.push((page_number, used)));
            let first = (area.address() / PAGE_SIZE) as u64;
            let expected = (0..PAGES as u64).filter(|page| page % 7 != 0);
            let expected: Vec<_> = expected.map(|page| (first + page, [3, 600].contains(&page))).collect();
            assert_eq!(found, expected);
        }
    }
}
