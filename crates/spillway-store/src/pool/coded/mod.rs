//! Pages that are coded in place of copied. What must happen in which order is the business of
//! [`spillway_pool::slabs`]; here is the I/O.
//!
//! | file | holds |
//! |---|---|
//! | `check` | what a page hashes to |
//! | `reads` | pages from the donors that have them, or decoded from others |
//! | `writes` | pages and their parity to the parts of a slab |
//! | `lane` | one thread's way to the pool |
//! | `keeper` | the supervisor's thread that empties slabs |
//! | `discards` | it makes them free, and gives their memory back to the donors |
//! | `news` | what it tells the user |

mod check;
mod discards;
pub(super) mod keeper;
pub(super) mod lane;
mod news;
mod reads;
mod writes;
