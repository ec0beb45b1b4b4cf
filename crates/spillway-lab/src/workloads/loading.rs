//! The load phase before a workload's own: each page written once, in the order of addresses.
//!
//! A program fills its tables before the papers begin to measure; which pages it touched first decides what
//! lies in local memory then.

use spillway_core::page::PAGE_BYTES;

use crate::access::{Access, Accesses};
use crate::workload::{Region, Workload};

/// Pages that one step touches.
const PAGES_PER_STEP: u64 = 256;

/// A workload behind its load phase.
pub struct Loading {
    workload: Box<dyn Workload>,
    region: usize,
    offset: u64,
}

impl Loading {
    /// Puts the load phase before `workload`.
    pub fn new(workload: Box<dyn Workload>) -> Self {
        Self { workload, region: 0, offset: 0 }
    }
}

impl Workload for Loading {
    fn name(&self) -> &'static str {
        self.workload.name()
    }

    fn regions(&self) -> &[Region] {
        self.workload.regions()
    }

    fn working_set_bytes(&self) -> Option<u64> {
        self.workload.working_set_bytes()
    }

    fn tasks(&self) -> usize {
        self.workload.tasks()
    }

    fn loading(&self) -> bool {
        self.region < self.workload.regions().len() || self.workload.loading()
    }

    fn work_left(&self) -> Option<u64> {
        self.workload.work_left()
    }

    fn step(&mut self, task: usize, accesses: &mut Accesses) -> bool {
        let Some(region) = self.workload.regions().get(self.region) else {
            return self.workload.step(task, accesses);
        };
        let end = region.bytes.min(self.offset + PAGES_PER_STEP * PAGE_BYTES);
        let pages = (self.offset..end).step_by(PAGE_BYTES as usize);
        accesses.extend(pages.map(|offset| Access::write(region.start + offset)));
        self.offset = end;
        if end == region.bytes {
            self.region += 1;
            self.offset = 0;
        }
        true
    }

    fn verify(&self) -> Result<(), String> {
        self.workload.verify()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Action;
    use crate::workloads::entry::Registered;
    use crate::workloads::{Scan, ScanConfig};

    #[test]
    fn touches_each_page_once_in_order_and_then_runs() {
        let scan = Scan::new(ScanConfig { bytes: 3 << 20, passes: 1, ..ScanConfig::default() }).unwrap();
        let mut loading = Loading::new(Box::new(scan));
        let mut pages = Vec::new();
        let mut accesses = Accesses::new();
        while loading.loading() {
            assert!(loading.step(0, &mut accesses));
        }
        for access in &accesses {
            match access.action() {
                Action::Write(address) => pages.push(address / PAGE_BYTES),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(pages.len(), 768);
        assert!(pages.windows(2).all(|pair| pair[1] == pair[0] + 1));
        while loading.step(0, &mut accesses) {}
        assert_eq!(loading.verify(), Ok(()));
    }
}
