//! A page goes out, so that another fits under the local limit. The way down: [`charge`] finds no room;
//! [`batch`] gives up what costs nothing ([the reserve](crate::fault::reserved), [native
//! memory](crate::space::native)) and takes the oldest pages; [`clean`] drops those that are as their slots
//! have them; [`unmap`] moves the others into frames; [`write_back`] takes what lay there longest and has it
//! written ([`store`]). The way back: frames are freed, and the limit's room with them.
//!
//! - [`blocks`]: elastic blocks leave together;
//! - [`victim`]: a page on its way;
//! - [`inactive`]: the queue through which all pass, where it has a length;
//! - [`by_reference`]: the way into frames that flushes the CPUs' translations once a batch;
//! - [`in_place`]: the short way, where no thread of the program runs;
//! - [`whole_ranges`]: what came as one huge page leaves as one;
//! - [`copies`]: whether a page that came keeps its copy, which spares the next write;
//! - [`full_stores`]: what happens when there is nowhere to write;
//! - [`slab_search`]: where in a store a page goes;
//! - [`scan_clock`]: when it is found out anew which pages are in use;
//! - [`written_share`]: whether it pays to do this ahead of need.
//!
//! Invariants:
//! - A page is unmapped, or write-protected, or its only user waits, before it is copied: no write is lost.
//! - A slot with two holders is never written. A slot is freed only when the page's word no longer names it.
//! - A page that cannot be stored stays local, or comes back.
//!
//! Touches words, mappings, frames, slots and stores, through a [`Worker`](crate::process::worker::Worker).

pub mod batch;
pub mod blocks;
pub mod by_reference;
pub mod charge;
pub mod clean;
pub mod copies;
pub mod full_stores;
pub mod in_place;
pub mod inactive;
pub(crate) mod slab_search;
pub mod store;
pub mod unmap;
pub(crate) mod victim;
pub mod whole_ranges;
pub mod write_back;
pub mod written_share;
