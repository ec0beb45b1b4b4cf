//! Pages that are coded in place of copied. What must happen in which order is the business of
//! [`spillway_pool::slabs`]; here is the I/O.
//!
//! | file | holds |
//! |---|---|
//! | `check` | what a page hashes to |
//! | `fetching` | what donors are asked for, by the places of parts |
//! | `reads` | pages from the donors that have them, or decoded from others |
//! | `hedged` | pages of which a donor is silent, asked of others too |
//! | `writes` | pages and their parity to the parts of a slab |
//! | `lane` | one thread's way to the pool |
//! | `keeper` | the supervisor's thread that has slabs emptied |
//! | `discards` | it makes them free, and gives their memory back to the donors |
//! | `emptying` | what one look has found, handed out to workers |
//! | `mover` | one worker that empties slabs |
//! | `news` | what it tells the user |

mod check;
mod discards;
mod emptying;
mod fetching;
mod hedged;
pub(super) mod keeper;
pub(super) mod lane;
mod mover;
mod news;
mod reads;
mod writes;
