//! Tapes: where a program's threads faulted, written down by one run for the next, after "3PO: Programmed
//! Far-Memory Prefetching for Oblivious Applications" (Branner-Augmon et al., 2022): programs that use their
//! memory in the same order each time need no guess.
//!
//! - [`run`]: what stands on a tape: neighbouring pages of a mapping, which goes by a name that is the same
//!   from run to run;
//! - [`codec`]: a tape as the bytes of a file;
//! - [`score`]: a tape as its players read it, in place and by position;
//! - [`window`]: how much of what comes next is worth a fetch.
//!
//! No I/O, no clock. Of these a fault asks [`score`] and [`window`], which allocate nothing.

pub mod codec;
pub mod run;
pub mod score;
pub mod window;

pub use codec::{MOST_RUNS, Tape, TapeError};
pub use run::{MOST_RUN_PAGES, Name, Run};
pub use score::Score;
pub use window::{Met, Window};
