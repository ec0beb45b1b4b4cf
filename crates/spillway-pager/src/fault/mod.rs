//! A page comes in. The way down: [`serve`] locks the page's word and decides by its state; [`zeros`] or
//! [`fetch`] charges the local limit ([`crate::evict::charge`]) and brings the page and its block; [`map`]
//! maps what is at hand. The way back: the word is unlocked and the page enters its queue.
//!
//! - [`access`]: what raised a fault;
//! - [`block_size`], [`block`], [`elastic`]: how many neighbours come along;
//! - [`followed`], [`foreseen`]: pages elsewhere that come along, where a thread steps through memory;
//! - [`player`], [`taped`]: pages elsewhere that come along, where a tape has them;
//! - [`overlap`]: making room while a page is on its way;
//! - [`read_again`]: what failed or came wrong is read once more;
//! - [`read_ahead`]: what the evictor thread brings before it is asked for;
//! - [`huge_streams`]: streams by ranges of 2 MiB;
//! - [`reserved`]: zeros that lie ready;
//! - [`sites`]: which instructions wait.
//!
//! Invariants:
//! - A thread that holds a page's word waits for no other word, and for no room once it holds more than one
//!   ([`overlap`] says what of that holds beside a read).
//! - A fetched page is compared with its checksum and its page number before anybody sees it.
//! - A fault that cannot be served ends in SIGBUS and one line that says why; never in zeros, never in an
//!   older page.
//!
//! Touches words, mappings, frames, slots and stores, through a [`Worker`](crate::process::worker::Worker).

pub(crate) mod access;
pub mod block;
pub mod block_size;
pub mod elastic;
pub mod fetch;
pub mod followed;
pub mod foreseen;
pub mod huge_streams;
pub mod map;
pub mod overlap;
pub(crate) mod player;
mod read_again;
pub mod read_ahead;
pub mod reserved;
pub mod serve;
mod sites;
pub mod taped;
pub mod zeros;
