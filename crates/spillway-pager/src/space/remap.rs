//! mremap(2) moves a mapping, and the pages' words with it.

use std::ops::Range;
use std::time::Duration;

use spillway_core::page::PAGE_SIZE;
use spillway_core::page_word::{PageInfo, PageWord};

use crate::kernel::{Kernel, planted};
use crate::pages::address::{page_number_of, page_numbers, target_of};
use crate::process::engine::Remap;
use crate::process::worker::Worker;
use crate::space::gone::Gone;

impl<K: Kernel> Worker<K> {
    /// Takes the pages of a range out of management for the time of an mremap(2) that may move them: what
    /// each holds is kept aside. Registration goes first, as in [`Self::forget`]. Nothing stays locked, since
    /// as soon as the kernel has moved the mapping, another thread may map something else here.
    pub(crate) fn begin_remap(&mut self, range: Range<usize>) -> usize {
        let engine = self.engine;
        if self.lift_native(&range) {
            let (parts, words) = (Vec::new(), Vec::new());
            engine.remaps().push(Remap { range, parts, words, is_native: true });
            return 0;
        }
        self.manage_native(&range);
        let parts = engine.take_regions(&range);
        let mut words = Vec::new();
        for (part, _) in &parts {
            let _ = self.at.kernel.unregister(target_of(part.clone()));
            let (from, to) = page_numbers(part);
            for (page_number, word) in engine.table.range(from, to) {
                let info = self.lock_settled(page_number, word);
                if !info.is_absent() {
                    words.push((page_number, info));
                }
                self.unlock(page_number, word, info.forgotten());
            }
        }
        engine.remaps().push(Remap { range, parts, words, is_native: false });
        0
    }

    /// Locks a page that is not under write-back.
    pub(crate) fn lock_settled(&self, page_number: u64, word: PageWord<'_>) -> PageInfo {
        loop {
            let info = self.lock(word);
            if !info.is_under_write_back() {
                return info;
            }
            self.unlock(page_number, word, info);
            K::sleep(Duration::from_micros(50));
        }
    }

    /// Puts the pages where mremap(2) has put their mapping. `new` starts at 0 when it failed.
    pub(crate) fn end_remap(&mut self, old: Range<usize>, new: Range<usize>) -> usize {
        let remap = {
            let mut remaps = self.engine.remaps();
            let index = remaps.iter().position(|remap| remap.range == old);
            index.map(|index| remaps.swap_remove(index))
        };
        let Some(Remap { parts, words, is_native, .. }) = remap else { return 0 };
        if is_native {
            self.put_native(if new.start == 0 { old.clone() } else { new }, old.len());
            return 0;
        }
        let Some(&(_, on_fork)) = parts.first() else { return 0 };
        let (to, regions) =
            if new.start == 0 { (old.clone(), parts) } else { (new.clone(), vec![(new, on_fork)]) };
        for (range, on_fork) in regions {
            if let Err(error) = self.at.kernel.register(target_of(range.clone())) {
                return self.stop_before_wrong_data("register a mapping that has moved", error);
            }
            self.engine.change_regions().insert(range, on_fork);
        }
        let mut gone = Gone::default();
        for (page_number, info) in words {
            let address = (page_number as usize) * PAGE_SIZE - old.start + to.start;
            if address < to.end {
                self.put_word(page_number_of(address), info);
            } else {
                self.let_go(info, &mut gone);
            }
        }
        self.settle_gone_pages(gone);
        0
    }

    fn put_word(&mut self, page_number: u64, info: PageInfo) {
        // Its protection went with the registration.
        let protection = if planted!(K, "protection-moved") { info.protected_in() } else { None };
        let info = info.with_protection(protection);
        if let Some(slot) = info.slot().filter(|_| !planted!(K, "slot-names-old-page")) {
            self.at.run.slots().forget_page(slot);
        }
        match self.engine.table.find_or_make(page_number) {
            Ok(word) => {
                let there = self.lock(word);
                let next = PageInfo { generation: there.generation, ..info }.queued_anew();
                self.unlock(page_number, word, next);
                if info.is_local() {
                    self.enqueue(page_number, next);
                }
            }
            Err(error) => {
                self.stop_before_wrong_data("give memory for the page table", error);
            }
        }
    }
}
