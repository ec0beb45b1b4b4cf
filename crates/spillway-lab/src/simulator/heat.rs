//! What accesses would cost if their pages were far, page by page and epoch by epoch, noted while everything
//! is local.

use spillway_policy::machine::PageIndex;

use super::link::PS_PER_NS;

/// What happened to a page, in the order in which it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Happening {
    /// It was touched for the first time in this epoch, or existed when measuring began.
    Born(u32),
    /// In this epoch its accesses would have taken so many nanoseconds longer from far memory.
    Used(u32, f32),
    /// The program gave it back in this epoch.
    Gone(u32),
}

/// Notes an access to the page.
pub struct Heat {
    epoch_ps: u64,
    /// When measuring began; nothing is noted before.
    start_ps: Option<u64>,
    epoch: u32,
    /// What this epoch's accesses of each page would have taken longer, and which pages have any.
    now_ps: Vec<u64>,
    used: Vec<PageIndex>,
    happenings: Vec<(PageIndex, Happening)>,
}

impl Heat {
    /// Nothing yet, of `pages` pages; epochs take `epoch_ps` picoseconds.
    #[must_use]
    pub fn new(pages: u32, epoch_ps: u64) -> Self {
        Self {
            epoch_ps: epoch_ps.max(1),
            start_ps: None,
            epoch: 0,
            now_ps: vec![0; pages as usize],
            used: Vec::new(),
            happenings: Vec::new(),
        }
    }

    /// Measuring begins, with these pages there.
    pub fn begin(&mut self, start_ps: u64, pages: impl Iterator<Item = PageIndex>) {
        self.start_ps = Some(start_ps);
        self.happenings.extend(pages.map(|page| (page, Happening::Born(0))));
    }

    /// Comes to the epoch of a time, for a core may be a little behind another. Whether measuring has begun.
    #[inline]
    fn come_to(&mut self, now_ps: u64) -> bool {
        let Some(start_ps) = self.start_ps else { return false };
        let epoch = (now_ps.saturating_sub(start_ps) / self.epoch_ps) as u32;
        if epoch > self.epoch {
            self.end_epoch();
            self.epoch = epoch;
        }
        true
    }

    fn end_epoch(&mut self) {
        for page in std::mem::take(&mut self.used) {
            self.note_use(page);
        }
    }

    fn note_use(&mut self, page: PageIndex) {
        let longer_ps = std::mem::take(&mut self.now_ps[page as usize]);
        if longer_ps > 0 {
            let longer_ns = longer_ps as f64 / PS_PER_NS as f64;
            self.happenings.push((page, Happening::Used(self.epoch, longer_ns as f32)));
        }
    }

    /// An access to a page would have taken so much longer from far memory.
    #[inline]
    pub fn used(&mut self, page: PageIndex, now_ps: u64, longer_ps: u64) {
        if !self.come_to(now_ps) {
            return;
        }
        let sum_ps = &mut self.now_ps[page as usize];
        if *sum_ps == 0 {
            self.used.push(page);
        }
        *sum_ps += longer_ps;
    }

    /// A page was touched for the first time.
    pub fn born(&mut self, page: PageIndex, now_ps: u64) {
        if self.come_to(now_ps) {
            self.happenings.push((page, Happening::Born(self.epoch)));
        }
    }

    /// A page was given back.
    pub fn gone(&mut self, page: PageIndex, now_ps: u64) {
        if self.come_to(now_ps) {
            self.note_use(page);
            self.happenings.push((page, Happening::Gone(self.epoch)));
        }
    }

    /// What happened to each page, by page and in order, and how many epochs there were.
    #[must_use]
    pub fn into_happenings(mut self) -> (Vec<(PageIndex, Happening)>, u32) {
        self.end_epoch();
        self.happenings.sort_by_key(|&(page, _)| page);
        (self.happenings, self.epoch + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_s_uses_are_summed_up_epoch_by_epoch_from_the_start_on() {
        let mut heat = Heat::new(4, 1000);
        heat.used(1, 10, 5000);
        heat.begin(100, [0, 1].into_iter());
        heat.used(1, 150, 5000);
        heat.used(1, 1099, 2000);
        heat.born(2, 1200);
        heat.used(2, 1200, 1000);
        heat.used(1, 1050, 3000);
        heat.gone(2, 1300);
        heat.born(2, 1310);
        heat.used(2, 1320, 4000);
        heat.used(0, 5100, 1000);
        use Happening::{Born, Gone, Used};
        let expected = vec![
            (0, Born(0)),
            (0, Used(5, 1.0)),
            (1, Born(0)),
            (1, Used(0, 7.0)),
            (1, Used(1, 3.0)),
            (2, Born(1)),
            (2, Used(1, 1.0)),
            (2, Gone(1)),
            (2, Born(1)),
            (2, Used(1, 4.0)),
        ];
        assert_eq!(heat.into_happenings(), (expected, 6));
    }
}
