//! Cuts of the network that last: some of a run, or all of it, does not reach a donor that others reach.

use super::*;

/// Who of a run is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    Actor(usize),
    Supervisor,
}

/// Who is cut off from a donor, and which way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    run: usize,
    who: Side,
    /// Requests come, and their answers do not.
    is_one_way: bool,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Whole,
    Only(Who),
    AllBut(Who),
}

/// What becomes of what is sent to a donor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    Both,
    /// It comes there, and no answer comes back.
    There,
    None,
}

impl World {
    pub(super) fn draw_cut(&mut self) -> Cut {
        let actor = Who::Actor(self.dice.below(WRITERS));
        let sides =
            [Side::Whole, Side::Only(actor), Side::Only(Who::Supervisor), Side::AllBut(Who::Supervisor)];
        let (run, who) = (self.dice.below(RUNS), sides[self.dice.below(sides.len())]);
        Cut { run, who, is_one_way: self.chance(2) }
    }

    /// How who acts now reaches a donor.
    pub(super) fn reach(&self, run: usize, donor: usize) -> Reach {
        let is_cut = |cut: &Cut| {
            let is_of_side = match cut.who {
                Side::Whole => true,
                Side::Only(who) => who == self.acting,
                Side::AllBut(who) => who != self.acting,
            };
            cut.run == run && is_of_side
        };
        match self.cuts[donor].filter(is_cut) {
            None => Reach::Both,
            Some(Cut { is_one_way: true, .. }) => Reach::There,
            Some(_) => Reach::None,
        }
    }
}
