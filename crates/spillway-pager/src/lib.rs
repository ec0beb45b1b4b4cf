//! The fault engine: pages a program's private anonymous memory between local memory and stores, from inside the
//! program, and supervises the programs of one run. Knows neither a store nor a policy by name, but for dcm's
//! replacement, the only one so far.
//!
//! In the program:
//! - [`attach`]: brings paging to life, at the start and in forked children;
//! - `threads`: fault handlers and the evictor; [`gate`] stops them for a fork;
//! - [`engine`]: the state they share, made of [`page_table`], [`frames`] and [`regions`];
//! - `fault`, `evict`, `charge`: a page comes in, a page goes out, a frame under the limit;
//! - `zeros`, `reserve`: what a page that was never written is made of;
//! - [`placement`]: from which memory node a frame comes;
//! - `background`, `density`: what is done ahead of need, under one budget;
//! - [`calls`], `address_space`, `fork`: what the program's threads ask for, and how it is done;
//! - [`message`]: one line to the user.
//!
//! Beside it:
//! - [`run_state`]: what all processes of a run share;
//! - [`rendezvous`], [`supervisor`]: how they get it, and give it back;
//! - [`settings`], [`report`], [`program`]: what goes in, what comes out, what can be run.

mod address_space;
mod ahead;
mod alone;
pub mod attach;
mod background;
mod block;
pub mod calls;
mod charge;
mod clean;
mod density;
mod descriptors;
pub mod engine;
mod evict;
mod fault;
mod fetch;
pub mod foreign;
mod fork;
pub mod frames;
pub mod gate;
pub mod holds;
pub mod inline;
mod leaving;
pub mod message;
mod native;
pub mod page_table;
pub mod placement;
pub mod program;
mod read_ahead;
pub mod readers;
pub mod regions;
pub mod rendezvous;
pub mod report;
mod reserve;
pub mod run_state;
pub mod settings;
pub mod supervisor;
mod threads;
pub mod undisturbed;
mod zeros;
