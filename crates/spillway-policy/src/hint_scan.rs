//! The scan that makes pages fault: a window of the address space at a time, round and round, as AutoNUMA
//! does it.

use crate::machine::{PageIndex, Tier, TieredMachine};

/// Where the scan stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct HintScan {
    cursor: PageIndex,
}

impl HintScan {
    /// Marks the touched pages of the next `bytes`, of one tier or of both, that are not marked yet. Returns
    /// whether this ended a pass.
    pub fn mark_next(&mut self, machine: &mut dyn TieredMachine, bytes: u64, tier: Option<Tier>) -> bool {
        self.mark_each(machine, bytes, tier, |_| {})
    }

    /// The same, and tells `visit` of each page that was scanned.
    pub fn mark_each(
        &mut self,
        machine: &mut dyn TieredMachine,
        bytes: u64,
        tier: Option<Tier>,
        mut visit: impl FnMut(PageIndex),
    ) -> bool {
        let pages = (bytes / machine.page_bytes()).max(1);
        let end = (u64::from(self.cursor) + pages).min(u64::from(machine.page_count())) as u32;
        let mut marks = Vec::new();
        let mut page = self.cursor;
        while page < end {
            let lies = machine.tier_of(page);
            if lies.is_some() && (tier.is_none() || lies == tier) {
                visit(page);
                if !machine.is_marked(page) {
                    marks.push(page);
                }
            }
            page += machine.span(page);
        }
        if !marks.is_empty() {
            machine.mark(&marks);
        }
        let over = page >= machine.page_count();
        self.cursor = if over { 0 } else { page };
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use spillway_core::page::PAGE_BYTES;

    #[test]
    fn windows_follow_each_other_and_start_over() {
        let mut machine = TestMachine::with_local(8, 8);
        let mut scan = HintScan::default();
        assert!(!scan.mark_next(&mut machine, 5 * PAGE_BYTES, None));
        assert_eq!(machine.marked, [true, true, true, true, true, false, false, false]);
        assert!(scan.mark_next(&mut machine, 5 * PAGE_BYTES, Some(Tier::Far)));
        assert!(!machine.marked[5], "the other tier");
        machine.marked.fill(false);
        scan.mark_next(&mut machine, PAGE_BYTES, None);
        assert!(machine.marked[0]);
    }
}
