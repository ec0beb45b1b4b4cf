//! The program's address space, as far as it is managed, and what the program does to it.
//!
//! - [`regions`]: managed ranges; [`native`]: ranges left to the kernel while there is room;
//! - [`mappings`], [`discard`], [`remap`], [`unmanage`]: the program maps, drops, moves, locks;
//! - [`hand_over`]: it does what inline mode cannot serve;
//! - [`gone`]: what pages held that are no more;
//! - [`fork`]: a second process with the same pages;
//! - [`holds`]: ranges that stay mapped while the kernel works with them; [`outline`]: managed ranges, for
//!   who must not wait.
//!
//! Invariants:
//! - A page is native, managed, or neither, never two of them; both sets are locked (native first) when it
//!   changes.
//! - A page whose word is not absent lies in registered memory, but for the moment in which its range is
//!   given up: the registration goes first; and for that in which its faults get another reader, while it is
//!   mapped, or answers with SIGBUS.
//! - The far slots of a page are held once by each process that has the page.
//!
//! A fork's way down: [`fork`] closes the gate, gives up the reserve and native memory, makes room for the
//! child's copy and shares its slots; the kernel forks; the child registers everything before it touches
//! anything. The way back: both open their gates.

pub mod discard;
pub mod fork;
pub(crate) mod gone;
pub mod hand_over;
pub mod holds;
pub mod mappings;
pub mod native;
pub mod outline;
pub mod regions;
pub mod remap;
pub mod unmanage;
