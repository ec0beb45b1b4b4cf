//! Why a client does not get an export, in words that it passes on to whoever started it.

use std::time::Duration;

use spillway_core::size::Size;
use thiserror::Error;

/// Why an export cannot be opened.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OpenError {
    /// The private export is not there (any more).
    #[error("this donor holds no memory of that run: it was restarted, or the run was away for too long")]
    Lost,
    /// There are as many exports as there may be.
    #[error("this donor has {0} exports, the most it can have: drop one")]
    TooMany(usize),
    /// The client has made as many exports as one may.
    #[error("{0} exports of this donor are yours, the most one client can have: end a run, or drop one")]
    TooManyOfClient(usize),
    /// What was asked for is not left.
    #[error(
        "{} of its {offered} are left to promise{}: ask for no more with ?size=SIZE, or wait until another \
         run ends{}",
        free,
        if asked.bytes() == 0 { String::new() } else { format!(", and {asked} were asked for") },
        describe_lost(*lost, *lost_for)
    )]
    NoRoom {
        /// How much was asked for; 0 for what there is.
        asked: Size,
        /// How much is left to promise.
        free: Size,
        /// How much the donor lends in all.
        offered: Size,
        /// Of what is promised, how much belongs to runs that are lost.
        lost: Size,
        /// How long until all of that is given back, unless they come back.
        lost_for: Duration,
    },
    /// More than one run may have.
    #[error(
        "{asked} were asked for, and this donor promises a run {most} at most: ask for less with ?size=SIZE"
    )]
    TooLarge {
        /// How much was asked for.
        asked: Size,
        /// How much a run may have.
        most: Size,
    },
    /// The client holds as much as one may, or nearly.
    #[error(
        "{left} of the {most} that one client may have of it are left to you{}: ask for less with \
         ?size=SIZE, or end another run",
        if asked.bytes() == 0 { String::new() } else { format!(", and {asked} were asked for") }
    )]
    ShareSpent {
        /// How much was asked for; 0 for what there is.
        asked: Size,
        /// How much the client may still have.
        left: Size,
        /// How much one may have in all.
        most: Size,
    },
    /// The donor is being drained.
    #[error("this donor is being drained: name another, or let it stay (spillway pool drain --stop)")]
    Draining,
    /// Its machine needs its memory itself.
    #[error("the donor's machine is short of memory: name another, or wait until it has {keep_free} free")]
    Short {
        /// What is kept free there.
        keep_free: Size,
    },
    /// The donor is about to end.
    #[error("this donor is ending: name another")]
    Ending,
    /// What should show that the connection is the run's does not.
    #[error("nothing shows that this connection belongs to its run")]
    Unproved,
    /// The client speaks another version of the private extension.
    #[error("client and donor are of different versions of Spillway: use the same")]
    OtherVersion,
}

fn describe_lost(lost: Size, lost_for: Duration) -> String {
    if lost.bytes() == 0 {
        return String::new();
    }
    format!(" ({lost} come free within {} s unless a run that was lost comes back)", lost_for.as_secs() + 1)
}
