//! Far copies of pages that came to local memory: a page that was not written since leaves without being
//! copied. They are kept as long as what that saves is more than what writes to such pages cost, which are a
//! fault each; now and then one is kept all the same, to see whether that has changed.

use crate::machine::{PageIndex, Tier, TieredMachine};
use crate::spillway_worth::Average;

/// What is left of what was learned after each outcome.
const KEPT: f64 = 0.98;
/// While copies do not pay one page in so many has one.
const ONE_IN: u32 = 16;

/// Which local pages have a far copy, and what became of those that had.
#[derive(Default)]
pub(crate) struct Copies {
    has: Vec<bool>,
    /// Copies that came to an end, and those among them that did by a write.
    ended: f64,
    written: f64,
    /// What it takes to send a page away, copied and not, a base page, in nanoseconds.
    copied_ns: Average,
    dropped_ns: Average,
    came: u32,
}

impl Copies {
    /// Of so many pages, where the machine keeps copies.
    pub(crate) fn new(machine: &dyn TieredMachine) -> Self {
        let pages = if machine.keeps_far_copies() { machine.page_count() } else { 0 };
        Self { has: vec![false; pages as usize], ..Self::default() }
    }

    fn has(&self, page: PageIndex) -> bool {
        self.has.get(page as usize).is_some_and(|has| *has)
    }

    /// What it took to send pages away that are as this one is, a base page.
    pub(crate) fn out_ns(&self, page: PageIndex) -> Average {
        if self.has(page) && self.dropped_ns.0.is_some() { self.dropped_ns } else { self.copied_ns }
    }

    /// Whether copies save more than they cost, where a write to such a page costs `fault_ns` and moves cost
    /// the program so much of their time.
    fn pay(&self, fault_ns: f64, share: f64) -> bool {
        let (Some(copied_ns), Some(dropped_ns)) = (self.copied_ns.0, self.dropped_ns.0) else { return true };
        let written = (self.written + 0.5) / (self.ended + 1.0);
        (1.0 - written) * (copied_ns - dropped_ns) * share > written * fault_ns
    }

    /// A page came to local memory: its far copy is kept where that pays.
    pub(crate) fn note_came(&mut self, page: PageIndex, fault_ns: f64, machine: &mut dyn TieredMachine) {
        self.came = self.came.wrapping_add(1);
        let is_asked = self.came.is_multiple_of(ONE_IN) || self.pay(fault_ns, machine.background_share());
        let Some(has) = self.has.get_mut(page as usize) else { return };
        if is_asked && machine.span(page) == 1 && machine.tier_of(page) == Some(Tier::Local) {
            machine.keep_far_copy(page);
            *has = true;
        }
    }

    /// A page left, which took so long a base page.
    pub(crate) fn note_left(&mut self, page: PageIndex, took_ns: f64) {
        if self.has(page) {
            self.dropped_ns.note(took_ns);
            self.end(page, false);
        } else {
            self.copied_ns.note(took_ns);
        }
    }

    /// A local page was found write-protected, or not mapped.
    pub(crate) fn note_minor_fault(&mut self, page: PageIndex) {
        if self.has(page) {
            self.end(page, true);
        }
    }

    fn end(&mut self, page: PageIndex, is_written: bool) {
        self.has[page as usize] = false;
        self.ended = self.ended * KEPT + 1.0;
        self.written = self.written * KEPT + f64::from(u8::from(is_written));
    }

    /// A page is gone.
    pub(crate) fn forget(&mut self, page: PageIndex) {
        if let Some(has) = self.has.get_mut(page as usize) {
            *has = false;
        }
    }

    /// No page has a copy any more.
    pub(crate) fn forget_all(&mut self) {
        self.has.fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    const FAULT_NS: f64 = 1000.0;

    fn copies() -> (Copies, TestMachine) {
        let mut machine = TestMachine::with_local(1000, 1000);
        machine.keeps_copies = true;
        (Copies::new(&machine), machine)
    }

    /// Pages that come and then are written, or leave, copied in 4 us and dropped in 2; how many had a copy.
    fn kept(
        copies: &mut Copies,
        machine: &mut TestMachine,
        pages: std::ops::Range<u32>,
        written: bool,
    ) -> usize {
        let before = machine.copies.len();
        for page in pages {
            copies.note_came(page, FAULT_NS, machine);
            if written {
                copies.note_minor_fault(page);
            }
            let took_ns = if copies.has(page) { 2000.0 } else { 4000.0 };
            copies.note_left(page, took_ns);
        }
        machine.copies.len() - before
    }

    #[test]
    fn copies_are_kept_while_they_save_more_than_writes_cost() {
        let (mut copies, mut machine) = copies();
        copies.note_left(999, 4000.0);
        assert_eq!(kept(&mut copies, &mut machine, 0..200, false), 200);
        assert_eq!(copies.out_ns(5).0, Some(4000.0), "it left");
        let written = kept(&mut copies, &mut machine, 200..400, true);
        assert!(written < 120, "{written} copies of 200 pages that are written");
        let again = kept(&mut copies, &mut machine, 400..999, false);
        assert!(again > 300, "{again} copies of 599 pages that are not any more");
    }

    #[test]
    fn a_page_with_a_copy_leaves_at_the_price_of_those_that_had_one() {
        let (mut copies, mut machine) = copies();
        copies.note_left(999, 4000.0);
        copies.note_came(0, FAULT_NS, &mut machine);
        assert_eq!(copies.out_ns(0).0, Some(4000.0), "nobody knows better yet");
        copies.note_left(0, 2000.0);
        copies.note_came(1, FAULT_NS, &mut machine);
        assert_eq!((copies.out_ns(1).0, copies.out_ns(2).0), (Some(2000.0), Some(4000.0)));
        copies.note_minor_fault(1);
        assert_eq!(copies.out_ns(1).0, Some(4000.0), "it was written");
    }

    #[test]
    fn a_machine_that_keeps_no_copies_is_not_asked_for_any() {
        let mut machine = TestMachine::with_local(10, 10);
        let mut copies = Copies::new(&machine);
        copies.note_came(0, FAULT_NS, &mut machine);
        copies.note_minor_fault(0);
        copies.note_left(0, 4000.0);
        assert!(machine.copies.is_empty() && copies.out_ns(0).0 == Some(4000.0));
    }
}
