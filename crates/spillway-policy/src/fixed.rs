//! Every page in one tier, and no migration: the bounds that every other policy is compared with (HotBox
//! 6.2).

use serde::{Deserialize, Serialize};

use crate::entry::Registered;
use crate::knowledge::Knowledge;
use crate::machine::{PageIndex, Tier, TieredMachine};
use crate::policy::{Mapping, Policy};

/// What a run may set; the defaults are the paper's, or chosen as the file's head says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where all pages lie.
    pub tier: Tier,
    /// How they are mapped.
    pub mapping: Mapping,
}

impl Default for Config {
    fn default() -> Self {
        Self { tier: Tier::Far, mapping: Mapping::Base }
    }
}

/// Places each page in the tier of its settings, and leaves it there.
pub struct Fixed(Config);

impl Registered for Fixed {
    type Config = Config;
    fn build(config: Config, _seed: u64, _knowledge: &Knowledge) -> Self {
        Self(config)
    }
}

impl Policy for Fixed {
    fn mapping(&self) -> Mapping {
        self.0.mapping
    }

    fn place(&mut self, _page: PageIndex, _machine: &mut dyn TieredMachine) -> Tier {
        self.0.tier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMachine;

    #[test]
    fn all_pages_lie_where_they_should() {
        for tier in [Tier::Local, Tier::Far] {
            let mut machine = TestMachine::new(4, 4);
            machine.touch(&mut Fixed(Config { tier, mapping: Mapping::Base }), 0..4);
            assert_eq!(machine.pages_in(tier).len(), 4);
        }
    }
}
