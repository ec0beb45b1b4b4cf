//! What befalls a world, one thing after the other, by a seed.

use std::time::Instant;

use super::harm::{ASIDES, Dice, Harm, OTHERS};
use super::net::Network;
use super::work::Kind;
use super::world::{DONORS, Plan, World};

/// The variable by which a story is told again.
const SEED: &str = "SPILLWAY_SPACES_SEED";

/// The seed that the user gives, or one that nobody has had.
pub fn seed() -> u64 {
    let given = std::env::var(SEED).ok();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    given.map_or(now.as_secs(), |seed| seed.parse().unwrap_or_else(|_| panic!("{SEED}={seed} is no number")))
}

pub const CODED: Plan =
    Plan { query: "data=4&parity=2", parity: 2, is_by_tls: true, spills: false, work: Kind::Writer };
pub const COPIED: Plan = Plan { query: "copies=3", ..CODED };
pub const TWICE: Plan = Plan { query: "copies=2", parity: 1, is_by_tls: false, ..CODED };
/// With a last resort.
pub const CODED_SPILLING: Plan = Plan { spills: true, ..CODED };
pub const TWICE_SPILLING: Plan = Plan { spills: true, ..TWICE };

/// The harms of a seed in its order, each once, but for deaths.
pub fn shuffled(seed: u64) -> Vec<Harm> {
    let mut harms = OTHERS.to_vec();
    Dice::new(seed).shuffle(&mut harms);
    harms
}

/// What befalls worlds with a last resort alone: all others would lose pages.
pub const OF_SPILLING: [Harm; 2] = [Harm::Extinction, Harm::FullDisk];

/// A world suffers these one after the other, each with something beside it, and its program ends well.
pub fn tell(plan: Plan, harms: &[Harm], seed: u64) {
    eprintln!("{SEED}={seed} {plan:?}");
    Network::new(DONORS).within(|network| {
        let mut dice = Dice::new(seed ^ plan.query.len() as u64);
        let mut asides = ASIDES.to_vec();
        dice.shuffle(&mut asides);
        let mut world = World::start(network, plan);
        for (harm, aside) in harms.iter().zip(asides.iter().cycle()) {
            let begun = Instant::now();
            eprintln!("{harm:?} and {aside:?}");
            world.suffers(*harm, *aside, &mut dice);
            eprintln!("  {:.1} s", begun.elapsed().as_secs_f64());
        }
        world.ends_whole();
    });
}
