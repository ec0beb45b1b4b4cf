//! What is known of a process, or of one page.

use spillway_core::page::PAGE_BYTES;

use super::Daemon;
use crate::live::LiveMachine;
use crate::pages::{PAGES_PER_CHUNK, bit};
use crate::status::{Explanation, PageExplanation};

impl Daemon {
    pub(super) fn explain(&self, process: u32, address: Option<u64>) -> Option<Explanation> {
        let group = self.groups.iter().find(|group| group.processes.contains_key(&process))?;
        let machine = &group.driver.machine;
        let [local_pages, far_pages] = machine.pages.used_by(process);
        Some(Explanation {
            process,
            group: group.group.name.clone(),
            policy: group.group.policy.clone(),
            local_bytes: local_pages * PAGE_BYTES,
            far_bytes: far_pages * PAGE_BYTES,
            left_alone: group.left_alone.get(&process).cloned().unwrap_or_default(),
            paused: group.driver.paused(),
            page: address.map(|address| explain_page(machine, process, address)),
        })
    }
}

fn explain_page(machine: &LiveMachine, process: u32, address: u64) -> PageExplanation {
    let found = machine.pages.find(process, address);
    let huge = found.is_some_and(|page| machine.pages.span(page) > 1);
    let page = found.map(|page| if huge { page / PAGES_PER_CHUNK * PAGES_PER_CHUNK } else { page });
    let bits = page.map_or(0, |page| machine.pages.bits[page as usize]);
    let start = page
        .and_then(|page| machine.pages.place_of(page))
        .map_or(address & !(PAGE_BYTES - 1), |(_, start)| start);
    PageExplanation {
        address: start,
        tier: page.and_then(|page| machine.pages.tier_of(page)),
        huge,
        accessed: bits & bit::ACCESSED != 0,
        marked: bits & bit::MARKED != 0,
        refused: bits & bit::REFUSED != 0,
        moves: machine.history.of(process, start),
    }
}
