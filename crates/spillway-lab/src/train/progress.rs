//! How far a training is.

/// How far a training is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many of so many runs are there.
    Runs(usize, usize),
    /// So many of so many episodes are done.
    Episodes(u64, u64),
}
