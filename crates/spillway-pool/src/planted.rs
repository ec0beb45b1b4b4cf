//! The mistake that is planted in a part of the core, for the simulation to find.

/// Which mistake, by name; "" where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Planted(pub(crate) &'static str);

impl Planted {
    /// Whether it is this one. Only tests build any.
    pub(crate) fn is(self, bug: &str) -> bool {
        cfg!(feature = "planted-bugs") && self.0 == bug
    }
}
