//! Pages: where they are, what they hold, and what lies ready for them.
//!
//! Invariants:
//! - Whoever holds the lock bit of a page's word, and nobody else, changes the word, the page's mapping and
//!   its frame.
//! - A free frame is empty: it has no memory.
//! - What a page in a slot must hold is known by its checksum and page number, kept beside the slot.
//!
//! Touches the pager's own memory alone. Knows no store, no policy and no thread.

pub mod address;
pub mod block_notes;
pub mod checksum;
pub mod error;
pub mod frames;
pub mod origins;
pub mod reserve;
pub mod stages;
mod stream_words;
pub mod table;
pub mod whole_ranges;
