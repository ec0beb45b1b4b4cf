//! The state of paging in one process: what its pager threads work on, and with.
//!
//! - [`engine`]: memory that a forked child inherits as it is;
//! - [`attachment`]: what a child must make anew, descriptors and its place in the run among it;
//! - [`own_queues`]: what each pager thread has of its own of dcm's queues;
//! - [`worker`]: what one pager thread works with, its own ways to the stores included;
//! - [`deck`]: a tape that is recorded or played;
//! - [`queues`]: how such a thread puts pages into dcm's queues;
//! - [`in_flight`]: what it notes while a read is under way;
//! - [`unanswered`]: what servers were told to change and have not said to be done;
//! - [`gate`]: stops all of it for the moment of a fork.
//!
//! This is the vocabulary of all that comes above: here is what there is, not what is done with it.

pub mod attachment;
pub mod deck;
pub mod engine;
pub mod gate;
pub(crate) mod in_flight;
pub(crate) mod own_queues;
pub(crate) mod queues;
pub(crate) mod unanswered;
pub mod worker;
