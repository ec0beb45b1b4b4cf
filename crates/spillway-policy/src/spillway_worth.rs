//! What pages are worth to [`crate::spillway`], and how far that is believed.

use std::ops::Range;

use crate::machine::{PageIndex, TieredMachine};

/// What a new measurement counts for in an average.
const NEW_WEIGHT: f64 = 0.3;
/// Uses that are taken to have come as foretold, so that a few exchanges prove nothing.
const BELIEVED_USES: f64 = 4.0;
/// What is left after an interval of what earlier exchanges proved.
const PROOF_KEPT: f64 = 0.9;
/// Differences are believed no less and no more than this.
const TRUST: Range<f64> = 0.1..1.0;

/// A moving average that begins with its first value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average(pub Option<f64>);

impl Average {
    /// Takes a measurement in.
    pub(crate) fn note(&mut self, value: f64) {
        let before = self.0.unwrap_or(value);
        self.0 = Some(before + NEW_WEIGHT * (value - before));
    }
}

/// What exchanges were foretold to bring by the next scan, and what they brought, in pages found used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proof {
    foretold: f64,
    found: f64,
}

impl Proof {
    /// So many uses were foretold and found, more of what came than of what left.
    pub(crate) fn note(&mut self, foretold: f64, found: f64) {
        self.foretold = self.foretold * PROOF_KEPT + foretold;
        self.found = self.found * PROOF_KEPT + found;
    }

    /// How much of a difference that is foretold is believed.
    pub(crate) fn trust(self) -> f64 {
        let Self { foretold, found } = self;
        ((found + BELIEVED_USES) / (foretold.max(0.0) + BELIEVED_USES)).clamp(TRUST.start, TRUST.end)
    }
}

/// A page, and the chance that the next scan finds it used, by its base pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Foretold {
    pub uses: f64,
    pub page: PageIndex,
}

/// What pages of both tiers are worth at present, the most first among the far, the least among the local.
pub(crate) struct Worth {
    pub far: Vec<Foretold>,
    pub local: Vec<Foretold>,
    /// The first of `local` that has not been sent away.
    pub next: usize,
    /// What a use is worth until the difference is over, in nanoseconds.
    pub use_ns: f64,
}

impl Worth {
    /// The next local pages that make up `pages` together with `free` frames; fewer where there are no more.
    pub(crate) fn victims(&self, free: u32, pages: u32, machine: &dyn TieredMachine) -> &[Foretold] {
        let mut found = free;
        let rest = &self.local[self.next..];
        let enough = rest.iter().take_while(|one| {
            let lacks = found < pages;
            found += machine.span(one.page);
            lacks
        });
        &rest[..enough.count()]
    }
}
