//! Fault traces: what enters dcm's replacement in a live pager and what comes out of it, in the order in
//! which the lock of the queues serialises it, with notes of what led to it.
//!
//! - [`Traced`], [`TracedThread`]: the replacement as the pager has it, and what a thread has of its own of
//!   it; they write down each call if they are to
//! - [`TracedStreams`], [`TracedReads`], [`TracedBlocks`]: the same of blocks
//! - [`Event`], [`Encoder`], [`Decoder`]: the trace as bytes
//! - [`Replay`]: the same calls to the same code once more; it says where an answer differs
//!
//! Nothing here does I/O: where the bytes go is a [`Sink`]'s to know.

mod block_codec;
mod block_event;
mod bytes;
mod codec;
mod event;
mod replay;
mod replay_blocks;
mod runs;
mod traced;
mod traced_blocks;

pub use block_event::{BlockKind, BlockRule, ElasticCall, Purpose, StreamCall};
pub use codec::{Decoder, Encoder, Malformed};
pub use event::{Access, Block, Cause, Event, Fault, Foreseen, Header, Left, Served, Taped, ThreadCall};
pub use replay::{Difference, Replay};
pub use runs::Runs;
pub use traced::{Sink, Traced, TracedThread};
pub use traced_blocks::{TracedBlocks, TracedReads, TracedStreams};
