//! The fault engine.
#![allow(missing_docs)]
mod address_space;
pub mod attach;
pub mod calls;
mod charge;
pub mod engine;
mod evict;
mod fault;
mod fork;
pub mod frames;
pub mod gate;
pub mod message;
pub mod page_table;
pub mod program;
pub mod regions;
pub mod rendezvous;
pub mod report;
pub mod run_state;
pub mod settings;
pub mod supervisor;
pub mod threads;
