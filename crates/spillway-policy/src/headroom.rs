//! TPP's headroom, which Nomad has from it: frames of local memory that allocation may not take and demotion
//! keeps free, with the two lists over local pages that demotion takes from.

use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::two_list::TwoList;

/// How much of local memory stays free.
#[derive(Clone, Copy)]
pub(crate) struct Watermarks {
    /// Share that allocation leaves free.
    pub allocation_share: f64,
    /// Share that demotion keeps free.
    pub demotion_share: f64,
    /// The timer on which the policy calls [`Headroom::demote`].
    pub demote_timer: u32,
}

impl Watermarks {
    fn frames(machine: &dyn TieredMachine, share: f64) -> u32 {
        (f64::from(machine.capacity_pages(Tier::Local)) * share).ceil() as u32
    }
}

/// The two lists over local pages, a bit for each far page that says whether it is active, and the daemon
/// that demotes.
pub(crate) struct Headroom {
    pub lists: TwoList,
    pub far_active: Vec<bool>,
    demoting: bool,
}

impl Headroom {
    /// For so many pages, with this share of the lists kept inactive.
    pub(crate) fn new(pages: u32, inactive_share: f64) -> Self {
        let lists = TwoList::new(pages, inactive_share);
        Self { lists, far_active: vec![false; pages as usize], demoting: false }
    }

    /// Where a new page goes.
    pub(crate) fn place(&mut self, page: PageIndex, of: Watermarks, machine: &mut dyn TieredMachine) -> Tier {
        let spare = Watermarks::frames(machine, of.allocation_share);
        self.wake_demotion(of, machine);
        if machine.free_pages(Tier::Local) >= machine.span(page) + spare { Tier::Local } else { Tier::Far }
    }

    /// Sets the timer for demotion where less is free than should be.
    pub(crate) fn wake_demotion(&mut self, of: Watermarks, machine: &mut dyn TieredMachine) {
        let keep = Watermarks::frames(machine, of.demotion_share);
        if !self.demoting && machine.free_pages(Tier::Local) < keep {
            self.demoting = true;
            machine.set_timer(of.demote_timer, 0);
        }
    }

    /// Demotes, as its timer has come.
    pub(crate) fn demote(&mut self, of: Watermarks, machine: &mut dyn TieredMachine) {
        self.demoting = false;
        let keep = Watermarks::frames(machine, of.demotion_share);
        // Somewhat more than is missing, so that the daemon does not run for every page.
        let want = (keep + keep / 2).saturating_sub(machine.free_pages(Tier::Local));
        let cold = self.lists.take_cold(machine, want);
        machine.migrate(&cold, Tier::Far, Call::Kernel);
        for page in cold {
            self.far_active[page as usize] = false;
        }
    }

    /// Forgets a page that is given back.
    pub(crate) fn release(&mut self, page: PageIndex) {
        self.lists.remove(page);
        self.far_active[page as usize] = false;
    }
}
