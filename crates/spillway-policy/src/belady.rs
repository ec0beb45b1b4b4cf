//! Belady's optimal replacement for whole pages: the one that is needed again last goes (HotBox 3.1,
//! reference 12).
//!
//! Offline: it is told every page that the program will access, in order, works out all evictions before the
//! start, and plays them back. So it is only right where the order does not depend on the policy.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::{GIVEN_BACK, Knowledge};
use crate::machine::{Call, PageIndex, Tier, TieredMachine};
use crate::policy::{AccessModel, Fault, Policy};

/// It has no settings.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

/// What the program will access, and whom to evict in which order.
pub struct Belady {
    knowledge: Knowledge,
    victims: VecDeque<PageIndex>,
}

/// Whom to evict, in order, to serve `future` with `capacity` frames.
#[must_use]
pub fn plan(future: &[PageIndex], page_count: u32, capacity: u32) -> VecDeque<PageIndex> {
    const NEVER: u32 = u32::MAX;
    let mut next_use = vec![NEVER; future.len()];
    let mut seen_at = vec![NEVER; page_count as usize];
    for (at, &page) in future.iter().enumerate().rev() {
        let is_given_back = page & GIVEN_BACK != 0;
        let here = if is_given_back { NEVER } else { at as u32 };
        next_use[at] = std::mem::replace(&mut seen_at[(page & !GIVEN_BACK) as usize], here);
    }
    // Resident pages by when they are needed next. `due` is what each one is filed under.
    let mut resident = BTreeSet::new();
    let mut due: Vec<Option<u32>> = vec![None; page_count as usize];
    let mut victims = VecDeque::new();
    for (&page, &next) in future.iter().zip(&next_use) {
        if page & GIVEN_BACK != 0 {
            let page = page & !GIVEN_BACK;
            if let Some(filed) = due[page as usize].take() {
                resident.remove(&(filed, page));
            }
            continue;
        }
        match due[page as usize] {
            Some(filed) => drop(resident.remove(&(filed, page))),
            None if resident.len() >= capacity as usize => {
                if let Some((_, victim)) = resident.pop_last() {
                    due[victim as usize] = None;
                    victims.push_back(victim);
                }
            }
            None => {}
        }
        resident.insert((next, page));
        due[page as usize] = Some(next);
    }
    victims
}

impl Belady {
    fn make_room(&mut self, machine: &mut dyn TieredMachine) {
        if machine.free_pages(Tier::Local) > 0 {
            return;
        }
        if let Some(victim) = self.victims.pop_front() {
            machine.migrate(&[victim], Tier::Far, Call::Kernel);
        }
    }
}

impl Registered for Belady {
    type Config = Config;
    fn build(_config: Config, _seed: u64, knowledge: &Knowledge) -> Self {
        Self { knowledge: knowledge.clone(), victims: VecDeque::new() }
    }
}

impl Policy for Belady {
    fn access_model(&self) -> AccessModel {
        AccessModel::PageFetch
    }

    fn start(&mut self, machine: &mut dyn TieredMachine) {
        let capacity = machine.capacity_pages(Tier::Local);
        self.victims = plan(&self.knowledge.future, machine.page_count(), capacity);
        self.knowledge = Knowledge::default();
    }

    fn place(&mut self, _page: PageIndex, machine: &mut dyn TieredMachine) -> Tier {
        self.make_room(machine);
        Tier::Local
    }

    fn on_fault(&mut self, fault: Fault, machine: &mut dyn TieredMachine) {
        self.make_room(machine);
        machine.migrate(&[fault.page], Tier::Local, Call::Kernel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;
    use std::sync::Arc;

    #[test]
    fn the_page_that_is_needed_last_goes() {
        assert_eq!(plan(&[0, 1, 2, 0, 1, 3, 0, 2], 4, 3), [1]);
        assert_eq!(plan(&[0, 1, 2, 0, 1, 2], 3, 2), [1, 0]);
        assert_eq!(plan(&[0, 1, GIVEN_BACK | 1, 2, 0, 1, 2], 3, 2), [0], "1 made room for 2");
    }

    #[test]
    fn the_plan_is_played_back() {
        let future = vec![0, 1, 2, 0, 1, 2];
        let knowledge = Knowledge { future: Arc::new(future), ..Knowledge::default() };
        let mut policy = Belady::build(Config {}, 1, &knowledge);
        let mut machine = TestMachine::new(3, 2);
        policy.start(&mut machine);
        machine.touch(&mut policy, 0..3);
        let faults = [0, 1, 2].map(|page| machine.run(&mut policy, page));
        assert_eq!(faults, [false, true, false]);
    }
}
