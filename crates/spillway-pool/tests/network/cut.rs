//! Cuts of the network that last: some of a run, or all of it, does not reach a donor that others reach.

use spillway_pool::placement::Dice;

/// Who of a run is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    Actor(usize),
    Supervisor,
}

/// Who is cut off from a donor, and which way.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
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
pub enum Reach {
    Both,
    /// It comes there, and no answer comes back.
    There,
    None,
}

impl Cut {
    /// By chance: of all, of this actor, of the supervisor, or of all but that.
    pub fn draw(actor: usize, dice: &mut Dice) -> Self {
        let sides = [
            Side::Whole,
            Side::Only(Who::Actor(actor)),
            Side::Only(Who::Supervisor),
            Side::AllBut(Who::Supervisor),
        ];
        let who = sides[dice.below(sides.len())];
        Self { who, is_one_way: dice.below(2) == 0 }
    }

    /// How who acts now reaches the donor.
    pub fn reach(self, acting: Who) -> Reach {
        let is_cut = match self.who {
            Side::Whole => true,
            Side::Only(who) => who == acting,
            Side::AllBut(who) => who != acting,
        };
        match (is_cut, self.is_one_way) {
            (false, _) => Reach::Both,
            (true, true) => Reach::There,
            (true, false) => Reach::None,
        }
    }
}
