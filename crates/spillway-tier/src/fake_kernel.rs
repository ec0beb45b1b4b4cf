//! A kernel for tests: processes with pages on nodes, of which the test says what is accessed and what cannot
//! move.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use spillway_core::page::PAGE_SHIFT;
use spillway_policy::machine::Tier;
use spillway_sys::access_events::Access;
use spillway_sys::migration::PageResult;

use crate::mover::Mover;
use crate::source::{Facts, Seen, Source, SourceCounts, SourceError};

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakePage {
    /// The node that it lies on: 0 is fast, 1 is slow.
    pub node: u32,
    /// Whether its accessed bit is set.
    pub accessed: bool,
    /// Pages that are mapped as one.
    pub pages: u32,
}

/// What the test sees and sets.
#[derive(Debug, Default)]
pub struct FakeState {
    /// Pages by process and address.
    pub pages: BTreeMap<(u32, u64), FakePage>,
    /// Pages that cannot move, and why.
    pub refused: BTreeMap<(u32, u64), Errno>,
    /// Processes that are gone.
    pub gone: BTreeSet<u32>,
    /// Nodes that are offline.
    pub offline: BTreeSet<u32>,
    /// The source has disappeared.
    pub source_lost: bool,
    /// How many pages each call was to move.
    pub calls: Vec<usize>,
    /// Accesses that the source is told of.
    pub told: Vec<Access>,
    /// How many it has handed on.
    pub told_count: u64,
    /// One access in so many that was asked for as a sample, each time.
    pub periods: Vec<u32>,
    /// Processes that are scanned no longer.
    pub forgotten: Vec<u32>,
}

/// The kernel; its copies are the same kernel.
#[derive(Clone, Debug, Default)]
pub struct FakeKernel(Arc<Mutex<FakeState>>);

/// A frame says which node it is of: each has a block of so many frames.
pub const NODE_SHIFT: u32 = 32;

/// All addresses of a process.
pub const EVERYWHERE: &[Range<u64>] = std::slice::from_ref(&(0..u64::MAX));

/// The tier of a frame.
#[must_use]
pub fn tier_of_frame(frame: u64) -> Option<Tier> {
    match frame >> NODE_SHIFT {
        0 => Some(Tier::Local),
        1 => Some(Tier::Far),
        _ => None,
    }
}

impl FakeKernel {
    /// What it holds, for a test to see and to change.
    pub fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process accesses a page, which lies on `node` if it was not there yet.
    pub fn access(&self, process: u32, address: u64, node: u32) {
        let mut state = self.state();
        let page = FakePage { node, accessed: true, pages: 1 };
        state.pages.entry((process, address)).or_insert(page).accessed = true;
    }

    /// The node of a page.
    #[must_use]
    pub fn node_of(&self, process: u32, address: u64) -> Option<u32> {
        self.state().pages.get(&(process, address)).map(|page| page.node)
    }
}

impl Mover for FakeKernel {
    fn move_pages(&mut self, process: u32, addresses: &[u64], node: u32) -> Result<Vec<PageResult>, Errno> {
        let mut state = self.state();
        state.calls.push(addresses.len());
        if state.gone.contains(&process) {
            return Err(Errno::SRCH);
        }
        if state.offline.contains(&node) {
            return Err(Errno::NODEV);
        }
        let mut results = Vec::new();
        for &address in addresses {
            let refusal = state.refused.get(&(process, address)).copied();
            results.push(match (refusal, state.pages.get_mut(&(process, address))) {
                (Some(reason), _) => Err(reason),
                (None, None) => Err(Errno::NOENT),
                (None, Some(page)) => {
                    page.node = node;
                    Ok(node)
                }
            });
        }
        Ok(results)
    }
}

impl Source for FakeKernel {
    fn facts(&self) -> Facts {
        Facts { name: "fake", precision: "exact", cost: "none" }
    }

    fn scan(
        &mut self,
        process: u32,
        ranges: &[Range<u64>],
        visit: &mut dyn FnMut(Seen),
    ) -> Result<(), SourceError> {
        let mut state = self.state();
        if state.source_lost {
            return Err(SourceError::Lost { name: "fake", error: Errno::NODEV });
        }
        if state.gone.contains(&process) {
            return Err(SourceError::Gone(process));
        }
        for range in ranges {
            for (&(_, address), page) in state.pages.range_mut((process, range.start)..(process, range.end)) {
                let frame = u64::from(page.node) << NODE_SHIFT | address >> PAGE_SHIFT & 0xFFFF_FFFF;
                let accessed = std::mem::take(&mut page.accessed);
                visit(Seen { address, frame, pages: page.pages, accessed });
            }
        }
        Ok(())
    }

    fn take_accesses(&mut self) -> Vec<Access> {
        let mut state = self.state();
        let told = std::mem::take(&mut state.told);
        state.told_count += told.len() as u64;
        told
    }

    /// Half as often as was asked.
    fn sample_every(&mut self, period: u32) -> u32 {
        self.state().periods.push(period);
        period * 2
    }

    fn sampling_ns(&self) -> u64 {
        self.state().told_count * 1000
    }

    fn forget(&mut self, process: u32) {
        self.state().forgotten.push(process);
    }

    fn counts(&self) -> SourceCounts {
        SourceCounts { accesses: self.state().told_count, ..SourceCounts::default() }
    }
}
