//! The pool's core: on which donors a page's copies lie, which of them may be read, what a write must do
//! before it counts, and how lost copies are made anew. It does no I/O and has no clock: what happens comes
//! in as events, what is to be done goes out as steps. So the same code runs in a run's processes and in the
//! simulations that kill donors and processes at any step (`simulation.rs`, `coded.rs` and `health.rs` in
//! `tests`).
//!
//! The pool's slots are divided into *extents* of [`EXTENT_SLOTS`]. The copies of an extent lie on different
//! donors, each at a *place*: a donor, which life of that donor, and which extent of its memory.
//!
//! All processes of a run, and its supervisor, see one [`table`]: words in shared memory, no locks. Who is
//! killed at any moment blocks nobody.
//!
//! | file | holds |
//! |---|---|
//! | [`words`] | what one word of the table says |
//! | [`table`] | the table: its extents, and the steps from one word to the next; its invariants |
//! | [`donors`] | the donors in it: which memory is whose, joining and leaving |
//! | [`new_donor`] | a donor before it is in the table |
//! | [`placement`] | which donors: copysets over failure domains, power of two choices |
//! | [`draw`] | which donors of a large site a run begins with |
//! | [`health`] | what a donor's answers and silence say of it |
//! | [`write`] | one write, step by step |
//! | `bars` | slots into which a write may still come late |
//! | [`read`] | which copy to read |
//! | [`hedge`] | reads that are asked for by another way too, since a donor is silent |
//! | [`around`] | coded pages past donors that are slow |
//! | [`rebuild`] | one copy made anew, step by step, beside writes |
//! | [`survey`] | what is missing, and what to rebuild first |
//! | [`round`] | what one look has found, handed out to several workers |
//! | [`gather`] | pages of whole rows, for who moves them: each part is read once |
//! | [`pace`] | how fast they may go |
//! | [`code`] | parity of pages, and pages of parity |
//! | [`spill`] | the last resort: when pages go to a file of this machine, and when they come back |
//! | [`slabs`] | pages that are coded in place of copied |

pub mod around;
mod bars;
pub mod bits;
pub mod code;
#[cfg(all(test, loom))]
mod copies_loom;
pub mod donors;
pub mod draw;
pub mod gather;
pub mod health;
pub mod hedge;
pub mod new_donor;
pub mod pace;
pub mod placement;
mod planted;
pub mod read;
pub mod rebuild;
pub mod round;
mod shared;
pub mod slabs;
pub mod spill;
pub mod survey;
pub mod table;
pub mod words;
pub mod write;

/// Slots in an extent: 2 MiB, as in a slab of the pager's, so neighbouring pages lie on the same donors.
pub const EXTENT_SLOTS: u32 = 512;
/// Bytes of an extent.
pub const EXTENT_BYTES: u64 = EXTENT_SLOTS as u64 * spillway_core::page::PAGE_SIZE as u64;
/// Most copies that a table can note of an extent: the wanted ones, and one that is being made beside them.
pub const MAX_COPIES: usize = 4;
/// Most copies that a user can ask for.
pub const MOST_WANTED_COPIES: usize = 3;
/// Most donors of a pool, in all the time that a run lasts.
pub const MAX_DONORS: usize = 32;
