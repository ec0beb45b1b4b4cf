//! What simulated processes do with tapes.

/// What a process does with a tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TapeConfig {
    /// Nothing: it has none.
    #[default]
    None,
    /// It records a new one.
    Recorded,
    /// It plays one of its walks.
    Fitting,
    /// It plays one of nothing that it does.
    Wrong,
}
