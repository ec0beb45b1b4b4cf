//! Coded pages: in place of copies, each page has its part in a code from which any `parity` parts may go
//! missing.
//!
//! A *slab* is an extent on each of `data + parity` donors in different failure domains, its *parts*. The
//! pages at the same place of each part are a *row*: `data` pages, each whole in one part, and as many as
//! `parity` that are computed of them. So one page is read from one donor, or decoded from any `data` others
//! of its row.
//!
//! Slabs are filled row by row, and no row is ever written twice: a page that is written anew goes to another
//! row, and what it had is *dead*. A slab is written again only as a new *generation*, once nothing in it
//! lives and nothing can come late. What lives in a slab that is hurt, is partly on a donor that leaves, or
//! is mostly dead, is moved to other slabs by the same steps as it was written.
//!
//! Invariants, each kept by the step that could break it:
//!
//! 1. A slot's word says where its page is: slab, generation, part and row. It names a row only once every
//!    part of that row that the slab has was acknowledged ([`append`]).
//! 2. The contents of a row do not change within a generation: rows are given out by one compare-and-swap,
//!    each to one write ([`crate::table::Table::claim_rows`]).
//! 3. A slab ends only when it was fenced, and a look over all slots that began after that found nothing in
//!    it. A write whose slab was fenced before its last look has not counted ([`append`]).
//! 4. A place is another's only once no write and no discard of it can come any more ([`reclaim`]).
//! 5. What was read counts only if the slot's word is the same after it ([`locate`]). By 3 the slab was
//!    there all the time then.
//! 6. Donors discard only what 3 has ended ([`discard`]). By 5 nobody takes zeros of it for a page.
//!
//! | file | holds |
//! |---|---|
//! | [`words`] | what one word says |
//! | [`room`] | how much room slabs need, and how much they give |
//! | [`slab`] | the slabs in the table |
//! | [`spilled`] | slabs of which parts are in the last resort |
//! | [`make`] | a new slab, step by step |
//! | [`append`] | one write, or one move, step by step |
//! | [`locate`] | how to get at a page |
//! | [`census`] | what lives where, and which slabs to empty |
//! | [`discard`] | memory that goes back to the donors, and when it may |
//! | [`reclaim`] | slabs that are used again |
//! | [`hope`] | how long room is waited for |

pub mod append;
pub mod census;
pub mod discard;
pub mod hope;
pub mod locate;
pub mod make;
pub mod reclaim;
pub mod room;
pub mod slab;
#[cfg(all(test, loom))]
mod slabs_loom;
pub mod spilled;
pub mod words;
