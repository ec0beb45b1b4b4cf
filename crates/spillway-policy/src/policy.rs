//! The policy: which pages stay local. It sees events, acts on a [`TieredMachine`], and knows of nothing
//! else.

use std::ops::Range;

use crate::machine::{PageIndex, Tier, TieredMachine};

/// What a program may do with a far page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessModel {
    /// Read and write it in place, line by line; hot ones are migrated.
    Hybrid,
    /// Nothing: it faults, and must be brought in.
    PageFetch,
}

/// How memory is mapped at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mapping {
    /// In the smallest pages.
    #[default]
    Base,
    /// In huge pages, wherever the address space allows.
    Huge,
}

/// Why an access stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The page was marked. The mark is gone; the page is mapped again unless the policy marks it anew.
    Hint,
    /// The page is far and the model is [`AccessModel::PageFetch`]. The policy must bring it in.
    Missing,
    /// The page is local but was unmapped. It is mapped again.
    Minor,
}

/// An access that stopped, and at which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The page, or the first one of its huge mapping.
    pub page: PageIndex,
    /// Why the access stopped.
    pub kind: FaultKind,
    /// Whether it was a write.
    pub write: bool,
    /// The thread that stopped, by its number.
    pub task: u32,
}

/// Accesses that missed the caches within one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterWindow {
    /// Those that local memory served.
    pub local_accesses: u64,
    /// Those that far memory served.
    pub far_accesses: u64,
}

impl CounterWindow {
    /// Local accesses as a share of all; 1 when there were none.
    #[must_use]
    pub fn local_ratio(&self) -> f64 {
        match self.local_accesses + self.far_accesses {
            0 => 1.0,
            all => self.local_accesses as f64 / all as f64,
        }
    }
}

/// Decides which pages stay local.
pub trait Policy: Send {
    /// What the program may do with a far page.
    fn access_model(&self) -> AccessModel {
        AccessModel::Hybrid
    }

    /// How memory is mapped at first.
    fn mapping(&self) -> Mapping {
        Mapping::Base
    }

    /// Whether it marks few pages, each of which it means to promote at its next access. A mark may then cost
    /// as much as a promotion; where it marks to learn what is used, it may not.
    fn marks_to_promote(&self) -> bool {
        false
    }

    /// Before anything else: sets timers, asks for samples and counters.
    fn start(&mut self, _machine: &mut dyn TieredMachine) {}

    /// Where a page should lie that is about to be touched for the first time. Where the answer is local and
    /// no frame is free, it comes to lie far.
    fn place(&mut self, page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        if machine.free_pages(Tier::Local) >= machine.span(page) { Tier::Local } else { Tier::Far }
    }

    /// A page was touched for the first time and lies in `tier`.
    fn on_first_touch(&mut self, _page: PageIndex, _tier: Tier, _machine: &mut dyn TieredMachine) {}

    /// The program gave back pages that were mapped as one, or a single one: what they held is gone, and they
    /// lie nowhere until they are touched anew.
    fn on_release(&mut self, _pages: Range<PageIndex>, _machine: &mut dyn TieredMachine) {}

    /// An access stopped at a page.
    fn on_fault(&mut self, _fault: Fault, _machine: &mut dyn TieredMachine) {}

    /// A timer of this policy is due.
    fn on_timer(&mut self, _timer: u32, _machine: &mut dyn TieredMachine) {}

    /// A window of the access counters is over.
    fn on_counters(&mut self, _window: CounterWindow, _machine: &mut dyn TieredMachine) {}

    /// Why it has paused migrations, in words, if it has.
    fn paused(&self) -> Option<String> {
        None
    }

    /// What it goes by at present, in a few words, where that is not plain from its name and settings.
    fn remark(&self) -> Option<String> {
        None
    }
}
